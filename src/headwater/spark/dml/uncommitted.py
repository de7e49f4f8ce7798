"""Files that were written and not committed yet, read as a table: a row that is computed twice may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.commit import CommitActions
from headwater.log.draft import Attempt, Draft, Operation
from headwater.log.encoding import encode_commit
from headwater.log.opening import extend
from headwater.log.snapshot_part import SnapshotPart

if TYPE_CHECKING:
    from collections.abc import Collection

    from headwater.log.actions import Add
    from headwater.log.snapshot import Snapshot


def with_files(snapshot: Snapshot, adds: Collection[Add]) -> SnapshotPart:
    """A snapshot that has just these files, under the schema of another one."""
    attempt = Attempt(snapshot.version + 1, snapshot, snapshot.protocol, snapshot.metadata, 0)
    data = encode_commit(Draft(Operation("WRITE"), adds=tuple(adds)), attempt, "", {})
    ahead = extend(snapshot, CommitActions.of(attempt.version, data))
    return SnapshotPart.of(ahead, [add.path for add in adds])
