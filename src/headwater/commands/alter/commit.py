"""What all alterations share: a change of the definition as one commit, and row ids for the files of a table.

The wanted `metaData` is completed to what the protocol demands of it (features, column ids, ...) and committed.

Row tracking needs ids in all files before it is enabled (spec: "Row Tracking"). First the protocol gets the feature, so
that every new file gets ids. Then existing files are committed again, many at a time, with ids and without a change of
data. The commit that sets the property gives ids to whatever came in between. An interrupted backfill can be resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headwater.errors import DeltaConcurrentModificationException
from headwater.features.definition import changed_table, set_table
from headwater.features.protocols import add_feature
from headwater.features.registry import supports
from headwater.log.actions.encode import protocol_fields
from headwater.log.actions.model import Add
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.schema import StructField, StructType
from headwater.log.schema.types import dotted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.actions.model import Metadata
    from headwater.log.commit.conflicts import IsolationLevel
    from headwater.log.commit.transaction import Committed
    from headwater.log.snapshot import Snapshot


class Checks(Protocol):
    """What only an engine can check before a change is committed. Each method raises if the change is not possible."""

    def check_no_nulls(self, snapshot: Snapshot, schema: StructType, path: tuple[str, ...]) -> None:
        """Check that no row has null in the column at a path of the new schema."""

    def check_constraint(self, snapshot: Snapshot, name: str, expression: str) -> None:
        """Check that a CHECK constraint is a condition that is true for every row."""

    def check_default(self, field: StructField, expression: str) -> None:
        """Check that an expression is a value that the column can have."""


class Alteration(Protocol):
    """One change of a table's definition: a frozen value such as `AddColumns`."""

    def commit(self, snapshot: Snapshot, checks: Checks, /) -> Committed | None:
        """Commit the change; None if the table is already as wanted."""


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
        operation: the name and parameters for the history.
        cluster_by: other clustering columns; None to keep them.
        reads_all_rows: whether the change was checked against the rows of the snapshot only, so that rows added
            meanwhile are a conflict, whatever the table's isolation level.
    """
    definition = changed_table(
        snapshot.configuration,
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
    return commit_metadata(snapshot, with_schema(snapshot.metadata, schema), operation, reads_all_rows=reads_all_rows)


def with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def with_configuration(metadata: Metadata, configuration: Mapping[str, str]) -> Metadata:
    return msgspec.structs.replace(metadata, configuration=dict(configuration))


def described(path: Sequence[str], field: StructField) -> dict[str, Any]:
    """Return a column as the history shows it: its JSON under its full name, with nested types by name only."""
    value: dict[str, Any] = StructType([field]).to_dict()["fields"][0]
    return {**value, "name": dotted(path), "type": field.type.json_name}


BATCH_FILES = 100_000
"""How many files one commit gives ids to."""
_MAX_LOSSES = 20
"""How often in a row a batch may meet another writer's change before the backfill gives up."""


def backfill(snapshot: Snapshot, batch_files: int = BATCH_FILES) -> Snapshot:
    """Give row ids to all files that have none.

    Returns:
        The table after the last commit.

    Raises:
        DeltaConcurrentModificationException: other writers kept changing the same files.
    """
    snapshot = _with_support(snapshot)
    batch = losses = 0
    while adds := _files_without_ids(snapshot, batch_files):
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.add(adds)
        try:
            snapshot = transaction.commit(Operation("ROW TRACKING BACKFILL", {"batchId": str(batch)})).snapshot
        except DeltaConcurrentModificationException:
            losses += 1
            if losses > _MAX_LOSSES:
                raise
            snapshot = snapshot.refresh()  # some of the files are gone: look again at what is left
            continue
        batch, losses = batch + 1, 0
    return snapshot


def _with_support(snapshot: Snapshot) -> Snapshot:
    if supports(snapshot.protocol, "rowTracking"):
        return snapshot
    protocol = add_feature(snapshot.protocol, "rowTracking")
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_protocol(protocol)
    return transaction.commit(Operation("UPGRADE PROTOCOL", {"newProtocol": protocol_fields(protocol)})).snapshot


def _files_without_ids(snapshot: Snapshot, limit: int) -> list[Add]:
    import pyarrow.compute as pc

    # Looked up again for every batch: a file that another writer has removed meanwhile must not come back.
    files = snapshot.files()
    without = pc.or_(pc.is_null(files.column("baseRowId")), pc.is_null(files.column("defaultRowCommitVersion")))
    rows = files.filter(without).slice(0, limit).drop_columns(["dataChange"])
    return [msgspec.convert({**row, "dataChange": False}, Add) for row in rows.to_pylist(maps_as_pydicts="strict")]
