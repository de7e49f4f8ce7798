"""UPDATE and MERGE that give rows new values where they are: files keep their rows, and most of their bytes."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as sf

import headwater as hw
from headwater.spark.dml.in_place import ColumnJob
from headwater.spark.merge import merge as merging
from support.oracles.reader_votes import by_all, by_headwater, operations
from support.tables.dml_tables import actions, metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The columns that might change, of each job that gave rows new values where they are."""
    found: list[tuple[str, ...]] = []
    run = ColumnJob.run

    def noted(self: ColumnJob, packs: DataFrame) -> Any:
        done = run(self, packs)
        if done is not None and self.numbers:
            found.append(tuple(self.columns))
        return done

    monkeypatch.setattr(ColumnJob, "run", noted)
    return found


def upsert(spark: SparkSession, path: str, source: DataFrame, on: str = "t.id = s.id") -> Any:
    merge = hw.DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), on)
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().collect()[0]


def files_of(path: str) -> dict[str, Path]:
    """The live files, by the range of ids in them."""
    rows = hw.open_log(path).files().to_pylist()
    return {json.loads(row["stats"])["minValues"]["id"]: Path(path) / row["path"] for row in rows}


def chunk_bytes(file: Path, column: str) -> list[bytes]:
    """The pages of a column, row group by row group."""
    data, footer, found = file.read_bytes(), pq.read_metadata(file), []
    for group in range(footer.num_row_groups):
        columns = [footer.row_group(group).column(i) for i in range(footer.num_columns)]
        chunk = next(c for c in columns if c.path_in_schema == column)
        start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        found.append(data[start : start + chunk.total_compressed_size])
    return found


# --- what stays -------------------------------------------------------------------------------------------


def test_an_update_takes_the_bytes_of_other_columns_over(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]]
) -> None:
    rows = pa.table({"id": range(1000), "v": [n % 7 for n in range(1000)], "text": [f"text {n}" for n in range(1000)]})
    write_deltalake(path, rows)
    [old] = files_of(path).values()

    hw.DeltaTable.forPath(spark, path).update("id % 10 = 3", {"v": "v + 100"})

    [new] = files_of(path).values()
    assert new != old
    assert jobs == [("v",)]
    assert [chunk_bytes(new, name) for name in ("id", "text")] == [chunk_bytes(old, name) for name in ("id", "text")]
    assert chunk_bytes(new, "v") != chunk_bytes(old, "v")
    assert by_all(spark, path) == sorted(
        ((n, n % 7 + (100 if n % 10 == 3 else 0), f"text {n}") for n in range(1000)), key=lambda row: str(row[0])
    )
    [add] = actions(path, "add")
    stats = json.loads(add["stats"])
    assert (stats["numRecords"], stats["maxValues"]["v"], stats["maxValues"]["id"]) == (1000, 106, 999)
    assert metrics(path)["numCopiedRows"] == 900


def test_an_upsert_writes_only_the_columns_that_differ(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]]
) -> None:
    hw.write(spark.range(200).selectExpr("id", "id * 2 AS v", "'same' AS text").coalesce(1), path)
    [old] = files_of(path).values()
    source = spark.sql("SELECT id * 20 AS id, -1L AS v, 'same' AS text FROM range(12)")

    done = upsert(spark, path, source)

    assert jobs == [("v", "text")]
    assert (done.num_updated_rows, done.num_inserted_rows) == (10, 2)
    changed = files_of(path)[0]
    assert chunk_bytes(changed, "text") == chunk_bytes(old, "text")
    assert chunk_bytes(changed, "id") == chunk_bytes(old, "id")
    expected = [(n, -1 if n % 20 == 0 else 2 * n, "same") for n in range(200)] + [(n, -1, "same") for n in (200, 220)]
    assert by_all(spark, path) == sorted(expected, key=lambda row: str(row[0]))


