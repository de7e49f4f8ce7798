"""Deleted rows do not come back: every kind of vector, under filters, splits, many files and plain settings."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater.spark.scan.read import read
from support.tables.delta_tables import DeltaTable, field, inline_vector, relative_vectors, vector_file

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def ids(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def values(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def vectors_table(path: Path, *fields: dict[str, Any], **options: Any) -> DeltaTable:
    return DeltaTable(path, *(fields or (field("id", "long"),)), features=("deletionVectors",), **options)


def test_every_storage_type_and_files_without_a_vector(spark: SparkSession, tmp_path: Path) -> None:
    table = vectors_table(tmp_path / "a table")
    (near, second) = relative_vectors(table.path, [0, 9], [5])
    (prefixed,) = relative_vectors(table.path, [1], prefix="ab")
    (place,) = vector_file(tmp_path / "else where" / "v 1.bin", [2, 3])
    absolute = {"storageType": "p", "pathOrInlineDv": quote(f"{tmp_path}/else where/v 1.bin"), **place}
    vectors = [near, second, prefixed, absolute, inline_vector([4, 5, 6]), None]
    for i, vector in enumerate(vectors):
        table.append(ids(i * 10, 10), **({} if vector is None else {"deletionVector": vector}))
    deleted = {0, 9, 15, 21, 32, 33, 44, 45, 46}
    assert values(read(spark, table.path)) == sorted(set(range(60)) - deleted)


def test_hidden_columns_stay_hidden(spark: SparkSession, tmp_path: Path) -> None:
    table = vectors_table(tmp_path / "t", field("p", "integer"), field("id", "long"), partition_columns=("p",))
    table.append(ids(0, 3), partitionValues={"p": "1"}, deletionVector=inline_vector([1]))
    frame = read(spark, table.path)
    assert frame.columns == ["p", "id"]
    assert sorted(frame.collect()) == [(1, 0), (1, 2)]
    assert frame.select("_metadata.row_index").distinct().count() == 2


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[int]]:
    """Three files of many small row groups, half of the rows deleted at random; and the ids that are left."""
    table = vectors_table(tmp_path_factory.mktemp("vectors") / "large", field("id", "long"), field("mod", "long"))
    chance, left, actions = random.Random(7), set(), []
    for i in range(3):
        numbers = list(range(i * 20_000, (i + 1) * 20_000))
        rows = pa.table({"id": pa.array(numbers, pa.int64()), "mod": pa.array([n % 100 for n in numbers], pa.int64())})
        deleted = sorted(chance.sample(range(20_000), 10_000))
        left |= set(numbers) - {numbers[d] for d in deleted}
        (vector,) = relative_vectors(table.path, deleted)
        action = table.file(rows, f"{i}.parquet", deletionVector=vector)
        pq.write_table(rows, table.path / f"{i}.parquet", row_group_size=1_000)
        action["add"]["size"] = (table.path / f"{i}.parquet").stat().st_size
        actions.append(action)
    table.commit(*actions)
    return table.path, left


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spark.sql.files.maxPartitionBytes": "20k", "spark.sql.files.openCostInBytes": "1"},
        {"spark.sql.parquet.enableVectorizedReader": "false"},
        {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
        {"spark.sql.ansi.enabled": "false", "spark.sql.adaptive.enabled": "false"},
    ],
    ids=["default", "splits", "row reader", "no codegen", "no ansi"],
)
def test_under_filters_and_settings(
    spark: SparkSession, large: tuple[Path, set[int]], settings: dict[str, str]
) -> None:
    path, left = large
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    frame = read(session, path)
    assert set(values(frame)) == left
    assert values(frame.where("id between 12345 and 27000")) == sorted(n for n in left if 12345 <= n <= 27000)
    assert values(frame.where("mod = 42")) == sorted(n for n in left if n % 100 == 42)
    assert frame.where("id = 30000 or mod = 7").count() == sum(1 for n in left if n == 30000 or n % 100 == 7)
    assert frame.groupBy("mod").count().where("count > 0").count() == 100


def test_self_join_and_cache(spark: SparkSession, large: tuple[Path, set[int]]) -> None:
    path, left = large
    frame = read(spark, path).cache()
    try:
        assert frame.count() == len(left)
        assert frame.join(frame.where("mod < 50").withColumnRenamed("mod", "m"), "id").count() == sum(
            1 for n in left if n % 100 < 50
        )
    finally:
        frame.unpersist(blocking=True)


def test_only_the_vectors_of_files_that_are_read_are_fetched(spark: SparkSession, tmp_path: Path) -> None:
    table = vectors_table(tmp_path / "t")
    (kept,) = relative_vectors(table.path, [1])
    table.append(ids(0, 5), deletionVector=kept)
    (gone,) = relative_vectors(table.path, [2])
    table.append(ids(100, 5), deletionVector=gone)
    missing = [p for p in table.path.glob("deletion_vector_*.bin") if p.stat().st_mtime_ns]
    newest = max(missing, key=lambda p: p.stat().st_mtime_ns)
    newest.unlink()
    frame = read(spark, table.path)
    assert values(frame.where("id < 50")) == [0, 2, 3, 4]
    with pytest.raises(hw.StorageError, match=rf"{newest.name}.*VACUUM"):
        frame.collect()
    assert values(frame.where("id < 50")) == [0, 2, 3, 4]


def test_a_damaged_vector_raises_and_never_gives_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = vectors_table(tmp_path / "t")
    (vector,) = relative_vectors(table.path, [1, 2, 3])
    table.append(ids(0, 5), deletionVector={**vector, "cardinality": 2})
    with pytest.raises(hw.CorruptLogError, match="deletes 3 rows, and the log says 2"):
        read(spark, table.path).count()


def test_two_thousand_vectors(spark: SparkSession, tmp_path: Path) -> None:
    table = vectors_table(tmp_path / "t")
    first = table.file(ids(0, 10), "shared.parquet")["add"]
    # One data file under many names costs the test little; each has a vector of its own.
    actions, vectors = [], relative_vectors(table.path, *([n % 10] for n in range(2_000)))
    for n, vector in enumerate(vectors):
        (table.path / f"{n}.parquet").hardlink_to(table.path / "shared.parquet")
        actions.append({"add": {**first, "path": f"{n}.parquet", "deletionVector": vector}})
    table.commit(*actions)
    counts = {row.id: row["count"] for row in read(spark, table.path).groupBy("id").count().collect()}
    assert counts == dict.fromkeys(range(10), 1_800)
