"""Tables for the tests of the command line: logs written by hand, and tables written by delta-rs."""

from __future__ import annotations

import datetime as dt
import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Action = dict[str, Any]

PROTOCOL: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
COMMITTED_MS = 1_704_067_200_000
"""2024-01-01 00:00:00 UTC; each version is committed a minute after the one before it."""


def field(name: str, type_: Any = "long", *, nullable: bool = True, **metadata: Any) -> Action:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def metadata(*fields: Action, **others: Any) -> Action:
    schema = {"type": "struct", "fields": list(fields) or [field("id")]}
    default = {
        "id": "b1e2",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": COMMITTED_MS,
    }
    return {"metaData": default | others}


def add(path: str, size: int = 1000, rows: int | None = None, **others: Any) -> Action:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    default = {"path": path, "partitionValues": {}, "size": size, "modificationTime": COMMITTED_MS, "dataChange": True}
    return {"add": default | stats | others}


def write_log(path: Path, *commits: Iterable[Action]) -> Path:
    """Write commits 0, 1, ... with known modification times."""
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for version, actions in enumerate(commits):
        file = log / f"{version:020}.json"
        file.write_text("".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions), encoding="utf-8")
        seconds = COMMITTED_MS / 1000 + 60 * version
        os.utime(file, (seconds, seconds))
    return path


def write_checksum(path: Path, version: int, **fields: Any) -> None:
    (path / "_delta_log" / f"{version:020}.crc").write_text(json.dumps(fields), encoding="utf-8")


def write_events(path: Path) -> Path:
    """Five versions by delta-rs: three appends of three dates each, a delete, an update."""
    for start in (0, 300, 600):
        write_deltalake(path, _events(start, start + 300), partition_by=["date"], mode="append", name="events")
    DeltaTable(path).delete("id = 5")
    DeltaTable(path).update(updates={"kind": "'buy'"}, predicate="id = 7")
    return path


def _events(start: int, end: int) -> pa.Table:
    ids = range(start, end)
    return pa.table(
        {
            "id": list(ids),
            "date": [dt.date(2024, 1, 1 + i % 3) for i in ids],
            "kind": ["view" for _ in ids],
        }
    )
