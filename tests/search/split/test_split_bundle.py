"""Bundles: the layout, and that no byte of one can change, and none be missing, without a word."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import pytest

from headwater.errors import CorruptSplitError
from headwater.search.split.bundle import BundleFooter, part_blocks, read_footer, write_bundle

PARTS = {"rows.arrow": b"r" * 100, "meta.json": b"{}", "empty": b"", "x.idx": bytes(range(256))}
METADATA = b'{"numRecords":3}'


def write(directory: Path, metadata: bytes = METADATA) -> tuple[Path, BundleFooter]:
    for name, data in PARTS.items():
        (directory / name).write_bytes(data)
    bundle = directory / "a.split"
    return bundle, write_bundle(str(bundle), [(name, str(directory / name)) for name in PARTS], metadata)


def read(data: bytes, footer_start: int | None = None) -> BundleFooter:
    """Read everything, as a reader does that trusts nothing."""
    footer = read_footer(lambda start, length: data[start : start + length], len(data), "t/a.split", footer_start)
    for part in footer.parts.values():
        for _ in part_blocks(lambda start, length: data[start : start + length], part, "t/a.split"):
            pass
    return footer


def test_the_parts_and_the_metadata_are_read_as_they_were_written(tmp_path: Path) -> None:
    bundle, written = write(tmp_path)
    data = bundle.read_bytes()

    footer = read(data)

    assert footer == written
    assert footer.metadata == METADATA
    assert {name: data[part.start : part.end] for name, part in footer.parts.items()} == PARTS


def test_the_layout_is_quickwits(tmp_path: Path) -> None:
    bundle, footer = write(tmp_path)
    data = bundle.read_bytes()

    (hotcache_length,) = struct.unpack("<I", data[-4:])
    hotcache_start = len(data) - 4 - hotcache_length
    (directory_length,) = struct.unpack("<I", data[hotcache_start - 4 : hotcache_start])
    directory_start = hotcache_start - 4 - directory_length
    magic, version = struct.unpack("<II", data[directory_start : directory_start + 8])
    directory = json.loads(data[directory_start + 8 : hotcache_start - 4])

    assert (magic, version) == (403_881_646, 1)
    assert directory["files"] == {
        "rows.arrow": {"start": 0, "end": 100},
        "meta.json": {"start": 100, "end": 102},
        "empty": {"start": 102, "end": 102},
        "x.idx": {"start": 102, "end": 358},
    }
    assert (footer.footer_start, footer.footer_end) == (358, len(data)) == (directory_start, os.stat(bundle).st_size)
    assert (footer.hotcache_start, footer.hotcache_length) == (hotcache_start, hotcache_length)


def test_a_footer_larger_than_the_first_guess_is_read(tmp_path: Path) -> None:
    bundle, written = write(tmp_path, metadata=b"m" * 200_000)

    assert read(bundle.read_bytes()) == written


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    bundle, footer = write(tmp_path)
    data = bytearray(bundle.read_bytes())

    for position in range(len(data)):
        for footer_start in (None, footer.footer_start):
            data[position] ^= 0x41
            with pytest.raises(CorruptSplitError, match=r"t/a\.split"):
                read(bytes(data), footer_start)
            data[position] ^= 0x41


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    bundle, footer = write(tmp_path)
    data = bundle.read_bytes()

    for length in range(len(data)):
        for footer_start in (None, footer.footer_start):
            with pytest.raises(CorruptSplitError, match=r"t/a\.split"):
                read(data[:length], footer_start)


@pytest.mark.parametrize("data", [b"PAR1" * 100, b"\xff" * 100, b"\0" * 100, b"", b"abc"])
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptSplitError, match="cannot be used"):
        read(data)


def test_the_error_says_which_split_and_survives_the_way_from_a_task() -> None:
    with pytest.raises(CorruptSplitError) as raised:
        read(b"nothing")

    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.path, str(again)) == ("t/a.split", str(raised.value))


def test_the_digest_names_the_content(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    _, one = write(tmp_path / "1")
    _, same = write(tmp_path / "2")
    (tmp_path / "2" / "a.split").unlink()
    _, other = write(tmp_path / "2", metadata=b"{}")

    assert one.digest == same.digest != other.digest
