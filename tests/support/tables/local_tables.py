"""Small tables on a disk whose data files are no Parquet: VACUUM, RESTORE and CLONE never look into them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.features.context import TableRef
from headwater.log.actions.model import Add, DeletionVector, Metadata, Protocol, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext, now_ms
from headwater.log.opening import open_snapshot

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"p","type":"string","nullable":true,"metadata":{}},'
    '{"name":"_q","type":"string","nullable":true,"metadata":{}}]}'
)
STATS = '{"numRecords":10}'
DAY_MS = 86_400_000


def new_table(root: Path | str, *, partition_by: tuple[str, ...] = (), **named: Any) -> LogContext:
    """An empty table."""
    ctx = TableRef(str(root), named.pop("storage_options", None)).context()
    transaction = Transaction(ctx, None)
    transaction.set_protocol(named.pop("protocol", Protocol(1, 2)))
    metadata = Metadata("a table", SCHEMA, partition_columns=partition_by, created_time=1, **named)
    transaction.set_metadata(metadata)
    transaction.commit(Operation("CREATE TABLE"))
    return ctx


def put(ctx: LogContext, *keys: str, size_bytes: int = 4) -> None:
    """Write objects below a table."""
    for key in keys:
        ctx.store.put(key, b"x" * size_bytes)


def commit(
    ctx: LogContext, add: tuple[Add | str, ...] = (), remove: tuple[Remove | str, ...] = (), **named: Any
) -> int:
    """Commit files that are there already, by key."""
    transaction = Transaction(ctx, open_snapshot(ctx))
    transaction.add(a if isinstance(a, Add) else file(a) for a in add)
    transaction.remove(r if isinstance(r, Remove) else Remove(r, partition_values={}, size=4) for r in remove)
    return transaction.commit(Operation(named.pop("operation", "WRITE"))).version


def file(path: str, size_bytes: int = 4, **named: Any) -> Add:
    values = dict(part.split("=") for part in path.split("/")[:-1] if "=" in part)
    fields = {"partition_values": values, "modification_time": now_ms(), "stats": STATS, **named}
    return Add(path, size_bytes, **fields)


def vector(text: str, storage_type: str = "u") -> DeletionVector:
    return DeletionVector(storage_type, text, 40, 1, 1)


def later(ctx: LogContext, days: float = 30) -> LogContext:
    """The same table, when all of its files are old."""
    return replace(ctx, clock_ms=lambda: now_ms() + round(days * DAY_MS))


def keys(ctx: LogContext) -> set[str]:
    """Everything below a table but its log."""
    found = (meta.key for meta in ctx.store.list_from("", recursive=True))
    return {key for key in found if not key.startswith("_delta_log/")}
