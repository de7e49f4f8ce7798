"""Convert values to the types of the table's columns, and fill in columns that the data does not have.

**Text with rules of its own.** Spark keeps the declared type of `char(n)` and `varchar(n)` as text in the column's
metadata. Trailing blanks that are too many are cut; anything else that is too long is an error. Spark compares
`char(n)` padded, and collated text by its collation, wherever a column says so; values of the log, and rows to be
written, are plain text, so they are given such types before a condition uses them.

**Conversion.** Structs are matched by name at every level; what the data lacks is null. A value that would not survive
the conversion stops the job with a message that names the column and shows the value.

**Filled columns.** A generated column is computed from the others, or compared with what is given. Identity columns
(spec: "Identity Columns") are counted by each task for itself, so there is no shuffle: tasks get blocks of numbers
in turn, and what a task does not use of its blocks stays unused. Values are unique and beyond the high-water mark,
but have gaps; a job of one task has none before its first million rows (`df.coalesce(1)`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import ConstraintViolationError, SchemaError
from headwater.features.feature import DEFAULT_KEY, GENERATION_KEY
from headwater.features.identity_columns import ALLOW_EXPLICIT_INSERT, HIGH_WATER_MARK, START, STEP
from headwater.features.registry import supports
from headwater.log.schema import (
    BINARY,
    STRING,
    ArrayType,
    DataType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    is_char,
    is_string,
    physical_path,
)
from headwater.log.schema.spark import parse_type
from headwater.log.schema.types import CHAR_VARCHAR_KEY, COLLATIONS_KEY, dotted, hidden, may_be_padded, quoted
from headwater.spark.errors import conversion_failure, violation
from headwater.spark.functions import functions, functions_for
from headwater.spark.write.constraints import Check, mentioned_columns
from headwater.spark.write.schema import Fit, by_folded_name, fit, spark_type, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.actions.model import Add, Protocol


_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")


def declared_type(field: StructField) -> DataType:
    """Return the type of a column with its `char(n)` and `varchar(n)`.

    >>> field = StructField("codes", ArrayType(PrimitiveType("string")), metadata={CHAR_VARCHAR_KEY: "array<char(3)>"})
    >>> declared_type(field).element_type
    PrimitiveType(name='char(3)')
    """
    declared = field.metadata.get(CHAR_VARCHAR_KEY)
    return field.type if not isinstance(declared, str) else _merged(field.type, parse_type(declared))


def with_length(value: Column, type_: DataType, column: str) -> Column:
    """Bring text to its declared length; other types stay as they are."""
    found = _LENGTH.fullmatch(str(type_))
    if found is None:
        return value
    sf = functions()
    length = int(found[2])
    short = sf.rpad(value, length, " ") if found[1] == "char" else value
    too_long = violation(f"a value is too long for column {column}, which is {type_}.", [(column, value)])
    return (
        sf.when(value.isNull(), value)
        .when(sf.char_length(value) <= length, short)
        .when(sf.char_length(sf.rtrim(value)) <= length, sf.substring(value, 1, length))
        .otherwise(too_long)
    )


def shows_padding(spark: SparkSession) -> bool:
    """Return whether Spark pads what it reads from columns of type `char(n)`: other writers may not have."""
    pads = str(spark.conf.get("spark.sql.readSideCharPadding", "true")).lower() == "true"
    return pads and str(spark.conf.get("spark.sql.legacy.charVarcharAsString", "false")).lower() == "false"


def as_read(value: Column, field: StructField, *, padded: bool) -> Column:
    """Convert text to a column that Spark compares as it does the table's column.

    Args:
        value: text as the log or a file has it.
        padded: whether `char(n)` is padded.
    """
    if padded and may_be_padded([field]):
        value = _padded(value, declared_type(field))
    shown: Any = StructType([field]).to_spark().fields[0]
    chars = {key: text for key, text in shown.metadata.items() if key == CHAR_VARCHAR_KEY}
    column: Column = value.cast(shown.dataType).alias(field.name, metadata=chars)
    return column


def _padded(value: Column, type_: DataType) -> Column:
    """Pad text to the length of `char(n)`, at every level, as Spark pads what it reads."""
    sf = functions()
    found: Column
    match type_:
        case StructType(fields=fields):
            parts = [_padded(value[f.name], f.type).alias(f.name) for f in fields]
            found = sf.when(value.isNotNull(), sf.struct(*parts))
        case ArrayType(element_type=element):
            found = sf.transform(value, lambda item: _padded(item, element))
        case MapType(key_type=key, value_type=held):
            keyed = sf.transform_keys(value, lambda name, _: _padded(name, key))
            found = sf.transform_values(keyed, lambda _, item: _padded(item, held))
        case _:
            length = _LENGTH.fullmatch(str(type_))
            if length is None or length[1] != "char":
                return value
            short = sf.char_length(value) < int(length[2])
            found = sf.when(short, sf.rpad(value, int(length[2]), " ")).otherwise(value)
    return found


def padded_rows(frame: DataFrame, schema: StructType) -> DataFrame:
    """Pad `char(n)` in rows that Python has read, as Spark pads what it reads by itself."""
    chars = {field.name: field for field in schema.fields if may_be_padded([field])}
    if not chars.keys() & set(frame.columns) or not shows_padding(frame.sparkSession):
        return frame
    with functions_for(frame):
        sf = functions()
        columns = [(name, sf.col(quoted(name))) for name in frame.columns]
        return frame.select(*(as_read(v, chars[name], padded=True) if name in chars else v for name, v in columns))


def as_compared(frame: DataFrame, schema: StructType, also: Sequence[str] = ()) -> DataFrame:
    """Convert columns of rows to be written, so that conditions mean what they mean in the table.

    Args:
        schema: those of the table's columns that the rows have.
        also: further columns of theirs.
    """
    return _with_own_rules(frame, schema, also, lambda value, field: as_read(value, field, padded=False))


def as_written(frame: DataFrame, schema: StructType, also: Sequence[str] = ()) -> DataFrame:
    """Convert the rows of `as_compared` to plain text again, as files have it."""

    def plain(value: Column, field: StructField) -> Column:
        written: Column = value.cast(spark_type(field.type)).alias(field.name, metadata={})
        return written

    return _with_own_rules(frame, schema, also, plain)


def _with_own_rules(
    frame: DataFrame, schema: StructType, also: Sequence[str], change: Callable[[Column, StructField], Column]
) -> DataFrame:
    special = {field.name for field in schema.fields if has_own_rules(field)}
    if not special:
        return frame
    sf = functions()
    columns = []
    for field in schema.fields:
        value = sf.col(quoted(field.name))
        columns.append(change(value, field) if field.name in special else value)
    return frame.select(*columns, *(sf.col(quoted(name)) for name in also))


def has_own_rules(field: StructField) -> bool:
    """Return whether a column is, or contains, text that is not compared byte by byte."""
    return may_be_padded([field]) or COLLATIONS_KEY in StructType([field]).to_json()


def _merged(stored: DataType, declared: DataType) -> DataType:
    """Return the stored type with the lengths of the declared one; names and nullability are the schema's."""
    match stored, declared:
        case ArrayType(), ArrayType():
            return ArrayType(_merged(stored.element_type, declared.element_type), stored.contains_null)
        case MapType(), MapType():
            key = _merged(stored.key_type, declared.key_type)
            return MapType(key, _merged(stored.value_type, declared.value_type), stored.value_contains_null)
        case StructType(), StructType():
            lengths = {f.name.lower(): f.type for f in declared.fields}
            return StructType(
                StructField(f.name, _merged(f.type, lengths.get(f.name.lower(), f.type)), f.nullable, f.metadata)
                for f in stored.fields
            )
        case PrimitiveType(name="string"), PrimitiveType():
            return declared
    return stored


