"""Having splits at hand before anybody searches them: unpacked, checked and open, where they will be searched."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.filter_sql import parse_filter
from headwater.spark.failures import explained_failures
from headwater.spark.functions import functions_for
from headwater.spark.search.near import is_near, map_splits
from headwater.spark.search.scan import check_reachable, run_tasks
from headwater.spark.search.scan_source import ScanSource, grouped
from headwater.spark.search.split_places import SplitPlaces
from headwater.spark.workers import core_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.spark.search.opening import OpenTable


class SplitWarmer:
    """Unpacks the splits of tasks. It travels to the executors."""

    def __init__(self, uri: str, storage_options: dict[str, str] | None) -> None:
        self._uri = uri
        self._storage_options = storage_options

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The numbers of splits of pickled tasks; made for `mapInArrow`."""
        places = SplitPlaces(self._uri, self._storage_options)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                splits = pickle.loads(task)
                for ref in splits:
                    places.open(ref).prewarm()
                yield pa.RecordBatch.from_arrays([pa.array([len(splits)], pa.int64())], names=["warm"])


def prewarm(table: OpenTable, filter: str | None = None) -> int:  # noqa: A002 - what it is
    """Unpack splits where they will be searched; see `SearchTable.prewarm`."""
    check_reachable(table.uri)
    source = ScanSource(table.snapshot, table.config, None, table.storage_options)
    splits = source.splits(None if filter is None else parse_filter(filter))
    if is_near(table, splits):
        map_splits(table, splits, lambda split: split.prewarm())
        return len(splits)
    options = None if table.storage_options is None else dict(table.storage_options)
    tasks = grouped(splits, core_count(table.spark))
    with functions_for(table.spark), explained_failures():
        rows = run_tasks(table.spark, SplitWarmer(table.uri, options), tasks, "warm BIGINT").collect()
    return sum(row.warm for row in rows)
