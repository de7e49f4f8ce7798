"""The checkpoint that snapshots start from, and what has been decoded of its files.

Snapshots on one checkpoint share this, so a refresh keeps every column that an earlier plan has read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.log.checkpoint import Checkpoint
    from headwater.log.file_chunks import FileChunk
    from headwater.log.json_checkpoint import JsonCheckpoint
    from headwater.log.operands import TableShape
    from headwater.log.pruning import ChunkPruner


@dataclass
class BaseFiles:
    """The checkpoint's chunks and what has been decoded of them, for every snapshot that starts from it."""

    checkpoint: Checkpoint | JsonCheckpoint | None
    cleaned_up_before_ms: int | None = None
    """The log was cleaned up by this cut-off already, as far as this process knows (`cleanup.py`)."""
    _pruners: dict[tuple[int, TableShape], ChunkPruner] = field(default_factory=dict)

    @property
    def adds(self) -> list[FileChunk]:
        """The `add` chunks of the checkpoint."""
        return [] if self.checkpoint is None else self.checkpoint.adds

    @property
    def removes(self) -> list[FileChunk]:
        """The tombstone chunks of the checkpoint."""
        return [] if self.checkpoint is None else self.checkpoint.removes

    def pruner(self, index: int, shape: TableShape) -> ChunkPruner:
        """The pruner of a chunk, kept with its decoded columns as long as the table has the same shape."""
        from headwater.log.pruning import ChunkPruner

        key = (index, shape)
        if key not in self._pruners:
            self._pruners[key] = ChunkPruner(self.adds[index], shape)
        return self._pruners[key]
