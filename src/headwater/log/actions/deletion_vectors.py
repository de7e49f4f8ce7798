"""Read and write deletion vectors: which rows of a data file are deleted (spec: "Deletion Vector Format").

A vector is a 64-bit roaring bitmap of row positions, inline in the log or in a file that may hold many of them. It is
checked (size, CRC-32, magic number, cardinality) and handed on in its portable form, which every roaring library reads.

The vectors of a commit share one new file, which is durable before the commit names it. Even a small vector is not
written inline: the spec allows that, but VACUUM of delta-spark 4.4 fails on such tables.

>>> from headwater.log.actions.model import DeletionVector
>>> inline = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
>>> list(to_bitmap(decode_inline(inline)))
[3, 4, 7, 11, 18, 29]
>>> from pyroaring import BitMap64
>>> from headwater.storage import open_store
>>> [vector] = write_vectors(open_store("memory://vector-example"), [BitMap64([3, 4, 7])])
>>> vector.storage_type, vector.cardinality, vector.offset
('u', 3, 1)
"""

from __future__ import annotations

import base64
import binascii
import struct
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from headwater.errors import CorruptLogError, StorageError
from headwater.log.actions.model import DeletionVector
from headwater.log.actions.paths import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyroaring import BitMap64

    from headwater.storage.base import ObjectStore


MAGIC = 1681511377
_OLD_HEADER = struct.pack(">i", 1681511376)
"""Begins the format that preceded the portable one; the spec's example of an inline vector is in it."""
FILE_FORMAT_VERSION = 1
_UUID_TEXT_LENGTH = 20
_MAX_GAP_BYTES = 64 * 1024
"""Vectors of one file that lie this close together are fetched in one read."""
_PARALLEL_READS = 16
_LARGE_BYTES = 16 * 2**20
"""A vector that is said to be larger is looked at before it is read as a whole."""

# Z85 and Python's base85 are one code over two alphabets.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = bytes.maketrans(_Z85, _B85)
_FROM_B85 = bytes.maketrans(_B85, _Z85)
_FOREIGN = frozenset(_B85) - frozenset(_Z85)


def z85_decode(text: str) -> bytes:
    """Decode Z85 text (ZeroMQ RFC 32): five characters for four bytes.

    >>> z85_decode("HelloWorld").hex()
    '864fd26fb559f75b'
    >>> z85_decode("Hello##093").hex()
    '864fd26f0300'

    Raises:
        ValueError: the text is not Z85.
    """
    data = text.encode("ascii")
    if len(data) % 5 or any(byte in _FOREIGN for byte in data):
        raise ValueError(f"{text!r} is not Z85 text")
    if data[-5:-4] != b"#":
        return base64.b85decode(data.translate(_TO_B85))
    # No four bytes encode to this. Rust's kernel writes one to three last bytes so: in one digit more.
    digits = data[-5:].lstrip(b"#")
    number = sum(_Z85.index(digit) * 85**power for power, digit in enumerate(reversed(digits)))
    size = len(digits) - 1
    if size < 1 or number >= 256**size:
        raise ValueError(f"{text!r} is not Z85 text")
    last: bytes = number.to_bytes(size, "big")
    return base64.b85decode(data[:-5].translate(_TO_B85)) + last


def z85_encode(data: bytes) -> str:
    """Encode bytes as Z85 text; the length must be a multiple of four.

    >>> z85_encode(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    if len(data) % 4:
        raise ValueError(f"Z85 needs a multiple of 4 bytes, not {len(data)}")
    return base64.b85encode(data).translate(_FROM_B85).decode("ascii")


def vector_path(vector: DeletionVector) -> str:
    """Return the decoded path of the file that holds a vector: relative to the table for `u`, absolute for `p`.

    >>> from headwater.log.actions.model import DeletionVector
    >>> vector_path(DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, offset=4))
    'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    text = vector.path_or_inline_dv
    if vector.storage_type == "p":
        return canonical(text) if text.startswith(("file:", "/")) else unquote(text)
    prefix, encoded = text[:-_UUID_TEXT_LENGTH], text[-_UUID_TEXT_LENGTH:]
    try:
        identifier = uuid.UUID(bytes=z85_decode(encoded))
    except ValueError as error:
        raise CorruptLogError(f"the deletion vector {text!r} does not end in an encoded UUID: {error}") from error
    name = f"deletion_vector_{identifier}.bin"
    return f"{prefix}/{name}" if prefix else name


def decode_inline(vector: DeletionVector) -> bytes:
    """Return the serialised bitmap of an inline vector.

    Raises:
        CorruptLogError: the text cannot be decoded, or is not what the descriptor says.
    """
    _check_descriptor(vector, "an inline deletion vector")
    try:
        data = z85_decode(vector.path_or_inline_dv)[: vector.size_in_bytes]
    except ValueError as error:
        raise CorruptLogError(f"an inline deletion vector cannot be decoded: {error}") from error
    return _checked(data, vector, "an inline deletion vector")