Path = tuple[str, ...]


def conformed(value: Column, data: DataType, table: DataType, path: Path) -> Column:
    """Convert a value to the type of the table's column. The types fit (`schema.check_fits`).

    Args:
        value: of the data.
        data: its type.
        table: the column's type, with `char(n)` and `varchar(n)` where they were declared.
        path: the column, for messages.
    """
    sf = functions()
    if _same(data, table):
        return value
    match data, table:
        case StructType(), StructType():
            return _struct(value, data, table, path)
        case ArrayType(element_type=given), ArrayType(element_type=wanted):
            return sf.transform(value, lambda item: conformed(item, given, wanted, (*path, "element")))
        case MapType(), MapType():
            return _map(value, data, table, path)
    return with_length(_leaf(value, stored(data), stored(table), path), table, dotted(path))


def null_of(type_: DataType) -> Column:
    return functions().lit(None).cast(spark_type(type_))


def _struct(value: Column, data: StructType, table: StructType, path: Path) -> Column:
    sf = functions()
    given = by_folded_name(data)
    parts = []
    for field in table.fields:
        own = given.get(field.name.lower())
        if own is None:
            part = null_of(field.type)
        else:
            part = conformed(value[own.name], own.type, field.type, (*path, field.name))
        parts.append(part.alias(field.name))
    return sf.when(value.isNotNull(), sf.struct(*parts))


