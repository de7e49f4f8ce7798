"""Conditions that are given as Columns, in text for pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from headwater.spark.merge.condition import condition_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (lambda: F.col("t.id") == F.col("s.id"), "`t`.`id` = `s`.`id`"),
        (lambda: (F.col("t.id") == F.col("s.id")) & (F.col("t.x") > 5), "`t`.`id` = `s`.`id` AND `t`.`x` > 5"),
        (lambda: (F.col("t.p") == "a") & F.expr("t.x < 3"), "`t`.`p` = 'a' AND (t.x < 3)"),
        (lambda: (F.col("t.p") == "a") & (F.upper("t.v") == F.lit("X")), "`t`.`p` = 'a'"),
        (lambda: (F.col("t.p") == "it's") & (F.col("t.x") == 1.5), None),
        (lambda: (F.col("t.p") == "a") | (F.col("s.p") == "b"), None),
    ],
)
def test_comparisons_are_said_and_the_rest_is_left_out(spark: SparkSession, column: Column, text: str | None) -> None:
    assert spark is not None, "columns need a session"

    assert condition_sql(column()) == text  # type: ignore[operator]
