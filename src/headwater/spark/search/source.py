"""What is searched for and what is scanned: a search, what a query wants of it, and the tasks that this makes.

A `ScanSource` is one version of a table with a search of it. The log leaves out splits that cannot match, the rest is
distributed over tasks, and what tasks have in common travels to the executors as a plan that reads a task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow.compute as pc

from headwater.errors import ColumnNotFoundError, SearchQueryError
from headwater.log.filters.expressions import Column
from headwater.log.schema import DOUBLE, STRING, StructField, StructType
from headwater.log.schema.types import resolve
from headwater.search.query.sql import index_filter
from headwater.search.query.tree import all_of, filtered
from headwater.spark.jvm import exact_key
from headwater.spark.scan.columns import without_internal_metadata
from headwater.spark.scan.explain import shortened
from headwater.spark.scan.request import known_part
from headwater.spark.search.reader import SCORE_COLUMN, SNIPPET_SUFFIX, SplitReadPlan
from headwater.spark.search.splits import SplitRef, grouped
from headwater.spark.write.values import has_own_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from headwater.log.filters.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.search.config import IndexConfig
    from headwater.search.engine.scoring import Statistics
    from headwater.search.query.tree import Query
    from headwater.spark.scan.explain import ScanSummary
    from headwater.spark.search.pushdown import PushedAggregate

_SCAN_TASK_BYTES = 128 * 2**20
_SCAN_TASKS_PER_CORE = 2
"""Enough that one slow task does not keep all others waiting."""


@dataclass(frozen=True)
class Search:
    """A search, and what it shows beside the columns of the table."""

    query: Query
    score: bool = False
    snippets: tuple[str, ...] = ()
    """Columns of text whose best fragments are shown."""
    statistics: Statistics | None = None
    """Of all splits, so that scores of different splits can be compared."""
    best: int | None = None
    """Each split needs to give no more than this many of its best rows."""

    @property
    def extra_fields(self) -> list[StructField]:
        score = [StructField(SCORE_COLUMN, DOUBLE)] if self.score else []
        return [*score, *(StructField(f"{column}{SNIPPET_SUFFIX}", STRING) for column in self.snippets)]

    def check_added(self, columns: Iterable[str]) -> None:
        """Raise if the search adds a column that the table has."""
        taken = {name.lower() for name in columns}
        for added in self.extra_fields:
            if added.name.lower() in taken:
                raise SearchQueryError(
                    f"the table has a column {added.name!r} of its own, which the search would add: search without "
                    f"{'with_score' if added.name == SCORE_COLUMN else 'these snippets'}, or rename the column"
                )

    @property
    def adds(self) -> bool:
        """Whether rows are more than rows of the table, or only the best of them are wanted."""
        return self.score or self.best is not None or bool(self.snippets)

    def only(self, names: Sequence[str]) -> Search:
        """Return the same search, showing no more than some columns."""
        snippets = tuple(column for column in self.snippets if f"{column}{SNIPPET_SUFFIX}" in names)
        return replace(self, score=self.score and SCORE_COLUMN in names, snippets=snippets)

    def __str__(self) -> str:
        best = "" if self.best is None else f", the best {self.best}"
        return f"search {self.query}{best}"


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
        return self.where is not None or self.matching is not None

    @property
    def key(self) -> str:
        """Says exactly what is wanted, for equality: texts of different filters and names may be the same."""
        return exact_key(self.columns, self.where, self.matching, self.filters_left, self.limit, self.aggregate)

    @property
    def text(self) -> str:
        """What plans show."""
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


class TaskPlan(Protocol):
    """What all tasks of one scan have in common. It travels to the executors."""

    def read(self, task: Any, /) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""


@dataclass(frozen=True)
class ScanSource:
    """One version of a search table, and a search of it."""

    snapshot: Snapshot
    config: IndexConfig
    search: Search | None = None

    @cached_property
    def name(self) -> str:
        """What plans call the table."""
        searched = "" if self.search is None else f" {shortened(self.search)}"
        return f"search table {self.snapshot.uri} version {self.snapshot.version}{searched}"

    @cached_property
    def key(self) -> str:
        """Says exactly what is scanned: Spark takes sources with equal keys for one another."""
        options = sorted((name, str(value)) for name, value in (self.snapshot.ctx.storage_options or {}).items())
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

    @property
    def answers_aggregates(self) -> bool:
        """Whether splits can aggregate: the rows of a split are those of the table."""
        return True

    def summary(self) -> ScanSummary | None:
        """Return what `headwater.scans` tells about the scan; None if it does not show such tables."""
        return None

    def resolve(self, path: tuple[str, ...]) -> Column | None:
        """Return the table's column for a column of the scan; None for one that the search adds."""
        try:
            return Column(tuple(field.name for field in resolve(self.schema, path)))
        except ColumnNotFoundError:
            return None

    def index_filter(self, where: Expression) -> tuple[Query | None, bool]:
        """Return a filter as a query of the index, and whether that is exactly the filter.

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
        """Return upper bounds of the bytes and rows to read."""
        files = self.snapshot.files(wanted.where, ["size", "numRecords"])
        size_bytes, num_records = (pc.sum(files.column(name)).as_py() or 0 for name in files.column_names)
        return int(size_bytes), int(num_records)

    # --- tasks -------------------------------------------------------------------------------------------

    def query(self, wanted: Wanted) -> Query | None:
        """Return what the splits are searched for; None for all rows."""
        condition = None if wanted.where is None else self.index_filter(wanted.where)[0]
        if wanted.matching is not None:
            condition = wanted.matching if condition is None else all_of(wanted.matching, condition)
        if self.search is None:
            return condition
        return filtered(self.search.query, condition)

    def tasks(self, wanted: Wanted, parallelism: int) -> list[Any]:
        """Return the splits of each task."""
        splits = self.splits(wanted.where)
        if self.query(wanted) is not None:
            return grouped(splits, parallelism)
        return grouped(splits, parallelism * _SCAN_TASKS_PER_CORE, _SCAN_TASK_BYTES)

    def task_plan(self, wanted: Wanted) -> TaskPlan:
        """Return what all tasks have in common."""
        shown = wanted.shown(self)
        return SplitReadPlan(
            uri=self.snapshot.uri,
            storage_options=self.snapshot.ctx.storage_options,
            shown_json=shown.to_json(),
            query=self.query(wanted),
            search=None if self.search is None else self.search.only(shown.names),
            limit=wanted.limit,
            aggregate=wanted.aggregate,
        )
