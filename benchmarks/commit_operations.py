"""What Headwater and deltalake do in the benchmark `commit`: the same small appends, committed one after the other.

Only the log is written: the data files that the commits add do not exist. Nothing heavy is imported at the top. The
subject of a case is a JSON list: the path of the table, and how many commits are to be made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Operation, Peers
from benchmarks.tables import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable

DELTALAKE = "deltalake"
WRITERS = 8
HEADWATER_IMPORTS = (
    "headwater.api.open",
    "headwater.storage.*",
    "headwater.log.*",
    "headwater.features.*",
    "pyarrow.compute",
    "pyarrow.parquet",
)
DELTALAKE_IMPORTS = ("deltalake", "deltalake.transaction")

_STATS = json.dumps(
    {"numRecords": 1_000, "minValues": {"id": 0}, "maxValues": {"id": 999}, "nullCount": {"id": 0}},
    separators=(",", ":"),
)


@dataclass(frozen=True, slots=True)
class Ready:
    """An open table in a directory of its own, and what is to be done."""

    opened: Any
    path: Path
    commits: int
    started: tuple[subprocess.Popen[str], ...] = ()


# --- Headwater ----------------------------------------------------------------------------------------


def _open_headwater(path: str) -> Any:
    from headwater.features.context import COMMIT_RULES
    from headwater.features.registry import check_readable, check_writable
    from headwater.log.context import LogContext
    from headwater.log.opening import open_snapshot
    from headwater.storage import open_store

    ctx = LogContext(open_store(path), check_readable, check_writable=check_writable, commit_rules=COMMIT_RULES)
    return open_snapshot(ctx)


def _commit_headwater(snapshot: Any, name: str, commits: int) -> None:
    from headwater.log.actions.model import Add
    from headwater.log.commit.draft import Operation as Did
    from headwater.log.commit.transaction import Transaction

    values = dict.fromkeys(snapshot.partition_columns, "2024-01-01")
    for number in range(commits):
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.add([Add(f"{name}-{number}.parquet", 1_000, values, 1_700_000_000_000, True, _STATS)])
        snapshot = transaction.commit(Did("WRITE", {"mode": "Append"})).snapshot


# --- deltalake ----------------------------------------------------------------------------------------


def _open_deltalake(path: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path)


def _commit_deltalake(table: Any, name: str, commits: int) -> None:
    from deltalake.transaction import AddAction, CommitProperties

    schema, partitions = table.schema(), table.metadata().partition_columns
    values = dict.fromkeys(partitions, "2024-01-01")
    often = CommitProperties(max_commit_retries=10_000)
    for number in range(commits):
        add = AddAction(f"{name}-{number}.parquet", 1_000, values, 1_700_000_000_000, True, _STATS)
        table.create_write_transaction([add], "append", schema, partitions or None, commit_properties=often)


# --- both ---------------------------------------------------------------------------------------------

_OPEN = {HEADWATER: _open_headwater, DELTALAKE: _open_deltalake}
_COMMIT = {HEADWATER: _commit_headwater, DELTALAKE: _commit_deltalake}


def _ready(open_: Callable[[str], Any]) -> Callable[[str], Ready]:
    """A setup: open a copy of the table (hard links, as commits never change a file)."""

    def setup(subject: str) -> Ready:
        path, commits = json.loads(subject)
        source = Path(path)
        clone = Path(tempfile.mkdtemp(dir=source.parent, prefix=".clone-")) / source.name
        shutil.copytree(source / "_delta_log", clone / "_delta_log", copy_function=os.link)
        return Ready(open_(str(clone)), clone, commits)

    return setup


def _contenders(peer: str) -> Callable[[str], Ready]:
    """A setup: several processes that have opened one table and wait for the start."""

    def setup(subject: str) -> Ready:
        ready = _ready(str)(subject)
        argv = [sys.executable, "-m", "benchmarks.commit_operations", peer, str(ready.path)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": PROJECT}
        each = str(ready.commits // WRITERS)
        started = tuple(subprocess.Popen([*argv, f"w{number}", each], **pipes) for number in range(WRITERS))
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a writer did not start")
        return Ready(None, ready.path, ready.commits, started)

    return setup


def _run_alone(peer: str) -> Callable[[Ready], Path]:
    def run(ready: Ready) -> Path:
        _COMMIT[peer](ready.opened, "alone", ready.commits)
        return ready.path

    return run


def _run_contenders(ready: Ready) -> Path:
    for process in ready.started:
        assert process.stdin is not None
        process.stdin.close()
    codes = [process.wait() for process in ready.started]
    for process in ready.started:
        assert process.stdout is not None
        process.stdout.close()
    if any(codes):
        raise RuntimeError("a writer failed")
    return ready.path


def _answer(path: Path) -> Answer:
    """The newest version, and which files the commits of this run have added: each of them once."""
    names = sorted(
        p.name for p in (path / "_delta_log").iterdir() if p.name.endswith(".json") and p.name[:20].isdigit()
    )
    added: list[str] = []
    for name in reversed(names):
        lines = (path / "_delta_log" / name).read_text().splitlines()
        new = [json.loads(line)["add"]["path"] for line in lines if line.startswith('{"add"')]
        if not any(path.startswith(("alone-", "w")) for path in new):
            break
        added += new
    return {"version": int(names[-1][:20]), "added": len(added), "distinct": len(set(added))}


def _remove_clone(ready: Ready) -> None:
    shutil.rmtree(ready.path.parent)


def _alone(peer: str, imports: tuple[str, ...]) -> Operation:
    return Operation(imports, _run_alone(peer), _answer, _ready(_OPEN[peer]), _remove_clone)


def _contended(peer: str) -> Operation:
    return Operation((), _run_contenders, _answer, _contenders(peer), _remove_clone)


OPERATIONS: dict[str, Peers] = {
    "alone": {HEADWATER: _alone(HEADWATER, HEADWATER_IMPORTS), DELTALAKE: _alone(DELTALAKE, DELTALAKE_IMPORTS)},
    "long": {HEADWATER: _alone(HEADWATER, HEADWATER_IMPORTS)},
    "contended": {HEADWATER: _contended(HEADWATER), DELTALAKE: _contended(DELTALAKE)},
}


def main() -> None:
    """One of several writers: opens the table, says so, and commits once its input ends."""
    peer, path, name, commits = sys.argv[1:]
    opened = _OPEN[peer](path)
    _COMMIT[peer](opened, name, 0)  # imports
    print("ready", flush=True)
    sys.stdin.read()
    _COMMIT[peer](opened, f"{name}-{time.time_ns()}", int(commits))


if __name__ == "__main__":
    main()
