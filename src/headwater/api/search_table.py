"""`SearchTable`: a table of splits, each with its own full-text index; and `search_index`, for Delta tables."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING, Any

from headwater.api.delta_table import DeltaTable
from headwater.api.open import open_log
from headwater.commands.alter.properties import set_search_index
from headwater.errors import TableNotFoundError
from headwater.features.context import TableRef
from headwater.search.choices import FieldChoices
from headwater.search.delta_index import define
from headwater.search.table_log import invalidate_cache, upgrade_protocol
from headwater.spark.commands import history_frame
from headwater.spark.search import answers, upkeep
from headwater.spark.search.delta import build_splits
from headwater.spark.search.merge_splits import merge_splits
from headwater.spark.search.search import SearchRequest, search_frame, table_frame
from headwater.spark.search.table import (
    checkpoint,
    create_table,
    detail_frame,
    open_table,
    session_options,
)
from headwater.spark.search.write import write
from headwater.spark.session import SparkTable, session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.search.delta_index import SearchIndexed
    from headwater.spark.search.merge_splits import MergedSplits
    from headwater.spark.search.table import OpenTable
    from headwater.spark.search.upkeep import Purged
    from headwater.spark.write.write import Written

    Timestamp = str | datetime | date | int


class SearchTable:
    """A search table at a path. Make one with `SearchTable.create`, get one with `SearchTable.forPath`.

    Example:
        >>> logs = SearchTable.create(spark, "/data/logs", df.schema, types={"message": "text"})  # doctest: +SKIP
        >>> logs.write(df).version  # doctest: +SKIP
        1
        >>> logs.count("error AND host:web-1")  # doctest: +SKIP
        42
    """

    def __init__(self, spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._table = SparkTable(spark, TableRef(path, storage_options))
        self._options: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"SearchTable({str(self._table)!r})"

    @property
    def snapshot(self) -> Snapshot:
        """The newest version of the table's log."""
        return self._open().snapshot

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
            path: its location: a path or URI.
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
        fields = FieldChoices(
            types=types or {},
            tokenizers=tokenizers or {},
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
        cls, sparkSession: SparkSession, path: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None
    ) -> SearchTable:
        """Open the table at a path or URI.

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
        """Return whether there is a search table at the path."""
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
        return write(
            df, self._open(), mode=mode, max_records_per_split=max_records_per_split, user_metadata=user_metadata
        )

    def toDF(self, version: int | None = None, timestamp: Timestamp | None = None) -> DataFrame:
        """Return all rows of a version; the newest, at the time of this call, by default.

        Filters, projections, limits and aggregates of a query on it reach the index and the log: `=`, `IN`, ranges,
        `IS NULL` and what AND, OR and NOT make of them.

        Args:
            version: a version to travel to.
            timestamp: or a point in time; without a zone it is in the session's.
        """
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
        """Return the rows that a query finds: all of them, unless there is a limit.

        Args:
            query: in the query language: `error AND host:web-1`, `"connection refused"~2`, `took:[100 TO *]`. None for
                all rows.
            columns: only these columns, in this order.
            filter: and only the rows that match this condition in SQL.
            limit: the largest number of rows; with `with_score`, the best ones.
            with_score: add the column `_score` (BM25, comparable across all splits), and give the best rows first.
            snippets: columns of text of which the best fragment is shown, with matches between <b> and </b>, in a
                column `<name>_snippet`.
            default_fields: the fields that words without a field name are looked for in; all text fields by default.
            version: a version to travel to.
            timestamp: or a point in time.

        Raises:
            SearchQueryError: the query cannot be understood; the message shows where.
        """
        request = SearchRequest(
            query, _names(columns), filter, limit, with_score, _names(snippets) or (), default_fields
        )
        return search_frame(self._open(version, timestamp), request)

    def count(
        self,
        query: str | None = None,
        *,
        filter: str | None = None,  # noqa: A002
        default_fields: Sequence[str] | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> int:
        """Count the rows that a query finds; by the log alone if neither query nor filter is given.

        The arguments are those of `search`. No Spark job is run where the splits are on a disk of the driver's.
        """
        request = SearchRequest(query, filter=filter, default_fields=default_fields)
        return answers.count(self._open(version, timestamp), request)

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
        """Return the best rows for a query, best first, with their `_score`, as an Arrow table on the driver.

        The arguments are those of `search`. No Spark job is run where the splits are on a disk of the driver's.
        """
        request = SearchRequest(query, _names(columns), filter, k, True, _names(snippets) or (), default_fields)
        return answers.top(self._open(version, timestamp), request)

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
        """Aggregate the rows that a query finds, in groups, to an Arrow table on the driver.

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
        request = SearchRequest(query, filter=filter, default_fields=default_fields)
        return answers.aggregate(
            self._open(version, timestamp), request, aggregates or ("count",), _names(group_by) or ()
        )

    # --- maintenance ------------------------------------------------------------------------------------

    def merge_splits(
        self, target_size: int | str = "4G", *, where: str | None = None, max_dest_splits: int | None = None
    ) -> MergedSplits:
        """Merge small splits into larger ones, in one commit that changes no row.

        Splits that cannot be read are left alone and recorded (`mergeskip`); they are tried again after a while. Others
        may append, search and merge at the same time.

        Args:
            target_size: about how large splits become: bytes, or text such as `512M`.
            where: only in the partitions that match this condition in SQL.
            max_dest_splits: the largest number of splits to make in this run.
        """
        return merge_splits(self._open(), target_size, where=where, max_dest_splits=max_dest_splits)

    mergeSplits = merge_splits

    def purge(self, older_than_hours: float | None = None, *, dry_run: bool = False) -> Purged:
        """Delete split files that no version of the last hours needs: removed ones, and leftovers of failed writes.

        Args:
            older_than_hours: a week by default; no less than a day, unless
                `spark.indextables.purge.retentionCheckEnabled` is `false`.
            dry_run: only find out what would be deleted.
        """
        return upkeep.purge(self._open(), older_than_hours, dry_run=dry_run)

    def drop_partitions(self, where: str) -> Written | None:
        """Remove whole partitions, in one commit; return None if none matches.

        Args:
            where: a condition in SQL on partition columns alone.
        """
        return upkeep.drop_partitions(self._open(), where)

    dropPartitions = drop_partitions

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, and return that version."""
        return checkpoint(self._open())

    def prewarm(self, *, filter: str | None = None) -> int:  # noqa: A002
        """Unpack splits into the caches of the machines that search them, ahead of the first search.

        Args:
            filter: only splits that may hold rows which match this condition in SQL.

        Returns:
            The number of splits that are in the caches now.
        """
        return upkeep.prewarm(self._open(), filter)

    def invalidate_cache(self) -> None:
        """Drop what this process has cached of the table's log; see `spark.indextables.transaction.cache.*`."""
        invalidate_cache(self._table.ref.location)

    invalidateCache = invalidate_cache

    def upgrade_protocol(
        self,
        min_reader_version: int,
        min_writer_version: int,
        *,
        reader_features: Iterable[str] = (),
        writer_features: Iterable[str] = (),
    ) -> int:
        """Require more of the table's readers and writers, and return the version that does."""
        upgraded = upgrade_protocol(
            self.snapshot,
            min_reader_version,
            min_writer_version,
            reader_features=reader_features,
            writer_features=writer_features,
        )
        return upgraded.version

    upgradeProtocol = upgrade_protocol

    # --- what it is ---------------------------------------------------------------------------------------

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits of the table, newest first."""
        return history_frame(self._table.spark, self.snapshot, limit)

    def detail(self) -> DataFrame:
        """Return one row about the table."""
        return detail_frame(self._open())

    def _open(self, version: int | None = None, timestamp: str | datetime | date | int | None = None) -> OpenTable:
        if self._options is None:
            self._options = session_options(self._table.spark)
        ref = self._table.ref
        return open_table(self._table.spark, ref.location, version, timestamp, ref.storage_options, self._options)


def search_index(
    table: DeltaTable | str | PathLike[str],
    columns: Mapping[str, str | Sequence[str] | None] | None = None,
    *,
    tokenizers: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> SearchIndexed:
    """Make or maintain the search index of a Delta table: every data file that has none gets one.

    The first call says which columns are indexed. Later calls, without columns, index the files that were added since;
    files that are not indexed yet are searched all the same, only slower. With other columns than before the index is
    built again. Several processes may do this at the same time.

    Args:
        table: a `DeltaTable`, or the path or URI of one.
        columns: how each column is indexed: `text` (word by word), `string` (as one exact value), `json`, `ip`; two of
            them for both: `{"message": ("text", "string")}`; None for what the column's type says.
        tokenizers: of text columns: `default`, `raw`, `whitespace`, `en_stem`.
        spark: the session, for a path; by default the running one, or a new one.
        storage_options: options of the object store, for a path.

    Returns:
        What was indexed now, and what is covered.

    Raises:
        SearchIndexNotFoundError: no columns are given, and the table has no search index.
        SearchConfigError: a column cannot be indexed that way.

    Example:
        >>> import headwater as hw
        >>> hw.search_index("events", columns={"message": "text", "country": "string"})
        SearchIndexed(num_files=4, num_records=6, size_bytes=..., coverage=...)
        >>> hw.search_index("events").num_files
        0
    """
    if isinstance(table, DeltaTable):
        found = table._table
    else:
        found = SparkTable(spark or session(), TableRef(fspath(table), storage_options))
    snapshot = open_log(found.ref.location, storage_options=found.ref.storage_options)
    if columns is not None:
        snapshot = set_search_index(snapshot, define(snapshot, columns, tokenizers))
    return build_splits(found.spark, snapshot)


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return (given,) if isinstance(given, str) else None if given is None else tuple(given)
