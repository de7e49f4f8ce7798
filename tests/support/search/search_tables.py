"""Search tables for the tests of this room, and what plain Python says should be found in them."""

from __future__ import annotations

import random
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.api.search_table import SearchTable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, ts TIMESTAMP, host STRING, level STRING, took INT, ratio DOUBLE, message STRING, day STRING"
WORDS = ("disk", "full", "connection", "refused", "timeout", "query", "slow", "cache", "miss", "restart")
START = datetime(2024, 3, 1, tzinfo=UTC)


def log_row(number: int) -> tuple[Any, ...]:
    """A row: some of its values are null."""
    chance = random.Random(number)
    words = [chance.choice(WORDS) for _ in range(chance.randrange(1, 7))]
    return (
        number,
        START + timedelta(seconds=number, microseconds=chance.randrange(1_000_000)),
        None if number % 17 == 0 else f"web-{number % 5}",
        chance.choice(("INFO", "WARN", "ERROR")),
        None if number % 13 == 0 else chance.randrange(-50, 1000),
        None if number % 11 == 0 else chance.choice((0.0, -0.0, 0.25, 1.5, float("nan"), -2.0)),
        None if number % 19 == 0 else " ".join(words),
        None if number % 23 == 0 else f"2024-03-0{number % 3 + 1}",
    )


def log_rows(start: int, end: int) -> list[tuple[Any, ...]]:
    """Consecutive rows."""
    return [log_row(number) for number in range(start, end)]


def make_table(spark: SparkSession, path: Path | str, writes: int = 2, rows: int = 120, **more: Any) -> SearchTable:
    """A table with some writes, each of two splits or more."""
    table = SearchTable.create(spark, path, SCHEMA, types={"message": ("text", "string")}, **more)
    for number in range(writes):
        append(spark, table, number * rows, (number + 1) * rows)
    return table


def append(spark: SparkSession, table: SearchTable, start: int, end: int) -> int:
    """Append consecutive rows; the version."""
    return table.write(spark.createDataFrame(log_rows(start, end), SCHEMA).repartition(2)).version


def words_of(message: str | None) -> list[str]:
    """The words of a message, as the default tokenizer sees these ones."""
    return [] if message is None else message.lower().split()


@contextmanager
def no_jobs(spark: SparkSession) -> Iterator[None]:
    """Fails if a Spark job is started within it."""
    group = f"no jobs {random.random()}"
    context = spark.sparkContext
    context.setJobGroup(group, "there should be none")
    try:
        yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert list(context.statusTracker().getJobIdsForGroup(group)) == []
