"""Deletion vectors as the spec describes them: encodings, places, frames and checksums."""

from __future__ import annotations

import binascii
import struct
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from headwater.errors import CorruptLogError, ObjectNotFoundError
from headwater.log.actions.deletion_vectors import (
    decode_inline,
    read_vectors,
    to_bitmap,
    vector_path,
    z85_decode,
    z85_encode,
)
from headwater.log.actions.model import DeletionVector
from headwater.storage import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from headwater.storage import ObjectStore

SPEC_ROWS = [3, 4, 7, 11, 18, 29]


def no_other_store(path: str) -> tuple[ObjectStore, str]:
    raise AssertionError(f"nothing outside the table is asked for: {path}")


def serialized(rows: list[int]) -> bytes:
    return struct.pack("<i", 1681511377) + BitMap64(rows).serialize()


def write_vectors(path: Path, *vectors: list[int], version: int = 1) -> list[tuple[int, int]]:
    """A vector file as the spec frames it; offset and size of each vector."""
    content, places = bytes([version]), []
    for rows in vectors:
        data = serialized(rows)
        places.append((len(content), len(data)))
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", binascii.crc32(data))
    path.write_bytes(content)
    return places


@given(st.binary().map(lambda b: b + b"\0" * (-len(b) % 4)))
def test_z85_round_trip(data: bytes) -> None:
    assert z85_decode(z85_encode(data)) == data


def test_z85_of_the_rfc() -> None:
    assert z85_decode("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


@pytest.mark.parametrize("text", ["abcd", "ab cd", "abc~d", "#####", "####0", "äöüßé"])
def test_text_that_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        z85_decode(text)


def test_inline_vector_of_the_spec() -> None:
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert list(to_bitmap(decode_inline(DeletionVector("i", text, 40, 6)))) == SPEC_ROWS


def test_path_of_the_spec_with_a_random_prefix() -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, offset=4)
    assert vector_path(vector) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_path_without_a_prefix() -> None:
    identifier = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    vector = DeletionVector("u", z85_encode(identifier.bytes), 40, 6, offset=4)
    assert vector_path(vector) == f"deletion_vector_{identifier}.bin"


def test_absolute_paths_are_decoded() -> None:
    assert vector_path(DeletionVector("p", "file:///t/a%20b.bin", 1, 1, offset=1)) == "/t/a b.bin"
    assert vector_path(DeletionVector("p", "s3://b/a%20b.bin", 1, 1, offset=1)) == "s3://b/a b.bin"


def test_several_vectors_of_one_file_in_any_order(tmp_path: Path) -> None:
    identifier = uuid.uuid4()
    rows = [[1, 2, 3], [], [2**33, 5], list(range(0, 300_000, 3))]
    places = write_vectors(tmp_path / f"deletion_vector_{identifier}.bin", *rows)
    vectors = [
        DeletionVector("u", z85_encode(identifier.bytes), size, len(r), offset=offset)
        for (offset, size), r in zip(places, rows, strict=True)
    ]
    order = [3, 0, 2, 1, 0]
    found = read_vectors([vectors[i] for i in order], open_store(tmp_path), no_other_store)
    assert [sorted(to_bitmap(f)) for f in found] == [sorted(rows[i]) for i in order]


def test_absolute_vector_lies_in_another_store(tmp_path: Path) -> None:
    ((offset, size),) = write_vectors(tmp_path / "elsewhere.bin", [7])
    vector = DeletionVector("p", str(tmp_path / "elsewhere.bin"), size, 1, offset=offset)
    elsewhere = open_store(tmp_path)
    (found,) = read_vectors([vector], open_store("memory://vectors/t"), lambda _path: (elsewhere, "elsewhere.bin"))
    assert list(to_bitmap(found)) == [7]


def _damaged(tmp_path: Path, **changes: int) -> DeletionVector:
    """A vector whose descriptor or file is not right any more."""
    identifier = uuid.uuid4()
    path = tmp_path / f"deletion_vector_{identifier}.bin"
    ((offset, size),) = write_vectors(path, SPEC_ROWS, version=changes.get("version", 1))
    if "flip" in changes:
        content = bytearray(path.read_bytes())
        content[changes["flip"]] ^= 0xFF
        path.write_bytes(content)
    if "cut" in changes:
        path.write_bytes(path.read_bytes()[: -changes["cut"]])
    return DeletionVector(
        "u",
        z85_encode(identifier.bytes),
        changes.get("size", size),
        changes.get("cardinality", len(SPEC_ROWS)),
        offset=offset,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "format version"),
        ({"flip": -6}, "checksum"),
        ({"cut": 3}, "cut off"),
        ({"size": 20}, "bytes, and the log says 20"),
        ({"cardinality": 5}, "deletes 6 rows, and the log says 5"),
    ],
)
def test_damage_is_noticed_and_named(tmp_path: Path, changes: dict[str, int], message: str) -> None:
    vector = _damaged(tmp_path, **changes)
    with pytest.raises(CorruptLogError, match=message):
        read_vectors([vector], open_store(tmp_path), no_other_store)


def test_unknown_bitmap_format_is_refused() -> None:
    data = struct.pack("<i", 1681511378) + BitMap64([1]).serialize()
    data += b"\0" * (-len(data) % 4)
    with pytest.raises(CorruptLogError, match="magic number"):
        decode_inline(DeletionVector("i", z85_encode(data), len(data), 1))


def test_unknown_storage_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptLogError, match="storage type 'x'"):
        read_vectors([DeletionVector("x", "", 1, 1)], open_store(tmp_path), no_other_store)


def test_missing_file_names_the_file_and_a_cause(tmp_path: Path) -> None:
    vector = DeletionVector("u", z85_encode(uuid.uuid4().bytes), 40, 6, offset=1)
    with pytest.raises(ObjectNotFoundError, match=r"deletion_vector_.*VACUUM"):
        read_vectors([vector], open_store(tmp_path), no_other_store)
