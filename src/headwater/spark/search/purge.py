"""PURGE: delete split files that nobody needs: those that were removed from the table, and leftovers of failed writes.

Kept is what the newest version names, what a version file has removed less than the retention ago (whoever travels back
or is reading still needs it), and every file that is younger than the retention: its writer may be about to commit it.
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

from headwater.errors import RetentionError
from headwater.log.retention import LONGEST_MS
from headwater.log.tree import list_tree
from headwater.maintenance.table_keys import needed_by_other_log, needed_files, nested_tables
from headwater.storage.copying import delete_data
from headwater.storage.keys import LOG_DIRECTORIES

if TYPE_CHECKING:
    from headwater.spark.search.opening import OpenTable

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
        """How many files."""
        return len(self.paths)


def purge(table: OpenTable, older_than_hours: float | None, *, dry_run: bool) -> Purged:
    """Delete the split files that no version of the last hours needs; see `SearchTable.purge`.

    Raises:
        RetentionError: the retention is no number, negative, or shorter than a day.
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
    """Whether a directory is looked into: neither hidden ones of the table nor the log of a table below it."""
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
            f"{hours:g} hours are too short for a purge: whoever reads an older version, or writes at this moment, "
            f"could lose files. Give {MIN_HOURS:g} hours or more, or, if nobody reads or writes now, set "
            f"{CHECK_OPTION} = false."
        )
    hours_ms: float = min(hours, LONGEST_MS // _HOUR_MS) * _HOUR_MS
    return round(hours_ms)
