"""A real standalone cluster, started from the pyspark package: one master, two workers, all on loopback.

Executors in processes of their own see only what Spark serialises for them, which a local session never proves.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.spark.scan.read import read
from headwater.spark.session.java import find_java
from support.tables.delta_tables import DeltaTable, field, inline_vector, relative_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WORKERS = 2
START_TIMEOUT_S, STOP_TIMEOUT_S, JOB_TIMEOUT_S = 60.0, 20.0, 180.0
SHORT_LIFE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a JVM that ends before its best compiler has paid off."""
JOBS = Path(__file__).parents[1] / "support" / "jobs"
JOB = JOBS / "cluster_job.py"
SEARCH_JOB = JOBS / "search_cluster_job.py"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The environment of the cluster and its driver: the Java that `find_java` found, nothing of our own session."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "JAVA_"))}
    return {
        **inherited,
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIFE,
        "CLUSTER_JOB_JAVA_OPTIONS": SHORT_LIFE,
        "PYSPARK_PYTHON": sys.executable,
    }


@pytest.fixture(scope="module")
def master(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master that two workers have registered with."""
    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as started:
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = directory / "master.log"
        process = start_daemon(started, "master.Master", options, environment, log)
        url = wait_for(process, log, lambda text: re.search(r"Starting Spark master at (spark://\S+)", text))[1]
        options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "700M", url]
        workers = []
        for i in range(WORKERS):
            worker_environment = {**environment, "SPARK_WORKER_DIR": str(directory / f"worker-{i}")}
            log = directory / f"worker-{i}.log"
            workers.append((start_daemon(started, "worker.Worker", options, worker_environment, log), log))
        for process, log in workers:
            wait_for(process, log, lambda text: re.search("Successfully registered with master", text))
        yield url


def start_daemon(
    started: ExitStack, daemon: str, options: list[str], environment: dict[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a part of the cluster, which is stopped with `started`. Spark's script becomes the JVM: one process."""
    import pyspark

    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    output = started.enter_context(log.open("wb"))
    argv = [str(script), f"org.apache.spark.deploy.{daemon}", *options]
    process = subprocess.Popen(argv, env=environment, stdout=output, stderr=subprocess.STDOUT)
    started.callback(stop, process)
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(process: subprocess.Popen[bytes], log: Path, find: Callable[[str], re.Match[str] | None]) -> re.Match[str]:
    """What `find` finds in the log of a daemon, as soon as it is there."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        text = log.read_text(errors="replace")
        if found := find(text):
            return found
        if process.poll() is not None or time.monotonic() > deadline_s:
            pytest.fail(f"{log.name} does not say that it has started:\n{text[-3000:]}")
        time.sleep(0.1)


def run_job(job: Path, master: str, environment: dict[str, str], path: Path) -> dict[str, Any]:
    """What an application prints, run on the cluster about the table at a path."""
    argv = [sys.executable, str(job), master, str(WORKERS), str(path)]
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False, cwd=path.parent
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[object]]]:
    """Partitions that only the log knows (one is null), files with and without vectors; and the rows that are left."""
    path = tmp_path_factory.mktemp("clustered") / "a table"
    delta = DeltaTable(
        path,
        field("id", "long"),
        field("p", "string"),
        partition_columns=("p",),
        features=("deletionVectors",),
    )
    (first, second) = relative_vectors(path, [0, 50, 99], list(range(0, 100, 2)))
    vectors = [first, second, inline_vector([1, 2, 3]), None]
    partitions = ["one", "two", None, "two"]
    deleted = [{0, 50, 99}, set(range(0, 100, 2)), {1, 2, 3}, set()]
    actions, left = [], []
    for i, (value, vector, gone) in enumerate(zip(partitions, vectors, deleted, strict=True)):
        ids = list(range(i * 100, (i + 1) * 100))
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        extra = {} if vector is None else {"deletionVector": vector}
        actions.append(delta.file(rows, f"p=wrong/{i}.parquet", partitionValues={"p": value}, **extra))
        left += [[n, value] for position, n in enumerate(ids) if position not in gone]
    delta.commit(*actions)
    return path, left


def test_a_cluster_reads_the_same_rows_as_a_local_session(
    master: str,
    environment: dict[str, str],
    table: tuple[Path, list[list[object]]],
    spark: SparkSession,
) -> None:
    path, left = table

    answer = run_job(JOB, master, environment, path)

    assert answer["master"] == master
    assert len(answer["tasks"]) == WORKERS
    assert all(count > 0 for count in answer["tasks"].values())
    assert answer["rows"] == left == [list(row) for row in sorted(read(spark, path).collect())]
    assert answer["filtered"] == [[n, p] for n, p in left if p == "two" and int(str(n)) % 2 == 1]
    sums: dict[object, int] = {}
    for n, p in left:
        sums[p] = sums.get(p, 0) + int(str(n))
    assert dict(answer["grouped"]) == sums


def test_a_cluster_makes_and_searches_a_search_table(master: str, environment: dict[str, str], tmp_path: Path) -> None:
    full = [n for n in range(1_000) if n % 7 == 0]

    answer = run_job(SEARCH_JOB, master, environment, tmp_path / "a search table")

    assert len(answer["tasks"]) == WORKERS
    assert all(count > 0 for count in answer["tasks"].values())
    assert answer["found"] == full
    assert answer["count"] == sum(n % 3 != 1 for n in full)
    assert answer["filtered"] == [n for n in range(1_000) if n % 3 == 2 and (n < 20 or n > 990)]
    assert answer["grouped"] == [[part, sum(n % 3 == part for n in range(500, 1_000))] for part in range(3)]
    assert answer["best"] == 5
    assert answer["aggregated"] == [
        {"part": part, "count": sum(n % 3 == part for n in full), "max(id)": max(n for n in full if n % 3 == part)}
        for part in range(3)
    ]
    assert (answer["splits"], answer["merged"], answer["after"], answer["warm"]) == (12, 3, len(full), 3)
