"""Search on Delta tables of all kinds: column mapping, partitions, nested columns, wider types, clones, odd values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import deltalake
import pytest

import headwater as hw
from headwater import DeltaTable
from headwater.errors import SearchIndexNotFoundError, SearchQueryError
from support.search.delta_search_cases import COLUMNS, SCHEMA, found_ids
from support.stores.storage_servers import moto_server

pytestmark = pytest.mark.spark

ROWS = [(1, "web-1", "connection refused", 10), (2, "web 2/%41", "disk full", 20), (3, None, None, None)]
MAPPED = {"delta.columnMapping.mode": "name"}


def made(spark: Any, path: Path, rows: list[tuple[Any, ...]], schema: str, columns: Any, **options: Any) -> DeltaTable:
    """A table of one file (for each partition), all of it indexed."""
    hw.write(spark.createDataFrame(rows, schema).coalesce(1), str(path), **options)
    hw.search_index(str(path), columns=columns, spark=spark)
    return DeltaTable.forPath(spark, str(path))


def test_columns_are_searched_by_the_names_of_the_version(spark: Any, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", ROWS, SCHEMA, COLUMNS, properties=MAPPED)
    path, before = table._table.ref.location, hw.open_log(tmp_path / "t").version

    table.renameColumn("message", "text")
    table.renameColumn("host", "message")
    table.dropColumns("took")

    assert table.search_coverage().is_complete
    assert found_ids(spark, path, "text:disk") == [2]
    assert found_ids(spark, path, 'message:"web-1"') == [1]
    assert found_ids(spark, path, "disk") == [2]
    with pytest.raises(SearchQueryError, match="took"):
        found_ids(spark, path, "took:10")
    assert found_ids(spark, path, "message:disk", before) == [2]
    assert found_ids(spark, path, "took:[15 TO *]", before) == [2]

    hw.write(spark.createDataFrame([(4, "db", "disk gone")], "id BIGINT, message STRING, text STRING"), path, "append")
    assert hw.search_index(table).num_files == 1
    assert found_ids(spark, path, "text:disk") == [2, 4]
    assert [row.text for row in table.search("text:gone").collect()] == ["disk gone"]


def test_fields_inside_structs_may_be_renamed(spark: Any, tmp_path: Path) -> None:
    rows = [(1, ("ann", {"k": 1}), ["red", "blue"]), (2, ("bob", {"k": 2}), ["red"]), (3, None, None)]
    schema = "id BIGINT, payload STRUCT<user: STRING, numbers: MAP<STRING, INT>>, tags ARRAY<STRING>"
    table = made(spark, tmp_path / "t", rows, schema, {"payload": None, "tags": None}, properties=MAPPED)

    table.renameColumn("payload.user", "who")
    table.renameColumn("payload", "body")

    assert table.search_coverage().is_complete
    assert found_ids(spark, table._table.ref.location, "body.who:bob") == [2]
    assert found_ids(spark, table._table.ref.location, "body.numbers.k:1") == [1]
    assert found_ids(spark, table._table.ref.location, "tags:blue") == [1]
    assert found_ids(spark, table._table.ref.location, "payload.user:bob", 0) == [2]


def test_partition_columns_are_searched_too(spark: Any, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", ROWS, SCHEMA, COLUMNS, partition_by="host")

    for covered in (3, 0):
        assert table.search_coverage().num_covered_files == covered
        assert found_ids(spark, table._table.ref.location, 'host:"web 2/%41"') == [2]
        assert found_ids(spark, table._table.ref.location, "NOT host:*") == [3]
        assert [row.host for row in table.search("disk").collect()] == ["web 2/%41"]
        assert [row.id for row in table.search(filter="host = 'web-1'").collect()] == [1]
        for split in (tmp_path / "t" / "_search_index").rglob("*.split"):
            split.unlink()


def test_a_wider_type_of_an_indexed_column_is_indexed_anew(spark: Any, tmp_path: Path) -> None:
    properties = {"delta.enableTypeWidening": "true"}
    rows = [(1, 5), (2, 7)]
    table = made(spark, tmp_path / "t", rows, "id BIGINT, took INT", {"took": None}, properties=properties)
    narrow = hw.open_log(tmp_path / "t").version

    table.setColumnType("took", "double")

    assert table.search_coverage().num_covered_files == 0
    assert found_ids(spark, table._table.ref.location, "took:[4.5 TO 6.5]") == [1]
    assert hw.search_index(table).num_files == 1
    assert found_ids(spark, table._table.ref.location, "took:[4.5 TO 6.5]") == [1]
    assert table.search_coverage(version=narrow).is_complete


def test_values_that_the_index_cannot_hold_are_found_all_the_same(spark: Any, tmp_path: Path) -> None:
    long = "x" * 70_000
    rows = [(1, f"disk {long}", math.nan), (2, "disk full", 1.5), (3, long, math.inf), (4, None, None)]
    schema, columns = "id BIGINT, message STRING, ratio DOUBLE", {"message": ("text", "string"), "ratio": None}
    table = made(spark, tmp_path / "t", rows, schema, columns)

    assert table.search_coverage().is_complete
    assert found_ids(spark, table._table.ref.location, "disk") == [1, 2]
    assert found_ids(spark, table._table.ref.location, f"{long[:100]}*") == [1, 3]
    assert found_ids(spark, table._table.ref.location, "NOT disk") == [3, 4]
    assert found_ids(spark, table._table.ref.location, "ratio:[1 TO 2]") == [2]
    assert found_ids(spark, table._table.ref.location, f"message.raw:{long}") == [3]
    assert [row.id for row in table.search(filter="ratio > 2").orderBy("id").collect()] == [1, 3]


def test_a_shallow_clone_is_searched_and_indexed_by_itself(spark: Any, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", ROWS, SCHEMA, COLUMNS)
    clone = table.clone(str(tmp_path / "clone"), isShallow=True)

    assert clone.search_coverage().num_covered_files == 0
    assert found_ids(spark, clone._table.ref.location, "disk") == [2]
    assert hw.search_index(clone).num_files == 1
    assert found_ids(spark, clone._table.ref.location, "disk") == [2]
    assert not list((tmp_path / "t" / "_search_index").rglob("*elsewhere*"))


def test_vacuum_takes_the_splits_of_files_that_it_takes(spark: Any, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", ROWS, SCHEMA, COLUMNS)
    hw.write(spark.createDataFrame([(4, "db", "disk gone", 1)], SCHEMA), table._table.ref.location, "append")
    hw.search_index(table)
    table.optimize().executeCompaction()
    hw.search_index(table)
    splits = tmp_path / "t" / "_search_index"
    assert len(list(splits.rglob("*.split"))) == 3

    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        table.vacuum(0)
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")

    assert len(list(splits.rglob("*.split"))) == 1
    assert table.search_coverage().is_complete
    assert found_ids(spark, table._table.ref.location, "disk") == [2, 4]

    table.drop_search_index()
    with pytest.raises(SearchIndexNotFoundError):
        table.search("disk")


def test_other_engines_read_the_table_and_leave_the_index_alone(spark: Any, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", ROWS, SCHEMA, COLUMNS)

    other = deltalake.DeltaTable(table._table.ref.location)

    assert sorted(other.to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3]
    named = other.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True)
    assert not [name for name in named if "_search_index" in name]


def test_a_table_without_rows_can_be_indexed_and_searched(spark: Any, tmp_path: Path) -> None:
    DeltaTable.create(spark).location(str(tmp_path / "t")).addColumns(
        spark.createDataFrame([], SCHEMA).schema
    ).execute()

    done = hw.search_index(str(tmp_path / "t"), columns=COLUMNS, spark=spark)

    assert (done.num_files, done.coverage.is_complete) == (0, True)
    assert DeltaTable.forPath(spark, str(tmp_path / "t")).search("disk", with_score=True).count() == 0


def test_a_session_of_spark_connect_searches_and_indexes(remote: Any, tmp_path: Path) -> None:
    table = made(remote, tmp_path / "t", ROWS, SCHEMA, COLUMNS)
    hw.write(remote.createDataFrame([(4, "db", "disk gone", 1)], SCHEMA), table._table.ref.location, mode="append")

    found = table.search("disk", filter="took < 15", with_score=True, snippets=["message"], columns=["id"])

    assert [row.id for row in found.collect()] == [4]
    assert sorted(row.id for row in table.search("disk", with_score=True).collect()) == [2, 4]
    (summary,) = hw.scans(table.search("disk"))
    assert summary.reader == "the search index for 1 files, row by row for 1"


def test_a_table_on_an_object_store_is_indexed_and_searched_there(spark: Any) -> None:
    with moto_server() as s3:
        path, options = f"{s3.root}/delta-search", s3.options
        hw.write(spark.createDataFrame(ROWS, SCHEMA).coalesce(1), path, storage_options=options)
        hw.search_index(path, columns=COLUMNS, spark=spark, storage_options=options)
        table = DeltaTable.forPath(spark, path, storage_options=options)

        assert table.search_coverage().is_complete
        assert [row.id for row in table.search("disk", with_score=True, columns=["id"]).collect()] == [2]
