"""Upserts by keys: Python workers find the same rows that Spark's join would, or leave it to that."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.spark.merge import lookup
from headwater.spark.merge import merge as merging

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headwater.spark.merge.lookup import LookedUp

pytestmark = pytest.mark.spark


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[LookedUp | None]:
    """What was found without a join, merge by merge."""
    found: list[LookedUp | None] = []

    def noted(*args: Any) -> LookedUp | None:
        found.append(lookup.look_up(*args))
        return found[-1]

    monkeypatch.setattr(merging, "look_up", noted)
    return found


def upsert(spark: SparkSession, path: Path, rows: list[Any], schema: str, condition: str) -> list[tuple[Any, ...]]:
    """The table's rows after an upsert."""
    table = hw.DeltaTable.forPath(spark, path)
    source = spark.createDataFrame(rows, schema).alias("s")
    table.alias("t").merge(source, condition).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    return sorted((tuple(row) for row in table.toDF().collect()), key=str)


def write(spark: SparkSession, path: Path, rows: list[Any], schema: str, files: int = 2, **options: Any) -> None:
    hw.write(spark.createDataFrame(rows, schema).repartition(files), path, **options)


def upserted(old: list[Any], new: list[Any], keys: int) -> list[tuple[Any, ...]]:
    """What an upsert comes to where keys occur once in the source: the first columns are the keys."""
    coming = {row[:keys] for row in new if None not in row[:keys]}
    return sorted([*(row for row in old if row[:keys] not in coming), *new], key=str)


DAYS = [dt.date(2024, 1, day) for day in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("table_type", "source_type", "values"),
    [
        ("int", "int", [1, 2, None, 3]),
        ("int", "long", [1, 2, None, 3]),
        ("long", "short", [1, 2, None, 3]),
        ("string", "string", ["a", "", None, "ä"]),
        ("date", "date", [DAYS[0], DAYS[1], None, DAYS[2]]),
    ],
)
def test_keys_of_these_types_are_looked_up(
    spark: SparkSession, tmp_path: Path, looked_up: list[Any], table_type: str, source_type: str, values: list[Any]
) -> None:
    one, two, nothing, new = values
    old = [(one, "one"), (two, "two"), (nothing, "null")]
    write(spark, tmp_path, old, f"k {table_type}, v string")
    coming = [(one, "ONE"), (nothing, "another null"), (new, "new")]

    rows = upsert(spark, tmp_path, coming, f"k {source_type}, v string", "t.k = s.k")

    assert rows == upserted(old, coming, 1)
    assert [found.matches.pairs for found in looked_up] == [1]


@pytest.mark.parametrize(
    ("table_type", "source_type", "values"),
    [
        ("double", "double", [1.0, float("nan"), 0.0, 3.0]),
        ("string", "int", ["1", "2", "9", 3]),
        ("timestamp", "timestamp", [dt.datetime(2024, 1, day) for day in (1, 2, 3, 4)]),
        ("decimal(10,2)", "decimal(10,2)", [None] * 4),
    ],
)
def test_others_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, looked_up: list[Any], table_type: str, source_type: str, values: list[Any]
) -> None:
    one, two, three, new = values
    write(spark, tmp_path, [(one, "one"), (two, "two"), (three, "three")], f"k {table_type}, v string")
    own = int(one) if source_type == "int" else one

    rows = upsert(spark, tmp_path, [(own, "ONE"), (new, "new")], f"k {source_type}, v string", "t.k = s.k")

    assert looked_up == []
    is_null = one is None
    assert [row[1] for row in rows].count("one") == (1 if is_null else 0)
    assert len(rows) == (5 if is_null else 4)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("t.k = s.k AND t.d = s.d", 1), ("t.k = s.k AND t.d > 5", 0), ("t.k = s.k AND s.d > 5", 0), ("t.k <=> s.k", 0)],
)
def test_only_conditions_that_are_nothing_but_keys(
    spark: SparkSession, tmp_path: Path, looked_up: list[Any], condition: str, expected: int
) -> None:
    old = [(1, 1, "a"), (1, 9, "b"), (2, 9, "c"), (3, None, "d")]
    write(spark, tmp_path, old, "k int, d int, v string")
    coming = [(1, 9, "B"), (3, None, "D")]

    rows = upsert(spark, tmp_path, coming, "k int, d int, v string", condition)

    assert len(looked_up) == expected
    matched = {
        "t.k = s.k AND t.d = s.d": {(1, 9)},
        "t.k = s.k AND t.d > 5": {(1, 9)},
        "t.k = s.k AND s.d > 5": {(1, 1), (1, 9)},
        "t.k <=> s.k": {(1, 1), (1, 9), (3, None)},
    }[condition]
    kept = [row for row in old if row[:2] not in matched]
    values = {1: (1, 9, "B"), 3: (3, None, "D")}
    changed = [values[key] for key, _ in matched]
    inserted = [row for row in coming if row[0] not in {key for key, _ in matched}]
    assert rows == sorted([*kept, *changed, *inserted], key=str)


