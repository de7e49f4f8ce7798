"""Spark applications that are killed while they write: what was acknowledged stays, nothing is there by halves.

A process with its JVM is killed, as `kill -9` does it; its ten writers are each in the midst of a write to a table of
their own, so that five processes make fifty killed writes. The tables stay the same: every process goes on where the
one before was killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder

import headwater as hw
from headwater.cli.main import main as headwater_command
from support.jobs import killed_writer
from support.jobs.killed_writer import PARTITIONS, ROWS, WRITERS, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NUMBERS_PER_PROCESS = 10_000
# What one of the writers was about to do when its process was killed; None for a moment that nobody has chosen.
STEPS = (None, "files", "commit", "checkpoint", "checksum")
KILLED_WRITES = len(STEPS) * len(WRITERS)
LONGEST_RUN_S = 180.0
LONGEST_DELAY_S = {None: 3.0, "files": 0.3, "commit": 0.01, "checkpoint": 0.02, "checksum": 0.01}


class Process:
    """A running application, in a process group of its own."""

    def __init__(self, root: Path, scratch: Path, number: int) -> None:
        scratch.mkdir(parents=True)
        self._complaints = scratch / "stderr"
        with self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, killed_writer.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(next(iter(hw.__path__))).parent)},
            )
        self.first = (number + 1) * NUMBERS_PER_PROCESS
        self.said: list[dict[str, Any]] = []
        self._tell(json.dumps({"root": str(root), "scratch": str(scratch), "first": self.first}))

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def _listen(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith(b"{"):  # the JVM's own warnings
                continue
            said = json.loads(line)
            self.said.append(said)
            yield said

    def run_until(self, table: str, step: str | None, delay_s: float) -> None:
        """Let it write until all writers have written and one is about to do a step, and a little longer."""
        assert any("ready" in said for said in self._listen()), self._complaints.read_text()
        self.said.clear()
        self._tell("go")
        waited_for = set() if step is None else set(WRITERS)
        last_moment = time.monotonic() + LONGEST_RUN_S
        for said in self._listen():
            if "version" in said:
                waited_for.discard(said["table"])
            if not waited_for and (step is None or (said["table"], said.get("step")) == (table, step)):
                break
            assert time.monotonic() < last_moment, f"{table} never came to {step}; not written yet: {waited_for}"
        time.sleep(delay_s)

    def kill(self) -> None:
        """Kill the driver and its JVM, at once; the JVM's Python workers end by themselves when it is gone."""
        if self._process.returncode is not None:
            return
        os.killpg(self._process.pid, signal.SIGKILL)
        for _ in self._listen():
            pass
        self._process.wait()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


@contextmanager
def processes(root: Path, scratch: Path) -> Iterator[Iterator[Process]]:
    """All processes, one after the other; the next one starts while one runs, as starting is what takes time."""
    started: list[Process] = []

    def one_by_one() -> Iterator[Process]:
        for number in range(len(STEPS)):
            while len(started) < min(number + 2, len(STEPS)):
                started.append(Process(root, scratch / str(len(started)), len(started)))
            yield started[number]

    try:
        yield one_by_one()
    finally:
        for process in started:
            process.kill()


def numbers_in_log(path: Path) -> list[int]:
    """The write that made each version; the versions must be contiguous, and each commit complete."""
    commits = sorted((path / "_delta_log").glob("[0-9]*[0-9].json"))
    assert [int(commit.stem) for commit in commits] == list(range(len(commits)))
    found = []
    for commit in commits:
        lines = commit.read_text().splitlines()
        [info] = [action["commitInfo"] for action in map(json.loads, lines) if "commitInfo" in action]
        found.append(int(info["userMetadata"]))
    return found


def expected_rows(table: str, numbers: list[int]) -> dict[int, int]:
    """How many rows the table has of each write, after all writes in the log."""
    if "appended" in table:
        return dict.fromkeys(numbers, ROWS)
    if "natively" in table:
        return {numbers[-1]: ROWS}
    return dict.fromkeys({number % PARTITIONS: number for number in numbers}.values(), ROWS)


def check(root: Path, table: str, acknowledged: dict[int, int]) -> None:
    """The table is what its log says, and the log has what was acknowledged, once."""
    numbers = numbers_in_log(root / table)
    assert len(set(numbers)) == len(numbers), "a write is in the log twice"
    assert {number: version for version, number in enumerate(numbers) if number in acknowledged} == acknowledged
    snapshot = hw.open_log(root / table)
    assert snapshot.version == len(numbers) - 1
    assert snapshot.verify() == []
    query = "SELECT number, count(*) AS rows FROM t GROUP BY number"
    seen = pa.table(QueryBuilder().register("t", RustTable(root / table)).execute(query).read_all())
    assert {row["number"]: row["rows"] for row in seen.to_pylist()} == expected_rows(table, numbers)


def test_killed_spark_applications_lose_nothing_and_show_nothing_by_halves(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert KILLED_WRITES == 50
    root = tmp_path / "tables"
    chance = random.Random(4)
    acknowledged: dict[str, dict[int, int]] = {table: {} for table in WRITERS}
    with processes(root, tmp_path / "scratch") as running:
        for number, process in enumerate(running):
            step = STEPS[number]
            process.run_until(chance.choice(list(WRITERS)), step, chance.random() * LONGEST_DELAY_S[step])
            process.kill()
            assert [said for said in process.said if "failed" in said] == []
            for said in process.said:
                if "version" in said:
                    acknowledged[said["table"]][said["number"]] = said["version"]
            for table in WRITERS:
                if acknowledged[table] or (root / table / "_delta_log" / f"{0:020d}.json").exists():
                    check(root, table, acknowledged[table])

    for table, work in WRITERS.items():
        assert acknowledged[table], "no writer of this table lived long enough"
        unheard = set(numbers_in_log(root / table)) - set(acknowledged[table])
        assert len({n // NUMBERS_PER_PROCESS for n in unheard}) == len(unheard), "more than the last write of a process"
        written = hw.write(rows(spark, table, 1), root / table, user_metadata="1", **work.options)
        assert written is not None
        check(root, table, {**acknowledged[table], 1: written.version})
        assert headwater_command(["verify", str(root / table)]) == 0
        ours = hw.read(spark, root / table).groupBy("number").count().collect()
        assert {row.number: row["count"] for row in ours} == expected_rows(table, numbers_in_log(root / table))
    capsys.readouterr()
