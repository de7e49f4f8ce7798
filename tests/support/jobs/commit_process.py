"""A process that commits: many small appends, and now and then a count in a partition that all writers share.

Reads one line of JSON from standard input, prints `ready`, and starts at the next line. Then it prints one line of JSON
for every commit, right after it was acknowledged, and for every conflict.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

from headwater.errors import DeltaConcurrentModificationException
from headwater.features.registry import check_readable
from headwater.log.actions.model import Add, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext, now_ms
from headwater.log.filters.expressions import Compare, Literal, column
from headwater.log.opening import open_snapshot
from headwater.log.snapshot import Snapshot
from headwater.storage import ObjectStore, open_store

SHARED = "shared"


def context(store: ObjectStore) -> LogContext:
    return LogContext(store, check_readable, check_writable=lambda _configuration: None)


def file(name: str, part: str, number: int) -> Add:
    """A data file that need not exist: nobody reads rows here."""
    stats = {"numRecords": 1, "minValues": {"id": number}, "maxValues": {"id": number}, "nullCount": {"id": 0}}
    return Add(f"part={part}/{name}.parquet", 100, {"part": part}, now_ms(), True, json.dumps(stats))


def append(ctx: LogContext, snapshot: Snapshot, name: str, number: int) -> tuple[Transaction, Snapshot]:
    transaction = Transaction(ctx, snapshot)
    transaction.add([file(f"{name}-{number}", name, number)])
    return transaction, transaction.commit(Operation("WRITE", {"mode": "Append"})).snapshot


def count_on(ctx: LogContext, snapshot: Snapshot, name: str, number: int) -> tuple[Transaction, Snapshot]:
    """Replace the one file of the shared partition by one that counts one further: two at once must conflict."""
    transaction = Transaction(ctx, snapshot)
    found = transaction.read_files(Compare("=", column("part"), Literal(SHARED))).to_pylist()
    counted = sum(json.loads(row["stats"])["maxValues"]["id"] for row in found)
    transaction.remove([Remove(r["path"], size=r["size"], partition_values=dict(r["partitionValues"])) for r in found])
    transaction.add([file(f"{name}-{number}", SHARED, counted + 1)])
    return transaction, transaction.commit(Operation("UPDATE")).snapshot


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    order = json.loads(sys.stdin.readline())
    ctx = context(open_store(order["root"], order["options"] or None))
    snapshot = open_snapshot(ctx)
    print("ready", flush=True)
    sys.stdin.readline()
    name, commits = order["name"], order["commits"]
    for number in count(order["first"]) if commits is None else range(commits):
        counts = order["count_every"] and number % order["count_every"] == 0
        try:
            transaction, snapshot = (count_on if counts else append)(ctx, snapshot, name, number)
            say(version=snapshot.version, id=transaction.id, counts=bool(counts), path=f"{name}-{number}")
        except DeltaConcurrentModificationException as error:
            say(conflict=type(error).__name__)
            snapshot = snapshot.refresh()


if __name__ == "__main__":
    main()
