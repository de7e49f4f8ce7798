"""Checkpoints of search tables: one JSON object with everything that is in force (spec 002: "Checkpoint System").

`protocol`, `metaData` and the live `add` actions, each as its writer put it into the log, so that unknown fields
survive. The newest `mergeskip` of live files goes with them: a merge must know which splits to leave alone for a while.

A split has its bounds as text in `minValues` and `maxValues`, or in `stats` as a Delta file does. Both serve for
pruning, compared by the type of the column.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError, ObjectAlreadyExistsError, StorageError
from headwater.log.actions.decode import TableState, decode_lines
from headwater.log.actions.model import Metadata, Protocol
from headwater.log.actions.paths import canonical
from headwater.log.files import arrow as build
from headwater.log.files.chunks import ADD_COLUMNS, STRING_MAP, MemoryChunk, snake
from headwater.log.indextables.actions import MergeSkip, SplitAdd, skip_fields
from headwater.log.segment import CheckpointFiles, hinted_version
from headwater.log.snapshot import BaseFiles, Snapshot
from headwater.storage.base import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.log.actions.model import Add
    from headwater.log.context import LogContext
    from headwater.log.dialect import LogDialect
    from headwater.log.files.chunks import FileChunk


_UNCHANGED = ("schema", "shape", "timestamp", "_totals")
"""What is known of a snapshot stays known when it gets a new checkpoint."""


class _Content(msgspec.Struct, rename={"meta_data": "metaData"}):
    """The object in a checkpoint file."""

    protocol: Protocol
    meta_data: Metadata
    add: list[SplitAdd] = []
    mergeskip: list[MergeSkip] = []


class _Texts(msgspec.Struct, rename={"meta_data": "metaData"}):
    """The same object with the text of each action."""

    protocol: msgspec.Raw
    meta_data: msgspec.Raw
    add: list[msgspec.Raw] = []


class _TextLine(msgspec.Struct, rename={"meta_data": "metaData"}):
    """A line of a version file with the text of its table actions."""

    protocol: msgspec.Raw = msgspec.Raw()
    meta_data: msgspec.Raw = msgspec.Raw()


_CONTENT = msgspec.json.Decoder(_Content)
_TEXTS = msgspec.json.Decoder(_Texts)
_TEXT_LINE = msgspec.json.Decoder(_TextLine)


@dataclass
class JsonCheckpoint:
    """One checkpoint, read as a whole. Shared by all snapshots that start from it."""

    files: CheckpointFiles
    protocol: Protocol
    metadata: Metadata
    live: list[SplitAdd]
    data: bytes
    skips: dict[str, MergeSkip] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return self.files.version

    @property
    def table_state(self) -> TableState:
        return TableState(self.protocol, self.metadata, skips=self.skips)

    @cached_property
    def adds(self) -> list[FileChunk]:
        return [SplitChunk(self.live, lambda: [bytes(text) for text in self._texts().add])] if self.live else []

    @property
    def removes(self) -> list[FileChunk]:
        """Return none: a checkpoint holds live files only."""
        return []

    @property
    def table_texts(self) -> tuple[bytes, bytes]:
        """`protocol` and `metaData` as they stand in the file."""
        texts = self._texts()
        return bytes(texts.protocol), bytes(texts.meta_data)

    def _texts(self) -> _Texts:
        return _TEXTS.decode(self.data)


def read_json_checkpoint(ctx: LogContext, files: CheckpointFiles) -> JsonCheckpoint:
    """Read a whole checkpoint.

    Raises:
        CorruptLogError: it is damaged.
        StorageError: it cannot be read.
    """
    if ctx.cache is not None:
        return ctx.cache.checkpoint(ctx, files)
    return decode_checkpoint(files, ctx.store.get(files.files[0].key))


def decode_checkpoint(files: CheckpointFiles, data: bytes) -> JsonCheckpoint:
    """Decode the bytes of a checkpoint file, or raise `CorruptLogError`."""
    key = files.files[0].key
    try:
        content = _CONTENT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLogError(f"failed to read checkpoint at version {files.version}: {key}: {error}") from error
    skips = {canonical(skip.path): skip for skip in content.mergeskip}
    return JsonCheckpoint(files, content.protocol, content.meta_data, content.add, data, skips)


def write_json_checkpoint(snapshot: Snapshot) -> Snapshot:
    """Write a checkpoint of a snapshot, and let `_last_checkpoint` point at it.

    Returns:
        The same version, starting from the new checkpoint; the snapshot itself when it starts from one already.

    Raises:
        StorageError: the store failed; the log is as it was.
    """
    if not snapshot.segment.commits:
        return snapshot
    ctx, key = snapshot.ctx, checkpoint_key(snapshot.ctx.dialect, snapshot.version)
    data = _encoded(snapshot)
    files = CheckpointFiles(snapshot.version, "json", (ObjectMeta(key, len(data), ctx.clock_ms()),))
    checkpoint = decode_checkpoint(files, data)
    files = replace(files, files=(_put(ctx, files, data),))
    _point_at(ctx, snapshot.version)
    checkpoint = replace(checkpoint, files=files)
    segment = replace(snapshot.segment, checkpoint=files, commits=())
    rebased = Snapshot(ctx, segment, BaseFiles(checkpoint), (), snapshot.configuration)
    known = vars(snapshot)
    vars(rebased).update({name: known[name] for name in _UNCHANGED if name in known})
    return rebased


def checkpoint_key(dialect: LogDialect, version: int) -> str:
    return f"{dialect.first_key_of(version)}.checkpoint.json"


def _encoded(snapshot: Snapshot) -> bytes:
    base = snapshot.base.checkpoint
    known = base.table_texts if isinstance(base, JsonCheckpoint) else (b"", b"")
    protocol, metadata = _table_texts(snapshot, *known)
    adds = snapshot._live.table(None, ["raw"]).column("raw").to_pylist()
    parts = [b'{"protocol":', protocol, b',"metaData":', metadata, b',"add":[', b",\n".join(adds), b"]"]
    skips = _skips_of_live(snapshot)
    if skips:
        parts += [b',"mergeskip":', msgspec.json.encode([skip_fields(skip) for skip in skips])]
    return b"".join([*parts, b"}\n"])


def _table_texts(snapshot: Snapshot, protocol: bytes, metadata: bytes) -> tuple[bytes, bytes]:
    """Return the newest `protocol` and `metaData` as they stand in the log."""
    for commit in snapshot.commits:
        for line in decode_lines(_TEXT_LINE, commit.data, commit.key):
            if bytes(line.protocol) not in (b"", b"null"):
                protocol = bytes(line.protocol)
            if bytes(line.meta_data) not in (b"", b"null"):
                metadata = bytes(line.meta_data)
    return protocol, metadata


def _skips_of_live(snapshot: Snapshot) -> list[MergeSkip]:
    from headwater.log.commit.draft import live_paths

    skips = snapshot.merge_skips
    live = live_paths(snapshot, set(skips)) if skips else set()
    return [skip for path, skip in skips.items() if path in live]


def _put(ctx: LogContext, files: CheckpointFiles, data: bytes) -> ObjectMeta:
    """Write a checkpoint; another writer's of the same version has the same content, and stays unless it is damaged."""
    key = files.files[0].key
    try:
        ctx.store.put_if_absent(key, data)
    except ObjectAlreadyExistsError:
        with suppress(CorruptLogError):
            decode_checkpoint(files, ctx.store.get(key))
            return ctx.store.head(key)
        ctx.store.put(key, data)
    meta = ctx.store.head(key)
    if meta.size_bytes != len(data):
        with suppress(StorageError):
            ctx.store.delete_many([key])
        raise StorageError(
            f"{ctx.uri}: the store has {meta.size_bytes} bytes of {key}, and {len(data)} were written. "
            "The checkpoint was deleted again."
        )
    return meta