@pytest.mark.parametrize("command", ["update", "merge"])
def test_files_in_which_nothing_changes_stay(spark: SparkSession, path: str, command: str) -> None:
    hw.write(spark.range(100).selectExpr("id", "id % 2 AS v").coalesce(1), path)
    hw.write(spark.range(100, 200).selectExpr("id", "id % 2 AS v").coalesce(1), path, mode="append")
    before = files_of(path)

    if command == "update":
        hw.DeltaTable.forPath(spark, path).update("id IN (4, 105)", {"v": "0"})  # the first has it already
    else:
        upsert(spark, path, spark.sql("SELECT * FROM VALUES (4L, 0L), (105L, 0L) AS s (id, v)"))

    after = files_of(path)
    assert after[0] == before[0]
    assert after[100] != before[100]
    assert by_headwater(spark, path) == sorted(
        ((n, 0 if n == 105 else n % 2) for n in range(200)), key=lambda row: str(row[0])
    )
    counted = metrics(path)
    assert counted["numUpdatedRows" if command == "update" else "numTargetRowsUpdated"] == 2
    assert len(actions(path, "remove")) == 1


def test_a_replay_of_the_same_upsert_rewrites_nothing(spark: SparkSession, path: str) -> None:
    hw.write(spark.range(100).selectExpr("id", "'a' AS v").coalesce(1), path)
    source = spark.range(40, 60).selectExpr("id", "'b' AS v")
    upsert(spark, path, source)
    before = files_of(path)

    done = upsert(spark, path, source)

    assert files_of(path) == before
    assert (done.num_updated_rows, done.num_inserted_rows) == (20, 0)
    assert operations(path)[-2:] == ["MERGE", "MERGE"]


# --- values of all types, in files of all kinds -----------------------------------------------------------

WIDE = {
    "flag": pa.array([True, None, False], pa.bool_()),
    "tiny": pa.array([1, -2, None], pa.int8()),
    "big": pa.array([2**62, None, -(2**62)], pa.int64()),
    "ratio": pa.array([1.5, float("nan"), -0.0], pa.float64()),
    "price": pa.array([Decimal("1.10"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
    "day": pa.array([dt.date(2024, 1, 31), dt.date(1, 1, 1), None], pa.date32()),
    "at": pa.array([dt.datetime(2024, 1, 31, 1, tzinfo=dt.UTC), None, dt.datetime(1700, 1, 1, tzinfo=dt.UTC)]),
    "text": pa.array(["", "\U0001f600", None], pa.string()),
    "data": pa.array([b"", b"\x00\xff", None], pa.binary()),
    "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
    "point": pa.array([{"x": 1, "y": None}, None, {"x": None, "y": "z"}], pa.struct([("x", "int32"), ("y", "string")])),
    "counts": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_values_of_every_type_take_the_place_of_others(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]], mapping: str
) -> None:
    count = 30
    rows = pa.table(
        {"id": pa.array(range(count), pa.int64()), **{n: pa.concat_arrays([v] * 10) for n, v in WIDE.items()}}
    )
    properties = {"delta.columnMapping.mode": mapping}
    hw.write(spark.createDataFrame(rows).coalesce(1), path, properties=properties)
    others = {name: rows.slice(6, 9)[name] for name in WIDE}  # those of the next row
    source = pa.table({"id": rows.slice(5, 9)["id"], **others})

    upsert(spark, path, spark.createDataFrame(source))

    assert jobs == [tuple(WIDE)]
    after = hw.read(spark, path).orderBy("id").toArrow().cast(rows.schema)
    expected = pa.concat_tables([rows.slice(0, 5), source.cast(rows.schema), rows.slice(14)])
    for name in rows.column_names:
        assert str(after[name].to_pylist()) == str(expected[name].to_pylist()), name


@pytest.mark.parametrize("options", [{"row_group_size": 64}, {"data_page_version": "2.0"}, {"use_dictionary": False}])
def test_files_of_others_with_many_row_groups_keep_them(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]], options: dict[str, Any]
) -> None:
    rows = pa.table({"id": range(500), "v": [None if n % 3 else n for n in range(500)], "w": ["x"] * 500})
    write_deltalake(path, rows)
    [file] = files_of(path).values()
    file.unlink()
    pq.write_table(rows, file, **options)
    [add] = actions(path, "add")
    log = Path(path) / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(f'"size":{add["size"]}', f'"size":{file.stat().st_size}'))

    hw.DeltaTable.forPath(spark, path).update("id IN (3, 70, 499)", {"v": "-1", "w": "'y'"})

    assert jobs == [("v", "w")]
    [new] = files_of(path).values()
    assert pq.read_metadata(new).num_row_groups == pq.read_metadata(file).num_row_groups
    changed = {3, 70, 499}
    expected = [(n, -1 if n in changed else None if n % 3 else n, "y" if n in changed else "x") for n in range(500)]
    assert by_all(spark, path) == sorted(expected, key=lambda row: str(row[0]))


