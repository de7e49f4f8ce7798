"""A Spark application for `test_cluster.py`: reads a table on a cluster and prints what came of it as JSON.

python cluster_job.py spark://127.0.0.1:7077 2 /path/of/the/table
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from headwater.spark.scan.read import read
from headwater.spark.session import session as start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS_TIMEOUT_S = 40


def main(master: str, executors: int, path: str) -> None:
    spark, store = start_on(master, executors)
    frame = read(spark, path)
    answer = {
        "master": spark.sparkContext.master,
        "rows": [list(row) for row in sorted(frame.collect())],
        "filtered": [list(row) for row in sorted(frame.where("p = 'two' and id % 2 = 1").collect())],
        "grouped": [list(row) for row in frame.groupBy("p").sum("id").collect()],
        "tasks": executor_tasks(store),
    }
    spark.stop()
    print(json.dumps(answer))


def start_on(master: str, executors: int) -> tuple[SparkSession, object]:
    """A session on a cluster, as soon as all executors are there; and the store that knows what they do."""
    spark = start(
        "cluster job",
        **{
            "spark.master": master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": os.environ.get("CLUSTER_JOB_JAVA_OPTIONS", ""),
            "spark.executor.extraJavaOptions": os.environ.get("CLUSTER_JOB_JAVA_OPTIONS", ""),
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": 4,
            # One task for each file, so that there is work for every executor.
            "spark.sql.files.openCostInBytes": "128m",
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{EXECUTORS_TIMEOUT_S}s",
        },
    )
    store = spark._jsparkSession.sparkContext().statusStore()
    deadline_s = time.monotonic() + EXECUTORS_TIMEOUT_S
    while len(executor_tasks(store)) < executors and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return spark, store


def executor_tasks(store: object) -> dict[str, int]:
    """The number of finished tasks of each executor."""
    found = store.executorList(False)  # type: ignore[attr-defined]
    summaries = [found.apply(i) for i in range(found.size())]
    return {s.id(): s.completedTasks() for s in summaries if s.id() != "driver"}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
