"""CREATE TABLE and REPLACE TABLE, and the columns that users declare: types in SQL, or PySpark's types and fields.

A replaced table keeps its history: one commit removes all files and sets another definition, with a new table id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from headwater.errors import ConcurrentWriteException, SchemaError, TableAlreadyExistsError, TableNotFoundError
from headwater.features.definition import changed_table, new_table, set_table
from headwater.log.actions.model import Metadata
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.files.listing import claimed
from headwater.log.files.live import all_files, removals
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructField, StructType
from headwater.log.schema.spark import parse_type
from headwater.log.schema.types import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import types as spark_types

    from headwater.features.context import TableRef
    from headwater.features.definition import TableDefinition
    from headwater.log.context import LogContext
    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot


class CreateMode(Enum):
    """What to do where there is a table already, and where there is none."""

    CREATE = "CREATE TABLE"
    CREATE_IF_NOT_EXISTS = "CREATE TABLE IF NOT EXISTS"
    REPLACE = "REPLACE TABLE"
    CREATE_OR_REPLACE = "CREATE OR REPLACE TABLE"

    @property
    def operation(self) -> str:
        return "CREATE TABLE" if self is CreateMode.CREATE_IF_NOT_EXISTS else self.value


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A table to create, or to put in the place of another."""

    table: TableRef
    mode: CreateMode
    schema: StructType
    partition_columns: tuple[str, ...] = ()
    cluster_by: tuple[tuple[str, ...], ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


def find_table(ctx: LogContext) -> Snapshot | None:
    try:
        return open_snapshot(ctx)
    except TableNotFoundError:
        return None


def create(request: CreateRequest) -> None:
    """Create or replace a table.

    Raises:
        TableAlreadyExistsError: there is a table, and the mode is CREATE.
        TableNotFoundError: there is none, and the mode is REPLACE.
    """
    ctx = request.table.context()
    before = find_table(ctx)
    if before is None:
        if request.mode is CreateMode.REPLACE:
            raise TableNotFoundError(f"{ctx.uri} cannot be replaced: there is no table. Use createOrReplace or create.")
        try:
            _create_new(ctx, request)
        except ConcurrentWriteException:
            before = find_table(ctx)
            if before is None:
                raise
        else:
            return
    if request.mode is CreateMode.CREATE:
        raise TableAlreadyExistsError(
            f"{ctx.uri} cannot be created: there is a table already, at version {before.version}. Use "
            "createIfNotExists to keep it, createOrReplace to replace it."
        )
    if request.mode is not CreateMode.CREATE_IF_NOT_EXISTS:
        _replace(before, request)


def _create_new(ctx: LogContext, request: CreateRequest) -> None:
    definition = new_table(
        request.schema,
        partition_columns=request.partition_columns,
        properties=request.properties,
        cluster_by=request.cluster_by,
        description=request.description,
        id=ctx.new_id(),
        created_ms=ctx.clock_ms(),
        new_id=ctx.new_id,
    )
    transaction = Transaction(ctx, None)
    set_table(transaction, definition)
    with claimed(ctx):
        transaction.commit(_operation(request, definition))


def _replace(before: Snapshot, request: CreateRequest) -> None:
    ctx = before.ctx
    after = Metadata(
        id=ctx.new_id(),
        schema_string=request.schema.to_json(),
        partition_columns=request.partition_columns,
        configuration=dict(request.properties),
        description=request.description,
        created_time=ctx.clock_ms(),
    )
    definition = changed_table(
        before.configuration,
        after,
        cluster_by=request.cluster_by,
        domains=before.domain_metadata,
        replaces=True,
        new_id=ctx.new_id,
    )
    transaction = Transaction(ctx, before)
    set_table(transaction, definition)
    transaction.remove(removals(all_files(transaction), ctx.clock_ms(), data_change=True))
    transaction.commit(_operation(request, definition))


def _operation(request: CreateRequest, definition: TableDefinition) -> Operation:
    parameters: dict[str, Any] = {
        "partitionBy": list(request.partition_columns),
        "clusterBy": [dotted(column) for column in request.cluster_by],
        "isManaged": "false",
        "properties": definition.metadata.configuration,
    }
    if request.description is not None:
        parameters["description"] = request.description
    return Operation(request.mode.operation, parameters)


def column_type(dataType: str | spark_types.DataType, name: str) -> DataType:
    """Parse a type: SQL text, or one of PySpark's types."""
    if isinstance(dataType, str):
        try:
            return parse_type(dataType)
        except SchemaError as error:
            raise SchemaError(f"column {name}: {error}") from error
    try:
        declared = {"name": name, "type": dataType.jsonValue(), "nullable": True, "metadata": {}}
    except AttributeError as error:
        raise TypeError(f"column {name}: a type is SQL text or a PySpark DataType, not {dataType!r}.") from error
    return StructType.from_json({"type": "struct", "fields": [declared]}).fields[0].type


def declared_schema(given: str | spark_types.StructType) -> StructType:
    """Parse columns: DDL text such as `year INT, month INT`, or PySpark's StructType."""
    if not isinstance(given, str):
        return StructType(column_fields(given))
    declared = column_type(f"struct<{given}>", "partitionSchema")
    assert isinstance(declared, StructType)
    return declared


def column_fields(cols: spark_types.StructType | Iterable[spark_types.StructField]) -> list[StructField]:
    """Convert PySpark's fields."""
    fields: list[StructField] = []
    for col in getattr(cols, "fields", cols):
        try:
            declared = col.jsonValue()
        except AttributeError as error:
            raise TypeError(f"columns are given as PySpark's StructType or StructFields, not {col!r}.") from error
        fields += StructType.from_json({"type": "struct", "fields": [declared]}).fields
    return fields
