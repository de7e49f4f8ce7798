"""Searching a Delta table: the snapshot first, then the index of the table, so that an answer is never stale.

Which version is searched is decided by the log alone. Files of that version that have a split are answered by it, all
others are read and searched with the same analysers; the answer is the same either way, whatever was indexed when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import SearchQueryError
from headwater.features.context import table_context
from headwater.log.file_uris import hadoop_root
from headwater.log.filter_sql import parse_filter
from headwater.log.opening import open_snapshot
from headwater.search.delta_definition import required_definition
from headwater.search.query import All
from headwater.search.query_parser import parse_query
from headwater.spark.columns import quoted
from headwater.spark.connect_failures import remember_connect_scan
from headwater.spark.explain import ScanSummary
from headwater.spark.failures import remember_scan
from headwater.spark.functions import functions, functions_for, is_connect
from headwater.spark.marked_plans import mark, remember
from headwater.spark.python_scan import reader_settings
from headwater.spark.read_filter import prunable
from headwater.spark.search.delta_files import DeltaFiles
from headwater.spark.search.delta_reader import DeltaReader
from headwater.spark.search.delta_source import DeltaSource, delta_frame
from headwater.spark.search.delta_statistics import delta_statistics
from headwater.spark.search.scan import check_reachable, run_tasks
from headwater.spark.search.scan_source import Wanted
from headwater.spark.search.search_job import check_limit
from headwater.spark.search.search_spec import SCORE_COLUMN, Search
from headwater.spark.time_travel import resolve_target, session_zone
from headwater.spark.workers import core_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession

    from headwater.search.fields import IndexConfig


def open_files(
    spark: SparkSession,
    path: str | PathLike[str],
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaFiles:
    """One version of a Delta table, with the search index that the table has now.

    Raises:
        SearchIndexNotFoundError: the table has no search index.
    """
    zone = session_zone(spark)
    target = resolve_target(path, version, timestamp, zone)
    ctx = table_context(target.path, storage_options, time_zone=zone)
    snapshot = newest = open_snapshot(ctx)
    if target.version is not None or target.timestamp is not None:
        snapshot = open_snapshot(ctx, version=target.version, timestamp=target.timestamp)
    # The newest definition, for any version: what it says of a data file is true whenever the file was live.
    return DeltaFiles(snapshot, required_definition(newest), storage_options, reader_settings(spark))


def search_delta(
    spark: SparkSession,
    files: DeltaFiles,
    query: str | None,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - what it is
    limit: int | None = None,
    with_score: bool = False,
    snippets: Sequence[str] = (),
    default_fields: Sequence[str] | None = None,
) -> DataFrame:
    """The rows of a version that a query finds; see `DeltaTable.search`."""
    check_limit(limit)
    bound = files.bound
    schema = files.snapshot.schema
    shown = schema.names if columns is None else [schema.field(name).name for name in columns]
    tree = All() if query is None else parse_query(query, bound.shown, default_fields)
    search = Search(
        tree,
        score=with_score,
        snippets=_snippet_columns(bound.shown, snippets),
        statistics=delta_statistics(spark, files, tree) if with_score else None,
        best=limit if with_score and filter is None else None,
    )
    search.check_added(schema.names)
    source = DeltaSource(files.snapshot, bound.shown, search, files.storage_options, files=files)
    with functions_for(spark):
        frame = _frame(spark, source, filter, shown)
        if filter is not None:
            frame = frame.where(filter)
        if with_score:
            frame = frame.orderBy(functions().col(SCORE_COLUMN).desc())
        if limit is not None:
            frame = frame.limit(limit)
        return frame.select(*(quoted(name) for name in (*shown, *(field.name for field in search.extra_fields))))


def _snippet_columns(config: IndexConfig, snippets: Sequence[str]) -> tuple[str, ...]:
    """The columns that fragments are wanted of.

    Raises:
        SearchQueryError: one of them is not indexed as text or string.
    """
    if isinstance(snippets, str):
        raise SearchQueryError(f"snippets is a list of columns, not a text: write [{snippets!r}]")
    for name in snippets:
        field = config.find(name)
        if field is None or field.kind not in ("text", "string") or field.name != field.column:
            raise SearchQueryError(
                f"there are no fragments of {name!r}: it is no column that is indexed as text or string"
            )
    return tuple(config.field(name).column for name in snippets)


def _frame(spark: SparkSession, source: DeltaSource, condition: str | None, shown: Sequence[str]) -> DataFrame:
    """What is found, with at least the columns that are shown.

    The condition is evaluated afterwards. On Spark Connect, where nothing else reaches the search, it rules out files
    and rows here already.
    """
    uri, version = source.snapshot.uri, source.snapshot.version
    check_reachable(uri)
    summary = _summary(source)
    if not is_connect(spark):
        remember_scan(uri, version)
        remember(source.name, summary)
        return delta_frame(spark, source)
    remember_connect_scan(uri, version)
    where = None if condition is None else prunable(spark, parse_filter(condition), source.snapshot.schema)
    added = source.shown.names[len(source.schema.names) :]
    enough = tuple(dict.fromkeys((*shown, *added))) if condition is None else ()
    wanted = Wanted(enough or source.shown.names, where)
    reader = DeltaReader(source.delta_plan(wanted))
    tasks = source.tasks(wanted, core_count(spark))
    frame = run_tasks(spark, reader, tasks, wanted.shown(source).to_spark())
    mark(frame, summary)
    return frame


def _summary(source: DeltaSource) -> ScanSummary:
    """For those who ask what is read (`headwater.scans`)."""
    found = source.coverage
    rest = found.num_files - found.num_covered_files
    road = f"the search index for {found.num_covered_files} files" + (f", row by row for {rest}" if rest else "")
    return ScanSummary(
        table=hadoop_root(source.snapshot.uri),
        version=found.version,
        files_kept=found.num_files,
        files_total=source.snapshot.num_files,
        size_bytes_kept=found.size_bytes,
        size_bytes_total=source.snapshot.size_bytes,
        deletion_vectors=source.files.has_vectors,
        road=road,
    )
