"""Writing deletion vectors (spec: "Deletion Vector Format", "Deletion Vector File Storage Format").

Few small vectors stand inline in the log, where a reader has them at once; all others of a commit share one file, each
framed by its size and its CRC-32. A file gets a name of its own and is durable before its vectors are handed out, so a
commit never names bytes that could get lost.

>>> from pyroaring import BitMap64
>>> from headwater.log.deletion_vectors import decode_inline, to_bitmap
>>> from headwater.storage import open_store
>>> [vector] = write_vectors(open_store("memory://vector-example"), [BitMap64([3, 4, 7])])
>>> vector.storage_type, vector.cardinality, list(to_bitmap(decode_inline(vector)))
('i', 3, [3, 4, 7])
"""

from __future__ import annotations

import binascii
import struct
import uuid
from typing import TYPE_CHECKING

from headwater.log.actions import DeletionVector
from headwater.log.context import new_id
from headwater.log.deletion_vectors import FILE_FORMAT_VERSION, MAGIC, vector_path, z85_encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyroaring import BitMap64

    from headwater.storage.base import ObjectStore

MAX_INLINE_BYTES = 256
"""A larger vector is in a file: the log is read by everybody, a vector by those who read its data file."""
MAX_INLINE_TOTAL_BYTES = 16_384
"""If the small vectors of a commit take more than this together, they are in a file too."""
_MAX_FILE_BYTES = 1 << 30
"""Of one file; offsets in it are 32-bit numbers."""
_FRAME = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")


def write_vectors(
    store: ObjectStore, bitmaps: Sequence[BitMap64], *, prefix: str = "", new_id: Callable[[], str] = new_id
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
    small = [number for number, data in enumerate(serialized) if len(data) <= MAX_INLINE_BYTES]
    if sum(len(serialized[number]) for number in small) > MAX_INLINE_TOTAL_BYTES:
        small = []
    found = {number: _inline(serialized[number], len(bitmaps[number])) for number in small}
    for numbers in _by_file([number for number in range(len(bitmaps)) if number not in found], serialized):
        name = prefix + z85_encode(uuid.UUID(new_id()).bytes)
        content = bytearray([FILE_FORMAT_VERSION])
        for number in numbers:
            data = serialized[number]
            found[number] = DeletionVector("u", name, len(data), len(bitmaps[number]), len(content))
            content += _FRAME.pack(len(data)) + data + _CHECKSUM.pack(binascii.crc32(data))
        store.put(vector_path(found[numbers[0]]), bytes(content))
    return [found[number] for number in range(len(bitmaps))]


def inline_vector(rows: BitMap64) -> DeletionVector:
    """A vector that needs no file, whatever its size: for a scan that is to leave out some rows.

    >>> from pyroaring import BitMap64
    >>> inline_vector(BitMap64([3, 4, 7])).cardinality
    3
    """
    return _inline(_serialized(rows), len(rows))


def _serialized(rows: BitMap64) -> bytes:
    """The magic number and the bitmap in the portable format, runs of rows as runs."""
    from pyroaring import BitMap64

    packed = BitMap64(rows)
    packed.run_optimize()
    return struct.pack("<i", MAGIC) + packed.serialize()


def _inline(data: bytes, cardinality: int) -> DeletionVector:
    padded = data + bytes(-len(data) % 4)  # Z85 takes four bytes at a time; `sizeInBytes` tells readers where to stop
    return DeletionVector("i", z85_encode(padded), len(data), cardinality)


def _by_file(numbers: Sequence[int], serialized: Sequence[bytes]) -> Iterator[list[int]]:
    """Vectors that go into one file together: all of them, unless it would be too large."""
    file: list[int] = []
    size_bytes = 1
    for number in numbers:
        framed_bytes = _FRAME.size + len(serialized[number]) + _CHECKSUM.size
        if file and size_bytes + framed_bytes > _MAX_FILE_BYTES:
            yield file
            file, size_bytes = [], 1
        file.append(number)
        size_bytes += framed_bytes
    if file:
        yield file
