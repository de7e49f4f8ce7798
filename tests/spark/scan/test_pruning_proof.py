"""The pruning proof: of a table of 1,000 files, the ones that a query really opens, file by file.

The executed plan says which files its tasks were given, and Spark's metric how many there were. Neither is
taken at its word alone: each query runs a second time on a copy of the table that has only the expected files, where
opening any other one would fail.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from headwater.spark.scan.read import read
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FILES, DAYS, ROWS = 1_000, 50, 10
VIEW = "pruning_proof"


def file_name(i: int) -> str:
    """File `i` has the ids from 10 i, names that begin with its number, and day `i % 50`: 20 files a day."""
    return f"{i:03d}.parquet"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pruning") / "table"
    delta = DeltaTable(
        path, field("id", "long"), field("name", "string"), field("day", "integer"), partition_columns=("day",)
    )
    actions = []
    for i in range(FILES):
        ids = pa.array(range(i * ROWS, (i + 1) * ROWS), pa.int64())
        rows = pa.table({"id": ids, "name": [f"{i:03d}/{n}" for n in range(ROWS)]})
        actions.append(delta.file(rows, file_name(i), partitionValues={"day": str(i % DAYS)}))
    delta.commit(*actions)
    return path


@pytest.fixture
def holed(table: Path, tmp_path: Path) -> Callable[[set[str]], Path]:
    """Makes a copy of the table from which all data files but some are gone."""

    def keep_only(names: set[str]) -> Path:
        copy = tmp_path / "holed"
        shutil.copytree(table / "_delta_log", copy / "_delta_log")
        for name in names:
            os.link(table / name, copy / name)
        return copy

    return keep_only


@dataclass(frozen=True)
class Opened:
    """What the scan of the fact table did in a query that has run."""

    files: set[str]
    """The names of the files in the tasks."""
    num_files_metric: int


def opened(frame: DataFrame) -> Opened:
    """What a query that has run has opened of the table with 1,000 files."""
    plan = frame._jdf.queryExecution().executedPlan()
    [scan] = [leaf for leaf in leaves(plan) if is_fact(leaf)]
    partitions = scan.inputRDDs().head().filePartitions()
    files = {
        Path(unquote(file.urlEncodedPath())).name
        for i in range(partitions.size())
        for file in partitions.apply(i).files()
    }
    return Opened(files, scan.metrics().apply("numFiles").value())


def leaves(plan: Any) -> Iterator[Any]:
    """The leaves of a physical plan, also those inside the stages of adaptive execution."""
    kind = plan.getClass().getSimpleName()
    if kind == "AdaptiveSparkPlanExec":
        yield from leaves(plan.executedPlan())
    elif kind.endswith("QueryStageExec"):
        yield from leaves(plan.plan())
    elif kind == "ReusedExchangeExec":
        yield from leaves(plan.child())
    elif plan.children().isEmpty():
        yield plan
    else:
        for i in range(plan.children().size()):
            yield from leaves(plan.children().apply(i))


def is_fact(leaf: Any) -> bool:
    is_scan = leaf.getClass().getSimpleName() == "FileSourceScanExec"
    return is_scan and leaf.relation().location().toString().startswith("Headwater(")


FILTERS = {
    "partition": ("day = 7", {i for i in range(FILES) if i % DAYS == 7}),
    "partition range": ("day >= 48", {i for i in range(FILES) if i % DAYS >= 48}),
    "partition IN": ("day in (3, 30, 99)", {i for i in range(FILES) if i % DAYS in (3, 30)}),
    "partition function": ("day % 25 = 0", {i for i in range(FILES) if i % DAYS in (0, 25)}),
    "range": ("id between 4995 and 5014", {499, 500, 501}),
    "open range": ("id >= 9985", {998, 999}),
    "IN": ("id in (0, 1, 777, 5000, 123456)", {0, 77, 500}),
    "many values in IN": (f"id in ({', '.join(str(i * 1000) for i in range(20))})", {i * 100 for i in range(10)}),
    "prefix": ("name like '42%'", set(range(420, 430))),
    "prefix of one file": ("startswith(name, '007/')", {7}),
    "partition and range": ("day = 7 and id < 2000", {7, 57, 107, 157}),
    "either": ("id = 5 or name = '500/3'", {0, 500}),
    "not": ("not (id < 9990)", {999}),
    "nothing": ("id < 0", set()),
}


def expected_ids(condition: str) -> list[int]:
    """The rows, from another engine that knows nothing of files."""
    import duckdb

    sql = f"select id from (select n id, printf('%03d/%d', n // 10, n % 10) as name, (n // 10) % {DAYS} as day"
    sql += f" from range({FILES * ROWS}) r(n)) where {condition.replace('startswith', 'starts_with')} order by id"
    return [row[0] for row in duckdb.sql(sql).fetchall()]


def by_dataframe(spark: SparkSession, path: Path, condition: str) -> DataFrame:
    return read(spark, path).where(condition).select("id")


def by_sql_over_a_view(spark: SparkSession, path: Path, condition: str) -> DataFrame:
    read(spark, path).createOrReplaceTempView(VIEW)
    return spark.sql(f"select id from {VIEW} where {condition}")


@pytest.mark.parametrize("query", [by_dataframe, by_sql_over_a_view])
@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter_opens_exactly_the_files_that_can_match(
    spark: SparkSession, table: Path, holed: Any, kind: str, query: Any
) -> None:
    condition, numbers = FILTERS[kind]
    names = {file_name(i) for i in numbers}
    expected = [(i,) for i in expected_ids(condition)]
    found = query(spark, table, condition)

    assert sorted(found.collect()) == expected

    assert opened(found) == Opened(names, len(names))
    assert sorted(query(spark, holed(names), condition).collect()) == expected


def test_no_filter_opens_all_files(spark: SparkSession, table: Path) -> None:
    found = read(spark, table).select("id")

    assert len(found.collect()) == FILES * ROWS

    assert opened(found) == Opened({file_name(i) for i in range(FILES)}, FILES)


@pytest.fixture
def dimension(spark: SparkSession) -> DataFrame:
    """A table of days, weeks and ids, whose rows the planner does not know."""
    rows = [(day, day // 7, f"{day % 7}", day * 100) for day in range(DAYS)]
    return spark.createDataFrame(rows, "day int, week int, weekday string, first_id long").repartition(2)


def by_join(fact: DataFrame, dimension: DataFrame) -> DataFrame:
    return fact.join(dimension.hint("broadcast"), "day")


def by_join_in_sql(fact: DataFrame, dimension: DataFrame) -> DataFrame:
    fact.createOrReplaceTempView(VIEW)
    dimension.createOrReplaceTempView(f"{VIEW}_days")
    text = f"select /*+ broadcast(d) */ f.id from {VIEW} f join {VIEW}_days d on f.day = d.day"
    return fact.sparkSession.sql(text)


@pytest.mark.parametrize("join", [by_join, by_join_in_sql])
def test_a_join_with_a_filtered_dimension_opens_the_partitions_that_are_left_of_it(
    spark: SparkSession, table: Path, holed: Any, dimension: DataFrame, join: Any
) -> None:
    """Dynamic partition pruning: which days are in the week is known only when the query runs."""
    days = {14, 15, 16, 17, 18, 19, 20}
    numbers = {i for i in range(FILES) if i % DAYS in days}
    names = {file_name(i) for i in numbers}
    expected = sorted(i * ROWS + n for i in numbers for n in range(ROWS))
    found = join(read(spark, table), dimension.where("week = 2")).select("id")

    assert sorted(row.id for row in found.collect()) == expected

    assert opened(found) == Opened(names, 140)
    again = join(read(spark, holed(names)), dimension.where("week = 2")).select("id")
    assert sorted(row.id for row in again.collect()) == expected


def test_a_filter_on_the_key_of_a_join_opens_the_files_of_these_keys(
    spark: SparkSession, table: Path, holed: Any, dimension: DataFrame
) -> None:
    """The filter stands on the dimension; the planner infers it for the table's column."""

    def joined(path: Path) -> DataFrame:
        filtered = dimension.where("first_id in (1200, 3300)").select(dimension.first_id.alias("id"))
        return read(spark, path).join(filtered, "id").select("id")

    names = {file_name(120), file_name(330)}
    found = joined(table)

    assert sorted(found.collect()) == [(1200,), (3300,)]

    assert opened(found) == Opened(names, 2)
    assert sorted(joined(holed(names)).collect()) == [(1200,), (3300,)]


def test_dynamic_pruning_and_statistics_together(
    spark: SparkSession, table: Path, holed: Any, dimension: DataFrame
) -> None:
    numbers = {i for i in range(100) if i % DAYS in {5, 12, 19, 26, 33, 40, 47}}
    names = {file_name(i) for i in numbers}

    def joined(path: Path) -> DataFrame:
        return by_join(read(spark, path).where("id < 1000"), dimension.where("weekday = '5'")).select("id")

    found = joined(table)

    assert sorted(row.id for row in found.collect()) == sorted(i * ROWS + n for i in numbers for n in range(ROWS))

    assert opened(found) == Opened(names, 14)
    assert joined(holed(names)).count() == 140


def test_the_proof_would_notice_one_file_too_many(spark: SparkSession, holed: Any) -> None:
    import headwater as hw

    with pytest.raises(hw.HeadwaterError, match=r"021\.parquet"):
        read(spark, holed({file_name(20), file_name(22)})).where("id between 205 and 224").collect()
