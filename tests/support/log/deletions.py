"""Tables whose rows are deleted by deletion vectors: made in a dictionary, with all rules of the features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyroaring import BitMap64

from headwater.features.context import COMMIT_RULES
from headwater.features.registry import check_readable, check_writable
from headwater.log.actions.deletion_vectors import inline_vector, write_vectors
from headwater.log.actions.model import Add, DeletionVector, Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.row_changes import RowChange, read_rows
from headwater.log.commit.transaction import Committed, Transaction
from headwater.log.context import new_id
from support.log.commit_tables import METADATA, create, writer
from support.stores.log_store import DictStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.storage import ObjectStore

FEATURES = ("deletionVectors", "appendOnly", "invariants")
ENABLED = {"delta.enableDeletionVectors": "true"}
DELETE = Operation("DELETE", {"predicate": "[]"})
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}


def vector_writer_of(store: ObjectStore, **fields: Any) -> LogContext:
    """A writer that heeds all table features; its ids are UUIDs, as names of files need."""
    return writer(
        store,
        **{
            "check_readable": check_readable,
            "check_writable": check_writable,
            "commit_rules": COMMIT_RULES,
            "new_id": new_id,
            **fields,
        },
    )


def vector_table(
    *files: Add, features: tuple[str, ...] = (), **configuration: str
) -> tuple[DictStore, LogContext, Snapshot]:
    """A table that allows deletion vectors."""
    store = DictStore()
    ctx = vector_writer_of(store)
    return store, ctx, vector_table_in(ctx, *files, features=features, **configuration)


def vector_table_in(ctx: LogContext, *files: Add, features: tuple[str, ...] = (), **configuration: str) -> Snapshot:
    protocol = Protocol(3, 7, ("deletionVectors",), (*FEATURES, *features))
    metadata = msgspec.structs.replace(METADATA, configuration={**ENABLED, **configuration})
    return create(ctx, *files, protocol=protocol, metadata=metadata)


def deletes(path: str, *rows: int, read: tuple[int, ...] = ()) -> RowChange:
    return RowChange(path, BitMap64(rows), BitMap64(read) if read else None)


def delete(ctx: LogContext, snapshot: Snapshot, *changes: RowChange, **more: Any) -> Committed:
    transaction = Transaction(ctx, snapshot)
    transaction.delete_rows(changes)
    return transaction.commit(DELETE, **more)


def deleted_rows(snapshot: Snapshot) -> dict[str, list[int]]:
    """Of each live file, the rows that are deleted."""
    files = snapshot.files(columns=["path", "deletionVector"]).to_pylist()
    vectors = [f["deletionVector"] and msgspec.convert(f["deletionVector"], DeletionVector) for f in files]
    return {f["path"]: list(rows) for f, rows in zip(files, read_rows(vectors, snapshot.ctx), strict=True)}


def write_small_inline(max_bytes: int) -> Callable[..., list[DeletionVector]]:
    """What other writers do: vectors up to a size stand in the log, others are in a file. For `row_changes`."""

    def write(store: ObjectStore, bitmaps: Sequence[BitMap64], **options: Any) -> list[DeletionVector]:
        found = [inline_vector(rows) for rows in bitmaps]
        large = [number for number, vector in enumerate(found) if vector.size_in_bytes > max_bytes]
        for number, vector in zip(large, write_vectors(store, [bitmaps[n] for n in large], **options), strict=True):
            found[number] = vector
        return found

    return write
