"""Checkpoints of search tables: one JSON object with everything that is in force (spec 002: "Checkpoint System").

`protocol`, `metaData` and the live `add` actions, each as its own writer put it into the log, so that fields which are
not known here survive. The newest `mergeskip` of live files goes with them, where there are any: without it a merge
would forget, at the next checkpoint, which splits it must leave alone for a while.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import CorruptLogError, ObjectAlreadyExistsError, StorageError
from headwater.log.actions import Metadata, Protocol
from headwater.log.base_files import BaseFiles
from headwater.log.commit import decode_lines
from headwater.log.last_checkpoint import hinted_version
from headwater.log.paths import canonical
from headwater.log.replay import TableState
from headwater.log.segment import CheckpointFiles
from headwater.log.snapshot import Snapshot
from headwater.log.split_actions import MergeSkip, SplitAdd
from headwater.log.split_encoding import skip_fields
from headwater.storage.base import ObjectMeta

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.log.file_chunks import FileChunk

_UNCHANGED = ("schema", "mapping_mode", "shape", "timestamp", "_totals")
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
        """The version whose state the checkpoint holds."""
        return self.files.version

    @property
    def table_state(self) -> TableState:
        """Everything but the files."""
        return TableState(self.protocol, self.metadata, skips=self.skips)

    @cached_property
    def adds(self) -> list[FileChunk]:
        """The `add` actions."""
        from headwater.log.split_chunk import SplitChunk

        return [SplitChunk(self.live, lambda: [bytes(text) for text in self._texts().add])] if self.live else []

    @property
    def removes(self) -> list[FileChunk]:
        """None: a checkpoint holds what is in force."""
        return []

    @property
    def table_texts(self) -> tuple[bytes, bytes]:
        """`protocol` and `metaData` as they stand there."""
        texts = self._texts()
        return bytes(texts.protocol), bytes(texts.meta_data)

    def _texts(self) -> _Texts:
        return _TEXTS.decode(self.data)


def read_json_checkpoint(ctx: LogContext, files: CheckpointFiles) -> JsonCheckpoint:
    """Read a checkpoint and all that it says.

    Raises:
        CorruptLogError: it is damaged.
        StorageError: it cannot be read.
    """
    if ctx.cache is not None:
        return ctx.cache.checkpoint(ctx, files)
    return decode_checkpoint(files, ctx.store.get(files.files[0].key))


def decode_checkpoint(files: CheckpointFiles, data: bytes) -> JsonCheckpoint:
    """A checkpoint from the bytes of its file. Raises `CorruptLogError`."""
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
    ctx, key = snapshot.ctx, snapshot.ctx.format.json_checkpoint_key(snapshot.version)
    data = _encoded(snapshot)
    files = CheckpointFiles(snapshot.version, "json", (ObjectMeta(key, len(data), ctx.clock_ms()),))
    checkpoint = decode_checkpoint(files, data)
    files = replace(files, files=(_put(ctx, files, data),))
    _point_at(ctx, snapshot.version)
    checkpoint = replace(checkpoint, files=files)
    segment = replace(snapshot.segment, checkpoint=files, commits=())
    rebased = Snapshot(ctx, segment, BaseFiles(checkpoint), (), snapshot.protocol, snapshot.metadata)
    known = vars(snapshot)
    vars(rebased).update({name: known[name] for name in _UNCHANGED if name in known})
    return rebased


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
    """The newest `protocol` and `metaData` as they stand in the log."""
    for commit in snapshot.commits:
        for line in decode_lines(_TEXT_LINE, commit.data, commit.key):
            if bytes(line.protocol) not in (b"", b"null"):
                protocol = bytes(line.protocol)
            if bytes(line.meta_data) not in (b"", b"null"):
                metadata = bytes(line.meta_data)
    return protocol, metadata


def _skips_of_live(snapshot: Snapshot) -> list[MergeSkip]:
    from headwater.log.draft_checks import live_paths

    skips = snapshot.merge_skips
    live = live_paths(snapshot, set(skips)) if skips else set()
    return [skip for path, skip in skips.items() if path in live]


def _put(ctx: LogContext, files: CheckpointFiles, data: bytes) -> ObjectMeta:
    """Write a checkpoint; another writer's of the same version says the same, and stays unless it is damaged."""
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
            "The checkpoint was taken away again."
        )
    return meta


def _point_at(ctx: LogContext, version: int) -> None:
    """Let the hint name a checkpoint, unless it already names a newer one."""
    key = ctx.format.last_checkpoint_key
    known = hinted_version(ctx.store, key)
    if known is None or known <= version:
        ctx.store.put(key, msgspec.json.encode({"version": version, "timestamp": ctx.clock_ms()}))
