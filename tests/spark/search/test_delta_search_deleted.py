"""Searching data files that have an index and a deletion vector: every kind of query, every kind of answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater import DeltaTable
from headwater.features.context import TableRef
from headwater.search.query.parse import parse_query
from headwater.spark.scan.request import ScanRequest
from headwater.spark.search.delta import open_indexed_table
from headwater.spark.search.reader import NullRows
from headwater.spark.search.relation import SplitScan
from headwater.spark.search.source import Search, Wanted
from headwater.spark.session import SparkTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.log.schema import StructType as Columns
    from headwater.spark.search.delta import DeltaSource

pytestmark = pytest.mark.spark

COUNT = 2_400
SCHEMA = "id BIGINT, took BIGINT, message STRING, attrs STRING"
INDEXED: dict[str, Any] = {"message": "text", "took": None, "attrs": "json"}
DELETED: dict[str, Callable[[int], bool]] = {
    "none": lambda _: False,
    "few": lambda number: number % 800 == 5,
    "many": lambda number: number < 1_500 and number % 11 != 0,
    "all": lambda _: True,
}


def message(number: int) -> str:
    words = ["disk", *["wait"] * (number % 4), "full", f"host{number % 7}"]
    return " ".join(words if number % 5 else reversed(words))


def words(number: int) -> list[str]:
    return message(number).split()


def places(number: int, word: str) -> int:
    return words(number).index(word)


QUERIES: dict[str, Callable[[int], bool]] = {
    "disk": lambda _: True,
    "host3": lambda n: n % 7 == 3,
    '"disk full"': lambda n: places(n, "full") - places(n, "disk") == 1,
    '"disk full"~2': lambda n: -1 <= places(n, "full") - places(n, "disk") <= 3,
    '"disk wait full"~1': lambda n: 2 <= places(n, "full") - places(n, "disk") <= 3,
    "attrs.a:[10 TO 1200]": lambda n: 10 <= n <= 1200,
    "attrs.a:{1490 TO *]": lambda n: n > 1490,
    "attrs.b:x3": lambda n: n % 5 == 3,
    "took:[5 TO 7]": lambda n: 5 <= n % 40 <= 7,
    "host*": lambda _: True,
    "message:/host[12]/": lambda n: n % 7 in (1, 2),
    "NOT wait": lambda n: n % 4 == 0,
    "disk AND NOT attrs.a:[0 TO 2000]": lambda n: n > 2000,
}


@pytest.fixture(scope="module")
def paths(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One data file with an index each, of which some rows are deleted by a vector."""
    root = tmp_path_factory.mktemp("deleted")
    rows = [(n, n % 40, message(n), f'{{"a": {n}, "b": "x{n % 5}"}}') for n in range(COUNT)]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    found = {}
    for kind, is_deleted in DELETED.items():
        path = found[kind] = str(root / kind)
        hw.write(frame, path, properties={"delta.enableDeletionVectors": "true"})
        hw.search_index(path, columns=INDEXED, spark=spark)
        gone = [n for n in range(COUNT) if is_deleted(n)]
        if kind == "all":
            # A file whose rows are all gone leaves the table by itself, so one row of it stays.
            gone = gone[:-1]
        if gone:
            DeltaTable.forPath(spark, path).delete(f"id IN ({', '.join(map(str, gone))})")
    return found


def left(kind: str) -> list[int]:
    """The rows that are not deleted."""
    return [n for n in range(COUNT) if not DELETED[kind](n)] if kind != "all" else [COUNT - 1]


def source_of(spark: Any, path: str, query: str, **search: Any) -> DeltaSource:
    table = open_indexed_table(SparkTable(spark, TableRef(path)))
    tree = parse_query(query, table.config)
    statistics = table.statistics(tree) if search.get("score") else None
    return table.source(Search(tree, statistics=statistics, **search))


def answer(source: DeltaSource, *columns: str) -> list[dict[str, Any]]:
    """What executors give for a search, without Spark."""
    wanted = Wanted(columns)
    plan = source.task_plan(wanted)
    batches = [batch for task in source.tasks(wanted, 2) for batch in plan.read(task)]
    assert source.coverage.is_complete
    return [row for batch in batches for row in (batch.to_pylist() if columns else [{}] * batch.num_rows)]


