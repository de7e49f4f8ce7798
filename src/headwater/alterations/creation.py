"""Creating and replacing tables (history: `CREATE TABLE`, `REPLACE TABLE`, `CREATE OR REPLACE TABLE`).

A replaced table keeps its history: one commit removes all files and sets another definition, with a new table id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from headwater.errors import (
    ConcurrentWriteException,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from headwater.features.table_changes import changed_table, new_table, set_table
from headwater.log.actions import Metadata
from headwater.log.draft import Operation
from headwater.log.opening import open_snapshot
from headwater.log.schema.lookup import dotted
from headwater.log.transaction import Transaction
from headwater.log.tree import claimed
from headwater.spark.overwrite import all_files, removals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.features.table_changes import TableDefinition
    from headwater.log.context import LogContext
    from headwater.log.schema import StructType
    from headwater.log.snapshot import Snapshot


class Creation(Enum):
    """What to do where there is a table already, and where there is none."""

    CREATE = "CREATE TABLE"
    CREATE_IF_NOT_EXISTS = "CREATE TABLE IF NOT EXISTS"
    REPLACE = "REPLACE TABLE"
    CREATE_OR_REPLACE = "CREATE OR REPLACE TABLE"

    @property
    def operation(self) -> str:
        """The name in the history."""
        return "CREATE TABLE" if self is Creation.CREATE_IF_NOT_EXISTS else self.value


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table that does not exist yet."""

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    cluster_by: tuple[tuple[str, ...], ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


def find_table(ctx: LogContext) -> Snapshot | None:
    """The table, if there is one."""
    try:
        return open_snapshot(ctx)
    except TableNotFoundError:
        return None


def create(ctx: LogContext, wanted: Wanted, creation: Creation) -> None:
    """Create or replace a table.

    Raises:
        TableAlreadyExistsError: there is one, and it was to be created.
        TableNotFoundError: there is none, and it was to be replaced.
        SchemaError, InvalidCommitError, InvalidTablePropertyError: the table is not a possible one.
    """
    before = find_table(ctx)
    if before is None:
        if creation is Creation.REPLACE:
            raise TableNotFoundError(f"{ctx.uri} cannot be replaced: there is no table. Use createOrReplace or create.")
        try:
            _create_new(ctx, wanted, creation)
        except ConcurrentWriteException:
            before = find_table(ctx)
            if before is None:
                raise
        else:
            return
    if creation is Creation.CREATE:
        raise TableAlreadyExistsError(
            f"{ctx.uri} cannot be created: there is a table already, at version {before.version}. Use "
            "createIfNotExists to keep it, createOrReplace to replace it."
        )
    if creation is not Creation.CREATE_IF_NOT_EXISTS:
        _replace(before, wanted, creation)


def _create_new(ctx: LogContext, wanted: Wanted, creation: Creation) -> None:
    definition = new_table(
        wanted.schema,
        partition_columns=wanted.partition_columns,
        properties=wanted.properties,
        cluster_by=wanted.cluster_by,
        description=wanted.description,
        id=ctx.new_id(),
        created_ms=ctx.clock_ms(),
        new_id=ctx.new_id,
    )
    transaction = Transaction(ctx, None)
    set_table(transaction, definition)
    with claimed(ctx):
        transaction.commit(_operation(wanted, creation, definition))


def _replace(before: Snapshot, wanted: Wanted, creation: Creation) -> None:
    ctx = before.ctx
    after = Metadata(
        id=ctx.new_id(),
        schema_string=wanted.schema.to_json(),
        partition_columns=wanted.partition_columns,
        configuration=dict(wanted.properties),
        description=wanted.description,
        created_time=ctx.clock_ms(),
    )
    definition = changed_table(
        before.protocol,
        before.metadata,
        after,
        cluster_by=wanted.cluster_by,
        domains=before.domain_metadata,
        replaces=True,
        new_id=ctx.new_id,
    )
    transaction = Transaction(ctx, before)
    set_table(transaction, definition)
    transaction.remove(removals(all_files(transaction), ctx.clock_ms(), data_change=True))
    transaction.commit(_operation(wanted, creation, definition))


def _operation(wanted: Wanted, creation: Creation, definition: TableDefinition) -> Operation:
    parameters: dict[str, Any] = {
        "partitionBy": list(wanted.partition_columns),
        "clusterBy": [dotted(column) for column in wanted.cluster_by],
        "isManaged": "false",
        "properties": definition.metadata.configuration,
    }
    if wanted.description is not None:
        parameters["description"] = wanted.description
    return Operation(creation.operation, parameters)
