"""Match the schema of data with the schema of a table: enforcement, evolution, and what a write makes of the table.

Columns are matched by name, in any case and at every level, never by position. What the data lacks may be null or be
filled in; what the table lacks, or cannot keep, is a difference. With `merge_schema` new columns are added last, at
every level, and where the table allows type widening, a column takes the wider type of the data. Nothing is ever
dropped, renamed or narrowed.

A value goes into a column of another type by Spark's ANSI rules of store assignment, made stricter where they would
lose something: where a value may not survive, each one is checked while the job runs, and one that would come back
changed is an error. Nothing is ever cut or wrapped around.

>>> from headwater.log.schema import INTEGER, LONG, STRING
>>> fit(INTEGER, LONG), fit(LONG, INTEGER), fit(STRING, INTEGER)
(<Fit.SAFE: 'every value fits'>, <Fit.EXACT: 'values must come back unchanged'>, None)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import SchemaError, SchemaMismatchError, WriteOptionError
from headwater.features.basic_rules import check_reserved_columns
from headwater.features.clustering import clustering_columns
from headwater.features.column_mapping import check_names, column_path
from headwater.features.definition import TableDefinition, changed_table, new_table
from headwater.features.feature import all_types
from headwater.features.registry import is_active
from headwater.log.schema import (
    BINARY,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    is_string,
    physical_path,
    transform_fields,
)
from headwater.log.schema.types import dotted, with_nullable_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headwater.log.configuration import TableConfiguration
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.spark.write.options import WriteOptions


Path = tuple[str, ...]
_SHOWN = 20
"""How many differences a message shows."""
_UNKNOWN = "the table has no such column"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in the data that the table cannot take."""

    column: str
    table_type: str
    data_type: str
    problem: str


def check_fits(data: StructType, table: StructType, filled: Collection[str], uri: str) -> None:
    """Raise `SchemaMismatchError`, with all differences, unless the data fits the table.

    Args:
        filled: the names of the table's columns that get a value when the data has none.
    """
    found = list(differences(data, table, filled))
    if not found:
        return
    hint = ""
    if any(difference.problem == _UNKNOWN for difference in found):
        hint = "\nSet merge_schema=True to add new columns to the table, or drop them from the DataFrame."
    raise SchemaMismatchError(f"the DataFrame does not fit the table {uri}:\n{as_table(found)}{hint}")


def differences(data: StructType, table: StructType, filled: Collection[str] = ()) -> Iterator[Difference]:
    """Yield the differences, in the order of the data's columns, then of the table's."""
    yield from _structs(data, table, (), frozenset(name.lower() for name in filled))


def by_folded_name(struct: StructType) -> dict[str, StructField]:
    """Return the fields by their name in lower case."""
    return {field.name.lower(): field for field in struct.fields}