def test_a_column_that_files_lack_is_added_to_them(spark: SparkSession, path: str, jobs: list[tuple[str, ...]]) -> None:
    hw.write(spark.range(50).selectExpr("id", "'old' AS v").coalesce(1), path)
    source = spark.sql("SELECT id * 10 AS id, 'new' AS v, id AS extra FROM range(6)")
    merge = hw.DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")

    merge.withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    assert jobs == [("v", "extra")]
    expected = [(n, "new", n // 10) if n % 10 == 0 else (n, "old", None) for n in range(50)] + [(50, "new", 5)]
    assert by_all(spark, path) == sorted(expected, key=lambda row: str(row[0]))


# --- merges of all kinds ----------------------------------------------------------------------------------


def test_updates_by_any_clause_leave_rows_where_they_are(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]]
) -> None:
    frame = spark.range(60).selectExpr("id", "id % 3 AS p", "named_struct('a', id, 'b', 'x') AS s", "'-' AS note")
    hw.write(frame.coalesce(1), path, partition_by="p")
    source = spark.sql("SELECT id * 15 AS key, id AS v FROM range(6)")
    merge = hw.DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = key")

    merge = merge.whenMatchedUpdate("v > 1", {"s.b": "'big'", "note": "concat('v', v)"})
    merge = merge.whenMatchedUpdate(set={"s.a": "-1"})
    merge = merge.whenNotMatchedInsert(values={"id": "key", "p": "7", "note": "'new'"})
    done = merge.whenNotMatchedBySourceUpdate("t.id = 59", {"note": "'gone'"}).execute().collect()[0]

    assert jobs == [("s", "note")]
    assert (done.num_updated_rows, done.num_inserted_rows) == (5, 2)

    def expected(n: int) -> tuple[Any, ...]:
        v = n // 15 if n % 15 == 0 else None
        struct = {"a": -1 if v is not None and v <= 1 else n, "b": "big" if v is not None and v > 1 else "x"}
        return (n, n % 3, struct, "gone" if n == 59 else f"v{v}" if v is not None and v > 1 else "-")

    rows = [(r.id, r.p, r.s and r.s.asDict(), r.note) for r in hw.read(spark, path).orderBy("id").collect()]
    assert rows == [*map(expected, range(60)), (60, 7, None, "new"), (75, 7, None, "new")]


@pytest.mark.parametrize("on", ["t.id = s.id AND t.p = s.p", "t.id = s.id"])
def test_rows_of_partitions_stay_only_if_the_partition_is_a_key(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]], on: str
) -> None:
    hw.write(spark.range(40).selectExpr("id", "id % 2 AS p", "0 AS v").coalesce(1), path, partition_by="p")
    rows = [(3, 1, 7), (4, 1, 8), (90, 5, 9)]

    upsert(spark, path, spark.createDataFrame(rows, "id long, p long, v int"), on)

    is_key = "t.p" in on  # then (4, 1) is another row than (4, 0)
    assert jobs == ([("v",)] if is_key else [])
    old = [(n, n % 2, 0) for n in range(40) if n != 3 and (is_key or n != 4)]
    assert by_all(spark, path) == sorted([*old, *rows], key=lambda row: [str(v) for v in row])


def test_rules_hold_for_rows_that_stay_where_they_are(spark: SparkSession, path: str) -> None:
    hw.write(spark.range(50).selectExpr("id", "0 AS v", "'x' AS w").coalesce(1), path)
    table = hw.DeltaTable.forPath(spark, path)
    table.addConstraint("small", "v < 10 AND id < 100")
    before = files_of(path)
    for row in ((7, 11, "y"), (200, 1, "y")):
        with pytest.raises(hw.ConstraintViolationError, match="small"):
            upsert(spark, path, spark.createDataFrame([row], "id long, v int, w string"))
    with pytest.raises(hw.ConstraintViolationError, match="small"):
        table.update("id = 7", {"w": "'z'", "v": "12"})
    with pytest.raises(hw.ConstraintViolationError, match="small"):
        table.alias("t").merge(spark.range(7, 8).alias("s"), "t.id = s.id").whenMatchedUpdate(set={"v": "10"}).execute()
    assert files_of(path) == before
    assert {file.name for file in Path(path).glob("*.parquet")} == {file.name for file in before.values()}