@pytest.mark.parametrize("kind", DELETED)
@pytest.mark.parametrize("query", QUERIES)
def test_every_answer_is_that_of_the_rows_that_are_left(
    spark: Any, paths: dict[str, str], query: str, kind: str
) -> None:
    expected = [n for n in left(kind) if QUERIES[query](n)]

    rows = answer(source_of(spark, paths[kind], query), "id", "message")
    assert sorted((r["id"], r["message"]) for r in rows) == [(n, message(n)) for n in expected]
    assert len(answer(source_of(spark, paths[kind], query))) == len(expected)

    marked = answer(source_of(spark, paths[kind], query, snippets=("message",)), "id", "message_snippet")
    assert sorted((r["id"], re.sub("</?b>", "", r["message_snippet"])) for r in marked) == [
        (n, message(n)) for n in expected
    ]

    scored = answer(source_of(spark, paths[kind], query, score=True), "id", "_score")
    assert sorted(r["id"] for r in scored) == expected
    for best in (1, 20, 1_300):
        top = answer(source_of(spark, paths[kind], query, score=True, best=best), "id", "_score")
        by_rank = sorted(-r["_score"] for r in scored)[:best]
        assert sorted(-r["_score"] for r in top) == pytest.approx(by_rank)
        assert {r["id"] for r in top} <= set(expected)


def test_spark_gets_the_same_and_groups_it(spark: Any, paths: dict[str, str]) -> None:
    table = DeltaTable.forPath(spark, paths["many"])
    for query in ('"disk wait full"~1', "attrs.a:[10 TO 1200]"):
        expected = [n for n in left("many") if QUERIES[query](n)]
        found = table.search(query)
        assert found.count() == len(expected)
        assert {r.took: r["count"] for r in found.groupBy("took").count().collect()} == {
            took: sum(n % 40 == took for n in expected) for took in {n % 40 for n in expected}
        }
        assert len(table.search(query, limit=3, with_score=True).collect()) == 3


# --- nothing but the number of rows -------------------------------------------------------------------


def test_a_scan_that_is_asked_for_no_column_gives_one_that_can_be_counted(spark: Any, paths: dict[str, str]) -> None:
    """PySpark 4.0 takes a batch without columns for one without rows."""
    source = source_of(spark, paths["few"], "host3")
    scan = SplitScan(spark, source, Wanted(()))
    given: Columns = scan._given
    assert given.names == ("id",)
    assert "id" in scan.readSchema().json()
    assert SplitScan(spark, source, Wanted(("message",)))._given.names == ("message",)

    plan = source.task_plan(Wanted(()))
    batches = NullRows(lambda _: (b for task in source.tasks(Wanted(()), 2) for b in plan.read(task)), given.fields[0])
    counted = list(batches(iter([])))
    assert sum(batch.num_rows for batch in counted) == len([n for n in left("few") if n % 7 == 3])
    assert {batch.schema.names[0] for batch in counted} == {"id"}


@pytest.mark.parametrize("query", [None, "host3"])
def test_rows_are_counted_where_files_have_no_index(spark: Any, tmp_path: Any, query: str | None) -> None:
    path = str(tmp_path / "table")
    frame = spark.createDataFrame([(n, 1, message(n), "{}") for n in range(50)], SCHEMA).coalesce(1)
    hw.write(frame.limit(0), path)
    hw.search_index(path, columns=INDEXED, spark=spark)
    hw.write(frame, path, mode="append")
    table = DeltaTable.forPath(spark, path)
    expected = [n for n in range(50) if query is None or n % 7 == 3]
    assert table.search(query).count() == len(expected)
    assert table.search(query, columns=[]).count() == len(expected)
    assert len(table.search(query, limit=5, with_score=True).collect()) == 5


def test_a_read_in_python_always_reads_a_column(spark: Any, paths: dict[str, str]) -> None:
    snapshot = hw.open_log(paths["few"])
    assert ScanRequest(snapshot, columns=()).needed_columns() == ("id",)
    assert ScanRequest(snapshot, where="took = 1", columns=()).needed_columns() == ("took",)
    assert hw.read(spark, paths["few"], columns=[]).count() == len(left("few"))
