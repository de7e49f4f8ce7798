"""Committing what OPTIMIZE has rewritten, a batch at a time, among other writers.

Rows only move, so other writers may add rows and change other files as they like. A group of which another writer has
changed a file meanwhile is left out, and the others of its batch are committed nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import (
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
)
from headwater.features.activation import is_active
from headwater.features.row_tracking import PRESERVED_TAG
from headwater.log.actions import DeletionVector
from headwater.log.draft import Operation
from headwater.log.file_actions import removals
from headwater.log.paths import canonical
from headwater.log.transaction import Transaction
from headwater.spark.maintenance.optimize_metrics import operation_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import pyarrow as pa

    from headwater.log.actions import Add, Remove
    from headwater.log.snapshot import Snapshot
    from headwater.spark.maintenance.optimize_plan import FileGroup

_MAX_REPEATS = 20
"""How often a batch is tried without the groups that were lost: each time another writer has changed a file of it."""


@dataclass(frozen=True)
class RewrittenGroup:
    """A group whose rows are in new files."""

    group: FileGroup
    adds: tuple[Add, ...]


@dataclass
class Commits:
    """The commits of one run.

    Attributes:
        snapshot: the version that all groups were read from.
        parameters: of the operation, for the history.
        user_metadata: a note for the history.
        name: of the operation: `OPTIMIZE`, or `REORG`.
        done: the groups that were committed.
        removes: their old files.
        lost: the groups that another writer has changed meanwhile.
        versions: that were made.
        conflict: what stood in the way of the groups that were lost, the last time.
    """

    snapshot: Snapshot
    parameters: Mapping[str, Any]
    user_metadata: str | None = None
    name: str = "OPTIMIZE"
    done: list[RewrittenGroup] = field(default_factory=list)
    removes: list[Remove] = field(default_factory=list)
    lost: list[FileGroup] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    conflict: DeltaConcurrentModificationException | None = None

    def commit(self, batch: Sequence[RewrittenGroup]) -> None:
        """Make the new files of a batch take the place of the old ones.

        Raises:
            DeltaConcurrentModificationException: the table itself has changed, so no group can be committed.
        """
        groups = list(batch)
        for _ in range(_MAX_REPEATS):
            if not groups:
                return
            try:
                self._commit(groups)
                return
            except (ConcurrentDeleteDeleteException, ConcurrentDeleteReadException) as conflict:
                self.conflict = conflict
                changed = _changed(self.snapshot.refresh(), groups)
                if not any(changed):
                    raise
                self.lost += [one.group for one, is_lost in zip(groups, changed, strict=True) if is_lost]
                groups = [one for one, is_lost in zip(groups, changed, strict=True) if not is_lost]
        assert self.conflict is not None
        raise self.conflict

    def _commit(self, groups: Sequence[RewrittenGroup]) -> None:
        snapshot = self.snapshot
        transaction = Transaction(snapshot.ctx, snapshot)
        now_ms = snapshot.ctx.clock_ms()
        removes = [remove for one in groups for remove in removals(one.group.files, now_ms, data_change=False)]
        adds = [add for one in groups for add in one.adds]
        transaction.remove(removes)
        transaction.add(adds)
        tags = {PRESERVED_TAG: "true"} if is_active("rowTracking", snapshot.protocol, snapshot.metadata) else {}
        metrics = operation_metrics(adds, removes)
        operation = Operation(self.name, self.parameters, metrics, self.user_metadata, tags)
        self.versions.append(transaction.commit(operation).version)
        self.removes += removes
        self.done += groups


def _changed(newest: Snapshot, groups: Sequence[RewrittenGroup]) -> list[bool]:
    """Which groups have a file that is not in the table any more as it was read."""
    wanted = {canonical(path) for one in groups for path in one.group.paths}
    live = _vectors_by_path(newest.files_named(wanted, ["path", "deletionVector"]))
    return [
        any(path not in live or live[path] != vector for path, vector in _vectors_by_path(one.group.files).items())
        for one in groups
    ]


def _vectors_by_path(files: pa.Table) -> dict[str, str | None]:
    """The ids of the deletion vectors of files."""
    vectors = files.column("deletionVector").to_pylist()
    ids = [None if fields is None else msgspec.convert(fields, DeletionVector).unique_id for fields in vectors]
    return dict(zip(map(canonical, files.column("path").to_pylist()), ids, strict=True))
