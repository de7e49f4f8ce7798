"""What Headwater, plain Parquet and delta-spark do in the benchmark `scan`, each in a warm Spark session.

Headwater and plain Parquet share one session. delta-spark has a session of its own, on the Spark it is made for;
plain Parquet is measured there too, since another Spark is another floor. Nothing heavy is imported at the top: this
module must be importable where Headwater is not installed. The subject of a case is JSON: see `Subject`.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Operation, Peers

if TYPE_CHECKING:
    from collections.abc import Callable

PARQUET = "parquet"
DELTA_SPARK = "delta-spark"
DELTA_PARQUET = "parquet on delta-spark's Spark"
DELTA_JARS_VARIABLE = "HEADWATER_BENCH_DELTA_JARS"
"""The JARs of delta-spark, in the environment of its session and only there."""

CONF: dict[str, str] = {
    "spark.master": "local[*]",
    "spark.driver.memory": "3g",
    "spark.driver.host": "localhost",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # py4j calls a method on the class of an object, and that of the bean with the CPU time is internal.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC --add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED"
    ),
}
"""The same for all sessions."""
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # By default it replays a log in 50 tasks, which is most of the time on one machine.
    "spark.databricks.delta.snapshotPartitions": "2",
}
LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""Above it Spark lists paths in a job, which takes four to fifteen times as long on one machine."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a case is about."""

    path: str
    """The Delta table."""
    schema: str
    """Its columns as DDL, for plain Parquet, which would have to infer them."""
    plain: str
    """Below the table: the directory that plain Parquet reads, or a JSON file with the paths to read."""
    where: str | None = None
    answer: dict[str, str] | None = None
    """The aggregates to ask for, in SQL, by name."""

    def text(self) -> str:
        """As the subject of a `Case`."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class State:
    """What `run` gets."""

    subject: Subject
    frame: Any = None
    """The table as a DataFrame, where opening it is not measured."""


# --- the session --------------------------------------------------------------------------------------


@cache
def session() -> Any:
    """The Spark session of this process."""
    jars = os.environ.get(DELTA_JARS_VARIABLE)
    if jars is None:
        from headwater.spark.session import session as start

        return start("benchmark", **CONF)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("benchmark")
    for key, value in {**CONF, **DELTA_CONF, "spark.jars": jars}.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


@cache
def _process_bean() -> Any:
    return session().sparkContext._jvm.java.lang.management.ManagementFactory.getOperatingSystemMXBean()


def cpu_time_s() -> float:
    """The CPU time of the JVM and of this process together."""
    return float(_process_bean().getProcessCpuTime()) / 1e9 + time.process_time()


def before_each() -> None:
    """Collect garbage, so that no peer pays for that of another."""
    session().sparkContext._jvm.java.lang.System.gc()


# --- opening ------------------------------------------------------------------------------------------


def open_headwater(subject: Subject) -> Any:
    from headwater.spark.scan.read import read

    return read(session(), subject.path)


def open_parquet(subject: Subject) -> Any:
    reader, target = session().read.schema(subject.schema), Path(subject.path, subject.plain)
    if target.suffix == ".json":
        return reader.parquet(*_paths(target))
    return reader.option("basePath", str(target)).parquet(str(target))


@cache
def _paths(file: Path) -> list[str]:
    paths: list[str] = json.loads(file.read_text())
    return paths


def open_delta_spark(subject: Subject) -> Any:
    return session().read.format("delta").load(subject.path)


def _forget_delta_spark() -> None:
    """delta-spark keeps snapshots; opening is to mean opening."""
    session().sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


# --- measured -----------------------------------------------------------------------------------------


def _query(frame: Any, subject: Subject) -> Answer:
    from pyspark.sql import functions as sf

    if subject.where:
        frame = frame.where(subject.where)
    assert subject.answer is not None
    row = frame.agg(*(sf.expr(sql).alias(name) for name, sql in subject.answer.items())).collect()[0]
    return dict(row.asDict())


def _plan(frame: Any) -> Any:
    """Plan until tasks could start: files are listed and packed into partitions."""
    execution = frame._jdf.queryExecution()
    execution.toRdd().getNumPartitions()
    return execution


def _planned_files(execution: Any) -> Answer:
    scan = execution.executedPlan().collectLeaves().head()
    return {"num_files": scan.metrics().apply("numFiles").value()}


def _query_operation(opened: Callable[[Subject], Any]) -> Operation:
    def setup(text: str) -> State:
        subject = Subject(**json.loads(text))
        return State(subject, opened(subject))

    return Operation((), lambda state: _query(state.frame, state.subject), _same, setup)


def _open_and_query_operation(opened: Callable[[Subject], Any], prepare: Callable[[], None]) -> Operation:
    return Operation((), lambda state: _query(opened(state.subject), state.subject), _same, _unopened(prepare))


def _plan_operation(opened: Callable[[Subject], Any], prepare: Callable[[], None]) -> Operation:
    return Operation((), lambda state: _plan(opened(state.subject)), _planned_files, _unopened(prepare))


def _unopened(prepare: Callable[[], None]) -> Callable[[str], State]:
    def setup(text: str) -> State:
        subject = Subject(**json.loads(text))
        prepare()
        return State(subject)

    return setup


def _same(answer: Answer) -> Answer:
    return answer


def _list_here() -> None:
    """The fastest way to plan many paths on one machine; a job per listing is Spark's default."""
    session().conf.set(LISTING_THRESHOLD, str(10**9))


def _list_as_ever() -> None:
    session().conf.unset(LISTING_THRESHOLD)


def _nothing() -> None:
    return None


OPENING: dict[str, tuple[Callable[[Subject], Any], Callable[[], None]]] = {
    HEADWATER: (open_headwater, _nothing),
    PARQUET: (open_parquet, _list_as_ever),
    DELTA_SPARK: (open_delta_spark, _forget_delta_spark),
    DELTA_PARQUET: (open_parquet, _list_as_ever),
}
"""For each peer: how it opens a table, and what to do before that is measured."""

OPERATIONS: dict[str, Peers] = {
    "query": {peer: _query_operation(opened) for peer, (opened, _) in OPENING.items()},
    "open and query": {peer: _open_and_query_operation(*how) for peer, how in OPENING.items()},
    "plan": {
        peer: _plan_operation(opened, _list_here if opened is open_parquet else prepare)
        for peer, (opened, prepare) in OPENING.items()
    },
}
