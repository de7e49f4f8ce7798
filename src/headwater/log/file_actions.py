"""File actions from columns: the `add` and `remove` actions for rows of `Snapshot.files`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.log.actions import Add, DeletionVector, Remove

if TYPE_CHECKING:
    import pyarrow as pa

REMOVED_COLUMNS = [
    "path",
    "partitionValues",
    "size",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
]
"""The columns of `Snapshot.files` that a tombstone keeps."""


def additions(files: pa.Table, *, data_change: bool) -> list[Add]:
    """The `add` actions for files, as the log lists them (with all columns)."""
    rows = files.drop_columns(["dataChange"]).to_pylist(maps_as_pydicts="strict")
    return [msgspec.convert({**row, "dataChange": data_change}, Add) for row in rows]


def removals(files: pa.Table, deleted_ms: int, *, data_change: bool) -> list[Remove]:
    """The `remove` actions for live files.

    Args:
        files: as the log lists them, with all columns or with those that a `remove` keeps.
        deleted_ms: when.
        data_change: whether rows vanish with them; False when they are only moved.
    """
    rows = files.select(REMOVED_COLUMNS).to_pylist(maps_as_pydicts="strict")
    return [
        Remove(
            path=row["path"],
            data_change=data_change,
            deletion_timestamp=deleted_ms,
            extended_file_metadata=True,
            partition_values=row["partitionValues"] or {},
            size=row["size"],
            # Rows that are moved are counted: as many must come as go.
            stats=None if data_change else row["stats"],
            tags=row["tags"],
            deletion_vector=_vector(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
        )
        for row in rows
    ]


def _vector(fields: dict[str, object] | None) -> DeletionVector | None:
    return None if fields is None else msgspec.convert(fields, DeletionVector)
