"""Column mapping in name and id mode: logical names on top, physical names and ids in files, at all levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.spark.scan.explain import scans
from headwater.spark.scan.read import read
from support.tables.delta_tables import DeltaTable, Field, field, mapped, struct_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def array_of(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def mapped_table(path: Path, mode: str, *fields: Field, partition_columns: tuple[str, ...] = ()) -> DeltaTable:
    return DeltaTable(
        path,
        *fields,
        partition_columns=partition_columns,
        configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "100"},
        features=("columnMapping",),
    )


def with_id(name: str, type_: pa.DataType, id_: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, type_, nullable, {b"PARQUET:field_id": str(id_).encode()})


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


FIELDS = (
    mapped("id", "long", "col-1", 1),
    mapped("s", struct_of(mapped("a", "long", "col-3", 3), mapped("b.c", "string", "col-4", 4)), "col-2", 2),
    mapped("list", array_of(struct_of(mapped("x", "long", "col-6", 6))), "col-5", 5),
    mapped("map", map_of("string", struct_of(mapped("y", "long", "col-8", 8))), "col-7", 7),
    mapped("part", "string", "col-9", 9),
)
INNER = pa.struct([with_id("col-3", pa.int64(), 3), with_id("col-4", pa.string(), 4)])
ITEM = pa.struct([with_id("col-6", pa.int64(), 6)])
VALUE = pa.struct([with_id("col-8", pa.int64(), 8)])
PHYSICAL = pa.schema(
    [
        with_id("col-1", pa.int64(), 1),
        with_id("col-2", INNER, 2),
        with_id("col-5", pa.list_(pa.field("element", ITEM)), 5),
        with_id("col-7", pa.map_(pa.string(), VALUE), 7),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    found = [
        {
            "col-1": n,
            "col-2": None if n % 5 == 4 else {"col-3": n * 10, "col-4": f"v{n}"},
            "col-5": [{"col-6": n}, None],
            "col-7": [(f"k{n}", {"col-8": n})],
        }
        for n in range(first, first + count)
    ]
    return pa.Table.from_pylist(found, PHYSICAL)


@pytest.fixture(scope="module", params=["name", "id"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mapping") / request.param
    table = mapped_table(path, request.param, *FIELDS, partition_columns=("part",))
    for i in range(4):
        table.append(rows(i * 10, 10), partitionValues={"col-9": f"p{i % 2}"})
    return path


def test_names_types_and_values(spark: SparkSession, path: Path) -> None:
    frame = read(spark, path)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,s:struct<a:bigint,b.c:string>,list:array<struct<x:bigint>>,"
        "map:map<string,struct<y:bigint>>,part:string>"
    )
    assert all(f.metadata == {} for f in frame.schema)
    found = frame.where("id in (3, 4)").orderBy("id").collect()
    assert [r.asDict(recursive=True) for r in found] == [
        {"id": 3, "s": {"a": 30, "b.c": "v3"}, "list": [{"x": 3}, None], "map": {"k3": {"y": 3}}, "part": "p0"},
        {"id": 4, "s": None, "list": [{"x": 4}, None], "map": {"k4": {"y": 4}}, "part": "p0"},
    ]
    assert frame.count() == 40


def test_filters_on_logical_names_prune_files(spark: SparkSession, path: Path) -> None:
    frame = read(spark, path)
    assert [s.files_kept for s in scans(frame.where("part = 'p1'"))] == [2]
    assert [s.files_kept for s in scans(frame.where("id = 25"))] == [1]
    assert [s.files_kept for s in scans(frame.where("s.a = 250"))] == [1]
    assert frame.where("part = 'p1'").count() == 20
    assert frame.where("s.a = 250").select("id").collect() == [(25,)]


def test_only_the_nested_columns_of_a_query_are_read(spark: SparkSession, path: Path) -> None:
    found = read(spark, path).where("s.a > 370").select("s.a")
    if path.name == "name":  # with ids Spark cannot do it rightly
        assert "ReadSchema: struct<col-2:struct<col-3:bigint>>" in plan(found)
    assert found.collect() == [(380,)]  # 39 would match, but its struct is null


def test_metadata_columns_work_above_the_projection(spark: SparkSession, path: Path) -> None:
    found = read(spark, path).where("id = 25").select("id", "_metadata.row_index").collect()
    assert found == [(25, 5)]


def test_a_renamed_column_and_a_new_one_of_its_old_name(spark: SparkSession, tmp_path: Path) -> None:
    # `a` was renamed to `b`, and then a new `a` was added: filters on the new one must not reach the old one.
    table = mapped_table(tmp_path / "t", "name", mapped("b", "long", "a", 1), mapped("a", "long", "col-new", 2))
    table.append(pa.table({"a": pa.array([1, 2], pa.int64())}))
    table.append(pa.table({"a": pa.array([3], pa.int64()), "col-new": pa.array([1], pa.int64())}))
    frame = read(spark, table.path)
    assert sorted(frame.collect(), key=str) == [(1, None), (2, None), (3, 1)]
    assert frame.where("a = 1").collect() == [(3, 1)]
    assert frame.where("b = 1").collect() == [(1, None)]


def test_nested_names_that_changed_places(spark: SparkSession, tmp_path: Path) -> None:
    inner = struct_of(mapped("b", "long", "a", 2), mapped("a", "long", "b", 3))
    table = mapped_table(tmp_path / "t", "name", mapped("s", inner, "s", 1))
    table.append(pa.table({"s": pa.array([{"a": 1, "b": 2}, None], pa.struct([("a", pa.int64()), ("b", pa.int64())]))}))
    frame = read(spark, table.path)
    assert frame.schema.simpleString() == "struct<s:struct<b:bigint,a:bigint>>"
    assert frame.collect() == [((1, 2),), (None,)]
    assert frame.where("s.a = 2").count() == 1
    assert frame.where("s.b = 2").count() == 0


def test_id_mode_finds_columns_by_id_whatever_files_call_them(spark: SparkSession, tmp_path: Path) -> None:
    table = mapped_table(tmp_path / "t", "id", mapped("x", "long", "col-x", 1), mapped("y", "long", "col-y", 2))
    schema = pa.schema([with_id("col-y", pa.int64(), 1), with_id("other", pa.int64(), 2)])
    table.append(pa.Table.from_pylist([{"col-y": 1, "other": 2}], schema), stats=None)
    frame = read(spark, table.path)
    assert frame.collect() == [(1, 2)]
    # Spark pushes filters to the Parquet reader by name: they must not meet another column's statistics.
    assert frame.where("y = 2").collect() == [(1, 2)]
    assert frame.where("x = 1").collect() == [(1, 2)]


def test_id_mode_finds_nested_columns_by_id(spark: SparkSession, tmp_path: Path) -> None:
    inner = struct_of(mapped("a", "long", "col-a", 2), field("v", "void") | mapped("v", "void", "col-v", 4))
    table = mapped_table(tmp_path / "t", "id", mapped("s", inner, "col-s", 1), mapped("y", "long", "col-y", 3))
    nested = pa.struct([with_id("whatever", pa.int64(), 2), with_id("col-a", pa.int64(), 9)])
    schema = pa.schema([with_id("col-y", nested, 1), with_id("col-s", pa.int64(), 3)])
    row = {"col-y": {"whatever": 5, "col-a": 6}, "col-s": 7}
    table.append(pa.Table.from_pylist([row], schema), stats=None)
    frame = read(spark, table.path)
    assert frame.collect() == [((5, None), 7)]
    assert frame.select("s.a").collect() == [(5,)]
    assert frame.where("s.a = 5 and y = 7").select("s.v").collect() == [(None,)]


def test_filters_of_name_mode_reach_the_parquet_reader(spark: SparkSession, tmp_path: Path) -> None:
    inner = struct_of(mapped("a", "long", "col-2", 2))
    table = mapped_table(tmp_path / "t", "name", mapped("s", inner, "col-1", 1))
    found = read(spark, table.path).where("s.a > 3").select("s.a")
    assert "GreaterThan(`col-1`.`col-2`,3)" in plan(found)


def test_name_mode_ignores_ids(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    table = mapped_table(tmp_path / "t", "name", mapped("x", "long", "col-x", 1), mapped("y", "long", "col-y", 2))
    schema = pa.schema([with_id("col-x", pa.int64(), 2), with_id("col-y", pa.int64(), 1)])
    table.append(pa.Table.from_pylist([{"col-x": 1, "col-y": 2}], schema))
    assert read(session, table.path).collect() == [(1, 2)]


def test_the_mode_counts_only_if_the_protocol_has_the_feature(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), configuration={"delta.columnMapping.mode": "name"})
    table.append(pa.table({"id": pa.array([1], pa.int64())}))
    assert read(spark, table.path).collect() == [(1,)]