def _map(value: Column, data: MapType, table: MapType, path: Path) -> Column:
    sf = functions()
    if not _same(data.key_type, table.key_type):
        value = sf.transform_keys(value, lambda key, _: conformed(key, data.key_type, table.key_type, (*path, "key")))
    if not _same(data.value_type, table.value_type):
        value = sf.transform_values(
            value, lambda _, item: conformed(item, data.value_type, table.value_type, (*path, "value"))
        )
    return value


def _leaf(value: Column, data: DataType, table: DataType, path: Path) -> Column:
    sf = functions()
    target = STRING if is_char(table) else table
    kind = fit(data, target)
    if kind is Fit.SAME:
        return value
    if kind is Fit.SAFE:
        return value.cast(spark_type(target))
    # Not the session's cast: outside ANSI mode it wraps around.
    there = value.try_cast(spark_type(target))
    if kind is Fit.ROUNDED:
        infinite = sf.lit(float("inf"))
        survives = (sf.abs(there) != infinite) | (sf.abs(value) == infinite)
    else:
        survives = there.try_cast(spark_type(data)) == value
    column = dotted(path)
    failure = conversion_failure(
        f"a value of type {data} cannot be kept in column {column}, which is {target}.", [(column, value)]
    )
    return sf.when(value.isNull(), sf.lit(None)).when(survives, there).otherwise(failure)


def _same(data: DataType, table: DataType) -> bool:
    """Return whether values need no conversion."""
    match data, table:
        case StructType(fields=given), StructType(fields=wanted):
            return len(given) == len(wanted) and all(
                one.name == other.name and _same(one.type, other.type) for one, other in zip(given, wanted, strict=True)
            )
        case ArrayType(element_type=given), ArrayType(element_type=wanted):
            return _same(given, wanted)
        case MapType(), MapType():
            return _same(data.key_type, table.key_type) and _same(data.value_type, table.value_type)
    return data == table


ROW_NUMBER = hidden("row_number")
"""The hidden column that counts: Spark's `monotonically_increasing_id`."""
_ROW_BITS = 33
"""The low bits of that number count rows within the task; the high bits are the task."""
_BLOCK_BITS = 20
_TASK_BITS = 17
_MIN, _MAX = -(2**63), 2**63 - 1


