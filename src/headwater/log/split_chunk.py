"""The adds of a search table as columns: extended fields included, and bounds from `minValues` and `maxValues`.

Spec 002, "AddAction": a split says its bounds as text in two maps, or in `stats` as a Delta file does. Both serve for
pruning, compared by the type of the column.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.file_chunks import ADD_COLUMNS, STRING_MAP, MemoryChunk, snake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.log.actions import Add
    from headwater.log.split_actions import SplitAdd

SPLIT_COLUMNS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "partitionValues": STRING_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": STRING_MAP,
    "minValues": STRING_MAP,
    "maxValues": STRING_MAP,
    "numRecords": pa.int64(),
    "footerStartOffset": pa.int64(),
    "footerEndOffset": pa.int64(),
    "hotcacheStartOffset": pa.int64(),
    "hotcacheLength": pa.int64(),
    "hasFooterOffsets": pa.bool_(),
    "timeRangeStart": pa.string(),
    "timeRangeEnd": pa.string(),
    "splitTags": pa.list_(pa.string()),
    "deleteOpstamp": pa.int64(),
    "numMergeOps": pa.int32(),
    "docMappingJson": pa.string(),
    "uncompressedSizeBytes": pa.int64(),
}
"""The fields of the `add` action, in the order of the specification."""

RAW = "raw"
"""The column with the text of each action, as it stands in the log."""

_ALL_COLUMNS = {**ADD_COLUMNS, **SPLIT_COLUMNS, RAW: pa.binary()}
_NOT_KNOWN = build.int64s([None])[0]


class SplitChunk(MemoryChunk):
    """Adds of version files, or of a checkpoint.

    Args:
        adds: the actions.
        texts: where the texts of the actions are, if they do not have them themselves.
    """

    def __init__(self, adds: Sequence[Add], texts: Callable[[], list[bytes]] | None = None) -> None:
        super().__init__(adds, _ALL_COLUMNS)
        self._texts = texts

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """A count or bound from the extended fields. Bounds are text, and of whole columns: `a.b` is a name."""
        match path:
            case ("stats_parsed", "numRecords"):
                return self._counted
            case ("stats_parsed", "minValues" | "maxValues" as which, column):
                return self.map_values(which, column)
        return None

    @property
    def _counted(self) -> pa.ChunkedArray:
        """Numbers of rows; not known where `stats` has to be asked for the bounds, which has its own number."""
        neither = pc.and_(self.column("minValues").is_null(), self.column("maxValues").is_null())
        only_text = pc.and_(neither, self.column("stats").is_valid())
        return pc.if_else(only_text, _NOT_KNOWN, self.column("numRecords"))

    def _build(self, name: str) -> pa.Array:
        if name == RAW:
            texts = self._texts() if self._texts is not None else [cast("SplitAdd", a).raw for a in self._actions]
            return build.binaries(texts).cast(pa.binary())
        values = list(map(attrgetter(snake(name)), self._actions))
        type_ = self.types[name]
        if type_ == pa.int32():
            return build.int32s(values)
        if pa.types.is_list(type_):
            return build.string_lists(values)
        return super()._build(name)
