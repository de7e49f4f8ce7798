"""A Spark application for `test_killed_writes.py`: it writes to several tables at once, until it is killed.

Reads one line of JSON from standard input, starts Spark, prints `ready`, and starts to write at the next line. It says
on standard output what its writers are about to do, and every write right after it was acknowledged.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHORT_LIFE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a JVM that ends before its best compiler has paid off."""
ROWS = 60
PARTITIONS = 3
_CHECKPOINTS = {"delta.checkpointInterval": "2"}
_V2 = {**_CHECKPOINTS, "delta.checkpointPolicy": "v2", "delta.enableRowTracking": "true"}


@dataclass(frozen=True)
class Work:
    """What one writer does, all the time."""

    creation: dict[str, Any]
    """Options of the write that creates the table."""
    options: dict[str, Any]
    """Options of every write."""


_WORK = {
    "appended natively": Work({"properties": _CHECKPOINTS}, {"mode": "append"}),
    # Spark's own writer takes only tables on a disk that ask for nothing special.
    "appended by Python": Work({"properties": _V2}, {"mode": "append", "target_file_size": 2**30}),
    "appended to partitions": Work({"properties": _CHECKPOINTS, "partition_by": "part"}, {"mode": "append"}),
    "overwritten natively": Work({"properties": _CHECKPOINTS}, {"mode": "overwrite"}),
    "overwritten by partition": Work(
        {"properties": _V2, "partition_by": "part"}, {"mode": "overwrite", "partition_overwrite": "dynamic"}
    ),
}
WRITERS = {f"{name} {number}": work for name, work in _WORK.items() for number in (1, 2)}
_table = threading.local()


def rows(spark: SparkSession, table: str, number: int) -> DataFrame:
    """The rows of one write, from two tasks: of all partitions, or of the one that the write replaces."""
    part = number if table.startswith("overwritten by partition") else "id"
    return spark.sql(f"SELECT {number}L AS number, id, {part} % {PARTITIONS} AS part FROM range(0, {ROWS}, 1, 2)")


def say(**fields: Any) -> None:
    """One line in one system call: lines of several threads do not mix, and a line is there or not."""
    os.write(1, (json.dumps(fields) + "\n").encode())


def announced(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which says first what a writer comes to."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        say(table=getattr(_table, "name", None), step=step)
        return function(*args, **kwargs)

    return wrapper


def announce_steps() -> None:
    from headwater.log.commit import transaction
    from headwater.log.delta import dialect
    from headwater.log.delta.checkpoint import write as checkpoint_writer
    from headwater.spark.write import write as write_attempt

    write_attempt.write_files = announced("files", write_attempt.write_files)
    transaction.publish = announced("commit", transaction.publish)
    dialect.write_checksum = announced("checksum", dialect.write_checksum)
    checkpoint_writer.write_checkpoint = announced("checkpoint", checkpoint_writer.write_checkpoint)


def write_on(spark: SparkSession, root: Path, name: str, first: int) -> None:
    """Write to a table for ever."""
    import headwater as hw

    _table.name = name
    try:
        for number in count(first):
            path = root / name
            work = WRITERS[name]
            options = {**work.options, **({} if (path / "_delta_log").exists() else work.creation)}
            written = hw.write(rows(spark, name, number), path, user_metadata=str(number), **options)
            assert written is not None
            say(table=name, number=number, version=written.version)
    except BaseException as error:
        say(table=name, failed=repr(error))
        raise


def main() -> None:
    from headwater.spark.session import session as start

    order = json.loads(sys.stdin.readline())
    root = Path(order["root"])
    conf = {"spark.master": "local[2]", "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": SHORT_LIFE}
    spark = start("killed", **conf)
    announce_steps()
    say(ready=True)
    sys.stdin.readline()
    threads = [
        threading.Thread(target=write_on, args=(spark, root, name, order["first"]), daemon=True) for name in WRITERS
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
