"""MERGE beyond the model: what it refuses, how schemas grow, what it reads and writes, and who may interfere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import headwater as hw
from headwater.spark.dml.target import DmlTarget
from headwater.spark.merge.source import is_stable
from support.tables.dml_tables import actions, metrics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def table_of(
    spark: SparkSession, path: Path, rows: list[tuple[Any, ...]], schema: str, **options: Any
) -> hw.DeltaTable:
    hw.write(spark.createDataFrame(rows, schema).coalesce(1), path, **options)
    return hw.DeltaTable.forPath(spark, path).alias("t")


def rows_of(table: hw.DeltaTable) -> list[Any]:
    return sorted((tuple(row) for row in table.toDF().collect()), key=str)


@pytest.fixture(scope="module")
def refusing(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> hw.DeltaTable:
    """A table that no test changes."""
    path = tmp_path_factory.mktemp("merge") / "t"
    return table_of(spark, path, [(1, "a", (1, 2)), (2, "b", (3, 4))], "id int, v string, s struct<a: int, b: int>")


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "error", "message"),
    [
        (lambda m: m, hw.InvalidMergeError, "at least one WHEN clause"),
        (lambda m: m.whenMatchedUpdateAll().whenMatchedDelete(), hw.InvalidMergeError, "only the last"),
        (lambda m: m.whenMatchedUpdateAll(), hw.InvalidMergeError, "the source has no column s"),
        (lambda m: m.whenNotMatchedInsertAll(), hw.InvalidMergeError, "the source has no column s"),
        (lambda m: m.whenMatchedUpdate(set={"v": "1", "t.V": "2"}), hw.SchemaError, "set twice"),
        (lambda m: m.whenMatchedUpdate(set={"s": "null", "s.a": "2"}), hw.SchemaError, "set twice"),
        (lambda m: m.whenMatchedUpdate(set={"nowhere": "1"}), hw.ColumnNotFoundError, "nowhere"),
        (lambda m: m.whenMatchedUpdate(set={"v": "q.nowhere"}), hw.ColumnNotFoundError, "nowhere"),
        (lambda m: m.whenMatchedUpdate(set={"v": "id"}), hw.FilterError, "(?i)ambiguous"),
        (lambda m: m.whenMatchedUpdate(set={"s": "q.v"}), hw.SchemaMismatchError, "cannot be stored"),
        (lambda m: m.whenMatchedUpdate("q.nowhere > 1", {"v": "q.v"}), hw.ColumnNotFoundError, "nowhere"),
        (lambda m: m.whenMatchedDelete("rand() < 0.5"), hw.FilterError, "not deterministic"),
        (lambda m: m.whenNotMatchedInsert(values={"s.a": "1"}), hw.InvalidMergeError, "whole columns"),
        (lambda m: m.whenNotMatchedInsert(values={"v": "t.v"}), hw.ColumnNotFoundError, "t"),
        (lambda m: m.whenNotMatchedInsert("t.id = 1", {"v": "q.v"}), hw.ColumnNotFoundError, "t"),
        (lambda m: m.whenNotMatchedBySourceUpdate(set={"v": "q.v"}), hw.ColumnNotFoundError, "q"),
        (lambda m: m.whenNotMatchedBySourceDelete("q.id = 1"), hw.ColumnNotFoundError, "q"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_happens(
    spark: SparkSession, refusing: hw.DeltaTable, clauses: Any, error: type[Exception], message: str
) -> None:
    source = spark.createDataFrame([(1, "x")], "id int, v string").alias("q")

    with pytest.raises(error, match=message):
        clauses(refusing.merge(source, "t.id = q.id")).execute()


@pytest.mark.parametrize(
    ("condition", "value"), [("t.id = q.nowhere", "q.v"), ("t.id = q.id", "q.nowhere")], ids=["condition", "value"]
)
def test_what_is_refused_is_told_once(
    spark: SparkSession, refusing: hw.DeltaTable, capfd: pytest.CaptureFixture[str], condition: str, value: str
) -> None:
    source = spark.createDataFrame([(1, "x")], "id int, v string").alias("q")

    with pytest.raises(hw.ColumnNotFoundError, match="nowhere"):
        refusing.merge(source, condition).whenMatchedUpdate(set={"v": value}).execute()

    assert "nowhere" not in "".join(capfd.readouterr()), "the error says it, and Spark's log not once more"


def test_source_and_condition_are_checked_at_once(spark: SparkSession, refusing: hw.DeltaTable) -> None:
    with pytest.raises(TypeError, match="DataFrame"):
        refusing.merge("source", "t.id = s.id")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SQL text or a Column"):
        refusing.merge(spark.range(1), True)  # type: ignore[arg-type]
    with pytest.raises(hw.ColumnNotFoundError, match="nowhere"):
        refusing.merge(spark.range(1).alias("q"), "t.id = q.nowhere").whenMatchedDelete().execute()


# --- several rows of the source for one of the target -----------------------------------------------------


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_row_that_several_source_rows_want_to_change_is_an_error(
    spark: SparkSession, tmp_path: Path, vectors: str
) -> None:
    table = table_of(
        spark, tmp_path, [(1, "a"), (2, "b")], "id int, v string", properties={"delta.enableDeletionVectors": vectors}
    )
    twice = spark.createDataFrame([(1, "x", 1), (1, "y", 2), (3, "z", 3)], "id int, v string, k int").alias("s")
    merge = table.merge(twice, "t.id = s.id")

    for ambiguous in (
        merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsertAll(),
        merge.whenMatchedDelete("k = 1").whenMatchedUpdate(set={"v": "s.v"}),
    ):
        with pytest.raises(hw.MultipleSourceRowsError, match="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"):
            ambiguous.execute()
    assert hw.open_log(tmp_path).version == 0

    merge.whenMatchedUpdate("k = 2", {"v": "s.v"}).execute()
    assert rows_of(table) == [(1, "y"), (2, "b")]  # only one of them acts
    [result] = merge.whenMatchedDelete().execute().collect()
    assert result.num_deleted_rows == 1  # however often: it is gone
    assert rows_of(table) == [(2, "b")]


# --- schemas -----------------------------------------------------------------------------------------------


def test_new_columns_of_the_source_are_added_on_demand(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(
        spark,
        tmp_path,
        [(1, (1, 2), "x"), (2, (3, 4), "y"), (3, None, "z")],
        "id int, s struct<a: int, b: int>, v string",
    )
    source = spark.createDataFrame(
        [(1, (10, 30), "n1"), (2, None, "n2"), (3, (11, 33), "n3"), (4, (12, 34), "n4")],
        "id int, s struct<a: int, c: int>, new string",
    ).alias("s")
    merge = table.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()

    with pytest.raises(hw.InvalidMergeError, match="withSchemaEvolution"):
        merge.execute()
    merge.withSchemaEvolution().execute()

    # As delta-spark has it: fields that only the table has keep their values, whatever the source's struct is.
    rows = {row.id: row for row in table.toDF().collect()}
    assert table.toDF().schema.simpleString() == "struct<id:int,s:struct<a:int,b:int,c:int>,v:string,new:string>"
    assert {i: row.s.asDict() for i, row in rows.items()} == {
        1: {"a": 10, "b": 2, "c": 30},
        2: {"a": None, "b": 4, "c": None},
        3: {"a": 11, "b": None, "c": 33},
        4: {"a": 12, "b": None, "c": 34},
    }
    assert {i: (row.v, row.new) for i, row in rows.items()} == {
        1: ("x", "n1"),
        2: ("y", "n2"),
        3: ("z", "n3"),
        4: (None, "n4"),
    }


def test_only_columns_that_clauses_assign_are_added(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a")], "id int, v string")
    source = spark.createDataFrame([(1, "n", "o")], "id int, new string, other string").alias("s")
    setting = "spark.databricks.delta.schema.autoMerge.enabled"
    spark.conf.set(setting, "true")

    try:
        table.merge(source, "t.id = s.id").whenMatchedUpdate(set={"new": "s.new"}).execute()
    finally:
        spark.conf.unset(setting)

    assert rows_of(table) == [(1, "a", "n")]
    assert hw.open_log(tmp_path).schema.names == ("id", "v", "new")


def test_fields_of_structs_are_set_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(
        spark, tmp_path, [(1, (1, ("p", 2))), (2, None)], "id int, s struct<a: int, d: struct<e: string, f: int>>"
    )
    source = spark.createDataFrame([(1, 70), (2, 80)], "id int, n int").alias("q")

    table.merge(source, F.col("t.id") == F.col("q.id")).whenMatchedUpdate(
        set={"t.s.d.f": F.col("q.n") + F.col("t.id"), "s.a": "q.n"}
    ).execute()

    assert [row.s.asDict(recursive=True) for row in table.toDF().orderBy("id").collect()] == [
        {"a": 70, "d": {"e": "p", "f": 71}},
        {"a": 80, "d": {"e": None, "f": 82}},
    ]


def test_rules_and_filled_in_columns_of_the_table_hold_for_merged_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = (
        hw.DeltaTable.create(spark)
        .location(str(tmp_path))
        .addColumn("n", "BIGINT", generatedAlwaysAs=hw.IdentityGenerator())
        .addColumn("id", "INT", nullable=False)
        .addColumn("twice", "INT", generatedAlwaysAs="id * 2 + extra")
        .addColumn("extra", "INT")
        .execute()
        .alias("t")
    )
    table.addConstraint("small", "extra < 100")
    hw.write(spark.createDataFrame([(1, 0), (2, 0)], "id int, extra int").coalesce(1), tmp_path, mode="append")
    source = spark.createDataFrame([(2, 5), (3, 6), (4, 7)], "id int, extra int").coalesce(1).alias("s")

    merge = table.merge(source, "t.id = s.id")
    merge.whenMatchedUpdate(set={"extra": "s.extra"}).whenNotMatchedInsertAll().execute()

    assert [row[:3] for row in sorted(map(tuple, table.toDF().select("id", "twice", "extra", "n").collect()))] == [
        (1, 2, 0),
        (2, 9, 5),
        (3, 12, 6),
        (4, 15, 7),
    ]
    numbers = [row.n for row in table.toDF().orderBy("id").collect()]
    assert numbers[:2] == [1, 2]
    assert len(set(numbers)) == 4
    mark = hw.open_log(tmp_path).schema.field("n").metadata["delta.identity.highWaterMark"]
    assert mark == max(numbers)
    with pytest.raises(hw.ConstraintViolationError, match="NOT NULL"):
        merge.whenMatchedUpdate(set={"id": "null"}).execute()
    with pytest.raises(hw.ConstraintViolationError, match="twice is generated"):
        merge.whenMatchedUpdate(set={"twice": "1"}).execute()
    with pytest.raises(hw.InvalidMergeError, match="identity"):
        merge.whenMatchedUpdate(set={"n": "1"}).execute()


# --- what is read and written --------------------------------------------------------------------------------


def test_the_source_need_not_have_a_column_that_a_clause_gives_a_value_for(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a"), (2, "b")], "id int, v string")
    source = spark.createDataFrame([(2, 20), (3, 30)], "key int, n int")
    merge = table.merge(source, "t.id = key").whenMatchedUpdate(set={"v": "concat('v', n)"})
    merge.whenNotMatchedInsert(values={"id": "key", "v": "'new'"}).execute()
    assert rows_of(table) == [(1, "a"), (2, "v20"), (3, "new")]


def test_a_merge_that_only_inserts_appends(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}
    table = table_of(spark, tmp_path, [(1, "a"), (None, "b")], "id int, v string", properties=properties)
    source = spark.createDataFrame([(1, "x"), (2, "y"), (None, "z")], "id int, v string").alias("s")

    table.merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()

    assert rows_of(table) == [(1, "a"), (2, "y"), (None, "b"), (None, "z")]
    assert actions(tmp_path, "remove") == actions(tmp_path, "cdc") == []
    assert not hw.open_log(tmp_path).history(1)[0].is_blind_append
    with pytest.raises(hw.InvalidCommitError, match="only allows appends"):
        table.merge(source, "t.id = s.id").whenMatchedDelete().execute()


def test_only_files_that_can_match_are_looked_at(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(100).selectExpr("id", "cast(id div 50 as string) p").repartitionByRange(10, "id")
    hw.write(rows, tmp_path, partition_by="p")
    table = hw.DeltaTable.forPath(spark, tmp_path).alias("t")
    counts: list[int] = []
    candidates = DmlTarget.candidates

    def counted(self: DmlTarget, *args: Any) -> Any:
        found = candidates(self, *args)
        counts.append(len(found))
        return found

    monkeypatch.setattr(DmlTarget, "candidates", counted)

    def files_for(keys: list[int], condition: str, clause: str = "whenMatchedDelete", *args: str) -> int:
        source = spark.createDataFrame([(key, str(key // 50)) for key in keys], "id long, p string").alias("s")
        getattr(table.merge(source, condition), clause)(*args).execute()
        return counts[-1]

    total = hw.open_log(tmp_path).num_files
    assert total >= 10
    assert files_for([3, 1007], "t.id = s.id") == 1  # by each value
    assert files_for([1000], "t.p = s.p AND t.id > 5000") == 0
    assert files_for([60, 61], "t.p = s.p AND t.id = s.id + 1000") == total // 2  # by partition
    assert files_for([200], "t.id = s.id", "whenNotMatchedBySourceDelete", "t.id > 95 AND t.id < 97") == 1


def test_nothing_is_committed_when_nothing_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a")], "id int, v string")

    [result] = (
        table.merge(spark.createDataFrame([(5, "x")], "id int, v string").alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .execute()
        .collect()
    )

    assert result.num_affected_rows == 0
    assert hw.open_log(tmp_path).version == 0


def test_a_source_of_chance_is_the_same_throughout_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(i, -1.0) for i in range(50)], "id long, r double")
    source = spark.range(100).where("rand() < 0.5").selectExpr("id", "rand() AS r")
    persistent = spark._jsc.getPersistentRDDs().size()

    table.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    found = metrics(tmp_path)
    rows = table.toDF().collect()
    assert len({row.id for row in rows}) == len(rows) == 50 + found["numTargetRowsInserted"]
    assert found["numSourceRows"] == found["numTargetRowsUpdated"] + found["numTargetRowsInserted"]
    assert sum(row.r >= 0 for row in rows) == found["numSourceRows"]
    assert spark._jsc.getPersistentRDDs().size() == persistent
    assert is_stable(spark.range(5).alias("s"))
    assert is_stable(hw.read(spark, tmp_path))
    assert not is_stable(source)


# --- others write at the same time ---------------------------------------------------------------------------


def test_merges_of_different_rows_of_a_file_both_succeed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    table = table_of(spark, tmp_path, [(i, "a") for i in range(6)], "id int, v string", properties=properties)
    commit = DmlTarget.commit

    def interfering(keys: list[int]) -> None:
        def interfered(self: DmlTarget, *args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(DmlTarget, "commit", commit)
            merged(keys, "other")
            return commit(self, *args, **kwargs)

        monkeypatch.setattr(DmlTarget, "commit", interfered)

    def merged(keys: list[int], value: str) -> None:
        source = spark.createDataFrame([(key, value) for key in keys], "id int, v string").alias("s")
        table.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll("s.id < 100").execute()

    interfering([0, 1])
    merged([4, 5], "first")

    assert rows_of(table) == [(0, "other"), (1, "other"), (2, "a"), (3, "a"), (4, "first"), (5, "first")]
    interfering([2, 3])
    with pytest.raises(hw.DeltaConcurrentModificationException):
        merged([3, 4], "second")


# --- upserts: what is new and what is changed need not be told apart --------------------------------------


def upserted(table: hw.DeltaTable, source: Any) -> Any:
    merge = table.merge(source.alias("q"), "t.id = q.id")
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().collect()[0]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_an_upsert_never_reads_old_values(
    spark: SparkSession, tmp_path: Path, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"delta.enableDeletionVectors": vectors}
    table = table_of(spark, tmp_path, [(1, "a"), (2, "b"), (3, "c")], "id int, v string", properties=properties)
    monkeypatch.setattr("headwater.spark.merge.write.Updates._matched", lambda *_: pytest.fail("it joined again"))
    monkeypatch.setattr("headwater.spark.merge.plan.MergePlan.check", lambda _: None)
    done = upserted(table, spark.createDataFrame([(2, "B"), (4, "D"), (None, "N")], "id int, v string"))
    assert rows_of(table) == [(1, "a"), (2, "B"), (3, "c"), (4, "D"), (None, "N")]
    assert (done.num_updated_rows, done.num_inserted_rows, done.num_affected_rows) == (1, 2, 3)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_row_of_an_upsert_may_change_several_rows(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    properties = {"delta.enableDeletionVectors": vectors}
    table = table_of(spark, tmp_path, [(1, "a"), (1, "b"), (2, "c")], "id int, v string", properties=properties)
    done = upserted(table, spark.createDataFrame([(1, "new"), (3, "d")], "id int, v string"))
    assert rows_of(table) == [(1, "new"), (1, "new"), (2, "c"), (3, "d")]
    assert (done.num_updated_rows, done.num_inserted_rows) == (2, 1)


def test_two_rows_of_an_upsert_for_one_row_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path, [(1, "a"), (2, "b")], "id int, v string")
    with pytest.raises(hw.MultipleSourceRowsError):
        upserted(table, spark.createDataFrame([(1, "x"), (1, "y")], "id int, v string"))
    # Two pairs, two rows of the source, two of the table: only the counts of all three sides tell.
    with pytest.raises(hw.MultipleSourceRowsError):
        upserted(table, spark.createDataFrame([(1, "x"), (1, "y"), (2, "z")], "id int, v string"))
    assert rows_of(table) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("generated", ["id + 1", None])
def test_an_upsert_keeps_rows_ids_and_computed_columns(
    spark: SparkSession, tmp_path: Path, generated: str | None
) -> None:
    builder = hw.DeltaTable.create(spark).location(str(tmp_path)).addColumn("id", "int").addColumn("v", "string")
    if generated:
        builder = builder.addColumn("next", "int", generatedAlwaysAs=generated)
    table = builder.property("delta.enableRowTracking", "true").execute().alias("t")
    first = spark.createDataFrame([(1, "a"), (2, "b")], "id int, v string")
    hw.write(first.coalesce(1), tmp_path, mode="append")
    before = {row.id: row._row_id for row in hw.read(spark, tmp_path, row_tracking=True).collect()}
    upserted(table, spark.createDataFrame([(2, "B"), (3, "c")], "id int, v string"))
    after = {row.id: row for row in hw.read(spark, tmp_path, row_tracking=True).collect()}
    assert {number: after[number]._row_id for number in (1, 2)} == before
    assert {number: row.v for number, row in after.items()} == {1: "a", 2: "B", 3: "c"}
    if generated:
        assert {number: row.next for number, row in after.items()} == {1: 2, 2: 3, 3: 4}
