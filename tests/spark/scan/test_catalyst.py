"""Catalyst's filters as the log's expressions: real plans in, expression trees out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headwater.log.filters.expressions import Column, Compare, Literal, Or, Unknown
from headwater.spark.scan.catalyst import from_json, to_expression

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = (
    "i int, l long, b byte, sh short, f float, d double, s string, bo boolean, bi binary, da date, t timestamp, "
    "n timestamp_ntz, dec decimal(10,2), st struct<a:int, b:struct<c:string>>, `we.ird` int, ar array<int>"
)


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path: Path = tmp_path_factory.mktemp("catalyst") / "empty"
    spark.createDataFrame([], COLUMNS).write.parquet(str(path))
    return spark.read.parquet(str(path))


def condition(frame: DataFrame) -> Any:
    """The condition of the filter in an optimised plan."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    while plan.getClass().getSimpleName() != "Filter":
        plan = plan.children().head()
    return plan.condition()


def translated(frame: DataFrame, sql: str) -> str:
    text = str(to_expression(condition(frame.where(sql)), Column))
    # Spark adds null checks for every column of a comparison: they are not what is looked at here.
    return text.removeprefix("(NOT ").partition(" IS NULL AND ")[2].removesuffix(")") or text


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("i = 1", "i = 1"),
        ("5 > i", "i < 5"),
        ("b = 3", "b = 3"),
        ("sh <> 4", "NOT sh = 4"),
        ("l >= 9223372036854775807", "l >= 9223372036854775807"),
        ("f = float(0.1)", "f = 0.10000000149011612D"),
        ("d > 1e300", "d > 1e+300D"),
        ("s = 'it''s'", "s = 'it\\'s'"),
        ("s like 'abc%'", "s LIKE 'abc%'"),
        ("s like 'a_c%'", "(s LIKE 'a%' AND <LIKE>)"),
        ("bo", "bo = TRUE"),
        ("not bo", "NOT bo = TRUE"),
        ("bi = X'00FF'", "bi = X'00ff'"),
        ("da = '2024-01-31'", "da = DATE '2024-01-31'"),
        ("t = '2024-01-31 10:00:00.123456'", "t = TIMESTAMP '2024-01-31 10:00:00.123456+00:00'"),
        ("n = timestamp_ntz'2024-01-31 10:00:00.1'", "n = TIMESTAMP_NTZ '2024-01-31 10:00:00.100000'"),
        ("dec = 1.5", "dec = 1.50"),
        ("st.a > 3", "st.a > 3"),
        ("st.b.c = 'x'", "st.b.c = 'x'"),
        ("`we.ird` = 1", "`we.ird` = 1"),
        ("i between 3 and 7", "i >= 3 AND i <= 7"),
    ],
)
def test_comparisons(frame: DataFrame, sql: str, expected: str) -> None:
    assert translated(frame, sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("i in (1, 2, 3)", "i IN (1, 2, 3)"),
        ("s in ('a', null)", "s IN ('a', NULL)"),
        ("i is null", "i IS NULL"),
        ("i is not null or s is null", "(NOT i IS NULL OR s IS NULL)"),
        ("i <=> 3", "i <=> 3"),
        ("i <=> null", "i IS NULL"),
        ("coalesce(i, 0) = 1", "<EqualTo>"),
    ],
)
def test_null_logic_and_lists(frame: DataFrame, sql: str, expected: str) -> None:
    assert str(to_expression(condition(frame.where(sql)), Column)) == expected


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("i", [str(n) for n in range(20)]),
        ("s", [f"'{c}'" for c in ("null", "", "a b", "ä", *"cdefghijklmn")]),
        ("da", [f"date'2024-01-{d:02d}'" for d in range(1, 15)]),
        ("t", [f"timestamp'2024-01-{d:02d} 01:02:03'" for d in range(1, 15)]),
        ("dec", [f"{n}.25" for n in range(15)]),
    ],
)
def test_long_lists_keep_every_value(frame: DataFrame, column: str, values: list[str]) -> None:
    found = to_expression(condition(frame.where(f"{column} in ({', '.join(values)})")), Column)
    short = [to_expression(condition(frame.where(f"{column} <=> {v}")), Column) for v in values]
    assert {v.value for v in found.values} == {e.right.value for e in short}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "sql",
    [
        "i + 1 = 3",
        "i > l",
        "upper(s) = 'A'",
        "array_contains(ar, 1)",
        "year(da) = 2024",
        "s > 'b' and rand() > 0.5",
        "case when i = 1 then s = 'a' else true end",
        "s = 5",
        "length(s) = 3",
    ],
)
def test_what_is_not_understood_is_unknown(frame: DataFrame, sql: str) -> None:
    text = str(to_expression(condition(frame.where(sql)), Column))
    assert "<" in text.replace("<=", "").replace("<>", "")


def test_a_timestamp_in_an_hour_that_occurs_twice_is_exact(frame: DataFrame, spark: SparkSession) -> None:
    # In Berlin 02:30 came twice that day; the text of the literal does not say which one is meant.
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        found = translated(frame, "t = timestamp'2024-10-27T01:30:00Z'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert found == "t = TIMESTAMP '2024-10-27 01:30:00+00:00'"


def test_a_column_that_is_not_the_tables_is_unknown(frame: DataFrame) -> None:
    found = to_expression(condition(frame.where("i is null")), lambda _path: None)
    assert isinstance(found, Unknown)


def test_chains_of_thousands_are_lists_and_deep_nests_are_unknown(frame: DataFrame) -> None:
    def node(kind: str, children: int, **fields: Any) -> dict[str, Any]:
        return {"class": f"org.apache.spark.sql.catalyst.expressions.{kind}", "num-children": children, **fields}

    def leaf(value: int) -> list[dict[str, Any]]:
        column = node("AttributeReference", 0, name="i", dataType="integer")
        return [node("EqualTo", 2), column, node("Literal", 0, dataType="integer", value=str(value))]

    # Catalyst's chain is as deep as it is long: OR(OR(OR(a, b), c), d)
    chain = [node("Or", 2)] * 4_999 + [part for n in range(5_000) for part in leaf(n)]
    found = from_json(chain, lambda: None, Column)
    assert isinstance(found, Or)
    assert found.operands == tuple(Compare("=", Column(("i",)), Literal(n)) for n in range(5_000))

    nest = [part for level in range(3_000) for part in [node(("And", "Or")[level % 2], 2), *leaf(level)]] + leaf(0)
    assert "<nested too deeply>" in str(from_json(nest, lambda: None, Column))

    # And as Spark plans them.
    many = " OR ".join(f"(i = {n} AND l > {n})" for n in range(600))
    assert isinstance(to_expression(condition(frame.where(many)), Column), Or)
