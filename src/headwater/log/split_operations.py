"""What a version of a search table has done, by its actions: not all writers say it (spec 002: "Write Operations")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.actions import Add
from headwater.log.replay import file_actions

if TYPE_CHECKING:
    from headwater.log.commit import CommitActions


def operation_of(commit: CommitActions) -> str:
    """The operation, by the names that the history of a table uses."""
    actions = commit.table_actions
    files = list(file_actions(commit))
    adds = [file for file in files if isinstance(file, Add)]
    if actions.metadata is not None:
        return "CREATE TABLE"
    if len(adds) < len(files):
        if not any(file.data_change for file in files):
            return "MERGE SPLITS"
        return "REPLACE FILES" if adds else "REMOVE FILES"
    if adds:
        return "WRITE"
    if actions.skips:
        return "MERGE SKIP"
    return "UPGRADE PROTOCOL" if actions.protocol is not None else "UNKNOWN"
