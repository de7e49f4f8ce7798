"""One change of a table's definition, as one commit: what all alterations share.

The wanted `metaData` is completed to what the protocol demands of it (features, column ids, ...) and committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headwater.features.table_changes import changed_table, set_table
from headwater.log.schema import StructField, StructType
from headwater.log.schema.lookup import dotted
from headwater.log.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.actions import Metadata
    from headwater.log.conflicts import IsolationLevel
    from headwater.log.draft import Operation
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed


def commit_metadata(
    snapshot: Snapshot,
    metadata: Metadata,
    operation: Operation,
    *,
    cluster_by: Sequence[Sequence[str]] | None = None,
    reads_all_rows: bool = False,
) -> Committed:
    """Commit another definition of the table.

    Args:
        snapshot: the table as it was read.
        metadata: the wanted `metaData`.
        operation: what the commit says about itself.
        cluster_by: other clustering columns; None to leave them as they are.
        reads_all_rows: whether the change is right only for the rows of the snapshot, so that it must not be committed
            after rows that nobody has looked at (whatever the table's isolation level).
    """
    definition = changed_table(
        snapshot.protocol,
        snapshot.metadata,
        metadata,
        cluster_by=cluster_by,
        domains=snapshot.domain_metadata,
        new_id=snapshot.ctx.new_id,
    )
    transaction = Transaction(snapshot.ctx, snapshot)
    set_table(transaction, definition)
    isolation: IsolationLevel | None = None
    if reads_all_rows:
        transaction.reads_whole_table()
        isolation = "Serializable"
    return transaction.commit(operation, isolation)


def commit_schema(
    snapshot: Snapshot, schema: StructType, operation: Operation, *, reads_all_rows: bool = False
) -> Committed:
    """Commit another schema; see `commit_metadata`."""
    return commit_metadata(snapshot, with_schema(snapshot.metadata, schema), operation, reads_all_rows=reads_all_rows)


def with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    """The `metaData` with another schema."""
    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def with_configuration(metadata: Metadata, configuration: Mapping[str, str]) -> Metadata:
    """The `metaData` with other properties."""
    return msgspec.structs.replace(metadata, configuration=dict(configuration))


def described(path: Sequence[str], field: StructField) -> dict[str, Any]:
    """A column as the history shows it: its JSON, under its full name, with nested types by name only."""
    value: dict[str, Any] = StructType([field]).to_dict()["fields"][0]
    return {**value, "name": dotted(path), "type": field.type.json_name}
