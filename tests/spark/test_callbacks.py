"""Calls from the JVM to Python: they leave nothing behind, whichever thread of Spark's makes them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headwater as hw
from headwater import DeltaTable
from headwater.spark.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROUNDS = {"read": 25, "search": 12, "changes": 12}
"""Each has two joins."""
FEED = {"delta.enableChangeDataFeed": "true"}
_SOME_MORE = 2
"""The finalizer of the JVM has a line of its own, from its first call on."""
_UNNAMED = re.compile(r"Thread-\d+")
"""As py4j's threads are called. Spark gives names to its own, and keeps dozens of them for its next exchanges."""


class Lines(NamedTuple):
    """What a line between the JVM and Python takes."""

    python_threads: int
    sockets: int
    jvm_threads: int
    kept_by_py4j: int


def lines(spark: SparkSession) -> Lines:
    """What there is now."""
    jvm = jvm_of(spark)
    descriptors = [os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    sockets = sum(os.readlink(path).startswith("socket:") for path in descriptors if os.path.islink(path))
    threads = [t.getName() for t in jvm.call("java.lang.Thread", "getAllStackTraces").keySet().toArray()]
    client = jvm.kept("gateway server", lambda: None).getCallbackClient()
    kept = jvm.java_class("py4j.CallbackClient").getDeclaredField("connections")
    kept.setAccessible(True)
    return Lines(
        threading.active_count(),
        sockets,
        sum(_UNNAMED.fullmatch(name) is not None for name in threads),
        kept.get(client).size(),
    )


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    one, other = (str(tmp_path_factory.mktemp("joined") / name) for name in ("one", "other"))
    hw.write(spark.range(40).selectExpr("id", "id % 10 AS k", "concat('word', id % 7) AS text"), one, properties=FEED)
    hw.search_index(one, columns={"text": "text"}, spark=spark)
    hw.write(spark.range(20).selectExpr("id AS k", "id AS v"), other)
    return one, other


def joined(one: Any, other: Any) -> int:
    """The rows of two joins, one by a broadcast and one by a shuffle of both sides, grouped by another shuffle."""
    from pyspark.sql import functions as sf

    both = one.join(sf.broadcast(other), "k").join(other.hint("merge"), "k")
    return sum(row["count"] for row in both.groupBy("k").count().collect())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sockets are counted by the files of the process")
@pytest.mark.parametrize("kind", ROUNDS)
def test_joins_leave_no_thread_and_no_socket_behind(spark: SparkSession, tables: tuple[str, str], kind: str) -> None:
    one, other = tables

    def side() -> Any:
        if kind == "read":
            return hw.read(spark, one)
        if kind == "search":
            return DeltaTable.forPath(spark, one).search("word*")
        return hw.read_changes(spark, one, starting_version=0, ending_version=0)

    joined(side(), hw.read(spark, other))
    before = lines(spark)

    for _ in range(ROUNDS[kind]):
        assert joined(side(), hw.read(spark, other)) == 40

    after = lines(spark)
    assert all(now <= then + _SOME_MORE for now, then in zip(after, before, strict=True)), (before, after)


_WITHOUT_PINNED_THREADS = """
import sys
from headwater.spark.session import session as start
import headwater as hw

spark = start("unpinned", **{"spark.master": "local[1]", "spark.sql.shuffle.partitions": 1})
assert type(spark.sparkContext._gateway).__name__ == "JavaGateway"
path = sys.argv[1]
hw.write(spark.range(10).selectExpr("id", "concat('word', id % 2) AS text"), path)
hw.search_index(path, columns={"text": "text"}, spark=spark)
frame = hw.read(spark, path)
print(frame.join(frame.hint("broadcast"), "id").count(), frame.join(frame.hint("merge"), "id").count())
found = hw.DeltaTable.forPath(spark, path).search("word1")
print(found.join(found.hint("merge"), "id").count(), found.union(found).count())
"""


def test_callbacks_work_where_threads_are_not_pinned(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PINNED_THREADS, str(tmp_path / "table")],
        env={**os.environ, "PYSPARK_PIN_THREAD": "false"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.stdout.split() == ["10", "10", "5", "10"], ran.stderr


def test_errors_of_python_come_back_from_the_threads_of_exchanges(spark: SparkSession, tmp_path: Path) -> None:
    """The line is hung up after a failure too, and the failure is ours."""
    path = str(tmp_path / "table")
    hw.write(spark.range(10).selectExpr("id", "id % 2 AS p"), path, partition_by=["p"])
    frame = hw.read(spark, path)
    other = spark.range(5).hint("broadcast")
    for file in Path(path).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(hw.HeadwaterError, match="is gone"):
        frame.hint("merge").join(other, "id").groupBy("p").count().collect()
