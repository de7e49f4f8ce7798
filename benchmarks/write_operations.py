"""What Headwater and plain Parquet do in the benchmark `write`, both in one warm Spark session.

Each measurement writes to a directory of its own, on the disk of the source, and removes it afterwards. Headwater
creates a table: data files, statistics, a commit, all flushed to the disk. Plain Parquet flushes nothing. The subject
of a case is JSON: see `Subject`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Operation, Peers
from benchmarks.scan_operations import PARQUET, before_each, session
from benchmarks.scan_operations import cpu_time_s as driver_cpu_time_s

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OPERATIONS", "before_each", "cpu_time_s"]

BYTES = "bytes"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a case is about."""

    source: str
    """A directory of Parquet files: the rows to write."""
    schema: str
    """Their columns, as DDL."""
    partition_expression: str | None = None
    """What to partition by, in SQL; None for an unpartitioned table."""
    columns: tuple[str, ...] | None = None
    """Only these columns of the source."""

    def text(self) -> str:
        """As the subject of a `Case`."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class State:
    """What `run` gets."""

    frame: Any
    path: Path
    partitioned: bool


def _setup(text: str) -> State:
    subject = Subject(**json.loads(text))
    frame = session().read.schema(subject.schema).parquet(subject.source)
    if subject.partition_expression is not None:
        frame = frame.selectExpr("*", f"{subject.partition_expression} AS p")
    if subject.columns is not None:
        frame = frame.select(*subject.columns)
    path = Path(subject.source).parent / f"written-{os.getpid()}-{time.monotonic_ns()}"
    return State(frame, path, subject.partition_expression is not None)


def _write_headwater(state: State) -> State:
    from headwater.spark.write.write import write

    write(state.frame, str(state.path), partition_by=("p",) if state.partitioned else ())
    return state


def _write_parquet(state: State) -> State:
    writer = state.frame.write
    (writer.partitionBy("p") if state.partitioned else writer).parquet(str(state.path))
    return state


def _answer(state: State) -> Answer:
    """Rows by the footers of the files, and the bytes of the files."""
    import pyarrow.parquet as pq

    files = [file for file in state.path.rglob("part-*.parquet") if file.is_file()]
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    return {"rows": rows, BYTES: sum(file.stat().st_size for file in files), "files": len(files)}


def _cleanup(state: State) -> None:
    shutil.rmtree(state.path, ignore_errors=True)


# --- CPU time -----------------------------------------------------------------------------------------


def cpu_time_s() -> float:
    """The CPU time of the JVM, of this process, and of the Python workers that Spark started."""
    return driver_cpu_time_s() + _workers_cpu_s()


@cache
def _jvm_pid() -> int:
    handle: Callable[[], Any] = session().sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean
    return int(str(handle().getName()).partition("@")[0])


def process_tree() -> list[int]:
    """The JVM and all processes below it."""
    found = [_jvm_pid()]
    for pid in found:
        found += _children(pid)  # which are visited in turn
    return found


def _workers_cpu_s() -> float:
    """All processes below the JVM, with those of theirs that ended."""
    return sum(map(_process_cpu_s, process_tree()[1:]))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    texts = [_read(task / "children") for task in tasks.iterdir()] if tasks.exists() else []
    return [int(child) for text in texts for child in text.split()]


def _process_cpu_s(pid: int) -> float:
    """utime, stime, and those of the children that it waited for."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _CLOCK_TICKS if fields else 0.0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


OPERATIONS: dict[str, Peers] = {
    "write": {
        HEADWATER: Operation((), _write_headwater, _answer, _setup, _cleanup),
        PARQUET: Operation((), _write_parquet, _answer, _setup, _cleanup),
    }
}
