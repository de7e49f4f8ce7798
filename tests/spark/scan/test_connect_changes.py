"""The change data feed on Spark Connect: the same rows as in classic PySpark, with DataFrame operations only."""

from __future__ import annotations

import datetime
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.spark.scan.read import read_changes
from support.corpus import CORPUS, table_id, tables
from support.corpus_sample import Entry, to_arrow
from support.tables.change_histories import ENABLED, FILTERS, HISTORIES, History, changing_table, ids, removal
from support.tables.delta_tables import DeltaTable, field, inline_vector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
_WITH_CHANGES = [t for t in tables() if t.get("cdf") and t["expect"] == "ok" and not t.get("setup")]


@pytest.mark.skipif(CORPUS is None, reason="the conformance corpus is not beside the repository")
@pytest.mark.parametrize("entry", [pytest.param(t, id=table_id(t)) for t in _WITH_CHANGES])
def test_changes_are_those_of_other_readers(entry: Entry, remote: SparkSession) -> None:
    from pyspark.sql.connect import functions

    sys.path.insert(0, str(CORPUS))
    from rowhash import row_hash

    expected, path = entry["cdf"], Path(CORPUS or "") / entry["path"]
    table = to_arrow(read_changes(remote, path, expected["start"], expected["end"]), functions)
    assert table.schema.names[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    assert table.num_rows == expected["num_rows"]
    assert Counter(table.column("_change_type").to_pylist()) == expected["rows_by_type"]
    by_version = Counter(str(v) for v in table.column("_commit_version").to_pylist())
    assert by_version == expected["rows_by_version"]
    assert row_hash(table.drop_columns(["_commit_timestamp"])) == expected["row_hash"]
    for start, end in expected.get("ranges_error", ()):
        with pytest.raises(hw.HeadwaterError):
            read_changes(remote, path, start, end)


def changes(remote: SparkSession, table: DeltaTable, *range_: int, where: str = "true") -> list[tuple[Any, ...]]:
    frame = read_changes(remote, table.path, *range_).where(where).drop("_commit_timestamp")
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_rows_that_changed(remote: SparkSession, tmp_path: Path, history: History) -> None:
    table = changing_table(tmp_path / "t")
    expected = history(table)
    assert changes(remote, table, 0) == expected
    last = [row for row in expected if row[-1] == table.version]
    assert changes(remote, table, table.version) == last
    local = remote.createDataFrame(expected, "id long, p string, _change_type string, _commit_version long")
    for sql in FILTERS:
        assert changes(remote, table, 0, where=sql) == sorted(tuple(row) for row in local.where(sql).collect()), sql


def test_no_changes(remote: SparkSession, tmp_path: Path) -> None:
    frame = read_changes(remote, changing_table(tmp_path / "t").path, 0)
    assert frame.columns == ["id", "p", "_change_type", "_commit_version", "_commit_timestamp"]
    assert frame.collect() == []


def test_times_of_commits(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), configuration=ENABLED)
    table.append(ids(1))
    at = datetime.datetime(2024, 7, 1, 12, 30, 0, 5000, tzinfo=datetime.UTC)
    for version, time in enumerate((at - datetime.timedelta(hours=1), at)):
        os.utime(table.path / "_delta_log" / f"{version:020d}.json", (time.timestamp(), time.timestamp()))
    frame = read_changes(remote, table.path, starting_timestamp="2024-07-01 12:00:00")
    assert frame.toArrow().column("_commit_timestamp").to_pylist() == [at]
    again = hw.read(remote, table.path, readChangeFeed=True, startingVersion=1)
    assert again.where("_commit_timestamp = timestamp'2024-07-01T12:30:00.005Z'").count() == 1


def test_many_small_deletions_are_one_scan_of_their_file(remote: SparkSession, tmp_path: Path) -> None:
    table = changing_table(tmp_path / "t")
    action = table.append(ids(*range(200_000)), partitionValues={"p": "a"})
    for n in range(1, 13):
        kept = {k: v for k, v in action["add"].items() if k != "deletionVector"}
        replaced = {"add": {**kept, "deletionVector": inline_vector([i * 16_000 for i in range(n)])}}
        table.commit(removal(action), replaced)
        action = replaced
    assert changes(remote, table, 2) == [(n * 16_000, "a", "delete", n + 2) for n in range(12)]
    (scan,) = hw.scans(read_changes(remote, table.path, 2))
    assert scan.files_kept == 1
    assert "on Spark Connect" in str(scan)


def test_a_file_that_is_gone_is_named_with_version_and_cause(remote: SparkSession, tmp_path: Path) -> None:
    table = changing_table(tmp_path / "t")
    action = table.append(ids(1), "gone.parquet", partitionValues={"p": "a"})
    table.commit(removal(action))
    (table.path / "gone.parquet").unlink()
    with pytest.raises(hw.StorageError, match=r"gone\.parquet is gone, and version 2 .*VACUUM"):
        read_changes(remote, table.path, 0).collect()
