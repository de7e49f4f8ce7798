"""The bundle: how the parts of a split become one immutable file, and how they are found in it again.

The layout is Quickwit's: the parts one after the other; then the footer, which is a u32 magic number, a u32 version and
the JSON directory `{"files": {name: {"start", "end"}}}`, their length, the hotcache and its length. The directory also
holds a SHA-256 of each part; the hotcache holds what a reader needs before the first query (the split's metadata)
behind a SHA-256 of directory and metadata, so that no byte of a bundle can change unnoticed. Numbers are little-endian.

The offsets are those of the log's `add` (spec 002: footerStartOffset, footerEndOffset, hotcacheStartOffset,
hotcacheLength): with them a split is opened by one range request.

The metadata of a split is the JSON in the hotcache of its bundle. It is enough to plan with a split, and to rebuild
the `add` and the `metaData` of a lost log from the splits alone.

The other parts are the files of a tantivy index. tantivy has no call to merge indexes, but its segments have unique
names, and `meta.json` lists those that count: so the files of several indexes of one schema in one directory, with one
list, are one index.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.errors import CorruptSplitError
from headwater.storage.durable import sync_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


_MAGIC: Final = 403_881_646
_VERSION: Final = 1
_HOTCACHE_MAGIC: Final = b"HWSPLIT\x01"
_HEADER: Final = struct.Struct("<II")
_LENGTH: Final = struct.Struct("<I")
_DIGEST_BYTES: Final = 32
_COPY_BYTES: Final = 1 << 20
_FETCH_BYTES: Final = 16 << 20
"""Enough that the latency of an object store does not count."""
_TAIL_BYTES: Final = 1 << 16
"""How much of the end is read when the offsets are not known: more than most footers have."""


@dataclass(frozen=True, slots=True)
class Part:
    """The place of one part in the bundle, and the SHA-256 of its bytes."""

    name: str
    start: int
    end: int
    sha256: str

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class BundleFooter:
    """The footer of a bundle, checked.

    The digest is the SHA-256 over directory and metadata. As the directory holds the digest of each part, it names the
    content of the whole bundle.
    """

    parts: Mapping[str, Part]
    metadata: bytes
    digest: str
    footer_start: int
    footer_end: int
    hotcache_start: int
    hotcache_length: int


def write_bundle(path: str, files: Sequence[tuple[str, str]], metadata: bytes) -> BundleFooter:
    """Write a bundle to a new file, and flush it to the disk.

    `files` has the name and local file of each part; `metadata` is what readers need before they read any part.
    """
    parts: list[Part] = []
    with open(path, "xb") as bundle:
        for name, source in files:
            start = bundle.tell()
            digest = _append(bundle, source)
            parts.append(Part(name, start, bundle.tell(), digest))
        footer_start = bundle.tell()
        bundle.write(_footer_bytes(parts, metadata))
        bundle.flush()
        sync_file(bundle.fileno())
        size_bytes = bundle.tell()
    with open(path, "rb") as written:
        return read_footer(lambda start, length: _at(written, start, length), size_bytes, path, footer_start)


def _append(bundle: Any, source: str) -> str:
    digest = hashlib.sha256()
    with open(source, "rb", buffering=0) as file:
        while block := file.read(_COPY_BYTES):
            digest.update(block)
            bundle.write(block)
    return digest.hexdigest()


def _at(file: Any, start: int, length: int) -> bytes:
    file.seek(start)
    data: bytes = file.read(length)
    return data


def _footer_bytes(parts: Sequence[Part], metadata: bytes) -> bytes:
    directory = _HEADER.pack(_MAGIC, _VERSION) + msgspec.json.encode(
        {
            "files": {part.name: {"start": part.start, "end": part.end} for part in parts},
            "sha256": {part.name: part.sha256 for part in parts},
        }
    )
    digest = hashlib.sha256(directory + metadata).digest()
    hotcache = _HOTCACHE_MAGIC + digest + metadata
    return directory + _LENGTH.pack(len(directory)) + hotcache + _LENGTH.pack(len(hotcache))


# --- reading ---------------------------------------------------------------------------------------------


def read_footer(
    read: Callable[[int, int], bytes], size_bytes: int, path: str, footer_start: int | None = None
) -> BundleFooter:
    """Read and check a bundle's footer; `read` gives `length` bytes from an offset.

    Raises:
        CorruptSplitError: it is damaged, cut off, or not a split.
    """
    if footer_start is not None and 0 <= footer_start < size_bytes:
        return _parse(read(footer_start, size_bytes - footer_start), size_bytes, path)
    tail = read(max(0, size_bytes - _TAIL_BYTES), min(size_bytes, _TAIL_BYTES))
    needed = _footer_length(tail, path)
    if needed > size_bytes:
        raise _corrupt(path, "its footer is longer than the file: it is cut off or damaged")
    if needed > len(tail):
        tail = read(size_bytes - needed, needed)
        needed = _footer_length(tail, path)  # the length of the directory may have been outside of the first piece
        if len(tail) < needed <= size_bytes:
            tail = read(size_bytes - needed, needed)
    return _parse(tail[-needed:], size_bytes, path)


def _footer_length(tail: bytes, path: str) -> int:
    """Return the length of the footer, or a lower bound if the directory's length is not in the tail yet."""
    if len(tail) < _LENGTH.size:
        raise _corrupt(path, f"it has {len(tail)} bytes only")
    (hotcache,) = _LENGTH.unpack_from(tail, len(tail) - _LENGTH.size)
    upto_directory = hotcache + 2 * _LENGTH.size
    if upto_directory > len(tail):
        return int(upto_directory)
    (directory,) = _LENGTH.unpack_from(tail, len(tail) - upto_directory)
    return int(upto_directory + directory)