def test_a_key_that_the_source_has_twice_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, looked_up: list[Any]
) -> None:
    write(spark, tmp_path, [(1, "a"), (9, "b")], "k int, v string")

    rows = upsert(spark, tmp_path, [(7, "x"), (7, "y")], "k int, v string", "t.k = s.k")
    assert rows == [(1, "a"), (7, "x"), (7, "y"), (9, "b")]
    with pytest.raises(hw.MultipleSourceRowsError):
        upsert(spark, tmp_path, [(1, "x"), (1, "y")], "k int, v string", "t.k = s.k")
    assert looked_up == [None, None]


def test_a_key_that_the_table_has_twice_is_updated_twice(
    spark: SparkSession, tmp_path: Path, looked_up: list[Any]
) -> None:
    write(spark, tmp_path, [(1, "a"), (1, "b"), (2, "c")], "k int, v string")

    rows = upsert(spark, tmp_path, [(1, "x"), (3, "y")], "k int, v string", "t.k = s.k")

    assert rows == [(1, "x"), (1, "x"), (2, "c"), (3, "y")]
    assert looked_up == [None]  # and a join found them


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_deleted_rows_are_not_found_again(
    spark: SparkSession, tmp_path: Path, looked_up: list[Any], vectors: bool, mapping: str, partitioned: bool
) -> None:
    old = [(number, number % 3, f"v{number}") for number in range(60)]
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": mapping}
    schema = "k int, p int, v string"
    write(spark, tmp_path, old, schema, partition_by=["p"] if partitioned else None, properties=properties)
    table = hw.DeltaTable.forPath(spark, tmp_path)
    table.delete("k % 5 = 0")
    table.setProperties({"delta.enableDeletionVectors": str(vectors).lower()})
    coming = [(10, 1, "again"), (11, 2, "new value"), (99, 0, "new")]

    rows = upsert(spark, tmp_path, coming, schema, "t.p = s.p AND s.k = t.k")

    assert rows == upserted([row for row in old if row[0] % 5], coming, 2)
    assert [found.matches.pairs for found in looked_up] == [1]
    history = table.history(1).collect()[0]["operationMetrics"]
    assert (history["numTargetRowsUpdated"], history["numTargetRowsInserted"]) == ("1", "2")


KEYS = st.one_of(st.none(), st.integers(-3, 6))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "A", "ä", "\U0001f600", "a\x00b"]))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=st.lists(st.tuples(KEYS, TEXTS, st.integers()), min_size=1, max_size=12),
    new=st.lists(st.tuples(KEYS, TEXTS, st.integers()), min_size=1, max_size=8, unique_by=lambda row: row[:2]),
)
def test_what_is_looked_up_is_what_spark_joins(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    old: list[tuple[Any, ...]],
    new: list[tuple[Any, ...]],
) -> None:
    bound = 2**62
    old, new = ([(*row[:2], row[2] % bound) for row in rows] for rows in (old, new))
    path = tmp_path_factory.mktemp("keyed")
    schema = "a long, b string, v long"
    write(spark, path, old, schema)

    rows = upsert(spark, path, new, schema, "t.a = s.a AND t.b = s.b")

    matches = {row[:2]: [one for one in old if one[:2] == row[:2]] for row in new if None not in row[:2]}
    expected = [row for row in old if not matches.get(row[:2])]
    for row in new:
        expected += [row] * max(1, len(matches.get(row[:2], [])))
    assert rows == sorted(expected, key=str)
