"""Conditions of commands: which columns they need, which files they rule out, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf
from pyspark.sql.connect import functions as csf

import headwater as hw
from headwater.errors import ColumnNotFoundError, FilterError
from headwater.features.context import TableRef
from headwater.log.schema import LONG, STRING, TIMESTAMP, StructField, StructType
from headwater.spark.dml.condition import read_condition
from headwater.spark.dml.connect_condition import _own, _predicate, columns_in
from headwater.spark.dml.target import DmlTarget
from headwater.spark.session import SparkTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, SparkSession

    Given = str | Callable[[], Column]

TABLE = StructType(
    [
        StructField("id", LONG),
        StructField("p", STRING),
        StructField("at", TIMESTAMP),
        StructField("s", StructType([StructField("a", LONG)])),
    ]
)


def value_of(given: Given) -> str | Column:
    """Columns of a classic session can be made once there is one."""
    return given() if callable(given) else given


@pytest.fixture(scope="module")
def target(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DmlTarget:
    path = str(tmp_path_factory.mktemp("conditions") / "t")
    frame = "SELECT id, 'a' AS p, timestamp_seconds(id) AS at, named_struct('a', id) AS s FROM range(2)"
    hw.write(spark.sql(frame), path)
    return DmlTarget.open(SparkTable(spark, TableRef(path)), "DELETE")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("given", "pruning", "columns"),
    [
        ("id > 5 AND t.p = 'a'", "NOT id IS NULL|NOT p IS NULL|id > 5|p = 'a'", {"id", "p"}),
        (lambda: sf.col("t.id") == 3, "NOT id IS NULL|id = 3", {"id"}),
        ("5 <= id OR t.s.a < 2", "(id >= 5 OR s.a < 2)", {"id", "s"}),
        ("id > cast('7' AS int)", "NOT id IS NULL|id > 7", {"id"}),
        ("at = TIMESTAMP '1970-01-01 02:00:00+02:00'", "at = TIMESTAMP '1970-01-01 00:00:00", {"at"}),
        ("id <> id + 1 AND 1 = 0", "FALSE", {"id"}),
        ("abs(id) = 1", "<", {"id"}),
    ],
)
def test_a_condition_is_understood_by_the_planner(
    target: DmlTarget, given: Given, pruning: str, columns: set[str]
) -> None:
    found = read_condition(target, value_of(given), "t")
    assert all(part in str(found.pruning) for part in pruning.split("|"))
    assert found.analyzed.columns == columns
    assert found.is_stable


@pytest.mark.spark
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("nothing = 1", ColumnNotFoundError, "nothing"),
        ("other.id = 1", ColumnNotFoundError, "other"),
        (lambda: sf.col("t.nothing") == 1, ColumnNotFoundError, "nothing"),
        ("rand() > 0.5", FilterError, "deterministic"),
        (lambda: sf.rand() > 0.5, FilterError, "deterministic"),
        ("id IN (SELECT 1)", FilterError, "subquery.*merge"),
        ("id = ", FilterError, "cannot be evaluated"),
        ("id", FilterError, "cannot be evaluated"),
        ("sum(id) > 1", FilterError, "cannot be evaluated"),
        ("  ", FilterError, "empty"),
        (5, TypeError, "int"),
    ],
)
def test_what_is_no_condition_is_refused(target: DmlTarget, given: Given, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_condition(target, value_of(given), "t")


@pytest.mark.spark
def test_a_condition_on_the_current_time_is_evaluated_once(target: DmlTarget) -> None:
    for given in ("at < current_timestamp()", sf.col("at") < sf.now(), "at < now()", "date(at) < current_date"):
        assert not read_condition(target, given, None).is_stable


@pytest.mark.parametrize(
    ("given", "pruning", "columns"),
    [
        ((csf.col("id") > 5) & (csf.col("t.p") == "a"), "(id > 5 AND p = 'a')", {"id", "p"}),
        (~csf.col("id").isin(1, 2) | csf.col("s.a").isNull(), "(NOT id IN (1, 2) OR s.a IS NULL)", {"id", "s"}),
        (csf.lit(3) >= csf.col("t.s.a"), "s.a <= 3", {"s"}),
        (csf.col("p").startswith("x") & csf.col("id").isNotNull(), "(p LIKE 'x%' AND NOT id IS NULL)", {"p", "id"}),
        (csf.expr("t.id = 4") & (csf.abs("id") == 1), "(id = 4 AND <", {"id"}),
        (csf.expr("exists(array(id), x -> x > 1)"), "<", {"id"}),
    ],
)
def test_columns_of_connect_are_understood_as_far_as_they_are_plain(
    given: object, pruning: str, columns: set[str] | None
) -> None:
    found = _own(_predicate(given._expr), TABLE, "t")  # type: ignore[attr-defined]
    assert str(found).startswith(pruning)
    assert columns_in(given, TABLE, "t") == columns


def test_text_on_connect_names_its_columns() -> None:
    assert columns_in("t.id > 1 AND upper(P) = 'X' AND s.a < 2", TABLE, "t") == {"id", "p", "s"}
    assert columns_in("nothing = 1", TABLE, None) is None
    assert columns_in("1 = 1", TABLE, None) == frozenset()
