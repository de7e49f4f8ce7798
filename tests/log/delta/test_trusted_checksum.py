"""Opening from the version checksum, for those who ask for it: only where it belongs to the commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

import headwater as hw


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A checkpoint at version 1 and a commit after it, with a checksum that tells another name of the table."""
    path = tmp_path / "t"
    for value in range(2):
        write_deltalake(path, pa.table({"a": [value]}), mode="append")
    DeltaTable(path).create_checkpoint()
    properties = CommitProperties(custom_metadata={"txnId": "transaction-2"})
    write_deltalake(path, pa.table({"a": [2]}), mode="append", commit_properties=properties)
    write_checksum(path, "transaction-2")
    return path


def write_checksum(path: Path, txn_id: str | None, **changes: Any) -> None:
    log = path / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    metadata = next(a["metaData"] for a in actions if "metaData" in a) | {"name": "from the checksum"}
    protocol = next(a["protocol"] for a in actions if "protocol" in a)
    checksum = {"txnId": txn_id, "numFiles": 3, "metadata": metadata, "protocol": protocol} | changes
    (log / f"{2:020d}.crc").write_text(json.dumps(checksum))


def test_by_default_the_log_is_believed(table: Path) -> None:
    assert hw.open_log(table).metadata.name is None


def test_a_checksum_of_the_same_transaction_is_believed_when_asked(table: Path) -> None:
    snap = hw.open_log(table, trust_checksum=True)
    assert snap.metadata.name == "from the checksum"
    assert snap.num_files == 3


@pytest.mark.parametrize("txn_id", [None, "another"])
def test_a_checksum_of_another_transaction_is_not(table: Path, txn_id: str | None) -> None:
    write_checksum(table, txn_id)
    assert hw.open_log(table, trust_checksum=True).metadata.name is None


def test_an_incomplete_or_damaged_checksum_is_not(table: Path) -> None:
    write_checksum(table, "transaction-2", protocol=None)
    assert hw.open_log(table, trust_checksum=True).metadata.name is None
    (table / "_delta_log" / f"{2:020d}.crc").write_text("{")
    assert hw.open_log(table, trust_checksum=True).metadata.name is None
