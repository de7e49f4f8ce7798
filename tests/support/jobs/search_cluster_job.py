"""A Spark application for `test_cluster.py`: makes and searches a search table, and prints what came of it as JSON.

python search_cluster_job.py spark://127.0.0.1:7077 2 /path/of/the/table
"""

from __future__ import annotations

import json
import sys

from cluster_job import executor_tasks, start_on

from headwater.api.search_table import SearchTable
from headwater.spark.search import splits as search_splits


def main(master: str, executors: int, path: str) -> None:
    spark, store = start_on(master, executors)
    search_splits.MAX_DRIVER_BYTES = 0  # so that executors give the small answers too
    rows = spark.range(0, 1_000, 1, 4).selectExpr(
        "id", "concat('line ', id, if(id % 7 = 0, ' disk full', ' all fine')) AS message", "id % 3 AS part"
    )
    table = SearchTable.create(spark, path, rows, types={"message": "text"}, partition_by="part")
    table.write(rows)
    splits = table.snapshot.num_files
    answer = {
        "count": table.count('"disk full" AND NOT part:1'),
        "found": sorted(row.id for row in table.search('"disk full"', columns=["id"]).collect()),
        "filtered": sorted(row.id for row in table.toDF().where("part = 2 AND (id < 20 OR id > 990)").collect()),
        "grouped": sorted(map(list, table.toDF().where("id >= 500").groupBy("part").count().collect())),
        "best": table.top("full", 5, columns=["id"]).num_rows,
        "aggregated": table.aggregate("count", "max(id)", query="disk", group_by="part").to_pylist(),
        "splits": splits,
        "merged": table.merge_splits("1G").num_merged_splits,
        "after": table.count("disk"),
        "warm": table.prewarm(),
        "tasks": executor_tasks(store),
    }
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