class _Bounds(msgspec.Struct):
    minValues: dict[str, Any] = {}
    maxValues: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    """How a column counts."""

    start: int
    step: int
    high_water_mark: int | None
    allows_explicit: bool

    @property
    def next_value(self) -> int:
        """The first value of the series that was not used.

        >>> Identity(start=1, step=10, high_water_mark=25, allows_explicit=False).next_value
        31
        """
        mark = self.high_water_mark
        if mark is None or (mark < self.start if self.step > 0 else mark > self.start):
            return self.start
        return self.start + ((mark - self.start) // self.step + 1) * self.step


def identity_of(field: StructField) -> Identity | None:
    """Return how a column counts, if it is an identity column.

    Raises:
        SchemaError: the column metadata is invalid.
    """
    if START not in field.metadata and STEP not in field.metadata:
        return None
    try:
        mark = field.metadata.get(HIGH_WATER_MARK)
        identity = Identity(
            int(field.metadata.get(START, 1)),
            int(field.metadata.get(STEP, 1)),
            None if mark is None else int(mark),
            str(field.metadata.get(ALLOW_EXPLICIT_INSERT, False)).lower() == "true",
        )
    except (TypeError, ValueError) as error:
        raise SchemaError(f"column {field.name}: the identity settings in the schema are not numbers") from error
    if identity.step == 0:
        raise SchemaError(f"column {field.name}: the step of an identity column cannot be 0")
    return identity


def with_row_numbers(frame: DataFrame) -> DataFrame:
    """Add the hidden column that counts rows, once: each use of the function counts separately."""
    return frame.withColumn(ROW_NUMBER, functions().monotonically_increasing_id())


def identity_values(column: str, identity: Identity) -> Column:
    """Return the values of an identity column, over rows with numbers.

    Raises:
        ConstraintViolationError: there is no value left.
    """
    sf = functions()
    first = identity.next_value
    steps_left = (_MAX - first) // identity.step if identity.step > 0 else (first - _MIN) // -identity.step
    if steps_left < 0:
        raise ConstraintViolationError(
            f"the identity column {column} has no value left: {first} would be the next one, and is no BIGINT."
        )
    number = sf.col(quoted(ROW_NUMBER))
    task = sf.shiftright(number, _ROW_BITS)
    row = number.bitwiseAND(sf.lit(2**_ROW_BITS - 1))
    index = (
        sf.shiftleft(sf.shiftright(row, _BLOCK_BITS), _BLOCK_BITS + _TASK_BITS)
        + sf.shiftleft(task, _BLOCK_BITS)
        + row.bitwiseAND(sf.lit(2**_BLOCK_BITS - 1))
    )
    many = violation(f"the job has more than {2**_TASK_BITS} tasks, too many for the identity column {column}.")
    overflow = violation(f"the identity column {column} has run out of values: the next one is no BIGINT.")
    return (
        sf.when(task >= 2**_TASK_BITS, many)
        .when(index > sf.lit(min(steps_left, _MAX)), overflow)
        .otherwise(sf.lit(first) + index * sf.lit(identity.step))
    )


def with_marks(
    schema: StructType, identities: Mapping[str, Identity], files: Iterable[Add], mode: MappingMode
) -> StructType:
    """Return the schema with the new high-water marks: the last values that are in the files.

    Args:
        identities: the columns that were given values.
        files: that were written, with bounds for these columns (`with_required_statistics`).
    """
    bounds = [msgspec.json.decode(file.stats or "{}", type=_Bounds) for file in files]
    fields = []
    for field in schema.fields:
        identity = identities.get(field.name)
        if identity is not None and bounds:
            [name] = physical_path(schema, [field.name], mode)
            last = max if identity.step > 0 else min
            mark = last((b.maxValues if identity.step > 0 else b.minValues)[name] for b in bounds)
            field = replace(field, metadata={**field.metadata, HIGH_WATER_MARK: mark})
        fields.append(field)
    return StructType(fields, extra=schema.extra)


@dataclass(frozen=True)
class FilledColumns:
    """The columns of a table that get values by themselves, as far as its protocol supports that."""

    generated: dict[str, str]
    """Expressions by column."""
    defaults: dict[str, str]
    identities: dict[str, Identity]

    @property
    def names(self) -> set[str]:
        return {*self.generated, *self.defaults, *self.identities}


def filled_columns(protocol: Protocol, schema: StructType) -> FilledColumns:
    generated = _expressions(schema, GENERATION_KEY) if supports(protocol, "generatedColumns") else {}
    defaults = _expressions(schema, DEFAULT_KEY) if supports(protocol, "allowColumnDefaults") else {}
    identities: dict[str, Identity] = {}
    if supports(protocol, "identityColumns"):
        found = {field.name: identity_of(field) for field in schema.fields}
        identities = {name: identity for name, identity in found.items() if identity is not None}
    return FilledColumns(generated, defaults, identities)


def computed(field: StructField, expression: str) -> Column:
    """Return the value of an expression, in the type of the column."""
    value = functions().expr(expression).cast(spark_type(field.type))
    return conformed(value, field.type, declared_type(field), (field.name,))


def as_partition_value(value: Column, field: StructField, partition_columns: Collection[str]) -> Column:
    """Replace empty partition values by null: the log has the same text for both.

    A row has null there from the start, because rules are about the rows that readers will see.
    """
    is_partition = field.name.lower() in {name.lower() for name in partition_columns}
    if not is_partition or not (is_string(field.type) or field.type == BINARY):
        return value
    sf = functions()
    # Not a comparison with an empty text: some collations take blanks for that.
    kept: Column = sf.when(sf.octet_length(value) > 0, value)
    return kept


def generation_check(
    field: StructField, expression: str, schema: StructType, partition_columns: Collection[str]
) -> Check:
    """Check that the values given for a generated column are those that it would get."""
    sf = functions()
    generated = as_partition_value(computed(field, expression), field, partition_columns)
    holds = sf.col(quoted(field.name)).eqNullSafe(generated)
    rule = f"column {dotted((field.name,))} is generated as ({expression}), and a row has another value."
    return Check(rule, holds, (field.name, *mentioned_columns(expression, schema)))


def _expressions(schema: StructType, key: str) -> dict[str, str]:
    return {field.name: str(field.metadata[key]) for field in schema.fields if field.metadata.get(key) is not None}
