"""Small tables for tests of commits: a schema with a partition column, files with statistics, writers on one store."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

from headwater.features.registry import check_readable
from headwater.log.actions.model import Add, DeletionVector, Metadata, Protocol, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Committed, Transaction
from headwater.log.configuration import TableConfiguration
from headwater.log.context import LogContext
from support.log.log_tables import SCHEMA
from support.stores.log_store import NOW_MS, DictStore, Sleeper

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore

PROTOCOL = Protocol(1, 2)
METADATA = Metadata("af23c9d7-fff1-4a5a-a2c8-55c59bd782aa", SCHEMA, partition_columns=("part",))
WRITE = Operation("WRITE", {"mode": "Append", "partitionBy": []})


def allow(configuration: TableConfiguration) -> None:
    """A gate that lets everybody write."""


def writer(store: ObjectStore, **fields: Any) -> LogContext:
    """A writer on a store: the clock stands still, waits take no time, ids are numbered, no chance is involved."""
    numbers = count(1)
    return LogContext(
        **{
            "store": store,
            "check_readable": check_readable,
            "check_writable": allow,
            "clock_ms": lambda: NOW_MS,
            "sleep": Sleeper(),
            "new_id": lambda: f"transaction {id(numbers)}-{next(numbers)}",
            "random": lambda: 0.5,
            **fields,
        }
    )


def add(path: str, part: str | None = "a", low: int = 0, high: int = 9, **fields: Any) -> Add:
    """A data file: rows of one partition whose ids are between two numbers, ten rows unless `rows` says otherwise."""
    rows = fields.pop("rows", 10)
    stats = {"numRecords": rows, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    return Add(
        **{
            "path": path,
            "size": 1_000,
            "partition_values": {"part": part},
            "modification_time": NOW_MS,
            "stats": json.dumps(stats),
            **fields,
        }
    )


def removal(file: Add, **fields: Any) -> Remove:
    """The tombstone of a data file, with everything that is known of it."""
    known = {
        "path": file.path,
        "extended_file_metadata": True,
        "partition_values": file.partition_values,
        "size": file.size,
        "stats": file.stats,
        "deletion_vector": file.deletion_vector,
        **fields,
    }
    return Remove(**known)


def vector(name: str, cardinality: int = 3) -> DeletionVector:
    return DeletionVector("u", name, 40, cardinality, 1)


def create(ctx: LogContext, *files: Add, protocol: Protocol = PROTOCOL, metadata: Metadata = METADATA) -> Snapshot:
    """A new table with some files."""
    transaction = Transaction(ctx, None)
    transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    transaction.add(files)
    return transaction.commit(Operation("CREATE TABLE")).snapshot


def append(ctx: LogContext, snapshot: Snapshot, *files: Add, **more: Any) -> Committed:
    """A blind append."""
    transaction = Transaction(ctx, snapshot)
    transaction.add(files)
    return transaction.commit(WRITE, **more)


def table(*files: Add, **more: Any) -> tuple[DictStore, LogContext, Snapshot]:
    """A store, a writer and the table that it has created there."""
    store = DictStore()
    ctx = writer(store)
    return store, ctx, create(ctx, *files, **more)


def commit_lines(store: DictStore, version: int) -> list[dict[str, Any]]:
    """The actions of a commit as they were written."""
    return [json.loads(line) for line in store.objects[f"_delta_log/{version:020d}.json"].splitlines()]
