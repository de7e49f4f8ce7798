"""What the history says of a command: `operationMetrics` under the names that Delta users know."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headwater.log.actions import Add, AddCdcFile
    from headwater.log.row_changes import RowPlan
    from headwater.spark.dml.target_files import TargetFiles


def file_metrics(
    files: TargetFiles, removed: Collection[int], added: Sequence[Add], changes: Sequence[AddCdcFile]
) -> dict[str, int]:
    """Counts and sizes of the files that a command adds and removes."""
    import pyarrow.compute as pc

    return {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": pc.sum(files.take(removed).column("size")).as_py() or 0,
        "numAddedFiles": len(added),
        "numAddedBytes": sum(add.size for add in added),
        "numAddedChangeFiles": len(changes),
    }


def vector_metrics(planned: RowPlan, files: TargetFiles, removed: Collection[int]) -> dict[str, int]:
    """Counts of the deletion vectors that a command adds and takes away, with its files or by larger ones."""
    return {
        "numDeletionVectorsAdded": planned.vectors_added,
        "numDeletionVectorsRemoved": planned.vectors_removed
        + sum(files.vectors[number] is not None for number in removed),
        "numDeletionVectorsUpdated": planned.vectors_updated,
    }


def known(**counts: int | None) -> dict[str, int]:
    """The metrics that are known: the log need not say how many rows a file has.

    >>> known(numDeletedRows=None, numCopiedRows=3)
    {'numCopiedRows': 3}
    """
    return {name: count for name, count in counts.items() if count is not None}
