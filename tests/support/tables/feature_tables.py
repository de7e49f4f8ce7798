"""Tables for tests of features: created and written through transactions, with a clock and ids of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from headwater.features.context import TableRef
from headwater.features.definition import TableDefinition, changed_table, new_table, set_table
from headwater.log.actions.model import Add, Metadata, Protocol, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.opening import open_snapshot
from headwater.log.schema import LONG, STRING, StructField, StructType
from headwater.log.snapshot import Snapshot

NOW_MS = 1_700_000_000_000
TWO_COLUMNS = StructType([StructField("id", LONG), StructField("name", STRING)])


def numbered(prefix: str = "") -> Callable[[], str]:
    """Ids `1`, `2`, ..."""
    numbers: Iterator[int] = count(1)
    return lambda: f"{prefix}{next(numbers)}"


def context(path: Path, clock_ms: Callable[[], int] = lambda: NOW_MS) -> LogContext:
    return replace(TableRef(path).context(), clock_ms=clock_ms, sleep=lambda _: None)


def definition(schema: StructType = TWO_COLUMNS, **options: Any) -> TableDefinition:
    return new_table(schema, id="the-table", created_ms=NOW_MS, new_id=numbered(), **options)


def create(path: Path, table: TableDefinition | None = None, *adds: Add, **options: Any) -> Snapshot:
    """A new table; options are those of `new_table`."""
    ctx = context(path)
    transaction = Transaction(ctx, None)
    set_table(transaction, table or definition(**options))
    transaction.add(adds)
    return transaction.commit(Operation("CREATE TABLE")).snapshot


_Described = TypeVar("_Described", Snapshot, TableDefinition)


def with_metadata(table: _Described, metadata: Metadata | None, protocol: Protocol | None = None) -> _Described:
    """The table with other metaData, or another protocol, whether they go together or not."""
    return replace(table, configuration=table.configuration.changed(protocol, metadata))


def append(snapshot: Snapshot, *adds: Add) -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.add(adds)
    return transaction.commit(Operation("WRITE")).snapshot


def alter(snapshot: Snapshot, schema: StructType | None = None, **properties: str | None) -> Snapshot:
    """Change the schema, or properties (`delta__appendOnly="true"`; None unsets)."""
    return commit_definition(snapshot, altered(snapshot, schema, **properties))


def altered(snapshot: Snapshot, schema: StructType | None = None, **properties: str | None) -> TableDefinition:
    import msgspec

    changes = {name.replace("__", "."): value for name, value in properties.items()}
    configuration = {**snapshot.metadata.configuration, **{k: v for k, v in changes.items() if v is not None}}
    configuration = {k: v for k, v in configuration.items() if changes.get(k, "") is not None}
    after = msgspec.structs.replace(
        snapshot.metadata,
        configuration=configuration,
        schema_string=snapshot.metadata.schema_string if schema is None else schema.to_json(),
    )
    new_id = numbered(f"v{snapshot.version + 1}-")
    return changed_table(snapshot.configuration, after, domains=snapshot.domain_metadata, new_id=new_id)


def commit_definition(snapshot: Snapshot, table: TableDefinition, operation: str = "SET TBLPROPERTIES") -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    set_table(transaction, table)
    return transaction.commit(Operation(operation)).snapshot


def file(name: str, rows: int | None = 1, **fields: Any) -> Add:
    stats = fields.pop("stats", None if rows is None else {"numRecords": rows})
    text = None if stats is None else json.dumps(stats)
    return Add(path=name, size=10, modification_time=NOW_MS, stats=text, **fields)


def removal(name: str, **fields: Any) -> Remove:
    return Remove(path=name, deletion_timestamp=NOW_MS, **fields)


def commit_lines(snapshot: Snapshot, version: int | None = None) -> list[dict[str, Any]]:
    """The actions of a commit as they stand in the log."""
    number = snapshot.version if version is None else version
    data = snapshot.ctx.store.get(f"_delta_log/{number:020d}.json")
    return [json.loads(line) for line in data.splitlines()]


def reopened(snapshot: Snapshot) -> Snapshot:
    return open_snapshot(snapshot.ctx)
