"""What a commit may not hold, although its meaning stays clear (spec: "Delta Log Entries", "Action Reconciliation").

Reading goes on in spite of it; `Snapshot.verify` reports it. Actions that contradict each other are another matter:
they are reported too, but raise when the commit is replayed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from headwater.log.actions import Add, CheckpointOnlyLine, Remove
from headwater.log.commit import decode_lines, file_key
from headwater.log.replay import file_actions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.commit import CommitActions

_CHECKPOINT_ONLY_LINE = msgspec.json.Decoder(CheckpointOnlyLine)


def illegal_actions(commit: CommitActions) -> list[str]:
    """What the commit does against the protocol, one phrase each."""
    files = list(file_actions(commit))
    seen = Counter([*_file_subjects(files), *_table_subjects(commit)])
    repeated = [f"{count} {what}" for what, count in seen.items() if count > 1]
    return repeated + _added_and_removed(files) + _misplaced(commit)


def _file_subjects(files: list[Add | Remove]) -> Iterator[str]:
    for action in files:
        yield f"{type(action).__name__.lower()} actions for the path {file_key(action)[0]!r}"


def _added_and_removed(files: list[Add | Remove]) -> list[str]:
    added = {file_key(action) for action in files if isinstance(action, Add)}
    removed = {file_key(action): action.path for action in files if isinstance(action, Remove)}
    return [f"both add and remove of the logical file {removed[key]!r}" for key in removed if key in added]


def _table_subjects(commit: CommitActions) -> Iterator[str]:
    for line in commit.table_lines():
        if line.protocol is not None:
            yield "protocol actions"
        if line.meta_data is not None:
            yield "metaData actions"
        if line.txn is not None:
            yield f"txn actions for {line.txn.app_id!r}"
        if line.domain_metadata is not None:
            yield f"domainMetadata actions for {line.domain_metadata.domain!r}"


def _misplaced(commit: CommitActions) -> list[str]:
    lines = decode_lines(_CHECKPOINT_ONLY_LINE, commit.data, commit.key)
    found = {
        "sidecar": any(line.sidecar is not None for line in lines),
        "checkpointMetadata": any(line.checkpoint_metadata is not None for line in lines),
    }
    return [f"a {name} action, which belongs in a checkpoint" for name, present in found.items() if present]
