"""`DeltaTable` and the options that Delta users know, through the public names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import ReadOptionError

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    configuration = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, pa.table({"id": [1, 2, 3]}), configuration=configuration)
    RustTable(path).delete("id = 2")
    return path


def ids(frame: object) -> list[int]:
    return sorted(row.id for row in frame.collect())  # type: ignore[attr-defined]


def test_a_table_by_its_path(spark: SparkSession, table: str) -> None:
    assert ids(hw.DeltaTable.forPath(spark, table).toDF()) == [1, 3]


def test_each_call_sees_the_newest_version(spark: SparkSession, table: str) -> None:
    delta = hw.DeltaTable.forPath(spark, table)
    before = delta.toDF()
    write_deltalake(table, pa.table({"id": [9]}), mode="append")
    assert ids(delta.toDF()) == [1, 3, 9]
    assert ids(before) == [1, 3]


def test_a_search_table_is_no_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    hw.SearchTable.create(spark, tmp_path, "id INT, message STRING")
    assert not hw.DeltaTable.isDeltaTable(spark, str(tmp_path))
    with pytest.raises(hw.TableNotFoundError, match="is a search table"):
        hw.DeltaTable.forPath(spark, tmp_path)


def test_what_is_no_table(spark: SparkSession, table: str, tmp_path: Path) -> None:
    assert hw.DeltaTable.isDeltaTable(spark, table)
    assert not hw.DeltaTable.isDeltaTable(spark, str(tmp_path / "nothing"))
    with pytest.raises(hw.TableNotFoundError):
        hw.DeltaTable.forPath(spark, tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"spark\.hadoop"):
        hw.DeltaTable.forPath(spark, table, {"fs.s3a.endpoint": "x"})


def test_the_change_feed_as_an_option(spark: SparkSession, table: str) -> None:
    changes = hw.read(spark, table, readChangeFeed="true", startingVersion="1")
    assert [(row.id, row._change_type, row._commit_version) for row in changes.collect()] == [(2, "delete", 1)]
    assert hw.read(spark, table, readChangeData=True, startingVersion=0, endingVersion=0).count() == 3
    assert hw.read(spark, table, readChangeFeed="false").count() == 2


def test_options_that_make_no_sense(spark: SparkSession, table: str) -> None:
    with pytest.raises(ReadOptionError, match="readChangeFeed"):
        hw.read(spark, table, startingVersion=0)
    with pytest.raises(ReadOptionError, match="version number"):
        hw.read(spark, table, versionAsOf="new")
    with pytest.raises(ReadOptionError, match="not one version"):
        hw.read(spark, table, version=0, readChangeFeed=True)


def test_session_gives_the_running_session(spark: SparkSession) -> None:
    assert hw.session("again") is spark


def test_scans_say_what_is_read(spark: SparkSession, table: str) -> None:
    [scan] = hw.scans(hw.read(spark, table).where("id > 100"))
    assert (scan.version, scan.files_kept) == (1, 0)
