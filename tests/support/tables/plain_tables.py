"""Small tables written by deltalake, so that what is altered is not our own work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

import headwater as hw
from headwater.log.snapshot import Snapshot

MAPPED = {"delta.columnMapping.mode": "name"}


def nested_rows() -> pa.Table:
    point = pa.struct([("x", pa.int32()), ("y", pa.string())])
    return pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "point": pa.array([{"x": 1, "y": "a"}, {"x": 2, "y": None}], point),
            "points": pa.array([[{"x": 1, "y": "b"}], []], pa.list_(point)),
            "prices": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
            "amount": pa.array([5, None], pa.int32()),
            "name": ["d", "e"],
        }
    )


def plain_table(path: Path, rows: pa.Table | None = None, **options: Any) -> str:
    write_deltalake(str(path), nested_rows() if rows is None else rows, **options)
    return str(path)


def append(path: str, rows: pa.Table) -> None:
    write_deltalake(path, rows, mode="append")


def newest(path: str) -> Snapshot:
    return hw.open_log(path)


def names(snapshot: Snapshot, *parent: str) -> list[str]:
    """The names of the columns, or of the fields of a struct column."""
    struct = snapshot.schema if not parent else snapshot.schema.resolve(parent)[-1].type
    return [field.name for field in struct.fields]  # type: ignore[union-attr]


def last_commit(path: str) -> tuple[str, dict[str, Any]]:
    """The operation of the newest commit, and its parameters with their JSON read."""
    [commit] = newest(path).history(1)
    return str(commit.operation), {name: _value(text) for name, text in commit.operation_parameters.items()}


def actions(path: str, version: int) -> dict[str, list[dict[str, Any]]]:
    """The actions of a commit by kind, as they stand in the file."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (Path(path) / "_delta_log" / f"{version:020d}.json").read_text().splitlines():
        [(kind, action)] = json.loads(line).items()
        found.setdefault(kind, []).append(action)
    return found


def _value(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) and text[:1] in ("[", "{") else text