def as_table(found: list[Difference]) -> str:
    """Return differences as an aligned text table."""
    rows = [("column", "table", "data", "problem")]
    rows += [(d.column, d.table_type, d.data_type, d.problem) for d in found[:_SHOWN]]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["  " + "  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]) for row in rows]
    if len(found) > _SHOWN:
        lines.append(f"  ... and {len(found) - _SHOWN} more")
    return "\n".join(lines)


def _structs(data: StructType, table: StructType, path: Path, filled: frozenset[str]) -> Iterator[Difference]:
    known, given = by_folded_name(table), by_folded_name(data)
    for field in data.fields:
        here = (*path, field.name)
        wanted = known.get(field.name.lower())
        if wanted is None:
            yield Difference(dotted(here), "-", str(field.type), _UNKNOWN)
        else:
            yield from _types(field.type, wanted.type, here)
    for field in table.fields:
        name = field.name.lower()
        if name not in given and not field.nullable and name not in filled:
            problem = "NOT NULL, and the data has no such column"
            yield Difference(dotted((*path, field.name)), str(field.type), "-", problem)


def _types(data: DataType, table: DataType, path: Path) -> Iterator[Difference]:
    match data, table:
        case StructType(), StructType():
            yield from _structs(data, table, path, frozenset())
        case ArrayType(element_type=given), ArrayType(element_type=wanted):
            yield from _types(given, wanted, (*path, "element"))
        case MapType(), MapType():
            yield from _types(data.key_type, table.key_type, (*path, "key"))
            yield from _types(data.value_type, table.value_type, (*path, "value"))
        case _ if stored(data) != stored(table) and fit(stored(data), stored(table)) is None:
            problem = f"{_short(data)} cannot be stored as {_short(table)}"
            yield Difference(dotted(path), str(table), str(data), problem)


def stored(type_: DataType) -> DataType:
    """Return the type in which values are stored."""
    return type_.sql_type if isinstance(type_, UserDefinedType) else type_


def _short(type_: DataType) -> str:
    return type_.json_name if isinstance(type_, StructType | ArrayType | MapType) else str(type_)


_DEFINITION_KEYS = ("CURRENT_DEFAULT", "EXISTS_DEFAULT", "__autoGeneratedAlias")
"""Column metadata about the table that the data came from, not about the data."""
_DEFINITION_PREFIXES = ("delta.", "parquet.field.")


def as_data_schema(schema: StructType) -> StructType:
    """Return the schema that data brings along: everything may be null, and nothing is left of the table it was read
    from.

    What a DataFrame says about nulls is a guess; the definition of a table makes the rules for nulls.

    >>> from headwater.log.schema import LONG
    >>> field = StructField("id", LONG, False, {"comment": "key", "delta.columnMapping.id": 1})
    >>> as_data_schema(StructType([field])).fields
    (StructField(name='id', type=PrimitiveType(name='long'), nullable=True, metadata={'comment': 'key'}),)
    """

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        kept = {
            key: value
            for key, value in field.metadata.items()
            if key not in _DEFINITION_KEYS and not key.startswith(_DEFINITION_PREFIXES)
        }
        return replace(field, type=with_nullable_parts(field.type), nullable=True, metadata=kept)

    return transform_fields(schema, change)


def merged(table: StructType, data: StructType, *, widening: bool) -> StructType:
    """Add to the table's schema what the data (see `as_data_schema`) has beyond it; perhaps widen types."""
    given, known = by_folded_name(data), by_folded_name(table)
    fields = []
    for field in table.fields:
        own = given.get(field.name.lower())
        fields.append(field if own is None else replace(field, type=_merged_type(field.type, own.type, widening)))
    fields += [field for field in data.fields if field.name.lower() not in known]
    return StructType(fields, extra=table.extra)


def _merged_type(table: DataType, data: DataType, widening: bool) -> DataType:
    match table, data:
        case StructType(), StructType():
            return merged(table, data, widening=widening)
        case ArrayType(), ArrayType():
            return replace(table, element_type=_merged_type(table.element_type, data.element_type, widening))
        case MapType(), MapType():
            key = _merged_type(table.key_type, data.key_type, widening)
            return replace(table, key_type=key, value_type=_merged_type(table.value_type, data.value_type, widening))
    takes_data = table == VOID or (widening and widens(table, data))
    return data if takes_data else table


def planned_table(
    ctx: LogContext, snapshot: Snapshot | None, data: StructType, options: WriteOptions
) -> TableDefinition:
    """Return the definition of the table after the write.

    Args:
        snapshot: the table as it is; None when it is created.
        data: the schema of the data.

    Raises:
        SchemaError: the names of the columns are not allowed in a table.
        WriteOptionError: the write asks for another partitioning, clustering or properties than the table has.
    """
    check_names(data, mapped=True)
    if snapshot is None:
        definition = _new(ctx, data, options)
    elif options.overwrite_schema:
        definition = _replaced(snapshot, data, options)
    else:
        _check_layout(snapshot, options)
        definition = _evolved(snapshot, data, options)
    if snapshot is None or definition.metadata.schema_string != snapshot.metadata.schema_string:
        _check_columns(definition.configuration)
    return definition


def _new(ctx: LogContext, data: StructType, options: WriteOptions) -> TableDefinition:
    return new_table(
        data,
        partition_columns=_resolved(data, options.partition_by or ()),
        properties={**options.property_defaults, **options.properties},
        cluster_by=options.cluster_by or (),
        id=ctx.new_id(),
        created_ms=ctx.clock_ms(),
    )


def _replaced(snapshot: Snapshot, data: StructType, options: WriteOptions) -> TableDefinition:
    after = msgspec.structs.replace(
        snapshot.metadata,
        schema_string=data.to_json(),
        partition_columns=_resolved(data, options.partition_by or ()),
        configuration={**snapshot.metadata.configuration, **options.properties},
    )
    return changed_table(
        snapshot.configuration,
        after,
        cluster_by=() if options.partition_by else options.cluster_by,
        domains=snapshot.domain_metadata,
        replaces=True,
    )


def _evolved(snapshot: Snapshot, data: StructType, options: WriteOptions) -> TableDefinition:
    same = TableDefinition(snapshot.configuration)
    if not options.merge_schema:
        return same
    widening = is_active("typeWidening", snapshot.configuration)
    schema = merged(snapshot.schema, data, widening=widening)
    if schema == snapshot.schema:
        return same
    after = msgspec.structs.replace(snapshot.metadata, schema_string=schema.to_json())
    return changed_table(snapshot.configuration, after, domains=snapshot.domain_metadata)


def _check_layout(snapshot: Snapshot, options: WriteOptions) -> None:
    """Refuse what a write cannot change without replacing the table."""
    hint = 'To change it, replace the table: mode="overwrite" with overwrite_schema=True.'
    if options.partition_by is not None:
        wanted = [name.lower() for name in options.partition_by]
        if wanted != [name.lower() for name in snapshot.partition_columns]:
            raise WriteOptionError(
                f"{snapshot.uri} is partitioned by {snapshot.partition_columns}, and the write asks for "
                f"{list(options.partition_by)}. {hint}"
            )
    if options.cluster_by is not None:
        current = [tuple(columns) for columns in clustering_columns(snapshot.domain_metadata)]
        wanted_columns = [
            physical_path(snapshot.schema, column_path(name), snapshot.mapping_mode) for name in options.cluster_by
        ]
        if wanted_columns != current:
            raise WriteOptionError(
                f"{snapshot.uri} is clustered by {current}, and the write asks for {list(options.cluster_by)}. {hint}"
            )
    differing = sorted(name for name, value in options.properties.items() if snapshot.properties.get(name) != value)
    if differing:
        raise WriteOptionError(
            f"{snapshot.uri} exists and has other values for these properties: {', '.join(differing)}. A write sets "
            "properties only when it creates or replaces the table; change them on the table itself."
        )


def _check_columns(configuration: TableConfiguration) -> None:
    schema = configuration.schema
    check_names(schema, mapped=configuration.mapping_mode != "none")
    if is_active("changeDataFeed", configuration):
        check_reserved_columns(schema)
    for field in schema.fields:
        if field.type != VOID and VOID in all_types(field.type):
            raise SchemaError(
                f"column {field.name} is {field.type}: files cannot hold a part of it that has no type (void). Cast it."
            )
    if not schema.fields or all(field.type == VOID for field in schema.fields):
        raise SchemaError("a table needs at least one column with a type.")
    partitions = {name.lower() for name in configuration.partition_columns}
    if partitions and all(field.name.lower() in partitions for field in schema.fields):
        raise SchemaError("a table needs at least one column that it is not partitioned by.")


def _resolved(schema: StructType, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(schema.field(name).name for name in names)


class Fit(Enum):
    """How well values of one type fit into another."""

    SAME = "the same type"
    SAFE = "every value fits"
    EXACT = "values must come back unchanged"
    ROUNDED = "values are rounded to the nearest, but must not become infinite"


_DIGITS: dict[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 19}
_INTEGRAL = (BYTE, SHORT, INTEGER, LONG)
_EXACT_IN: dict[DataType, tuple[DataType, ...]] = {FLOAT: (BYTE, SHORT), DOUBLE: (BYTE, SHORT, INTEGER)}
"""The integers of which a floating type holds every value."""
_TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def fit(data: DataType, table: DataType) -> Fit | None:
    """Return how a value of an atomic type fits into a column; None if it does not."""
    if data == table or (is_string(data) and is_string(table)):
        return Fit.SAME
    if data == VOID:
        return Fit.SAFE
    if _is_number(data) and _is_number(table):
        return _fit_number(data, table)
    if data in _TIMES and table in _TIMES:
        return Fit.EXACT if table == DATE else Fit.SAFE
    has_text = isinstance(data, DecimalType) or (isinstance(data, PrimitiveType) and data.is_known)
    if table == STRING or is_string(table):
        return Fit.SAFE if has_text and data not in (BINARY, VARIANT) else None
    return None


def widens(table: DataType, data: DataType) -> bool:
    """Return whether a column may take the data's type without rewriting files (type widening, by schema evolution).

    >>> from headwater.log.schema import INTEGER, LONG
    >>> widens(INTEGER, LONG), widens(LONG, INTEGER)
    (True, False)
    """
    if table in _INTEGRAL and data in _INTEGRAL:
        return _DIGITS[table] < _DIGITS[data]
    if isinstance(table, DecimalType) and isinstance(data, DecimalType):
        return table != data and _fit_decimal(table, data) is Fit.SAFE
    return (table, data) in ((FLOAT, DOUBLE), (DATE, TIMESTAMP_NTZ))


def spark_type(type_: DataType) -> Any:
    """Convert a type to PySpark's."""
    return StructType([StructField("value", type_)]).to_spark().fields[0].dataType


def _is_number(type_: DataType) -> bool:
    return type_ in (*_INTEGRAL, FLOAT, DOUBLE) or isinstance(type_, DecimalType)


def _fit_number(data: DataType, table: DataType) -> Fit:
    if table in (FLOAT, DOUBLE):
        if data in _INTEGRAL:
            return Fit.SAFE if data in _EXACT_IN[table] else Fit.EXACT
        return Fit.SAFE if data == FLOAT else Fit.ROUNDED
    if data in _INTEGRAL:
        wide = DecimalType(_DIGITS[data])
        if isinstance(table, DecimalType):
            return _fit_decimal(wide, table)
        return Fit.SAFE if _DIGITS[data] < _DIGITS[table] else Fit.EXACT
    if isinstance(data, DecimalType) and isinstance(table, DecimalType):
        return _fit_decimal(data, table)
    return Fit.EXACT


def _fit_decimal(data: DecimalType, table: DecimalType) -> Fit:
    wide = table.precision - table.scale >= data.precision - data.scale and table.scale >= data.scale
    return Fit.SAFE if wide else Fit.EXACT
