"""Names in the log directory (spec: "File Types")."""

from __future__ import annotations

import pytest

from headwater.log.delta import names
from headwater.log.delta.dialect import DELTA
from headwater.log.delta.names import parse
from headwater.log.dialect import LogName


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("00000000000000000000.json", LogName("commit", 0)),
        ("00000000000000000001.crc", LogName("crc", 1)),
        ("00000000000000000010.checkpoint.parquet", LogName("classic", 10)),
        (
            "00000000000000000010.checkpoint.0000000002.0000000003.parquet",
            LogName("multipart", 10, part=2, parts=3),
        ),
        (
            "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            LogName("uuid", 10, uuid="80a083e8-7026-4e79-81be-64bd76c43a11"),
        ),
        (
            "00000000000000000020.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
            LogName("uuid", 20, uuid="80a083e8-7026-4e79-81be-64bd76c43a11"),
        ),
        (
            "00000000000000000004.00000000000000000006.compacted.json",
            LogName("compacted", 4, end_version=6),
        ),
        ("09223372036854775807.json", LogName("commit", 2**63 - 1)),
    ],
)
def test_names_of_the_spec_are_understood(name: str, meaning: LogName) -> None:
    assert parse(name) == meaning


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        "0.json",  # not padded
        "000000000000000000000.json",  # 21 digits
        "00000000000000000000.JSON",
        "00000000000000000000.json.tmp",
        ".00000000000000000000.json.crc",  # Hadoop's own checksums
        "00000000000000000000.json\n",
        "00000000000000000000.80a083e8-7026-4e79-81be-64bd76c43a11.json",  # a staged commit
        "00000000000000000006.00000000000000000004.compacted.json",  # ends before it starts
        "00000000000000000010.checkpoint.0000000000.0000000003.parquet",  # parts count from 1
        "00000000000000000010.checkpoint.0000000004.0000000003.parquet",
        "00000000000000000010.checkpoint.0000000001.0000000003.json",  # parts are always Parquet
        "00000000000000000010.checkpoint.json",
        "00000000000000000010.checkpoint..parquet",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.json",  # digits, but not those digits
        "09223372036854775808.json",  # a version is a long
        "99999999999999999999.checkpoint.parquet",
        "00000000000000000000.99999999999999999999.compacted.json",
        "",
    ],
)
def test_every_other_name_means_nothing(name: str) -> None:
    assert parse(name) is None


def test_keys_are_padded_to_twenty_digits_so_that_their_order_is_the_order_of_versions() -> None:
    versions = [0, 1, 9, 10, 99, 100, 10**18]
    keys = [DELTA.commit_key(version) for version in versions]
    assert keys[:2] == ["_delta_log/00000000000000000000.json", "_delta_log/00000000000000000001.json"]
    assert keys == sorted(keys)
    assert names.checksum_key(1) == "_delta_log/00000000000000000001.crc"


@pytest.mark.parametrize("name", ["json", "crc", "checkpoint.parquet", "00000000000000000012.compacted.json"])
def test_a_listing_starts_before_all_files_of_a_version_and_after_those_of_the_one_before(name: str) -> None:
    start = DELTA.first_key_of(12)
    assert start < f"_delta_log/{12:020d}.{name}"
    assert start > f"_delta_log/{11:020d}.{name}"