def _point_at(ctx: LogContext, version: int) -> None:
    """Let the hint name a checkpoint, unless it already names a newer one."""
    key = ctx.dialect.last_checkpoint_key
    known = hinted_version(ctx.store, key)
    if known is None or known <= version:
        ctx.store.put(key, msgspec.json.encode({"version": version, "timestamp": ctx.clock_ms()}))


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
    """Adds of version files, or of a checkpoint; `texts` has the texts of actions that do not have them themselves."""

    def __init__(self, adds: Sequence[Add], texts: Callable[[], list[bytes]] | None = None) -> None:
        super().__init__(adds, _ALL_COLUMNS)
        self._texts = texts

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        """Return a count or bound from the extended fields. Bounds are text, and of whole columns: `a.b` is a name."""
        match path:
            case ("stats_parsed", "numRecords"):
                return self._counted
            case ("stats_parsed", "minValues" | "maxValues" as which, column):
                return self.map_values(which, column)
        return None

    @property
    def _counted(self) -> pa.ChunkedArray:
        """Return numbers of rows; null where the bounds are in `stats`, which has its own number."""
        neither = pc.and_(self.column("minValues").is_null(), self.column("maxValues").is_null())
        only_text = pc.and_(neither, self.column("stats").is_valid())
        return pc.if_else(only_text, _NOT_KNOWN, self.column("numRecords"))

    def _array(self, name: str) -> pa.Array:
        if name == RAW:
            texts = self._texts() if self._texts is not None else [cast("SplitAdd", a).raw for a in self._actions]
            return build.binaries(texts).cast(pa.binary())
        values = list(map(attrgetter(snake(name)), self._actions))
        type_ = self.types[name]
        if type_ == pa.int32():
            return build.int32s(values)
        if pa.types.is_list(type_):
            return build.string_lists(values)
        return super()._array(name)