def to_bitmap(serialized: bytes) -> BitMap64:
    from pyroaring import BitMap64

    return BitMap64.deserialize(serialized)


def read_vectors(
    vectors: Sequence[DeletionVector],
    store: ObjectStore,
    open_root: Callable[[str], tuple[ObjectStore, str]],
) -> list[bytes]:
    """Fetch vectors, in the order given, each as a serialised 64-bit bitmap (portable format, without magic).

    Raises:
        CorruptLogError: a vector is not what its descriptor and its checksum say; the message names the file.
        StorageError: a file cannot be read.
    """
    found: dict[str, bytes] = {}
    by_file: dict[tuple[str, str], list[DeletionVector]] = {}
    for vector in {v.unique_id: v for v in vectors}.values():
        if vector.storage_type == "i":
            found[vector.unique_id] = decode_inline(vector)
        elif vector.storage_type in ("u", "p"):
            by_file.setdefault((vector.storage_type, vector_path(vector)), []).append(vector)
        else:
            raise CorruptLogError(
                f"deletion vectors of storage type {vector.storage_type!r} are unknown: expected i, u or p"
            )

    def read_file(file: tuple[str, str]) -> dict[str, bytes]:
        kind, path = file
        holder, key = (store, path) if kind == "u" else open_root(path)
        return _read_file(holder, key, by_file[file])

    if len(by_file) == 1:
        found.update(read_file(next(iter(by_file))))
    elif by_file:
        with ThreadPoolExecutor(_PARALLEL_READS, thread_name_prefix="headwater-vectors") as pool:
            for part in pool.map(read_file, by_file):
                found.update(part)
    return [found[v.unique_id] for v in vectors]


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes of a file that are read at once."""

    start: int
    end: int
    vectors: tuple[DeletionVector, ...]


def _read_file(store: ObjectStore, key: str, vectors: Sequence[DeletionVector]) -> dict[str, bytes]:
    """Return the vectors of one file: length, bitmap and CRC-32 each, after one byte of format version."""
    where = f"{store.uri}/{key}"
    found: dict[str, bytes] = {}
    for vector in vectors:
        _check_descriptor(vector, f"the deletion vector at offset {vector.offset} of {where}")
    for span in _spans(vectors):
        try:
            for vector in span.vectors:
                if vector.size_in_bytes > _LARGE_BYTES:  # believed only if the file says the same
                    _check_size(store.get_range(key, vector.offset or 0, 4), vector, where)
            data = store.get_range(key, span.start, span.end - span.start)
        except StorageError as error:
            raise type(error)(
                f"the deletion vector file {where} cannot be read, so it is unknown which rows are deleted "
                f"(has VACUUM removed it?): {error}"
            ) from error
        if span.start == 0 and data[:1] != bytes([FILE_FORMAT_VERSION]):
            raise CorruptLogError(f"{where} is a deletion vector file of unknown format version {data[:1]!r}")
        for vector in span.vectors:
            start = (vector.offset or 0) - span.start
            found[vector.unique_id] = _unframed(data[start:], vector, where)
    return found


def _spans(vectors: Sequence[DeletionVector]) -> list[_Span]:
    """What to read of one file: its first byte, and vectors with small gaps between them together."""
    spans = [_Span(0, 1, ())]
    for vector in sorted(vectors, key=lambda v: v.offset or 0):
        start = vector.offset or 0
        end = start + 4 + vector.size_in_bytes + 4
        last = spans[-1]
        if start - last.end <= _MAX_GAP_BYTES:
            spans[-1] = _Span(last.start, max(end, last.end), (*last.vectors, vector))
        else:
            spans.append(_Span(start, end, (vector,)))
    return spans


def _unframed(data: bytes, vector: DeletionVector, where: str) -> bytes:
    size = vector.size_in_bytes
    what = f"the deletion vector at offset {vector.offset} of {where}"
    if len(data) < size + 8:
        raise CorruptLogError(f"{what} is cut off: {len(data)} of {size + 8} bytes are there")
    _check_size(data, vector, where)
    bitmap = data[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", data, 4 + size)
    if binascii.crc32(bitmap) != checksum:
        raise CorruptLogError(f"{what} is damaged: its checksum does not match")
    return _checked(bitmap, vector, what)


def _check_size(data: bytes, vector: DeletionVector, where: str) -> None:
    """Raise unless a vector in a file begins with the size that the log says."""
    (stored_size,) = struct.unpack_from(">i", data.ljust(4, b"\0"))
    if stored_size != vector.size_in_bytes:
        raise CorruptLogError(
            f"the deletion vector at offset {vector.offset} of {where} has {stored_size} bytes, and the log says "
            f"{vector.size_in_bytes}"
        )


def _check_descriptor(vector: DeletionVector, what: str) -> None:
    """Raise if the log says of a vector what cannot be said of any."""
    if vector.size_in_bytes < 0 or vector.cardinality < 0 or (vector.offset or 0) < 0:
        raise CorruptLogError(
            f"{what} cannot be: the log says that it has {vector.size_in_bytes} bytes, deletes {vector.cardinality} "
            f"rows and begins at {vector.offset}"
        )


def _checked(data: bytes, vector: DeletionVector, what: str) -> bytes:
    """The bitmap behind the magic number, once it decodes to as many rows as the log says."""
    if len(data) != vector.size_in_bytes or len(data) < 12:
        raise CorruptLogError(f"{what} has {len(data)} bytes, and the log says {vector.size_in_bytes}")
    (magic,) = struct.unpack_from("<i", data)
    try:
        if data.startswith(_OLD_HEADER):
            serialized = _portable(data[4:])
        elif magic == MAGIC:
            serialized = data[4:]
        else:
            raise CorruptLogError(f"{what} has the magic number {magic}, not {MAGIC}: an unknown bitmap format")
        count = len(to_bitmap(serialized))
    except (ValueError, IndexError, struct.error) as error:
        raise CorruptLogError(f"{what} is not a roaring bitmap: {error}") from error
    if count != vector.cardinality:
        raise CorruptLogError(f"{what} deletes {count} rows, and the log says {vector.cardinality}")
    return serialized


def _portable(data: bytes) -> bytes:
    """Return the old format (big endian: count, then size and bitmap for each key from 0 on) in the portable one."""
    (count,) = struct.unpack_from(">i", data)
    parts, start = [struct.pack("<q", count)], 4
    for key in range(count):
        (size,) = struct.unpack_from(">i", data, start)
        parts += [struct.pack("<i", key), data[start + 4 : start + 4 + size]]
        start += 4 + size
    return b"".join(parts)


_MAX_FILE_BYTES = 1 << 30
"""Of one file; offsets in it are 32-bit numbers."""
_FRAME = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")


def write_vectors(
    store: ObjectStore,
    bitmaps: Sequence[BitMap64],
    *,
    prefix: str = "",
    new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> list[DeletionVector]:
    """Write deletion vectors.

    Args:
        store: the table's.
        bitmaps: the deleted rows of each data file, as positions from 0 on; they are left as they are.
        prefix: of the names of files: the directory in the table in which they are; empty for its root.
        new_id: makes the UUIDs that files are named after.

    Returns:
        The descriptors, in the order of the bitmaps.

    Raises:
        StorageError: the store could not write the vectors.
    """
    serialized = [_serialized(rows) for rows in bitmaps]
    found: list[DeletionVector] = []
    for numbers in _by_file(serialized):
        name = prefix + z85_encode(uuid.UUID(new_id()).bytes)
        content = bytearray([FILE_FORMAT_VERSION])
        for number in numbers:
            data = serialized[number]
            found.append(DeletionVector("u", name, len(data), len(bitmaps[number]), len(content)))
            content += _FRAME.pack(len(data)) + data + _CHECKSUM.pack(binascii.crc32(data))
        store.put(vector_path(found[-1]), bytes(content))
    return found


def inline_vector(rows: BitMap64) -> DeletionVector:
    """Return a vector that needs no file, whatever its size: for a scan that is to leave out some rows.

    >>> from pyroaring import BitMap64
    >>> inline_vector(BitMap64([3, 4, 7])).cardinality
    3
    """
    data = _serialized(rows)
    padded = data + bytes(-len(data) % 4)  # Z85 takes four bytes at a time; `sizeInBytes` tells readers where to stop
    return DeletionVector("i", z85_encode(padded), len(data), len(rows))


def _serialized(rows: BitMap64) -> bytes:
    """Return the magic number and the bitmap in the portable format, runs of rows as runs."""
    from pyroaring import BitMap64

    packed = BitMap64(rows)
    packed.run_optimize()
    return struct.pack("<i", MAGIC) + packed.serialize()


def _by_file(serialized: Sequence[bytes]) -> Iterator[list[int]]:
    """Vectors that go into one file together: all of them, unless it would be too large."""
    file: list[int] = []
    size_bytes = 1
    for number, data in enumerate(serialized):
        framed_bytes = _FRAME.size + len(data) + _CHECKSUM.size
        if file and size_bytes + framed_bytes > _MAX_FILE_BYTES:
            yield file
            file, size_bytes = [], 1
        file.append(number)
        size_bytes += framed_bytes
    if file:
        yield file
