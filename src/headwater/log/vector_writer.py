"""Writing deletion vectors (spec: "Deletion Vector Format", "Deletion Vector File Storage Format").

The vectors of a commit share one file, each framed by its size and its CRC-32. A file gets a name of its own and is
durable before its vectors are handed out, so a commit never names bytes that could get lost. However small a vector is,
it does not stand in the log itself: the spec allows that, but VACUUM of delta-spark 4.4 fails on such tables.

>>> from pyroaring import BitMap64
>>> from headwater.storage import open_store
>>> [vector] = write_vectors(open_store("memory://vector-example"), [BitMap64([3, 4, 7])])
>>> vector.storage_type, vector.cardinality, vector.offset
('u', 3, 1)
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
    """A vector that needs no file, whatever its size: for a scan that is to leave out some rows.

    >>> from pyroaring import BitMap64
    >>> inline_vector(BitMap64([3, 4, 7])).cardinality
    3
    """
    data = _serialized(rows)
    padded = data + bytes(-len(data) % 4)  # Z85 takes four bytes at a time; `sizeInBytes` tells readers where to stop
    return DeletionVector("i", z85_encode(padded), len(data), len(rows))


def _serialized(rows: BitMap64) -> bytes:
    """The magic number and the bitmap in the portable format, runs of rows as runs."""
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
