"""The data of the search example: lines of logs of some services, made up by Spark, the same every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES_PER_DAY = 100_000
DAYS = ("2024-03-01", "2024-03-02", "2024-03-03")
MESSAGES = (
    "GET /cart/{n} answered 200 in {t} ms",
    "GET /product/{n} answered 200 in {t} ms",
    "POST /order accepted for customer {n} in {t} ms",
    "cache miss for product {n}, loaded from the database",
    "payment of order {n} declined by the bank",
    "slow query took {t} ms: SELECT * FROM orders WHERE customer = {n}",
    "connection to the database refused, trying again",
    "worker {n} is out of memory and was restarted",
)
"""From the most to the least frequent."""
HOSTS = 12


def lines(spark: SparkSession, day: str) -> DataFrame:
    """The lines of one day."""
    first = DAYS.index(day) * LINES_PER_DAY
    rows = spark.range(first, first + LINES_PER_DAY, numPartitions=2).selectExpr(
        "id",
        f"timestampadd(MILLISECOND, (id - {first}) * 86400000 DIV {LINES_PER_DAY}, TIMESTAMP '{day} 00:00:00') AS ts",
        f"concat('web-', pmod(xxhash64(id, 'host'), {HOSTS})) AS host",
        "pmod(xxhash64(id, 'kind'), 1000) AS chance",
        "pmod(xxhash64(id, 'number'), 10000) AS n",
        "5 + CAST(pow(pmod(xxhash64(id, 'took'), 1000) / 100.0, 3) AS INT) AS took",
    )
    bounds = (400, 700, 850, 930, 970, 990, 997, 1000)
    branches = " ".join(f"WHEN chance < {bound} THEN {kind}" for kind, bound in enumerate(bounds))
    kinds = rows.selectExpr("*", f"CASE {branches} END AS kind")
    texts = ", ".join(f"'{text}'" for text in MESSAGES)
    return kinds.selectExpr(
        "ts",
        "host",
        "CASE WHEN kind >= 6 THEN 'ERROR' WHEN kind >= 4 THEN 'WARN' ELSE 'INFO' END AS level",
        "took",
        f"replace(replace(element_at(array({texts}), kind + 1), '{{n}}', n), '{{t}}', took) AS message",
        f"DATE '{day}' AS day",
    )
