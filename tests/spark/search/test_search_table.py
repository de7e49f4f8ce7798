"""Searching a table: what is found is what plain Python finds, however the rows are spread over splits."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.api.search_table import SearchTable
from headwater.spark.search.source import ScanSource
from headwater.spark.search.splits import map_splits
from support.search.search_tables import SCHEMA, WORDS, append, log_rows, make_table, no_jobs, words_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = log_rows(0, 240)
ID, TS, HOST, LEVEL, TOOK, RATIO, MESSAGE, DAY = range(8)
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SearchTable:
    """Several splits, in partitions."""
    return make_table(spark, tmp_path_factory.mktemp("searched") / "logs", partition_by="day")


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SearchTable:
    """The same rows in one split."""
    one = SearchTable.create(spark, tmp_path_factory.mktemp("whole") / "logs", SCHEMA, types={"message": "text,string"})
    one.write(spark.createDataFrame(ROWS, SCHEMA).coalesce(1))
    return one


def has(word: str) -> Callable[[Row], bool]:
    return lambda row: word in words_of(row[MESSAGE])


def within(row: Row, words: list[str], slop: int) -> bool:
    """Whether the two words stand in this order with at most so many others between them."""
    found = words_of(row[MESSAGE])
    places = [[i for i, word in enumerate(found) if word == wanted] for wanted in words]
    return any(0 <= j - i - 1 <= slop for i in places[0] for j in places[1])


QUERIES: dict[str, Callable[[Row], bool]] = {
    "*": lambda _: True,
    "disk": has("disk"),
    "DISK full": lambda row: has("disk")(row) or has("full")(row),
    "disk AND full": lambda row: has("disk")(row) and has("full")(row),
    "NOT disk": lambda row: not has("disk")(row),
    "-disk -full": lambda row: not has("disk")(row) and not has("full")(row),
    "+disk full -slow": lambda row: has("disk")(row) and not has("slow")(row),
    '"disk full"': lambda row: within(row, ["disk", "full"], 0),
    '"slow query"~1': lambda row: within(row, ["slow", "query"], 1) or within(row, ["query", "slow"], -1),
    "host:web-3": lambda row: row[HOST] == "web-3",
    "host:(web-1 OR web-2) AND level:ERROR": lambda row: row[HOST] in ("web-1", "web-2") and row[LEVEL] == "ERROR",
    "took:[100 TO 200}": lambda row: row[TOOK] is not None and 100 <= row[TOOK] < 200,
    "took:>=900 OR took:<0": lambda row: row[TOOK] is not None and not 0 <= row[TOOK] < 900,
    "ts:[2024-03-01T00:01:00Z TO *]": lambda row: row[TS] >= datetime(2024, 3, 1, 0, 1, tzinfo=UTC),
    "time* OR *miss": lambda row: has("timeout")(row) or has("miss")(row),
    "f?ll": has("full"),
    "refsed~1": has("refused"),
    "/(slow|cache)/": lambda row: has("slow")(row) or has("cache")(row),
    'message.raw:"disk full"': lambda row: row[MESSAGE] == "disk full",
    "NOT took:*": lambda row: row[TOOK] is None,
    "day:2024-03-02 AND disk": lambda row: row[DAY] == "2024-03-02" and has("disk")(row),
    "disk^3 OR full": lambda row: has("disk")(row) or has("full")(row),
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_counts_what_plain_python_counts(table: SearchTable, spark: SparkSession, query: str) -> None:
    wanted = [row[ID] for row in ROWS if QUERIES[query](row)]
    with no_jobs(spark):
        assert table.count(query) == len(wanted)


def test_a_search_gives_all_rows_that_it_finds(table: SearchTable) -> None:
    for query in ("disk AND full", "NOT disk", "took:[100 TO 200}"):
        wanted = [row[ID] for row in ROWS if QUERIES[query](row)]
        assert sorted(row.id for row in table.search(query, columns=["id"]).collect()) == wanted


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.tuples(st.sampled_from(["AND", "OR", "AND NOT"]), st.sampled_from(WORDS)), min_size=1, max_size=4)
)
def test_random_boolean_queries_count_what_plain_python_counts(
    table: SearchTable, words: list[tuple[str, str]]
) -> None:
    query, code = f"message:{words[0][1]}", f"{words[0][1]!r} in words"
    for operator, word in words[1:]:
        query, code = f"({query}) {operator} message:{word}", f"({code}) {operator.lower()} {word!r} in words"
    wanted = sum(bool(eval(code, {"words": words_of(row[MESSAGE])})) for row in ROWS)
    assert table.count(query) == wanted


def test_a_search_has_columns_filters_limits_and_more_filters(table: SearchTable) -> None:
    found = table.search("disk OR full", columns=["message", "ID"], filter="took > 300 AND length(host) > 2")
    assert found.columns == ["message", "id"]
    wanted = [
        row
        for row in ROWS
        if QUERIES["DISK full"](row) and row[TOOK] is not None and row[TOOK] > 300 and row[HOST] is not None
    ]
    assert sorted(row.id for row in found.collect()) == [row[ID] for row in wanted]
    later = sorted(row.id for row in found.where("id % 2 = 0").collect())
    assert later == [row[ID] for row in wanted if row[ID] % 2 == 0]
    assert len(table.search("disk", limit=3).collect()) == 3
    assert table.search("disk", limit=0).collect() == []
    assert table.count("disk", filter="took > 300 OR level = 'INFO'") == sum(
        has("disk")(row) and ((row[TOOK] or 0) > 300 or row[LEVEL] == "INFO") for row in ROWS
    )


def test_scores_do_not_depend_on_splits(table: SearchTable, whole: SearchTable) -> None:
    """One index of all rows is the judge."""
    query = "disk OR full OR host:web-1"
    one = {row["id"]: row["_score"] for row in whole.top(query, 1_000, columns=["id"]).to_pylist()}
    many = {row["id"]: row["_score"] for row in table.top(query, 1_000, columns=["id"]).to_pylist()}
    assert many == pytest.approx(one, rel=1e-5)
    assert len(set(one.values())) > 10


def test_the_best_rows_come_first(table: SearchTable, spark: SparkSession) -> None:
    with no_jobs(spark):
        best = table.top("disk full", 5, columns=["id", "message"], snippets=["message"])
    assert best.column_names == ["id", "message", "_score", "message_snippet"]
    scores = best.column("_score").to_pylist()
    assert scores == sorted(scores, reverse=True)
    assert all("<b>" in snippet for snippet in best.column("message_snippet").to_pylist())
    by_job = table.search(
        "disk full", columns=["id", "message"], with_score=True, snippets=["message"], limit=5
    ).toArrow()
    assert by_job.column("_score").to_pylist() == pytest.approx(scores)
    filtered = table.top("disk full", 3, columns=["id", "level"], filter="level = 'ERROR'").to_pylist()
    everything = table.top("disk full", 1_000, columns=["id", "level"]).to_pylist()
    assert filtered == [row for row in everything if row["level"] == "ERROR"][:3]
    assert table.top("disk", 0).num_rows == 0
    by_spark = table.top("disk full", 3, columns=["id", "level"], filter="upper(level) = 'ERROR'").to_pylist()
    assert [row["_score"] for row in by_spark] == pytest.approx([row["_score"] for row in filtered])


def test_aggregates_are_exact_and_have_all_groups(table: SearchTable, spark: SparkSession) -> None:
    with no_jobs(spark):
        found = table.aggregate("count", "sum(took)", "max(took) AS slowest", query="disk", group_by="host").to_pylist()
    wanted: dict[Any, list[Any]] = {}
    for row in filter(has("disk"), ROWS):
        wanted.setdefault(row[HOST], []).append(row[TOOK])
    assert [(r["host"], r["count"], r["sum(took)"], r["slowest"]) for r in found] == [
        (host, len(tooks), sum(t for t in tooks if t is not None), max(t for t in tooks if t is not None))
        for host, tooks in sorted(wanted.items(), key=lambda item: (item[0] is None, item[0]))
    ]
    by_spark = table.aggregate(
        "count", "sum(took)", "max(took) AS slowest", query="disk", group_by="host", filter="length(level) > 0"
    )
    assert by_spark.to_pylist() == found
    minutes = table.aggregate(group_by="date_histogram(ts, 1m)")
    assert minutes.column("count").to_pylist() == [60, 60, 60, 60]
    hundreds = table.aggregate("count(took)", filter="took >= 0", group_by="histogram(took, 100)").to_pylist()
    assert sum(r["count(took)"] for r in hundreds) == sum(row[TOOK] is not None and row[TOOK] >= 0 for row in ROWS)
    assert table.aggregate("count", "avg(took)", query="nothing").to_pylist() == [{"count": 0, "avg(took)": None}]
    ids = table.aggregate(group_by="id")
    assert ids.num_rows == 240


def test_executors_give_the_same_small_answers(table: SearchTable, monkeypatch: pytest.MonkeyPatch) -> None:
    here = (
        table.count("disk", filter="took > 100"),
        table.top("disk full", 4, columns=["id"]),
        table.aggregate("count", "avg(took)", query="disk", group_by="level"),
    )
    for module in ("answers", "splits"):
        monkeypatch.setattr(f"headwater.spark.search.{module}.can_answer_on_driver", lambda *_: False)
    assert table.count("disk", filter="took > 100") == here[0]
    far = table.top("disk full", 4, columns=["id"])
    assert far.column("_score").to_pylist() == pytest.approx(here[1].column("_score").to_pylist())
    assert table.aggregate("count", "avg(took)", query="disk", group_by="level").equals(here[2])
    assert table.prewarm() == table.snapshot.num_files


def test_threads_give_the_same_small_answers(table: SearchTable, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = table._open()
    splits = ScanSource(opened.snapshot, opened.config).splits()
    assert len(splits) > 2
    answers = []
    for patience_s in (60.0, 0.0):
        monkeypatch.setattr("headwater.spark.search.splits._SEQUENTIAL_S", patience_s)
        answers.append(map_splits(opened.snapshot, splits, lambda split: split.path))
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == len(splits)


def test_the_past_is_searched_by_version_and_by_time(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=60)
    then = table.snapshot.timestamp
    append(spark, table, 60, 120)
    counts = [sum(has("disk")(row) for row in rows) for rows in (ROWS[:60], ROWS[:120])]
    assert [table.count("disk", version=v) for v in (0, 1, 2)] == [0, *counts]
    assert table.count("disk", timestamp=then) == counts[0]
    assert table.search("disk", version=1).count() == counts[0]
    assert table.aggregate(query="disk", version=1).column("count").to_pylist() == [counts[0]]
    assert len(table.top("disk", 500, version=1)) == counts[0]
    with pytest.raises(hw.VersionNotFoundError):
        table.count(version=9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.count("disk AND"), hw.SearchQueryError, "missing"),
        (lambda t: t.count("nosuch:disk"), hw.SearchQueryError, "no field 'nosuch'"),
        (lambda t: t.search("disk", columns=["nosuch"]), hw.ColumnNotFoundError, "nosuch"),
        (lambda t: t.search("disk", limit=-1), hw.WriteOptionError, "limit"),
        (lambda t: t.top("disk", 2.5), hw.WriteOptionError, "limit"),
        (lambda t: t.search("disk", snippets="nosuch"), hw.ColumnNotFoundError, "nosuch"),
        (lambda t: t.aggregate("median(took)"), hw.SearchQueryError, "no aggregate"),
        (lambda t: t.aggregate("sum(nosuch)"), hw.ColumnNotFoundError, "nosuch"),
        (lambda t: t.aggregate(group_by="date_histogram(ts, often)"), hw.SearchQueryError, "no interval"),
        (lambda t: t.count("disk", filter="took >"), hw.FilterError, "took >"),
    ],
)
def test_what_cannot_be_understood_is_refused(
    table: SearchTable, call: Callable[[SearchTable], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(table)


def test_an_empty_table_has_no_rows_and_no_errors(spark: SparkSession, tmp_path: Path) -> None:
    table = SearchTable.create(spark, tmp_path / "logs", SCHEMA, types={"message": "text"})
    assert (table.count(), table.count("disk"), table.toDF().count()) == (0, 0, 0)
    assert table.search("disk", with_score=True, limit=3).collect() == []
    assert table.top("disk").column_names == [*table.toDF().columns, "_score"]
    assert table.aggregate(group_by="host").num_rows == 0
    assert table.merge_splits().version is None
    assert isinstance(table.top("disk"), pa.Table)
