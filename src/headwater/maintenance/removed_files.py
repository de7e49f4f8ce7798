"""The files that some commits took out of a table: their tombstones, and the change data files that they added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.columns import int64s, strings
from headwater.log.commit import CommitActions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.actions import AddCdcFile, Remove
    from headwater.log.context import LogContext

_BATCH = 256
"""Commits fetched together."""


def removed_in(ctx: LogContext, versions: Sequence[int]) -> tuple[list[Remove], pa.Table]:
    """The `remove` actions of some commits, and their `cdc` actions as columns `path` and `size`."""
    removes: list[Remove] = []
    changes: list[AddCdcFile] = []
    for start in range(0, len(versions), _BATCH):
        batch = versions[start : start + _BATCH]
        for version, data in zip(batch, ctx.store.get_many([ctx.format.commit_key(v) for v in batch]), strict=True):
            lines = CommitActions.of(version, data, ctx.format).file_lines()
            removes += [line.remove for line in lines if line.remove is not None]
            changes += [line.cdc for line in lines if line.cdc is not None]
    columns = {
        "path": strings([change.path for change in changes]).cast(pa.string()),
        "size": int64s([change.size for change in changes]),
    }
    return removes, pa.table(columns)
