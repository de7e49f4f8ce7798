"""The dialects of the transaction log: Delta's, and that of search tables (spec 002, IndexTables).

Replay, snapshots, the commit path, conflicts, time travel and pruning are the same code for both. What differs is a
`LogFormat`: the directory and its names, the actions, what a checkpoint looks like, and what the log promises about its
first version and about gaps. Delta's is here, the other one in `split_format.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from headwater.log import names
from headwater.log.actions import Add, FileActionLine, TableActionLine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from headwater.log.file_chunks import MemoryChunk

FormatName: TypeAlias = Literal["delta", "indextables"]


@dataclass(frozen=True, slots=True, eq=False)
class LogFormat:
    """What a dialect of the log is made of."""

    name: FormatName
    title: str
    """What users call such a table."""
    directory: str
    """Of the log, below the table's root; ends with `/`."""
    parse: Callable[[str], names.LogName | None]
    """The meaning of a file name in the log directory, or None if it has none for a reader."""
    table_line: msgspec.json.Decoder[Any]
    """Decodes a line for everything but file actions."""
    file_line: msgspec.json.Decoder[Any]
    """Decodes a line for its file actions."""
    add_type: type[Add] = Add
    """The `add` action."""
    complete_file_lines: Callable[[Sequence[Any], str], list[FileActionLine]] | None = None
    """What is left to do with lines that `file_line` has decoded."""
    has_checksums: bool = True
    """Each version may have a `.crc` file."""
    has_merge_skips: bool = False
    """`mergeskip` is an action."""
    actions_are_ordered: bool = False
    """Of several actions for one file in one version the last one counts; otherwise they contradict each other."""
    json_checkpoints: bool = False
    """A checkpoint is one JSON object; one that cannot be read is passed over."""
    stops_at_gaps: bool = False
    """Version files after a gap do not count; otherwise a gap is an error."""
    needs_first_version: bool = False
    """Version 0 holds `protocol` and `metaData`, nothing else, and stays for ever."""

    def commit_key(self, version: int) -> str:
        """The key of a version file.

        >>> DELTA.commit_key(12)
        '_delta_log/00000000000000000012.json'
        """
        return f"{self.directory}{version:020d}.json"

    def json_checkpoint_key(self, version: int) -> str:
        """The key of a checkpoint in JSON."""
        assert self.json_checkpoints, f"a {self.title} has no checkpoints of this name"
        return f"{self.directory}{version:020d}.checkpoint.json"

    def first_key_of(self, version: int) -> str:
        """A key that sorts right before every log file of this version (for `list_from`)."""
        return f"{self.directory}{version:020d}"

    @property
    def last_checkpoint_key(self) -> str:
        """The key of the hint."""
        return self.directory + "_last_checkpoint"

    @property
    def file_columns(self) -> dict[str, pa.DataType]:
        """The columns of `Snapshot.files`."""
        if self.json_checkpoints:
            from headwater.log.split_chunk import SPLIT_COLUMNS

            return SPLIT_COLUMNS
        from headwater.log.file_chunks import ADD_COLUMNS

        return ADD_COLUMNS

    def chunk(self, adds: Sequence[Add]) -> MemoryChunk:
        """Some `add` actions of commits, as columns."""
        if self.json_checkpoints:
            from headwater.log.split_chunk import SplitChunk

            return SplitChunk(adds)
        from headwater.log.file_chunks import ADD_COLUMNS, MemoryChunk

        return MemoryChunk(adds, ADD_COLUMNS)


DELTA = LogFormat(
    name="delta",
    title="Delta table",
    directory=names.LOG_DIR,
    parse=names.parse,
    table_line=msgspec.json.Decoder(TableActionLine),
    file_line=msgspec.json.Decoder(FileActionLine),
)
