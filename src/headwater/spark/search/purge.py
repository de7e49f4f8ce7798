"""PURGE: delete split files that nobody needs: those that were removed from the table, and leftovers of failed writes.

Kept is what the newest version names, what a version file has removed less than the retention ago (whoever travels back
or is reading still needs it), and every file that is younger than the retention: its writer may be about to commit it.
Nothing but `*.split` is ever touched.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import RetentionError
from headwater.log.file_chunks import REMOVE_COLUMNS, MemoryChunk
from headwater.log.segment import list_log
from headwater.log.tree import list_tree
from headwater.maintenance.removed_files import removed_in
from headwater.maintenance.table_keys import keys_below

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot
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
    kept = _needed_keys(snapshot, cutoff_ms)
    objects = list_tree(snapshot.ctx.store, lambda directory: not directory.startswith("_")).objects
    keys = objects.column("key")
    unneeded = pc.and_(
        pc.and_(pc.ends_with(keys, _SUFFIX), pc.less(objects.column("modified_ms"), cutoff_ms)),
        pc.invert(pc.is_in(keys, value_set=kept)),
    )
    doomed = objects.filter(unneeded)
    names = tuple(key.decode("utf-8", "surrogateescape") for key in doomed.column("key").to_pylist())
    if not dry_run:
        batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
        with ThreadPoolExecutor(_PARALLEL, "headwater-purge") as pool:
            list(pool.map(snapshot.ctx.store.delete_many, batches))
    return Purged(tuple(sorted(names)), int(pc.sum(doomed.column("size_bytes")).as_py() or 0), dry_run)


def _needed_keys(snapshot: Snapshot, cutoff_ms: int) -> pa.Array:
    """The keys of live splits, and of those that were removed after the cut-off."""
    live = keys_below(snapshot.files(columns=["path"]).column("path"), snapshot.uri)
    versions = sorted(version for version in list_log(snapshot.ctx).commits if version <= snapshot.version)
    removes, _ = removed_in(snapshot.ctx, versions)
    files = MemoryChunk(removes, REMOVE_COLUMNS)
    late = pc.greater_equal(pc.fill_null(files.column("deletionTimestamp"), 0), cutoff_ms)
    removed = keys_below(files.column("path").filter(late), snapshot.uri)
    return pa.chunked_array([*live.chunks, *removed.chunks], pa.binary()).combine_chunks()


def _retention_ms(hours: Any, *, enforced: bool) -> int:
    if hours is None:
        return round(DEFAULT_HOURS * _HOUR_MS)
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not math.isfinite(hours) or hours < 0:
        raise RetentionError(f"the retention of a purge is a number of hours from 0 on, not {hours!r}")
    if enforced and hours < MIN_HOURS:
        raise RetentionError(
            f"{hours:g} hours are too short for a purge: whoever reads an older version, or writes at this moment, "
            f"could lose files. Give {MIN_HOURS:g} hours or more, or, if nobody reads or writes now, set "
            f"{CHECK_OPTION} = false."
        )
    return round(hours * _HOUR_MS)
