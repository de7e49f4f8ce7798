"""Search tables on a disk for tests of their log: created, appended to and aged."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.indextables.actions import SplitAdd
from headwater.log.schema import LONG, STRING, StructField, StructType
from headwater.search.table_log import create_search_log, open_search_log

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

SCHEMA = StructType([StructField("id", LONG), StructField("content", STRING), StructField("year", LONG)])
DAY_MS = 86_400_000


def split(path: str, **fields: Any) -> SplitAdd:
    return SplitAdd(path, **{"size": 1_000, "modification_time": 0, "num_records": 10, **fields})


def append(snapshot: Snapshot, *paths: str, **fields: Any) -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.add([split(path, **fields) for path in paths])
    return transaction.commit(Operation("WRITE", {"mode": "Append"}, {"numFiles": len(paths)})).snapshot


def grown(path: Path, versions: int, options: dict[str, str] | None = None) -> Snapshot:
    """A table with one split more in every version."""
    create_search_log(path, SCHEMA, options=options)
    snapshot = open_search_log(path, options=options)
    for number in range(1, versions + 1):
        snapshot = append(snapshot, f"{number:02}.split")
    return snapshot


def files(last: int) -> list[str]:
    return [f"{number:02}.split" for number in range(1, last + 1)]


def live(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.files(columns=["path"]).column("path").to_pylist())


def version_file(path: Path, version: int) -> Path:
    return path / "_transaction_log" / f"{version:020d}.json"


def checkpoint_file(path: Path, version: int) -> Path:
    return path / "_transaction_log" / f"{version:020d}.checkpoint.json"


def log_files(path: Path) -> list[str]:
    """What is in the log: versions as `3`, checkpoints as `c3`."""
    names = [name.partition(".") for name in os.listdir(path / "_transaction_log")]
    found = sorted((int(number), kind.startswith("checkpoint")) for number, _, kind in names if number.isdigit())
    return [f"c{number}" if is_checkpoint else str(number) for number, is_checkpoint in found]


def make_older(file: Path, age_ms: int) -> None:
    """Let a file be so old."""
    then_s = time.time() - age_ms / 1_000
    os.utime(file, (then_s, then_s))
