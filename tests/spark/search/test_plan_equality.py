"""Spark takes one plan for another only where they are the same: texts of queries and filters may read alike."""

from __future__ import annotations

import math
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater import DeltaTable
from headwater.api.search_table import SearchTable
from headwater.log.filters import expressions as sql
from headwater.search.query.tree import (
    All,
    Boolean,
    Boost,
    Exists,
    FieldPath,
    Fuzzy,
    Nothing,
    Phrase,
    Prefix,
    Range,
    Regex,
    Term,
    TermSet,
    Wildcard,
    from_json,
    to_json,
)
from headwater.spark.jvm import exact_key

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

# --- keys ---------------------------------------------------------------------------------------------

_texts = st.sampled_from(
    ["", "a", "b", "a b", "a*", "a\\*", "*", "a~1", "/a/", "[a TO b]", "1", "True", "'", '"', "\n", "ä"]
)
_numbers = st.sampled_from([0, 1, -1, 0.0, -0.0, 1.0, True, False, math.inf, -math.inf, 2**53, 2**53 + 1])
_values = _texts | _numbers
_paths = st.builds(FieldPath, _texts, st.lists(_texts, max_size=2).map(tuple))
_leaves = st.one_of(
    st.just(All()),
    st.just(Nothing()),
    st.builds(Term, _paths, _values),
    st.builds(TermSet, _paths, st.lists(_values, max_size=3).map(tuple)),
    st.builds(Phrase, _paths, st.lists(_texts, min_size=1, max_size=3).map(tuple), st.integers(0, 1)),
    st.builds(Range, _paths, st.none() | _values, st.none() | _values, st.booleans(), st.booleans()),
    st.builds(Prefix, _paths, _texts),
    st.builds(Wildcard, _paths, _texts),
    st.builds(Regex, _paths, _texts),
    st.builds(Fuzzy, _paths, _texts, st.integers(1, 2)),
    st.builds(Exists, _paths),
)
_parts = st.lists(_leaves, max_size=2).map(tuple)
_queries = st.one_of(_leaves, st.builds(Boolean, _parts, _parts, _parts), st.builds(Boost, _leaves, st.just(1.0)))

_columns = st.builds(sql.Column, st.lists(_texts, min_size=1, max_size=2).map(tuple))
_constants = st.one_of(
    _values,
    st.none(),
    st.sampled_from(
        [b"a", Decimal("1"), Decimal("1.0"), date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)]
    ),
)
_literals = st.builds(sql.Literal, _constants)
_conditions = st.recursive(
    st.one_of(
        st.builds(sql.Compare, st.sampled_from(["=", "<=>"]), _columns, st.one_of(_literals, _columns)),
        st.builds(sql.In, _columns, st.lists(_literals, max_size=3).map(tuple)),
        st.builds(sql.StartsWith, _columns, _texts),
        st.builds(sql.IsNull, _columns),
        st.builds(sql.Constant, st.sampled_from([True, False, None])),
        st.builds(sql.Unknown, _texts),
    ),
    lambda inner: st.one_of(
        st.builds(sql.Not, inner),
        st.builds(sql.And, st.lists(inner, max_size=2).map(tuple)),
        st.builds(sql.Or, st.lists(inner, max_size=2).map(tuple)),
    ),
    max_leaves=4,
)


@given(_queries, _queries)
def test_queries_have_the_same_key_exactly_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (exact_key(one) == exact_key(other)) == (repr(one) == repr(other))


@given(_conditions, _conditions)
def test_filters_have_the_same_key_exactly_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (exact_key(one) == exact_key(other)) == (repr(one) == repr(other))


@given(_queries)
def test_queries_go_to_json_and_back_whatever_their_numbers(query: Any) -> None:
    assert repr(from_json(to_json(query))) == repr(query)


HOST = FieldPath("host")
READ_ALIKE: list[tuple[Any, Any]] = [
    (TermSet(HOST, ("a", "b")), TermSet(HOST, ("a b",))),
    (Prefix(HOST, "a"), Wildcard(HOST, "a*")),
    (Prefix(HOST, "a"), Term(HOST, "a*")),
    (Wildcard(HOST, "a"), Term(HOST, "a")),
    (Regex(HOST, "a"), Term(HOST, "/a/")),
    (Fuzzy(HOST, "a", 1), Term(HOST, "a~1")),
    (Exists(HOST), Term(HOST, "*")),
    (Range(HOST, "a", "b"), Term(HOST, "[a TO b]")),
    (Range(HOST, None, "b"), Range(HOST, "*", "b")),
    (Term(HOST, 1), Term(HOST, "1")),
    (Term(HOST, True), Term(HOST, "True")),
    (FieldPath("a", ("b",)), FieldPath("a.b")),
    (sql.And(()), sql.Or(())),
    (sql.Unknown("x"), sql.Unknown("x> AND <x")),
]


@pytest.mark.parametrize(("one", "other"), READ_ALIKE[:-1])
def test_what_reads_alike_has_keys_of_its_own(one: Any, other: Any) -> None:
    assert str(one) == str(other)
    assert exact_key(one) != exact_key(other)


