"""A program: what Spark makes of conditions over the rows of `filter_oracle`, in a process of its own.

Reads a JSON list of SQL texts, writes for each the list of its values (true, false, null), or null if Spark
refuses the text.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from support.oracles import filter_oracle


def answers(df: DataFrame, texts: list[str]) -> list[list[Any] | None]:
    """The values of several conditions; where one fails, each half is tried by itself."""
    try:
        rows = df.select([functions.expr(text) for text in texts]).collect()
    except PySparkException:
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return answers(df, texts[:half]) + answers(df, texts[half:])
    return [list(column) for column in zip(*(tuple(row) for row in rows), strict=True)]


def is_understood(df: DataFrame, text: str) -> bool:
    """Whether Spark accepts the condition before it runs it."""
    try:
        df.select(functions.expr(text))
    except PySparkException:
        return False
    return True


def main() -> None:
    """Answer what stands on the standard input."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.codegen.wholeStage", "false").config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    df = spark.createDataFrame(filter_oracle.ROWS, filter_oracle.SCHEMA).coalesce(1)
    texts: list[str] = json.load(sys.stdin)
    accepted = [text for text in texts if is_understood(df, text)]
    known = dict(zip(accepted, answers(df, accepted), strict=True))
    json.dump([known.get(text) for text in texts], sys.stdout)


if __name__ == "__main__":
    main()
