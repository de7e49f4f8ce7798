"""What is scanned: one version of a search table, perhaps only the rows that a search finds.

Everything that a query wants of it (`Wanted`) is turned into tasks here: the log leaves out splits that cannot match,
the rest is dealt out evenly, and what tasks have in common travels as a `ReadPlan`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headwater.errors import ColumnNotFoundError
from headwater.log.expressions import Column
from headwater.log.schema import StructField, StructType
from headwater.log.schema.lookup import resolve
from headwater.search.filters import index_filter
from headwater.search.query import all_of, filtered
from headwater.spark.char_types import has_own_rules
from headwater.spark.columns import without_internal_metadata
from headwater.spark.explain import shortened
from headwater.spark.jvm import exact_key
from headwater.spark.read_filter import known_part
from headwater.spark.search.search_spec import SCORE_COLUMN, SNIPPET_SUFFIX, Search
from headwater.spark.search.split_reader import ReadPlan, SplitRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.search.fields import IndexConfig
    from headwater.search.query import Query
    from headwater.spark.search.pushed_aggregates import PushedAggregate

__all__ = ["SCORE_COLUMN", "SNIPPET_SUFFIX", "ScanSource", "Search", "Wanted", "grouped"]

_SCAN_TASK_BYTES = 128 * 2**20
_SCAN_TASKS_PER_CORE = 2
"""Enough that one slow task does not keep all others waiting."""
_SEARCH_TASK_BYTES = 2**30
"""An index answers in milliseconds, and a task costs Spark some 25 of them: a search has few tasks, one for each core
as long as they are not very large."""


@dataclass(frozen=True)
class Wanted:
    """What a query wants of a scan."""

    columns: tuple[str, ...]
    where: Expression | None = None
    """All filters; what the index cannot say exactly is evaluated by Spark as well."""
    matching: Query | None = None
    """A search in a filter: rows must match it too."""
    filters_left: int = 0
    """How many filters Spark evaluates itself."""
    limit: int | None = None
    aggregate: PushedAggregate | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether some rows are not wanted."""
        return self.where is not None or self.matching is not None

    @property
    def key(self) -> str:
        """Says exactly what is wanted, for equality: texts of different filters and names may be the same."""
        return exact_key(self.columns, self.where, self.matching, self.filters_left, self.limit, self.aggregate)

    @property
    def text(self) -> str:
        """For plans."""
        parts = [f"columns {', '.join(self.columns) or 'none'}" if self.aggregate is None else str(self.aggregate)]
        if self.where is not None:
            parts.append(f"where {shortened(self.where)}")
        if self.matching is not None:
            parts.append(f"matching {shortened(self.matching)}")
        if self.limit is not None:
            parts.append(f"limit {self.limit}")
        return "; ".join(parts)

    def shown(self, source: ScanSource) -> StructType:
        """The columns that the scan gives."""
        if self.aggregate is not None:
            return self.aggregate.shown
        return StructType([source.shown.field(name) for name in self.columns])


