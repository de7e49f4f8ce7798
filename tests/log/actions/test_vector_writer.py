"""Writing deletion vectors: the bytes are those of the spec, and a reader gets the rows back that were deleted."""

from __future__ import annotations

import binascii
import struct
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from headwater.errors import StorageError
from headwater.log.actions import deletion_vectors as vector_writer
from headwater.log.actions.deletion_vectors import (
    decode_inline,
    inline_vector,
    read_vectors,
    to_bitmap,
    vector_path,
    write_vectors,
    z85_decode,
)
from headwater.storage import ObjectStore
from support.stores.log_store import DictStore

UUID_TEXT = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"
"""The spec's example: with the prefix `ab` it is written `ab^-aqEH.-t@S}K{vb[*k^`."""
SPARSE = BitMap64(range(0, 100_000, 7))
"""Too many runs to be small."""


def nowhere(path: str) -> tuple[ObjectStore, str]:
    raise AssertionError(f"nothing outside the table is asked for: {path}")


def read(store: DictStore, vectors: list) -> list[BitMap64]:
    return [to_bitmap(data) for data in read_vectors(vectors, store, nowhere)]


def test_few_rows_are_in_a_file_too() -> None:
    """The spec allows them in the log, but VACUUM of delta-spark 4.4 fails on a table that has them there."""
    store = DictStore()
    [vector] = write_vectors(store, [BitMap64([3, 4, 7, 11, 18, 29])])
    assert (vector.storage_type, vector.cardinality, vector.offset) == ("u", 6, 1)
    assert list(store.objects) == [vector_path(vector)]


def test_a_vector_for_a_scan_needs_no_file() -> None:
    vector = inline_vector(BitMap64([3, 4, 7, 11, 18, 29]))
    assert (vector.storage_type, vector.cardinality, vector.offset) == ("i", 6, None)
    data = z85_decode(vector.path_or_inline_dv)
    assert len(data) == vector.size_in_bytes + -vector.size_in_bytes % 4, "padded to what Z85 can encode"
    # The portable format: magic number, how many 32-bit bitmaps, the key of the first, and the bitmap itself.
    assert struct.unpack_from("<iqi", data) == (1681511377, 1, 0)
    assert list(to_bitmap(decode_inline(vector))) == [3, 4, 7, 11, 18, 29]


def test_a_file_is_framed_as_the_spec_says() -> None:
    store = DictStore()
    rows = [SPARSE, BitMap64([1]), SPARSE | BitMap64([1])]
    vectors = write_vectors(store, rows, prefix="ab", new_id=lambda: UUID_TEXT)

    [(name, content)] = store.objects.items()
    assert name == f"ab/deletion_vector_{UUID_TEXT}.bin"
    assert content[0] == 1, "the format version"
    place = 1
    for vector, expected in zip(vectors, rows, strict=True):
        assert (vector.storage_type, vector.path_or_inline_dv) == ("u", "ab^-aqEH.-t@S}K{vb[*k^")
        assert vector.offset == place
        [size] = struct.unpack_from(">i", content, place)
        data = content[place + 4 : place + 4 + size]
        [checksum] = struct.unpack_from(">I", content, place + 4 + size)
        assert (size, checksum) == (vector.size_in_bytes, binascii.crc32(data))
        assert struct.unpack_from("<i", data) == (1681511377,)
        assert BitMap64.deserialize(data[4:]) == expected
        assert vector.cardinality == len(expected)
        place += size + 8
    assert place == len(content)


def test_without_a_prefix_files_are_in_the_root() -> None:
    [vector] = write_vectors(DictStore(), [SPARSE], new_id=lambda: UUID_TEXT)
    assert vector_path(vector) == f"deletion_vector_{UUID_TEXT}.bin"
    assert len(vector.path_or_inline_dv) == 20


def test_every_write_makes_a_file_of_its_own() -> None:
    store = DictStore()
    write_vectors(store, [SPARSE])
    write_vectors(store, [SPARSE])
    assert len(store.objects) == 2


def test_no_rows_and_no_vectors() -> None:
    store = DictStore()
    assert write_vectors(store, []) == []
    assert store.objects == {}
    assert read(store, write_vectors(store, [BitMap64()])) == [BitMap64()]


def test_many_small_vectors_share_a_file() -> None:
    store = DictStore()
    rows = [BitMap64([number]) for number in range(1_000)]
    vectors = write_vectors(store, rows)
    assert {vector.storage_type for vector in vectors} == {"u"}
    assert len(store.objects) == 1
    assert read(store, vectors) == rows


def test_files_do_not_grow_beyond_what_an_offset_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_writer, "_MAX_FILE_BYTES", 40_000)
    store, numbers = DictStore(), count(1)
    rows = [SPARSE] * 5
    vectors = write_vectors(store, rows, new_id=lambda: str(UUID(int=next(numbers))))
    assert len(store.objects) == 3
    assert max(map(len, store.objects.values())) <= 40_000
    assert read(store, vectors) == rows


def test_runs_of_rows_are_stored_as_runs() -> None:
    [vector] = write_vectors(DictStore(), [BitMap64(range(1_000_000))])
    assert vector.size_in_bytes <= 256


def test_the_bitmaps_are_left_as_they_are() -> None:
    rows = BitMap64(range(100))
    before = rows.serialize()
    write_vectors(DictStore(), [rows])
    assert rows.serialize() == before


def test_what_cannot_be_written_is_not_handed_out() -> None:
    class Full(DictStore):
        def put(self, key: str, data: bytes) -> None:
            raise StorageError("no space left")

    with pytest.raises(StorageError, match="no space left"):
        write_vectors(Full(), [SPARSE])


ROWS = st.one_of(
    st.sets(st.integers(0, 200), max_size=300),
    st.sets(st.integers(0, 2**33), max_size=100),
    st.builds(lambda low, high: set(range(low, low + high)), st.integers(0, 2**32), st.integers(0, 5_000)),
    st.builds(lambda step, size: set(range(0, step * size, step)), st.integers(2, 70_000), st.integers(0, 500)),
)


@given(st.lists(ROWS, max_size=6))
@settings(max_examples=150)
def test_what_is_written_is_read(rows: list[set[int]]) -> None:
    store = DictStore()
    bitmaps = [BitMap64(each) for each in rows]
    vectors = write_vectors(store, bitmaps)
    assert read(store, vectors) == bitmaps
    assert [vector.cardinality for vector in vectors] == list(map(len, rows))
    assert [to_bitmap(decode_inline(inline_vector(each))) for each in bitmaps] == bitmaps
    assert len(store.objects) == bool(vectors)