def test_keys_of_deep_and_long_trees_are_made() -> None:
    deep: Any = Term(HOST, "a")
    for _ in range(50_000):
        deep = Boolean(must=(deep,))
    long = TermSet(HOST, tuple(map(str, range(100_000))))
    assert len({exact_key(deep), exact_key(long), exact_key(Boolean(must=(deep,)))}) == 3
    while isinstance(deep, Boolean):  # a deep tree is taken down from its top, or Python is
        (deep,) = deep.must


# --- plans --------------------------------------------------------------------------------------------

ROWS = [(1, "a"), (2, "b"), (3, "a b"), (4, "ab"), (5, "a*"), (6, "[a TO b]"), (7, "/a/"), (8, "a~1"), (9, None)]
PAIRS = [
    ("host: IN [a b]", 'host: IN ["a b"]', {1, 2}, {3}),
    ("host:a*", r"host:a\*", {1, 3, 4, 5, 8}, {5}),
    ("host:/a/", r'host:"/a/"', {1}, {7}),
    ("host:[a TO b]", 'host:"[a TO b]"', {1, 2, 3, 4, 5, 8}, {6}),
    ("host:a~1", 'host:"a~1"', {1, 2, 4, 5}, {8}),
    ("host:*", r"host:\*", {1, 2, 3, 4, 5, 6, 7, 8}, set()),
]


@pytest.fixture(scope="module")
def searched(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same rows in a Delta table with an index and in a search table."""
    root = tmp_path_factory.mktemp("alike")
    frame = spark.createDataFrame(ROWS, "id BIGINT, host STRING").coalesce(1)
    hw.write(frame, root / "delta")
    hw.search_index(str(root / "delta"), columns={"host": "string"}, spark=spark)
    table = SearchTable.create(spark, root / "search", "id BIGINT, host STRING", types={"host": "string"})
    table.write(frame)
    return {"delta": DeltaTable.forPath(spark, str(root / "delta")), "search": table}


def ids(frame: DataFrame) -> set[int]:
    return {row.id for row in frame.collect()}


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "search"])
@pytest.mark.parametrize(("one", "other", "of_one", "of_other"), PAIRS)
def test_a_union_and_a_cached_query_give_each_its_own_rows(
    searched: dict[str, Any], kind: str, one: str, other: str, of_one: set[int], of_other: set[int]
) -> None:
    first, second = (searched[kind].search(query) for query in (one, other))
    marked = first.selectExpr("'one' AS q", "id").unionAll(second.selectExpr("'other' AS q", "id"))
    grouped = marked.groupBy("q", "id").count().collect()  # the exchanges of both sides may be taken for one
    assert ({r.id for r in grouped if r.q == "one"}, {r.id for r in grouped if r.q == "other"}) == (of_one, of_other)

    first.cache()
    try:
        assert ids(first) == of_one
        assert ids(searched[kind].search(other)) == of_other
        assert "InMemoryTableScan" in searched[kind].search(one)._jdf.queryExecution().executedPlan().toString()
    finally:
        first.unpersist()


@pytest.mark.spark
def test_a_table_that_was_made_again_is_another_one(spark: SparkSession, tmp_path: Path) -> None:
    def made(host: str) -> SearchTable:
        shutil.rmtree(tmp_path / "logs", ignore_errors=True)
        table = SearchTable.create(spark, tmp_path / "logs", "id BIGINT, host STRING")
        table.write(spark.createDataFrame([(1, host)], "id BIGINT, host STRING").coalesce(1))
        return table

    before = made("old").toDF().cache()
    try:
        assert before.first().host == "old"
        assert made("new").toDF().first().host == "new"
    finally:
        before.unpersist()


@pytest.mark.spark
def test_fragments_and_scores_are_part_of_what_is_asked(searched: dict[str, Any]) -> None:
    plain = searched["delta"].search("host:a*").cache()
    try:
        assert plain.count() == 5
        best = searched["delta"].search("host:a*", limit=2, with_score=True)
        assert len(best.collect()) == 2
        assert "host_snippet" in searched["delta"].search("host:a*", snippets=["host"]).first().asDict()
    finally:
        plain.unpersist()


@pytest.mark.spark
def test_columns_may_be_called_like_functions(spark: SparkSession, tmp_path: Path) -> None:
    schema = "`count(*)` BIGINT, `length(x)` STRING, x STRING, `min(x)` STRING"
    rows = [(1, "z", "aa", "p"), (1, "y", "b", "q"), (2, "x", "ccc", "r")]
    table = SearchTable.create(spark, tmp_path / "named", schema)
    table.write(spark.createDataFrame(rows, schema).coalesce(1))
    frame, plain = table.toDF(), spark.createDataFrame(rows, schema)
    asked = ["count(*)", "min(length(x))", "min(`length(x)`)", "min(x)", "min(`min(x)`)"]
    for groups in ([], ["count(*)"], ["min(x)"]):
        found, expected = (
            sorted(map(tuple, f.groupBy(*(f"`{g}`" for g in groups)).agg(*map(_expr, asked)).collect()))
            for f in (frame, plain)
        )
        assert found == expected


def _expr(text: str) -> Any:
    from pyspark.sql import functions as sf

    return sf.expr(text)
