"""Maintenance of search tables: PURGE, prewarming of splits, removal of whole partitions.

PURGE deletes split files that are no longer needed: those that were removed from the table, and leftovers of failed
writes. Kept is what the newest version names, what a version file has removed less than the retention ago (readers of
that version still need it), and every file that is younger than the retention: its writer may be about to commit it.
Nothing but `*.split` is ever touched, and nothing that belongs to a table below this one, or that the log of a Delta
table in the same place names.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from headwater.commands.table_keys import needed_by_other_log, needed_files, nested_tables
from headwater.errors import FilterError, RetentionError
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration.properties import LONGEST_MS
from headwater.log.files.listing import list_tree
from headwater.log.filters.expressions import Not, columns_of, has_unknown
from headwater.log.filters.sql import parse_filter
from headwater.spark.search.splits import ask_splits, check_reachable
from headwater.spark.search.write import removes_of
from headwater.spark.write.write import Written
from headwater.storage.copying import delete_data
from headwater.storage.uri import LOG_DIRECTORIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.filters.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.search.split.reader import Split
    from headwater.spark.search.table import OpenTable


DEFAULT_HOURS = 7 * 24.0
MIN_HOURS = 24.0
CHECK_OPTION = "spark.indextables.purge.retentionCheckEnabled"
_HOUR_MS = 3_600_000
_SUFFIX = b".split"
_BATCH = 1_000
_PARALLEL = 8


@dataclass(frozen=True)
class Purged:
    """What a purge has deleted, or would delete."""

    paths: tuple[str, ...]
    """Relative to the table."""
    size_bytes: int
    is_dry_run: bool

    @property
    def num_files(self) -> int:
        return len(self.paths)


def purge(table: OpenTable, older_than_hours: float | None, *, dry_run: bool) -> Purged:
    """Delete the split files that no version of the last hours needs; see `SearchTable.purge`.

    Raises:
        RetentionError: the retention is not a number, negative, or shorter than a day.
    """
    checked = str(table.spark.conf.get(CHECK_OPTION, "true")).lower() != "false"
    snapshot = table.snapshot
    cutoff_ms = snapshot.ctx.clock_ms() - _retention_ms(older_than_hours, enforced=checked)
    # The log first: what is committed after this is younger than any cut-off.
    needed = needed_files(snapshot, cutoff_ms)
    others = needed_by_other_log(snapshot.ctx, cutoff_ms)
    tree = list_tree(snapshot.ctx.store, _enters)
    keys = tree.objects.column("key")
    old = pc.less(tree.objects.column("modified_ms"), cutoff_ms)
    candidates = tree.objects.filter(pc.and_(pc.ends_with(keys, _SUFFIX), old))
    doomed = (needed if others is None else needed | others).unneeded(candidates)
    nested = nested_tables(snapshot.ctx.store, doomed.column("key"), tree.closed)
    doomed = doomed.filter(pc.invert(nested))
    names = tuple(key.decode("utf-8", "surrogateescape") for key in doomed.column("key").to_pylist())
    if not dry_run:
        batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
        with ThreadPoolExecutor(_PARALLEL, "headwater-purge") as pool:
            list(pool.map(partial(delete_data, snapshot.ctx.store), batches))
    return Purged(tuple(sorted(names)), int(pc.sum(doomed.column("size_bytes")).as_py() or 0), dry_run)


def _enters(prefix: str) -> bool:
    """Say whether to look into a directory: neither hidden ones of the table nor the log of a table below it."""
    name = prefix.rstrip("/").rpartition("/")[2]
    return not prefix.startswith("_") and name.lower() not in LOG_DIRECTORIES


def _retention_ms(hours: Any, *, enforced: bool) -> int:
    if hours is None:
        return round(DEFAULT_HOURS * _HOUR_MS)
    is_number = isinstance(hours, int | float) and not isinstance(hours, bool)
    if not is_number or hours != hours or hours == math.inf or hours < 0:
        raise RetentionError(f"the retention of a purge is a number of hours from 0 on, not {hours!r}")
    if enforced and hours < MIN_HOURS:
        raise RetentionError(
            f"{hours:g} hours are too short for a purge: readers of an older version, and those who write at this "
            f"moment, could lose files. Give {MIN_HOURS:g} hours or more, or, if nobody reads or writes now, set "
            f"{CHECK_OPTION} = false."
        )
    hours_ms: float = min(hours, LONGEST_MS // _HOUR_MS) * _HOUR_MS
    return round(hours_ms)


def prewarm(table: OpenTable, filter: str | None = None) -> int:  # noqa: A002 - what it is
    """Unpack splits where they will be searched; see `SearchTable.prewarm`."""
    check_reachable(table.uri)
    splits = table.source().splits(None if filter is None else parse_filter(filter))

    def warm(split: Split) -> int:
        split.prewarm()
        return 1

    return sum(ask_splits(table.spark, table.snapshot, splits, warm, lambda counts: sum(counts)))


def partition_filter(where: str, snapshot: Snapshot) -> Expression:
    """Parse a condition on partition columns alone, which the log decides exactly."""
    parsed = parse_filter(where)
    known = {snapshot.schema.field(name).name.lower() for name in snapshot.partition_columns}
    others = sorted(str(column) for column in columns_of(parsed) if column.parts[0].lower() not in known)
    if others or has_unknown(parsed) or not columns_of(parsed):
        what = f"{', '.join(others)} is no partition column" if others else "the log cannot decide it"
        raise FilterError(
            f"{where!r} must be a condition on the partition columns of {snapshot.uri} "
            f"({', '.join(snapshot.partition_columns) or 'it has none'}): {what}"
        )
    return parsed


def drop_partitions(table: OpenTable, where: str) -> Written | None:
    """Remove the partitions that match a condition; see `SearchTable.drop_partitions`."""
    snapshot = table.snapshot
    condition = partition_filter(where, snapshot)
    removes = removes_of(snapshot, condition, reason="drop partitions")
    undecided = {remove.path for remove in removes} & set(_paths(snapshot, Not(condition)))
    if undecided:
        raise FilterError(
            f"the log cannot decide {where!r} for {len(undecided)} splits of {snapshot.uri}, such as {min(undecided)}: "
            "nothing was dropped"
        )
    if not removes:
        return None
    metrics = {"numRemovedFiles": len(removes)}
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.read_files(condition)
    transaction.remove(removes)
    operation = Operation("DROP PARTITIONS", {"predicate": where}, metrics)
    return Written(transaction.commit(operation).version, metrics)


def _paths(snapshot: Snapshot, where: Expression) -> Sequence[str]:
    paths: list[str] = snapshot.files(where, ["path"]).column("path").to_pylist()
    return paths