# --- what is in the way -----------------------------------------------------------------------------------


def test_files_of_the_old_calendar_are_left_to_spark(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]]
) -> None:
    hw.write(spark.range(50).selectExpr("id", "DATE'2020-01-01' AS day").coalesce(1), path)
    [file] = files_of(path).values()
    rows = pq.read_table(file).replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    size = file.stat().st_size
    pq.write_table(rows, file)
    log = Path(path) / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}'))
    (Path(path) / "_delta_log" / f"{0:020}.crc").unlink()

    hw.DeltaTable.forPath(spark, path).update("id = 3", {"day": "DATE'2021-02-03'"})
    upsert(spark, path, spark.sql("SELECT 4L AS id, DATE'2022-02-03' AS day"))

    days = {row.id: row.day for row in hw.read(spark, path).collect()}
    assert (days[2], days[3], days[4]) == (dt.date(2020, 1, 1), dt.date(2021, 2, 3), dt.date(2022, 2, 3))
    assert jobs == [("day",)]  # the upsert met the files that the update had written


def test_files_get_the_types_of_the_schema_even_in_columns_that_stay(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]]
) -> None:
    hw.write(spark.range(20).selectExpr("id", "1 AS n", "0 AS v").coalesce(1), path,
             properties={"delta.enableTypeWidening": "true"})  # fmt: skip
    table = hw.DeltaTable.forPath(spark, path)
    table.setColumnType("n", "long")

    table.update("id = 3", {"v": "7"})

    assert jobs == []
    [file] = files_of(path).values()
    assert pq.read_schema(file).field("n").type == pa.int64()


def test_a_file_that_somebody_else_removes_is_a_conflict_even_if_nothing_in_it_changes(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hw.write(spark.range(100).selectExpr("id", "0 AS v").coalesce(1), path)
    run = ColumnJob.run

    def interrupted(self: ColumnJob, packs: DataFrame) -> Any:
        done = run(self, packs)
        monkeypatch.setattr(ColumnJob, "run", run)
        hw.DeltaTable.forPath(spark, path).delete("id = 7")
        return done

    monkeypatch.setattr(ColumnJob, "run", interrupted)
    with pytest.raises(hw.DeltaConcurrentModificationException):
        upsert(spark, path, spark.sql("SELECT 7L AS id, 0 AS v"))
    assert hw.read(spark, path).where("id = 7").count() == 0


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_source_that_changes_while_it_is_merged_is_taken_as_it_was(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: str
) -> None:
    hw.write(spark.range(100).selectExpr("id", "0 AS v").coalesce(1), path,
             properties={"delta.enableDeletionVectors": vectors})  # fmt: skip
    files = tmp_path / "source"
    files.mkdir()

    def put(ids: range, value: int) -> None:
        pq.write_table(pa.table({"id": ids, "v": pa.array([value] * len(ids), pa.int32())}), files / "a.parquet")

    put(range(10, 20), 1)
    look_up = merging.look_up

    def changing(*args: Any) -> Any:
        found = look_up(*args)
        put(range(15, 25), 2)
        return found

    monkeypatch.setattr(merging, "look_up", changing)

    upsert(spark, path, spark.read.parquet(str(files)))

    expected = [(n, 1 if 10 <= n < 20 else 0) for n in range(100)]
    assert by_headwater(spark, path) == sorted(expected, key=lambda row: str(row[0]))


def test_a_source_that_costs_more_than_its_files_is_computed_once(
    spark: SparkSession, path: str, jobs: list[tuple[str, ...]]
) -> None:
    hw.write(spark.range(100).selectExpr("id", "0 AS v", "'' AS w").coalesce(1), path)
    calls = spark.sparkContext.accumulator(0)

    @sf.udf("int", useArrow=False)
    def counted(value: int) -> int:
        calls.add(1)
        return value + 1

    upsert(spark, path, spark.range(5).select("id", counted("id").alias("v"), sf.lit("x").alias("w")))

    assert calls.value == 5
    assert jobs == [("v", "w")]
    assert by_headwater(spark, path)[:2] == [(0, 1, "x"), (1, 2, "x")]
