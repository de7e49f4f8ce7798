"""File actions of simulated writers: an `add` as a listing of files shows it, and the `remove` that takes it away."""

from __future__ import annotations

from typing import Any

from headwater.log.actions.model import Add, DeletionVector, Remove


def add_of(row: dict[str, Any]) -> Add:
    """The `add` action of a row of `Snapshot.files`."""
    vector = row["deletionVector"]
    return Add(
        row["path"],
        row["size"],
        dict(row["partitionValues"]),
        row["modificationTime"],
        stats=row["stats"],
        deletion_vector=vector
        and DeletionVector(
            vector["storageType"],
            vector["pathOrInlineDv"],
            vector["sizeInBytes"],
            vector["cardinality"],
            vector["offset"],
        ),
        base_row_id=row["baseRowId"],
        default_row_commit_version=row["defaultRowCommitVersion"],
    )


def removal_of(file: Add, *, data_change: bool = True) -> Remove:
    """The tombstone of a file, with everything that is known of it."""
    return Remove(
        file.path,
        data_change,
        extended_file_metadata=True,
        partition_values=file.partition_values,
        size=file.size,
        stats=file.stats,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
    )
