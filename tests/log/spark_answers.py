"""A program: what Spark makes of conditions over the rows of `filter_oracle`, in a process of its own.

Reads a JSON list of SQL texts, writes for each the list of its values (true, false, null), or null if Spark
refuses the text.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import filter_oracle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions


def answers(df: DataFrame, texts: list[str]) -> list[list[Any]] | None:
    """The values of several conditions at once."""
    try:
        rows = df.select([functions.expr(text) for text in texts]).collect()
    except PySparkException:
        return None
    return [list(column) for column in zip(*(tuple(row) for row in rows), strict=True)]


def main() -> None:
    """Answer what stands on the standard input."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    df = spark.createDataFrame(filter_oracle.ROWS, filter_oracle.SCHEMA).coalesce(1)
    results: list[list[Any] | None] = []
    for text in json.load(sys.stdin):
        found = answers(df, [text])
        results.append(None if found is None else found[0])
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