def _parse(footer: bytes, size_bytes: int, path: str) -> BundleFooter:
    if _footer_length(footer, path) != len(footer):
        raise _corrupt(path, "the lengths in its footer do not fit: it is cut off or damaged, or no split")
    (hotcache_length,) = _LENGTH.unpack_from(footer, len(footer) - _LENGTH.size)
    hotcache_at = len(footer) - _LENGTH.size - hotcache_length
    directory = footer[: hotcache_at - _LENGTH.size]
    hotcache = footer[hotcache_at : hotcache_at + hotcache_length]
    if len(directory) < _HEADER.size or _HEADER.unpack_from(directory) != (_MAGIC, _VERSION):
        raise _corrupt(path, "it does not have the mark of a split bundle of version 1")
    head = len(_HOTCACHE_MAGIC)
    if hotcache[:head] != _HOTCACHE_MAGIC:
        raise _corrupt(path, "its hotcache was not written by Headwater, or is damaged")
    metadata = hotcache[head + _DIGEST_BYTES :]
    digest = hashlib.sha256(directory + metadata)
    if digest.digest() != hotcache[head : head + _DIGEST_BYTES]:
        raise _corrupt(path, "the checksum of its footer is wrong")
    footer_start = size_bytes - len(footer)
    return BundleFooter(
        parts=_parts(directory[_HEADER.size :], footer_start, path),
        metadata=metadata,
        digest=digest.hexdigest(),
        footer_start=footer_start,
        footer_end=size_bytes,
        hotcache_start=footer_start + hotcache_at,
        hotcache_length=hotcache_length,
    )


def _parts(directory: bytes, parts_end: int, path: str) -> dict[str, Part]:
    try:
        listed = msgspec.json.decode(directory)
        parts = {
            name: Part(name, place["start"], place["end"], listed["sha256"][name])
            for name, place in listed["files"].items()
        }
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _corrupt(path, f"its directory cannot be read: {error}") from error
    at = 0
    for part in parts.values():  # they lie one after the other: together they are the whole file before the footer
        if part.start != at or part.end < at or "/" in part.name or part.name in (".", ".."):
            raise _corrupt(path, f"its directory is wrong about part {part.name!r}")
        at = part.end
    if at != parts_end:
        raise _corrupt(path, f"its parts end at byte {at}, and its footer starts at {parts_end}")
    return parts


# --- parts -----------------------------------------------------------------------------------------------


def part_blocks(read: Callable[[int, int], bytes], part: Part, path: str) -> Iterator[bytes]:
    """Yield the bytes of one part, block by block; the last block only when the digest of all is right.

    Raises:
        CorruptSplitError: the bytes are not what was written.
    """
    digest = hashlib.sha256()
    at = part.start
    while at < part.end:
        block = read(at, min(_FETCH_BYTES, part.end - at))
        digest.update(block)
        at += len(block)
        if not block or at >= part.end:
            check_digest(digest.hexdigest(), part, path)
        yield block


