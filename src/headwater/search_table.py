"""`SearchTable`: a table of splits, each with its own full-text index, by its path. A thin face over `spark/search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.maintained_search_table import MaintainedSearchTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.write import Written

    Timestamp = str | datetime | date | int


class SearchTable(MaintainedSearchTable):
    """A search table at a path. Make one with `SearchTable.create`, get one with `SearchTable.forPath`.

    Example:
        >>> logs = SearchTable.create(spark, "/data/logs", df.schema, types={"message": "text"})  # doctest: +SKIP
        >>> logs.write(df).version  # doctest: +SKIP
        1
        >>> logs.count("error AND host:web-1")  # doctest: +SKIP
        42
    """

    # --- tables -----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        sparkSession: SparkSession,
        path: str | PathLike[str],
        schema: Any,
        *,
        partition_by: str | Sequence[str] = (),
        types: Mapping[str, str | Sequence[str]] | None = None,
        tokenizers: Mapping[str, str] | None = None,
        fast: Iterable[str] = (),
        not_fast: Iterable[str] = (),
        stored_only: Iterable[str] = (),
        indexed_only: Iterable[str] = (),
        name: str | None = None,
        description: str | None = None,
        options: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> SearchTable:
        """Create a table without rows: version 0 of its log.

        Args:
            sparkSession: the session that works with it.
            path: where it shall be: a path or URI.
            schema: the columns: a DataFrame that has them, a schema of Spark's, or DDL text (`id BIGINT, text STRING`).
                It never changes.
            partition_by: columns by whose values splits are kept apart.
            types: how columns of strings are indexed: `string` (the default: as one exact value), `text` (word by
                word), `json`, `ip`; or two of them: `{"message": ("text", "string")}`.
            tokenizers: of text fields: `default`, `raw`, `whitespace`, `en_stem`.
            fast: fields that get a columnar copy in the index. All but text and json have one by default.
            not_fast: fields that get none.
            stored_only: columns that cannot be searched.
            indexed_only: columns that can be searched, and not be read.
            name: of the table.
            description: of the table.
            options: the same choices under the names that users of IndexTables know (`spark.indextables.indexing.*`),
                and options of the log, which the table keeps.
            if_not_exists: take the table that is there already, if there is one.
            storage_options: options of the object store.

        Raises:
            TableAlreadyExistsError: there is a table at the path.
            SearchConfigError: the choices for the fields contradict each other, or the types of their columns.

        Example:
            >>> SearchTable.create(
            ...     spark, "/data/logs", "ts TIMESTAMP, host STRING, message STRING", types={"message": "text"}
            ... )  # doctest: +SKIP
        """
        from headwater.spark.search.creation import FieldChoices, create_table

        fields = FieldChoices(
            types=types,
            tokenizers=tokenizers,
            fast=tuple(fast),
            not_fast=tuple(not_fast),
            stored_only=tuple(stored_only),
            indexed_only=tuple(indexed_only),
        )
        create_table(
            sparkSession,
            path,
            schema,
            fields,
            partition_by=_names(partition_by) or (),
            name=name,
            description=description,
            options=options,
            if_not_exists=if_not_exists,
            storage_options=storage_options,
        )
        return cls(sparkSession, str(path), storage_options)

    @classmethod
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: str | PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> SearchTable:
        """The table at a path or URI.

        Raises:
            TableNotFoundError: there is no search table at the path.
        """
        table = cls(sparkSession, str(path), storage_options)
        table._open()
        return table

    for_path = forPath

    @classmethod
    def isSearchTable(
        cls, sparkSession: SparkSession, path: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None
    ) -> bool:
        """Whether there is a search table at the path."""
        from headwater.errors import TableNotFoundError

        try:
            cls.forPath(sparkSession, path, storage_options=storage_options)
        except TableNotFoundError:
            return False
        return True

    is_search_table = isSearchTable

    # --- rows -------------------------------------------------------------------------------------------

    def write(
        self,
        df: DataFrame,
        mode: str = "append",
        *,
        max_records_per_split: int | None = None,
        user_metadata: str | None = None,
    ) -> Written:
        """Index the rows of a DataFrame: one split for each task (and partition), one commit.

        Args:
            df: the rows. Columns are matched by name; those that it lacks become null.
            mode: `append`, or `overwrite` all rows of the table.
            max_records_per_split: a split gets no more rows than this.
            user_metadata: a note for the history.

        Returns:
            The version that was made, and its metrics.

        Raises:
            SchemaMismatchError: columns or types do not fit the table's, which cannot change.
            ConstraintViolationError: a row breaks a rule of the table.
        """
        from headwater.spark.search.write import write

        return write(
            df, self._open(), mode=mode, max_records_per_split=max_records_per_split, user_metadata=user_metadata
        )

    def toDF(self, version: int | None = None, timestamp: Timestamp | None = None) -> DataFrame:
        """All rows of a version; the newest, at the time of this call, by default.

        Filters, projections, limits and aggregates of a query on it reach the index and the log: `=`, `IN`, ranges,
        `IS NULL` and what AND, OR and NOT make of them.

        Args:
            version: a version to travel to.
            timestamp: or a point in time; without a zone it is in the session's.
        """
        from headwater.spark.search.scan import table_frame

        return table_frame(self._open(version, timestamp))

    to_df = toDF

    # --- search -----------------------------------------------------------------------------------------

    def search(
        self,
        query: str | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - what it is
        limit: int | None = None,
        with_score: bool = False,
        snippets: str | Sequence[str] = (),
        default_fields: Sequence[str] | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> DataFrame:
        """The rows that a query finds: all of them, unless there is a limit.

        Args:
            query: in the query language: `error AND host:web-1`, `"connection refused"~2`, `took:[100 TO *]`. None for
                all rows.
            columns: only these columns, in this order.
            filter: and only the rows that match this condition in SQL.
            limit: no more than so many rows; with `with_score`, the best ones.
            with_score: add the column `_score` (BM25, comparable across all splits), and give the best rows first.
            snippets: columns of text of which the best fragment is shown, with matches between <b> and </b>, in a
                column `<name>_snippet`.
            default_fields: the fields that words without a field name are looked for in; all text fields by default.
            version: a version to travel to.
            timestamp: or a point in time.

        Raises:
            SearchQueryError: the query cannot be understood; the message shows where.
        """
        from headwater.spark.search.search_job import search_frame

        return search_frame(
            self._open(version, timestamp),
            query,
            columns=_names(columns),
            filter=filter,
            limit=limit,
            with_score=with_score,
            snippets=_names(snippets) or (),
            default_fields=default_fields,
        )

    def count(
        self,
        query: str | None = None,
        *,
        filter: str | None = None,  # noqa: A002
        default_fields: Sequence[str] | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> int:
        """How many rows a query finds. By the log alone if neither query nor filter is given.

        The arguments are those of `search`. No Spark job is run where the splits are on a disk of the driver's.
        """
        from headwater.spark.search.small_answers import count

        return count(self._open(version, timestamp), query, filter=filter, default_fields=default_fields)

    def top(
        self,
        query: str,
        k: int = 10,
        *,
        columns: str | Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        snippets: str | Sequence[str] = (),
        default_fields: Sequence[str] | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> pa.Table:
        """The best rows for a query, best first, with their `_score`: a small answer, on the driver.

        The arguments are those of `search`. No Spark job is run where the splits are on a disk of the driver's.
        """
        from headwater.spark.search.small_answers import top

        return top(
            self._open(version, timestamp),
            query,
            k,
            columns=_names(columns),
            filter=filter,
            snippets=_names(snippets) or (),
            default_fields=default_fields,
        )

    def aggregate(
        self,
        *aggregates: str,
        query: str | None = None,
        filter: str | None = None,  # noqa: A002
        group_by: str | Sequence[str] = (),
        default_fields: Sequence[str] | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> pa.Table:
        """Counts, sums and extremes of the rows that a query finds, in groups: a small answer, on the driver.

        Args:
            aggregates: `count`, `count(column)`, `sum(column)`, `avg(column)`, `min(column)`, `max(column)`, perhaps
                with a name: `max(took) AS slowest`. A count by default.
            query: as for `search`.
            filter: as for `search`.
            group_by: columns, `histogram(column, width)`, or `date_histogram(column, 1h)` with a width such as `10s`,
                `15m`, `1h`, `1d`, `1w`, `1month`, `1quarter`, `1year` (in UTC).
            default_fields: as for `search`.
            version: a version to travel to.
            timestamp: or a point in time.

        Returns:
            One row for each group, all of them, in the order of the groups.

        Example:
            >>> logs.aggregate("count", "max(took)", query="error", group_by="host")  # doctest: +SKIP
        """
        from headwater.spark.search.aggregate_job import aggregate

        return aggregate(
            self._open(version, timestamp),
            aggregates or ("count",),
            query=query,
            filter=filter,
            group_by=_names(group_by) or (),
            default_fields=default_fields,
        )


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """One name, or several."""
    return (given,) if isinstance(given, str) else None if given is None else tuple(given)
