"""Help for tests of written checkpoints: snapshots with other properties, and what a table says before and after."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.log.configuration import TableConfiguration
from headwater.log.opening import open_snapshot
from support.oracles.log_model import observed
from support.stores.log_store import NOW_MS, DictStore, context

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headwater.log.snapshot import Snapshot

STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true"}
NO_JSON = {"delta.checkpoint.writeStatsAsJson": "false"}
V2 = {"delta.checkpointPolicy": "v2"}


def log_of(table: Path) -> DictStore:
    """The log of a table on a disk, without its data files."""
    store = DictStore()
    for file in sorted((table / "_delta_log").rglob("*")):
        if file.is_file():
            key = f"_delta_log/{file.relative_to(table / '_delta_log')}"
            store.objects[key] = file.read_bytes()
            store.modified_ms[key] = int(file.stat().st_mtime * 1000)
    return store


def configured(snapshot: Snapshot, properties: dict[str, str], features: Sequence[str] = ()) -> Snapshot:
    """The snapshot as if the table had further properties and features."""
    metadata = msgspec.structs.replace(
        snapshot.metadata, configuration={**snapshot.metadata.configuration, **properties}
    )
    protocol = snapshot.protocol
    if features:
        reader = (*(protocol.reader_features or ()), *features)
        writer = (*(protocol.writer_features or ()), *features)
        protocol = msgspec.structs.replace(
            protocol, min_reader_version=3, min_writer_version=7, reader_features=reader, writer_features=writer
        )
    return replace(snapshot, configuration=TableConfiguration(protocol, metadata))


def state(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that a checkpoint must keep: all of the model's state, every column of every file and tombstone."""
    rows = snapshot.files().to_pylist(maps_as_pydicts="strict")
    removed = snapshot.tombstones().to_pylist(maps_as_pydicts="strict")
    return {
        **observed(snapshot),
        "metadata": snapshot.metadata,
        "protocol": snapshot.protocol,
        "rows": sorted(map(_text, rows)),
        "tombstones": sorted(map(_text, removed)),
    }


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def add_commit(store: DictStore) -> None:
    """One more commit, which changes nothing: then the newest version has no checkpoint."""
    latest = max(int(key[11:31]) for key in store.objects if key[11:31].isdigit())
    info = {"commitInfo": {"inCommitTimestamp": NOW_MS, "timestamp": NOW_MS, "operation": "NOTHING"}}
    store.objects[f"_delta_log/{latest + 1:020d}.json"] = json.dumps(info).encode()


def reopened(store: DictStore, now_ms: int = NOW_MS) -> Snapshot:
    """The table as a reader finds it that has never seen it before."""
    return open_snapshot(replace(context(store), clock_ms=lambda: now_ms))
