"""A Spark application for `test_data_writer.py`: the first attempt of every task fails half-way through its rows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headwater.spark.session import session as start
from headwater.spark.write.files import write_files
from support.tables.written_tables import data_files, target_of


def failing_first(markers: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Hands rows on, but fails after some of them in the first attempt of a task, and leaves a file as a sign."""

    def fail_first(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 3 and context.attemptNumber() == 0:
                Path(markers, str(context.partitionId())).touch()
                raise RuntimeError("the first attempt fails")
            yield batch

    return fail_first


def main(root: Path) -> None:
    spark = start("retries", **{"spark.master": "local[2,3]", "spark.sql.execution.arrow.maxRecordsPerBatch": 100})
    answers = {}
    ways: dict[str, dict[str, Any]] = {
        "native": {},
        "python": {"target_file_size": 2**40},
        "partitioned": {"partition_columns": ("p",)},
    }
    for name, way in ways.items():
        markers = root / f"{name}-failed"
        markers.mkdir(parents=True)
        rows = spark.sql("SELECT id, id % 3 AS p FROM range(0, 2000, 1, 2)")
        frame = rows.mapInArrow(failing_first(str(markers)), "id long, p long")
        adds = write_files(frame, target_of(root / name, frame, **way))
        answers[name] = {
            "rows": sum(json.loads(add.stats or "")["numRecords"] for add in adds),
            "unnamed": len(set(data_files(root / name)) - {add.path for add in adds}),
            "failed": len(list(markers.iterdir())),
        }
    spark.stop()
    sys.stdout.write(json.dumps(answers) + os.linesep)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
