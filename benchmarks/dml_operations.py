"""What Headwater, delta-spark and deltalake do in the benchmark `dml`, each in a session of its own that is warm.

Each measurement gets a copy of the table, made of hard links: data files never change, so only the log grows. After
the time is taken, the peer reads its own table again, and the answer is held against what is known to be true. The
subject of a case is JSON: see `Subject`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Operation, Peers
from benchmarks.scan_operations import DELTA_SPARK, session
from benchmarks.scan_operations import before_each as collect_garbage
from benchmarks.write_operations import cpu_time_s as spark_cpu_time_s
from benchmarks.write_operations import process_tree

if TYPE_CHECKING:
    from collections.abc import Callable

DELTALAKE = "deltalake"
NO_SPARK_VARIABLE = "HEADWATER_BENCH_NO_SPARK"
"""In the environment of a session that must not start Spark."""
PEAK = "peak_bytes"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a case is about."""

    table: str
    """The table, which stays as it is."""
    source: str = ""
    """Parquet files with the rows of a MERGE."""
    condition: str = ""
    """The rows of a DELETE or UPDATE."""

    def text(self) -> str:
        """As the subject of a `Case`."""
        return json.dumps(asdict(self))


@dataclass
class State:
    """What `run` gets, and what it leaves for the answer."""

    subject: Subject
    path: Path
    answer: Answer = field(default_factory=dict)


def _setup(text: str) -> State:
    subject = Subject(**json.loads(text))
    original = Path(subject.table)
    path = original.parent / f"changed-{os.getpid()}-{time.monotonic_ns()}"
    shutil.copytree(original, path, copy_function=os.link)
    return State(subject, path)


def _cleanup(state: State) -> None:
    shutil.rmtree(state.path, ignore_errors=True)


# --- Headwater ----------------------------------------------------------------------------------------


def _headwater_table(state: State) -> Any:
    from headwater import DeltaTable

    return DeltaTable.forPath(session(), str(state.path))


def _merge_headwater(state: State) -> None:
    source = session().read.parquet(state.subject.source)
    merge = _headwater_table(state).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def _delete_headwater(state: State) -> None:
    _headwater_table(state).delete(state.subject.condition)


def _update_headwater(state: State) -> None:
    _headwater_table(state).update(state.subject.condition, {"cents": "cents + 1"})


def _optimize_headwater(state: State) -> None:
    _headwater_table(state).optimize().executeCompaction()


def _vacuum_headwater(state: State) -> None:
    _headwater_table(state).vacuum()


# --- delta-spark --------------------------------------------------------------------------------------


def _sql(text: str) -> None:
    session().sql(text).collect()


