"""The bundle: how the parts of a split become one immutable file, and how they are found in it again.

The layout is Quickwit's: the parts one after the other; then the footer, which is a u32 magic number, a u32 version and
the JSON directory `{"files": {name: {"start", "end"}}}`, their length, the hotcache and its length. The directory also
holds a SHA-256 of each part; the hotcache holds what a reader needs before the first query (the split's metadata)
behind a SHA-256 of directory and metadata, so that no byte of a bundle can change unnoticed. Numbers are little-endian.

The offsets are those of the log's `add` (spec 002: footerStartOffset, footerEndOffset, hotcacheStartOffset,
hotcacheLength): with them a split is opened by one range request.
"""

from __future__ import annotations

import hashlib
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
    """Where one part is in the bundle, and the SHA-256 of its bytes."""

    name: str
    start: int
    end: int
    sha256: str

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class BundleFooter:
    """The footer of a bundle, checked.

    Attributes:
        parts: the parts by name.
        metadata: the split's metadata, as it was given to `write_bundle`.
        digest: the SHA-256 over directory and metadata. As the directory holds the digest of each part, it names the
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
    """Write a bundle.

    Args:
        path: the file to make; it must not exist. It is flushed to the disk before this returns.
        files: names of the parts, and the local files that have their bytes.
        metadata: what readers need before they read any part.
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
    """Read and check a bundle's footer.

    Args:
        read: gives `length` bytes from an offset.
        size_bytes: of the whole bundle.
        path: what the bundle is called in messages.
        footer_start: where the footer starts, if the log says so.

    Raises:
        CorruptSplitError: it is damaged, cut off, or no split.
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
    """How long the footer is, or at least is: if the directory's length is not in the tail yet."""
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
    """The bytes of one part, block by block. The last block is given only when the digest of all is right.

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
    """Compare the SHA-256 of a part's bytes with the directory's.

    Raises:
        CorruptSplitError: it is another.
    """
    if sha256 != part.sha256:
        raise _corrupt(path, f"the checksum of its part {part.name!r} is wrong")


def _corrupt(path: str, why: str) -> CorruptSplitError:
    return CorruptSplitError(
        f"the split {path} cannot be used: {why}. Restore the file, or remove it and index its rows anew",
        path,
    )