@dataclass(frozen=True)
class ScanSource:
    """One version of a search table, and a search of it."""

    snapshot: Snapshot
    config: IndexConfig
    search: Search | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    @cached_property
    def name(self) -> str:
        """Says what is scanned, to people."""
        searched = "" if self.search is None else f" {shortened(self.search)}"
        return f"search table {self.snapshot.uri} version {self.snapshot.version}{searched}"

    @cached_property
    def key(self) -> str:
        """Says exactly what is scanned: Spark takes sources with equal keys for one another."""
        options = sorted((name, str(value)) for name, value in (self.storage_options or {}).items())
        table = (self.snapshot.uri, self.snapshot.metadata.id, self.snapshot.version, options)
        return exact_key(type(self).__name__, table, self.config.to_json(), self.search)

    @cached_property
    def schema(self) -> StructType:
        """The columns of the table that can be read."""
        stored = without_internal_metadata(self.config.stored_schema(self.snapshot.schema))
        return StructType([StructField(f.name, f.type, True, f.metadata) for f in stored.fields])

    @cached_property
    def shown(self) -> StructType:
        """The columns of the scan."""
        return StructType([*self.schema.fields, *(self.search.extra_fields if self.search is not None else ())])

    def resolve(self, path: tuple[str, ...]) -> Column | None:
        """The table's column for a column of the scan; None for one that the search adds."""
        try:
            return Column(tuple(field.name for field in resolve(self.schema, path)))
        except ColumnNotFoundError:
            return None

    def index_filter(self, where: Expression) -> tuple[Query | None, bool]:
        """A filter as a query of the index, and whether that is exactly the filter.

        The index knows text byte by byte: what is compared by other rules is left to Spark.
        """
        if any(map(has_own_rules, self.schema.fields)):
            where = known_part(where, self.schema)
        return index_filter(where, self.config)

    # --- what the log knows -----------------------------------------------------------------------------

    def splits(self, where: Expression | None = None) -> list[SplitRef]:
        """The splits that may hold matching rows."""
        columns = ["path", "size", "numRecords"]
        files = self.snapshot.files(where, columns)
        return [SplitRef(*row) for row in zip(*(files.column(name).to_pylist() for name in columns), strict=True)]

    @cached_property
    def num_records(self) -> int | None:
        """How many rows there are, if the log knows it and nothing is searched for."""
        if self.search is not None:
            return None
        counts = self.snapshot.files(columns=["numRecords"]).column("numRecords")
        return None if counts.null_count else int(pc.sum(counts).as_py() or 0)

    def estimate(self, wanted: Wanted) -> tuple[int, int]:
        """At most so many bytes and rows."""
        files = self.snapshot.files(wanted.where, ["size", "numRecords"])
        size_bytes, num_records = (pc.sum(files.column(name)).as_py() or 0 for name in files.column_names)
        return int(size_bytes), int(num_records)

    # --- tasks -------------------------------------------------------------------------------------------

    def query(self, wanted: Wanted) -> Query | None:
        """What the splits are searched for; None for all rows."""
        condition = None if wanted.where is None else self.index_filter(wanted.where)[0]
        if wanted.matching is not None:
            condition = wanted.matching if condition is None else all_of(wanted.matching, condition)
        if self.search is None:
            return condition
        return filtered(self.search.query, condition)

    def tasks(self, wanted: Wanted, parallelism: int) -> list[list[SplitRef]]:
        """The splits of each task."""
        splits = self.splits(wanted.where)
        return grouped(splits, parallelism) if self.query(wanted) is not None else _scanned(splits, parallelism)

    def read_plan(self, wanted: Wanted) -> ReadPlan:
        """What all tasks have in common."""
        search = self.search
        shown = wanted.shown(self)
        return ReadPlan(
            uri=self.snapshot.uri,
            storage_options=None if self.storage_options is None else dict(self.storage_options),
            shown_json=shown.to_json(),
            query=self.query(wanted),
            search=None if search is None else search.only(shown.names),
            limit=wanted.limit,
            aggregate=wanted.aggregate,
        )


def grouped(splits: list[SplitRef], parallelism: int) -> list[list[SplitRef]]:
    """Splits that are searched, dealt out to tasks of about the same size.

    >>> [len(task) for task in grouped([SplitRef(str(n), 10, 1) for n in range(10)], 4)]
    [3, 3, 2, 2]
    """
    return _dealt_out(splits, parallelism, _SEARCH_TASK_BYTES)


def _scanned(splits: list[SplitRef], parallelism: int) -> list[list[SplitRef]]:
    """Splits that are read whole, dealt out to tasks of about the same size."""
    return _dealt_out(splits, parallelism * _SCAN_TASKS_PER_CORE, _SCAN_TASK_BYTES)


def _dealt_out(splits: list[SplitRef], at_least: int, task_bytes: int) -> list[list[SplitRef]]:
    """Splits in tasks, the largest first."""
    import heapq

    size_bytes = sum(split.size_bytes for split in splits)
    count = min(len(splits), max(at_least, -(-size_bytes // task_bytes)))
    tasks: list[list[SplitRef]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for split in sorted(splits, key=lambda split: (-split.size_bytes, split.path)):
        load, number = heapq.heappop(heap)
        tasks[number].append(split)
        heapq.heappush(heap, (load + split.size_bytes, number))
    return tasks
