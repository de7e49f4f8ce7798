"""How often the words of a query occur in a whole table, so that every split gives the scores of one big index."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.search.scoring import merge_statistics
from headwater.search.searching import term_statistics
from headwater.spark.failures import explained_failures
from headwater.spark.functions import functions_for
from headwater.spark.search.near import is_near, map_splits
from headwater.spark.search.scan import check_reachable, run_tasks
from headwater.spark.search.scan_source import ScanSource, grouped
from headwater.spark.search.split_places import SplitPlaces
from headwater.spark.workers import core_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.search.query import Query
    from headwater.search.scoring import Statistics
    from headwater.spark.search.opening import OpenTable


class SplitStatistics:
    """Counts the words of a query in the splits of tasks. It travels to the executors."""

    def __init__(self, uri: str, storage_options: dict[str, str] | None, query: Query) -> None:
        self._uri = uri
        self._storage_options = storage_options
        self._query = query

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pickled statistics of pickled tasks; made for `mapInArrow`."""
        places = SplitPlaces(self._uri, self._storage_options)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                found = merge_statistics(term_statistics(places.open(ref), self._query) for ref in pickle.loads(task))
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)], pa.binary())], names=["found"])


def statistics_of(table: OpenTable, query: Query) -> Statistics:
    """The statistics of all splits of a version, whichever of them a query needs to look into."""
    check_reachable(table.uri)
    splits = ScanSource(table.snapshot, table.config, None, table.storage_options).splits()
    if is_near(table, splits):
        return merge_statistics(map_splits(table, splits, lambda split: term_statistics(split, query)))
    options = None if table.storage_options is None else dict(table.storage_options)
    tasks = grouped(splits, core_count(table.spark))
    with functions_for(table.spark), explained_failures():
        run = SplitStatistics(table.uri, options, query)
        rows = run_tasks(table.spark, run, tasks, "found BINARY").collect()
    return merge_statistics(pickle.loads(bytes(row.found)) for row in rows)