def check_digest(sha256: str, part: Part, path: str) -> None:
    """Raise `CorruptSplitError` unless the SHA-256 of a part's bytes is that of the directory."""
    if sha256 != part.sha256:
        raise _corrupt(path, f"the checksum of its part {part.name!r} is wrong")


def _corrupt(path: str, why: str) -> CorruptSplitError:
    return CorruptSplitError(
        f"the split {path} cannot be used: {why}. Restore the file, or remove it and index its rows again",
        path,
    )


FORMAT_VERSION = 1


class SplitMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """The metadata of one split.

    Attributes:
        format_version: 1; readers refuse a higher one.
        doc_mapping: the index configuration (`docMappingJson`, as an object).
        schema: the Spark schema of the rows that the split was made from, as an object.
        num_records: rows.
        row_ids: pairs of the first row id and the number of rows that count on from it, in the order of the
            rows. A split that was merged from others has one pair for each.
        row_batch_rows: rows in each record batch of the rows part, but the last.
        partial_fields: index fields that lack the value of some row.
        null_counts: for each column how many rows have none.
        min_values: as in the `add`.
        max_values: as in the `add`.
        num_merge_ops: how often rows in this split were merged.
    """

    doc_mapping: dict[str, Any]
    schema: dict[str, Any]
    num_records: int
    row_ids: tuple[tuple[int, int], ...]
    row_batch_rows: int
    partial_fields: tuple[str, ...] = ()
    null_counts: dict[str, int] = {}
    min_values: dict[str, str] = {}
    max_values: dict[str, str] = {}
    num_merge_ops: int = 0
    format_version: int = FORMAT_VERSION

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, path: str) -> SplitMetadata:
        """Read the JSON of the split at `path`."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CorruptSplitError(f"the metadata of the split {path} cannot be read: {error}", path) from error
        if found.format_version > FORMAT_VERSION:
            raise CorruptSplitError(
                f"the split {path} has format version {found.format_version}; this Headwater reads up to "
                f"{FORMAT_VERSION}: use a newer one",
                path,
            )
        return found


# --- the files of an index ----------------------------------------------------------------------------------


META: Final = "meta.json"
_MANAGED: Final = ".managed.json"


def index_files(directory: str) -> list[tuple[str, str]]:
    """Return names and paths of the files that make up the index in a directory: no leftovers, no locks."""
    segments = _segments(_meta(directory))
    names = sorted(name for name in os.listdir(directory) if name.partition(".")[0] in segments)
    return [(name, os.path.join(directory, name)) for name in (META, *names)]


def write_managed(directory: str) -> None:
    """Write the list of files that tantivy keeps beside an index, for one that was unpacked or joined."""
    names = [name for name, _ in index_files(directory)]
    with open(os.path.join(directory, _MANAGED), "wb") as file:
        file.write(msgspec.json.encode(names))


def join_indexes(directories: Sequence[str], target: str) -> bool:
    """Join the segments of several indexes in an empty directory; False if their schemas differ.

    The files are hard links where that is possible: nothing is read, and nothing changes in the sources.
    """
    metas = [_meta(directory) for directory in directories]
    first = metas[0]
    if any(meta["schema"] != first["schema"] or _settings(meta) != _settings(first) for meta in metas):
        return False
    for directory in directories:
        for name, path in index_files(directory):
            if name != META:
                _link(path, os.path.join(target, name))
    joined = {
        **first,
        "segments": [segment for meta in metas for segment in meta["segments"]],
        "opstamp": max(meta["opstamp"] for meta in metas),
    }
    joined.pop("payload", None)
    with open(os.path.join(target, META), "wb") as file:
        file.write(msgspec.json.encode(joined))
    write_managed(target)
    return True


def _meta(directory: str) -> dict[str, Any]:
    path = os.path.join(directory, META)
    try:
        with open(path, "rb") as file:
            meta: dict[str, Any] = msgspec.json.decode(file.read())
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise CorruptSplitError(f"the list of segments {path} cannot be read: {error}", directory) from error
    return meta


def _segments(meta: dict[str, Any]) -> set[str]:
    return {segment["segment_id"].replace("-", "") for segment in meta["segments"]}


def _settings(meta: dict[str, Any]) -> Any:
    return meta.get("index_settings")


def link_files(directory: str, target: str) -> None:
    """Link the files of an index into a new directory.

    Raises:
        FileNotFoundError: the index is no longer there.
    """
    os.makedirs(target)
    for name in os.listdir(directory):
        _link(os.path.join(directory, name), os.path.join(target, name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
