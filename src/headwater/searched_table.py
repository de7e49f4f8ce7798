"""Full-text search on a Delta table: `search_index` makes and maintains the index, methods of `DeltaTable` use it.

A thin face: the definition of an index is a commit (`headwater.alterations.search_index`), building and searching are
jobs (`headwater.spark.search`).
"""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING

from headwater.maintained_table import MaintainedTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.search.delta_index import SearchCoverage, SearchIndexed
    from headwater.spark.search.delta_files import DeltaFiles

    Timestamp = str | datetime | date | int


class SearchedTable(MaintainedTable):
    """The methods of `DeltaTable` that search it."""

    def search(
        self,
        query: str | None = None,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - what it is
        limit: int | None = None,
        with_score: bool = False,
        snippets: Sequence[str] = (),
        default_fields: Sequence[str] | None = None,
    ) -> DataFrame:
        """The rows that a query finds, in the newest version or any other: all of them, unless there is a limit.

        The answer is never stale: data files that have no index yet are read and searched with the same analysers,
        which takes longer. `search_coverage` tells how many these are, and so does `explain` of the result.

        Args:
            query: in the query language: `error AND host:web-1`, `"connection refused"~2`, `took:[100 TO *]`. None for
                all rows.
            version: a version to travel to; the newest, at the time of this call, by default.
            timestamp: or a point in time; without a zone it is in the session's.
            columns: only these columns, in this order.
            filter: and only the rows that match this condition in SQL.
            limit: no more than so many rows; with `with_score`, the best ones.
            with_score: add the column `_score` (BM25, comparable across all files), and give the best rows first.
            snippets: columns of text of which the best fragment is shown, with matches between <b> and </b>, in a
                column `<name>_snippet`.
            default_fields: the fields that words without a field name are looked for in; all text fields by default.

        Raises:
            SearchIndexNotFoundError: the table has no search index; `headwater.search_index` makes one.
            SearchQueryError: the query cannot be understood; the message shows where.

        Example:
            >>> hw.search_index(table, columns={"message": "text", "country": "string"}).num_files
            4
            >>> table.search("refused AND country:NO", columns=["id", "message"]).first()
            Row(id=2, message='card refused: expired')
        """
        from headwater.spark.search.delta_search import search_delta

        return search_delta(
            self._spark,
            self._searched(version, timestamp),
            query,
            columns=columns,
            filter=filter,
            limit=limit,
            with_score=with_score,
            snippets=snippets,
            default_fields=default_fields,
        )

    def search_coverage(self, version: int | None = None, timestamp: Timestamp | None = None) -> SearchCoverage:
        """How much of a version the search index covers.

        Example:
            >>> hw.search_index(table, columns={"message": "text"}).num_files
            4
            >>> hw.write(source.coalesce(1), "events", mode="append").version
            3
            >>> print(table.search_coverage())
            version 3: 4 of 5 files are indexed (...% of the bytes); the other one is searched row by row
        """
        return self._searched(version, timestamp).coverage()

    def drop_search_index(self) -> None:
        """Let the table have no search index any more. VACUUM deletes its files once they are old enough.

        Example:
            >>> hw.search_index(table, columns={"message": "text"}).num_files
            4
            >>> table.drop_search_index()
        """
        from headwater.alterations.search_index import drop_search_index

        drop_search_index(self._snapshot())

    def _searched(self, version: int | None, timestamp: Timestamp | None) -> DeltaFiles:
        from headwater.spark.search.delta_search import open_files

        return open_files(self._spark, self._path, version, timestamp, self._storage_options)


def search_index(
    table: SearchedTable | str | PathLike[str],
    columns: Mapping[str, str | Sequence[str] | None] | None = None,
    *,
    tokenizers: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> SearchIndexed:
    """Make or maintain the search index of a Delta table: every data file that has none gets one.

    The first call says which columns are indexed. Later calls, without columns, index the files that were added since;
    files that are not indexed yet are searched all the same, only slower. With other columns than before the index is
    built anew. Several may do this at the same time.

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
    from headwater.alterations.search_index import set_search_index
    from headwater.search.delta_definition import define, required_definition
    from headwater.spark.python_scan import reader_settings
    from headwater.spark.search.delta_build import build_splits
    from headwater.spark.search.delta_files import DeltaFiles
    from headwater.tables import open_log

    if isinstance(table, SearchedTable):
        session, path, options = table._spark, table._path, table._storage_options
    else:
        from headwater.spark.session import spark as start

        session, path, options = spark or start(), fspath(table), storage_options
    snapshot = open_log(path, storage_options=options)
    if columns is not None:
        snapshot = set_search_index(snapshot, define(snapshot, columns, tokenizers))
    settings = reader_settings(session)
    return build_splits(session, DeltaFiles(snapshot, required_definition(snapshot), options, settings))