def _merge_delta_spark(state: State) -> None:
    _sql(
        f"MERGE INTO delta.`{state.path}` t USING parquet.`{state.subject.source}` s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _delete_delta_spark(state: State) -> None:
    _sql(f"DELETE FROM delta.`{state.path}` WHERE {state.subject.condition}")


def _update_delta_spark(state: State) -> None:
    _sql(f"UPDATE delta.`{state.path}` SET cents = cents + 1 WHERE {state.subject.condition}")


def _optimize_delta_spark(state: State) -> None:
    _sql(f"OPTIMIZE delta.`{state.path}`")


def _vacuum_delta_spark(state: State) -> None:
    session().conf.set("spark.databricks.delta.vacuum.parallelDelete.enabled", "true")
    _sql(f"VACUUM delta.`{state.path}`")


# --- deltalake ----------------------------------------------------------------------------------------


def _deltalake_table(state: State) -> Any:
    import deltalake

    return deltalake.DeltaTable(str(state.path))


def _merge_deltalake(state: State) -> None:
    import pyarrow.parquet as pq

    source = pq.read_table(state.subject.source)
    merge = _deltalake_table(state).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _delete_deltalake(state: State) -> None:
    _deltalake_table(state).delete(state.subject.condition)


def _update_deltalake(state: State) -> None:
    _deltalake_table(state).update({"cents": "cents + 1"}, predicate=state.subject.condition)


def _optimize_deltalake(state: State) -> None:
    _deltalake_table(state).optimize.compact()


def _vacuum_deltalake(state: State) -> None:
    _deltalake_table(state).vacuum(dry_run=False, full=True)


# --- what came of it ----------------------------------------------------------------------------------


def _rows_by_spark(frame: Any) -> Answer:
    row = frame.selectExpr("count(*) AS rows", "sum(cents) AS cents", "sum(id) AS ids").collect()[0]
    return dict(row.asDict())


def _answer_headwater(state: State) -> Answer:
    return state.answer | _rows_by_spark(_headwater_table(state).toDF())


def _answer_delta_spark(state: State) -> Answer:
    return state.answer | _rows_by_spark(session().read.format("delta").load(str(state.path)))


def _answer_deltalake(state: State) -> Answer:
    import pyarrow.compute as pc

    rows = _deltalake_table(state).to_pyarrow_table(columns=["id", "cents"])
    found = {"rows": rows.num_rows, "cents": pc.sum(rows["cents"]).as_py(), "ids": pc.sum(rows["id"]).as_py()}
    return state.answer | found


def _files_left(state: State) -> Answer:
    files = [name for _, _, names in os.walk(state.path) for name in names if name.endswith(".parquet")]
    return state.answer | {"files": len(files)}


# --- time and memory ----------------------------------------------------------------------------------


def _has_spark() -> bool:
    return NO_SPARK_VARIABLE not in os.environ


def cpu_time_s() -> float:
    """The CPU time of all processes that take part."""
    return spark_cpu_time_s() if _has_spark() else time.process_time()


def before_each() -> None:
    """Collect garbage, so that no peer pays for that of another, and reset the memory peaks."""
    if _has_spark():
        collect_garbage()
    for pid in _processes():
        with suppress(OSError):  # a worker may have ended
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _processes() -> list[int]:
    return [os.getpid(), *(process_tree() if _has_spark() else [])]


def _peak_bytes() -> int:
    """The highest resident memory of each process since `before_each`, added up."""
    total = 0
    for pid in _processes():
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return total


def _watched(run: Callable[[State], None]) -> Callable[[State], State]:
    def watched(state: State) -> State:
        run(state)
        state.answer = {PEAK: _peak_bytes()}
        return state

    return watched


def _peers(
    headwater: Callable[[State], None],
    delta_spark: Callable[[State], None],
    deltalake: Callable[[State], None] | None,
    answer: Callable[[State], Answer] | None = None,
) -> Peers:
    found: dict[str, Operation] = {
        HEADWATER: Operation((), _watched(headwater), answer or _answer_headwater, _setup, _cleanup),
        DELTA_SPARK: Operation((), _watched(delta_spark), answer or _answer_delta_spark, _setup, _cleanup),
    }
    if deltalake is not None:
        found[DELTALAKE] = Operation((DELTALAKE,), _watched(deltalake), answer or _answer_deltalake, _setup, _cleanup)
    return found


OPERATIONS: dict[str, Peers] = {
    "merge": _peers(_merge_headwater, _merge_delta_spark, _merge_deltalake),
    "delete": _peers(_delete_headwater, _delete_delta_spark, _delete_deltalake),
    "update": _peers(_update_headwater, _update_delta_spark, _update_deltalake),
    # deltalake does not write tables with deletion vectors.
    "merge with vectors": _peers(_merge_headwater, _merge_delta_spark, None),
    "delete with vectors": _peers(_delete_headwater, _delete_delta_spark, None),
    "update with vectors": _peers(_update_headwater, _update_delta_spark, None),
    "optimize": _peers(_optimize_headwater, _optimize_delta_spark, _optimize_deltalake),
    "vacuum": _peers(_vacuum_headwater, _vacuum_delta_spark, _vacuum_deltalake, _files_left),
}
