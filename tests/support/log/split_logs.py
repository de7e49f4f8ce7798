"""Logs of search tables for tests: a writer on a store in a dictionary, and version files as others write them."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

from headwater.log.actions.model import Format, Metadata
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.indextables.actions import SplitAdd
from headwater.log.opening import open_snapshot
from headwater.search.table_log import initialise, search_context
from support.stores.log_store import NOW_MS, DictStore, Sleeper

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot

LOG = "_transaction_log/"
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_, "nullable": True, "metadata": {}}
            for name, type_ in (("id", "long"), ("content", "string"), ("ts", "timestamp"), ("part", "integer"))
        ],
    }
)
METADATA = Metadata("a1b2c3d4", SCHEMA, Format("indextables", {}), ("part",), {}, created_time=NOW_MS)


def version_key(version: int) -> str:
    return f"{LOG}{version:020d}.json"


def checkpoint_key(version: int) -> str:
    return f"{LOG}{version:020d}.checkpoint.json"


def writer(store: Any, options: dict[str, str] | None = None, **parts: Any) -> LogContext:
    """A writer: the clock stands still, waits take no time, ids are numbered."""
    numbers = count(1)
    fixed = {
        "clock_ms": lambda: NOW_MS,
        "sleep": Sleeper(),
        "new_id": lambda: f"id {id(numbers)}-{next(numbers)}",
        "random": lambda: 0.5,
    }
    return search_context(store, options, **{**fixed, **parts})


def split(path: str, **fields: Any) -> SplitAdd:
    return SplitAdd(path, **{"size": 1_048_576, "modification_time": NOW_MS, "num_records": 1_000, **fields})


def table(options: dict[str, str] | None = None, **parts: Any) -> tuple[DictStore, LogContext, Snapshot]:
    """A store, a writer and the empty table that it has created there."""
    store = DictStore()
    ctx = writer(store, options, **parts)
    assert initialise(ctx, METADATA)
    return store, ctx, open_snapshot(ctx)


def append(snapshot: Snapshot, *paths: str, **fields: Any) -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.add([split(path, **fields) for path in paths])
    return transaction.commit(Operation("WRITE")).snapshot


def replace_all(snapshot: Snapshot, *paths: str) -> Snapshot:
    """An overwrite: all splits go, others come."""
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.reads_whole_table()
    transaction.remove([split(path).removed(NOW_MS) for path in live(snapshot)])
    transaction.add([split(path) for path in paths])
    return transaction.commit(Operation("WRITE", {"mode": "Overwrite"})).snapshot


def merge(snapshot: Snapshot, old: list[str], new: str) -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.reads_paths(old)
    transaction.remove([split(path).removed(NOW_MS, data_change=False) for path in old])
    transaction.add([split(new, data_change=False, num_records=1_000 * len(old))])
    return transaction.commit(Operation("MERGE SPLITS")).snapshot


def live(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.files(columns=["path"]).column("path").to_pylist())


def lines(store: DictStore, version: int) -> list[dict[str, Any]]:
    """The actions of a version file."""
    return [json.loads(line) for line in store.objects[version_key(version)].splitlines()]


def put_version(store: DictStore, version: int, *actions: dict[str, Any]) -> None:
    """A version file as another writer makes it."""
    store.objects[version_key(version)] = b"".join(json.dumps(action).encode() + b"\n" for action in actions)
