"""`toDF()`: every predicate is right, and what a query does not want is not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.log.filters.sql import parse_filter
from headwater.spark.search.source import ScanSource
from support.search.search_tables import SCHEMA, append, log_rows, make_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headwater.api.search_table import SearchTable

pytestmark = pytest.mark.spark

ROWS = 240


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SearchTable:
    return make_table(spark, tmp_path_factory.mktemp("scanned") / "logs", partition_by="day")


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> DataFrame:
    """The same rows, without us. Not cached: Spark skips parts of its cache by bounds in which NaN does not count."""
    return spark.createDataFrame(log_rows(0, ROWS), SCHEMA).coalesce(1).localCheckpoint()


def same_rows(one: DataFrame, other: DataFrame) -> None:
    assert keys(one) == keys(other)


def keys(frame: DataFrame) -> list[tuple[str, ...]]:
    """Rows in an order, NaN and the two zeros told apart."""
    return sorted(tuple(map(repr, row)) for row in frame.collect())


def test_all_rows_come_back_as_they_were(table: SearchTable, plain: DataFrame) -> None:
    same_rows(table.toDF(), plain)
    assert table.toDF().schema == plain.schema


LITERALS = {
    "id": ["-1", "0", "17", "119", "239", "10000000000"],
    "ts": ["TIMESTAMP '2024-03-01 00:01:00'", "TIMESTAMP '2024-03-01 00:02:00.5'", "TIMESTAMP '1999-01-01 00:00:00'"],
    "host": ["'web-1'", "'web-3'", "'web-9'", "''"],
    "level": ["'ERROR'", "'INFO'", "'error'"],
    "took": ["-50", "0", "13", "999", "500L", "12.5"],
    "ratio": ["0.0D", "-0.0D", "0.25D", "double('NaN')", "-2.0D", "1", "double('Infinity')"],
    "message": ["'disk full'", "'slow'", "'cache miss'"],
    "day": ["'2024-03-01'", "'2024-03-02'", "'2024-03-10'"],
}


@st.composite
def leaves(draw: Any) -> str:
    column = draw(st.sampled_from(sorted(LITERALS)))
    values = st.sampled_from(LITERALS[column])
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "between", "like", "computed"]))
    if kind == "compare":
        return f"{column} {draw(st.sampled_from(['=', '<', '<=', '>', '>=', '<>', '<=>']))} {draw(values)}"
    negated = draw(st.sampled_from(["", "NOT"]))
    if kind == "in":
        return f"{column} {negated} IN ({', '.join(draw(st.lists(values, min_size=1, max_size=3)))})"
    if kind == "null":
        return f"{column} IS {negated} NULL"
    if kind == "between":
        return f"{column} BETWEEN {draw(values)} AND {draw(values)}"
    if kind == "like":
        return f"message {negated} LIKE '{draw(st.sampled_from(['%disk%', 'slow%', '%full', 'cache m_ss']))}'"
    return draw(st.sampled_from(["length(message) > 12", "took % 7 = 3", "upper(level) = 'WARN'", "id + took > 600"]))


conditions = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda text: f"(NOT {text})"),
    ),
    max_leaves=5,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(condition=conditions)
@example(condition="NOT (day IS NULL OR ratio < double('NaN'))")
def test_every_predicate_gives_the_rows_that_spark_gives(table: SearchTable, plain: DataFrame, condition: str) -> None:
    wanted = keys(plain.where(condition))
    assert keys(table.toDF().where(condition)) == wanted
    assert table.count(filter=condition) == len(wanted)


@pytest.mark.parametrize(
    "condition",
    [
        "took > '5' AND took <= 130.0",
        "id = '17' OR ID = 18.0 OR id = 2.5",
        "day >= DATE '2024-03-02'",
        "ts > '2024-03-01 00:02:00' OR ts = DATE '2024-03-01'",
        "took + 0 = 13 OR NOT (host = 'web-1' AND took IS NULL)",
        "level LIKE 'ERR%' AND message NOT LIKE 'disk%'",
        "took BETWEEN 5 AND 200 AND host IN ('web-1', NULL)",
    ],
)
def test_a_filter_of_a_search_means_what_it_means_to_spark(
    table: SearchTable, plain: DataFrame, condition: str
) -> None:
    wanted = plain.where(condition).count()
    assert table.count(filter=condition) == wanted
    assert table.count("*", filter=condition) == wanted


AGGREGATES = (
    "count(*)",
    "count(took)",
    "sum(took)",
    "avg(took)",
    "min(ts)",
    "max(message)",
    "max(length(message))",
    "sum(length(host))",
    "count(length(message))",
    "max(ratio) + 0.0",  # only Spark's; -0.0 and 0.0 are equal: which is the larger is up to chance
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    condition=st.one_of(st.just("true"), st.just("took > 100"), conditions),
    groups=st.lists(st.sampled_from(["host", "level", "day", "took"]), max_size=2, unique=True),
    chosen=st.lists(st.sampled_from(AGGREGATES), min_size=1, unique=True),
    near=st.booleans(),
)
def test_every_aggregate_gives_what_spark_gives(
    table: SearchTable, plain: DataFrame, condition: str, groups: list[str], chosen: list[str], near: bool
) -> None:
    def aggregated(frame: DataFrame) -> list[Any]:
        from pyspark.sql import functions as sf

        rows = frame.where(condition).groupBy(*groups).agg(*map(sf.expr, chosen)).collect()
        return sorted(tuple(map(repr, row)) for row in rows)

    with pytest.MonkeyPatch.context() as patch:
        if not near:
            patch.setattr("headwater.spark.search.pushdown.can_answer_on_driver", lambda *_: False)
        found = aggregated(table.toDF())
    assert found == aggregated(plain)


LENGTHS = ("min(length(text))", "max(length(text))", "sum(length(text))", "count(length(text))", "avg(length(text))")


def test_lengths_are_counted_in_characters_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    texts = ["", "a", "ä", "日本", "\U0001f600\U0001f600", "e\u0301", None, "x" * 70_000, "tab\tnul\x00"]
    plain = spark.createDataFrame([(text,) for text in texts], "text string").repartition(3).cache()
    table = hw.SearchTable.create(spark, str(tmp_path / "t"), "text string", types={"text": "text"})
    table.write(plain)

    assert table.toDF().selectExpr(*LENGTHS).collect() == plain.selectExpr(*LENGTHS).collect()
    assert table.toDF().selectExpr("max(length(cast(text as binary)))").first() == (70_000,)


def test_an_aggregate_of_whole_columns_needs_no_job_where_the_splits_are_near(table: SearchTable) -> None:
    frame = table.toDF().selectExpr("count(*)", "sum(took)", "max(length(message))", "max(host)", "max(ts)")
    physical = explained(frame).rpartition("Physical Plan")[2]
    assert "LocalTableScan" in physical
    assert "BatchScan" not in physical


def test_the_number_of_all_rows_is_known_by_the_log(table: SearchTable, spark: SparkSession) -> None:
    physical = explained(table.toDF().groupBy().count()).rpartition("Physical Plan")[2]
    assert "LocalTableScan" in physical
    assert "BatchScan" not in physical
    assert table.toDF().count() == ROWS


def test_filters_columns_and_limits_reach_the_scan(table: SearchTable) -> None:
    frame = table.toDF().where("level = 'ERROR' OR took > 900").select("host").limit(3)

    plan = explained(frame)

    assert "columns host; where" in plan
    assert "limit 3" in plan
    assert "Filter (" not in plan.rpartition("Physical Plan")[2]  # the index says exactly what the filter says
    assert len(frame.collect()) == 3


def test_an_exact_filter_is_not_evaluated_twice(table: SearchTable) -> None:
    plan = explained(table.toDF().where("took > 900 AND host IS NOT NULL"))
    assert "Filter (" not in plan.rpartition("Physical Plan")[2]


def test_a_filter_that_only_spark_understands_is_evaluated_by_spark(table: SearchTable, plain: DataFrame) -> None:
    condition = "level = 'ERROR' AND length(message) > 12"
    frame = table.toDF().where(condition)
    assert "Filter (" in explained(frame).rpartition("Physical Plan")[2]
    same_rows(frame, plain.where(condition))


def test_partitions_and_bounds_leave_out_splits(table: SearchTable) -> None:
    opened = table._open()
    source = ScanSource(opened.snapshot, opened.config)
    everything = len(source.splits())
    assert 0 < len(source.splits(parse_filter("day = '2024-03-02' OR day IS NULL"))) < everything
    assert 0 < len(source.splits(parse_filter("id < 100"))) < everything
    assert tasks(table.toDF().where("day = '2030-01-01'")) == 0


def test_aggregates_are_answered_by_splits_that_are_near(table: SearchTable) -> None:
    plan = explained(table.toDF().where("level = 'ERROR'").groupBy("host").count()).rpartition("Physical Plan")[2]
    assert "LocalTableScan" in plan
    assert "HashAggregate" not in plan


@pytest.mark.parametrize("name", ["can_answer_on_driver", "_MAX_GROUPS"])
def test_tasks_aggregate_splits_that_are_far_or_have_many_groups(
    table: SearchTable, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"headwater.spark.search.pushdown.{name}", 0 if name == "_MAX_GROUPS" else lambda *_: 0)
    plan = explained(table.toDF().where("level = 'ERROR'").groupBy("host").count()).rpartition("Physical Plan")[2]
    assert "count(*) by host" in plan
    assert "HashAggregate" in plan


def test_views_joins_and_caches_work(table: SearchTable, plain: DataFrame, spark: SparkSession) -> None:
    table.toDF().createOrReplaceTempView("searched_logs")
    plain.createOrReplaceTempView("plain_logs")
    query = "SELECT a.id, b.message FROM {0} a JOIN {0} b ON a.id = b.id + 1 WHERE a.level = 'ERROR' AND b.took > 10"
    same_rows(spark.sql(query.format("searched_logs")), spark.sql(query.format("plain_logs")))
    cached = table.toDF().where("took > 500").cache()
    same_rows(cached, plain.where("took > 500"))
    cached.unpersist()


def test_a_frame_stays_at_its_version(spark: SparkSession, tmp_path: Any) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=20)
    before = table.toDF()
    append(spark, table, 20, 40)
    assert before.count() == 20
    assert table.toDF().count() == 40
    assert table.toDF(version=1).count() == 20
    assert table.toDF(version=0).collect() == []


def explained(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())


def tasks(frame: DataFrame) -> int:
    return int(frame.rdd.getNumPartitions())


def test_textsearch_in_sql_is_answered_by_the_index_and_right_everywhere(
    table: SearchTable, plain: DataFrame, spark: SparkSession
) -> None:
    hw.register_search_functions(spark)
    table.toDF().createOrReplaceTempView("indexed_logs")
    plain.createOrReplaceTempView("other_logs")
    for condition in (
        "textsearch(message, 'disk AND full') AND took > 100",
        "textsearch(message, 'NOT disk')",  # not of rows without a message
        "NOT textsearch(message, '\"slow query\"~1 OR cache*')",
        "textsearch(message, 'disk') OR level = 'ERROR'",
        "textsearch(host, 'web')",  # a string field: its words are not in the index
    ):
        query = f"SELECT id FROM {{}} WHERE {condition}"
        same_rows(spark.sql(query.format("indexed_logs")), spark.sql(query.format("other_logs")))
    found = spark.sql("SELECT id FROM indexed_logs WHERE textsearch(message, 'disk')")
    assert "matching (+message:disk +message:*)" in explained(found)
    assert "Python" not in explained(found).rpartition("Physical Plan")[2]
    assert found.count() == table.count("message:disk")
    with pytest.raises(hw.SearchQueryError, match="missing"):
        spark.sql("SELECT * FROM indexed_logs WHERE textsearch(message, 'disk AND')").collect()
