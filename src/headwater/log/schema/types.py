"""The types of a table's columns, as plain frozen values.

This is the model behind the spec's "Schema Serialization Format"; reading and writing its JSON is in
`json_format`, the Arrow and Spark forms in `arrow` and `spark`. A type that is not known is kept by its name,
so that a schema written by a newer writer survives a round trip.

>>> schema = StructType([StructField("id", LONG, nullable=False), StructField("tags", ArrayType(STRING))])
>>> str(schema)
'struct<id:bigint,tags:array<string>>'
>>> print(schema.tree())
root
 |-- id: long (nullable = false)
 |-- tags: array (nullable = true)
 |    |-- element: string (containsNull = true)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import SchemaError
from headwater.storage.redaction import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

MAX_DECIMAL_PRECISION = 38

# The names of the schema JSON, and what Spark's SQL calls the same types.
_SIMPLE_NAMES = {
    "string": "string",
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "void": "void",
    "variant": "variant",
}
_CHAR = re.compile(r"(?:char|varchar)\([1-9]\d{0,9}\)")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type that is only a name: `long`, `varchar(10)`, ... or one that is not known (`geometry(...)`)."""

    name: str

    @property
    def json_name(self) -> str:
        """The name in the schema JSON: `long`, where `str()` says `bigint` as SQL does."""
        return self.name

    @property
    def is_known(self) -> bool:
        """Whether Headwater can read and write values of this type; if not, only the name is kept."""
        return self.name in _SIMPLE_NAMES or _CHAR.fullmatch(self.name) is not None

    def __str__(self) -> str:
        return _SIMPLE_NAMES.get(self.name, self.name)


STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
SHORT = PrimitiveType("short")
BYTE = PrimitiveType("byte")
FLOAT = PrimitiveType("float")
DOUBLE = PrimitiveType("double")
BOOLEAN = PrimitiveType("boolean")
BINARY = PrimitiveType("binary")
DATE = PrimitiveType("date")
TIMESTAMP = PrimitiveType("timestamp")
TIMESTAMP_NTZ = PrimitiveType("timestamp_ntz")
VOID = PrimitiveType("void")
VARIANT = PrimitiveType("variant")


@dataclass(frozen=True, slots=True)
class DecimalType:
    """An exact number of `precision` digits, `scale` of them after the point."""

    precision: int = 10
    scale: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= MAX_DECIMAL_PRECISION and 0 <= self.scale <= self.precision):
            raise SchemaError(
                f"decimal({self.precision},{self.scale}) is not possible: the precision is from 1 to "
                f"{MAX_DECIMAL_PRECISION}, the scale from 0 to the precision"
            )

    @property
    def json_name(self) -> str:
        """The name in the schema JSON, e.g. `decimal(10,2)`."""
        return f"decimal({self.precision},{self.scale})"

    def __str__(self) -> str:
        return self.json_name


def _no_extra() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of values of one type. `extra` holds JSON keys of the type that the spec does not name."""

    element_type: DataType
    contains_null: bool = True
    extra: Mapping[str, Any] = field(default_factory=_no_extra, hash=False, repr=False, kw_only=True)

    @property
    def json_name(self) -> str:
        """Always `array`."""
        return "array"

    def __str__(self) -> str:
        return f"array<{self.element_type}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """Pairs of a key and a value. `extra` holds JSON keys of the type that the spec does not name."""

    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True
    extra: Mapping[str, Any] = field(default_factory=_no_extra, hash=False, repr=False, kw_only=True)

    @property
    def json_name(self) -> str:
        """Always `map`."""
        return "map"

    def __str__(self) -> str:
        return f"map<{self.key_type},{self.value_type}>"


@dataclass(frozen=True, slots=True)
class UserDefinedType:
    """A Spark user-defined type: stored as `sql_type`; `properties` is the rest of its JSON."""

    sql_type: DataType
    properties: Mapping[str, Any] = field(default_factory=_no_extra, hash=False)

    @property
    def json_name(self) -> str:
        """Always `udt`."""
        return "udt"

    def __str__(self) -> str:
        return "udt"


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a struct column.

    `metadata` is the column metadata of the spec (treat it as read-only); `extra` holds JSON keys of the
    field that the spec does not name. Neither takes part in the hash; both take part in equality.
    """

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=_no_extra, hash=False)
    extra: Mapping[str, Any] = field(default_factory=_no_extra, hash=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.name}:{self.type}"


_MOST_SHOWN = 10
_MOST_CHARACTERS = 2_000
"""What a `repr` shows of a schema: tables have thousands of columns, and errors and debuggers show it all the time."""


@dataclass(frozen=True, repr=False)
class StructType:
    """The schema of a table, or the type of a struct column: fields in order."""

    fields: tuple[StructField, ...]
    extra: Mapping[str, Any] = field(default_factory=_no_extra, hash=False, repr=False, kw_only=True)

    def __init__(self, fields: Iterable[StructField] = (), *, extra: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "extra", extra if extra is not None else {})

    # --- what is in it -------------------------------------------------------------------------------------

    @property
    def json_name(self) -> str:
        """Always `struct`."""
        return "struct"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(f.name for f in self.fields)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        some = ", ".join(map(repr, self.fields[:_MOST_SHOWN]))
        more = len(self.fields) - _MOST_SHOWN
        return shortened(f"StructType([{some}{f', and {more:,} more' if more > 0 else ''}])", _MOST_CHARACTERS)

    def __str__(self) -> str:
        return f"struct<{','.join(map(str, self.fields))}>"

    @cached_property
    def _by_name(self) -> dict[str, StructField]:
        return {f.name: f for f in reversed(self.fields)}

    @cached_property
    def _by_folded_name(self) -> dict[str, list[StructField]]:
        folded: dict[str, list[StructField]] = {}
        for f in self.fields:
            folded.setdefault(f.name.lower(), []).append(f)
        return folded

    def field(self, name: str) -> StructField:
        """The field of this name: the exact one, or else the only one that differs just in case.

        Raises:
            ColumnNotFoundError: there is none, or several that differ only in case.

        >>> StructType([StructField("userId", LONG)]).field("USERID").name
        'userId'
        """
        return self.resolve((name,))[-1]

    def resolve(self, parts: Sequence[str]) -> tuple[StructField, ...]:
        """The fields on the way to a nested field: `resolve(("address", "city"))` gives two.

        Raises:
            ColumnNotFoundError: a part is not there, or is not inside a struct.
        """
        from headwater.log.schema.lookup import resolve

        return resolve(self, parts)

    def tree(self) -> str:
        """The schema as an indented tree, as Spark's `printSchema` shows it."""
        from headwater.log.schema.lookup import tree

        return tree(self)

    # --- other forms ---------------------------------------------------------------------------------------

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, Any]) -> StructType:
        """Read a schema from its JSON: a text such as `metaData.schemaString`, or the parsed object.

        Raises:
            SchemaError: it is not a schema; the message names the path of the bad field.
        """
        from headwater.log.schema.json_format import parse_schema

        return parse_schema(source)

    def to_dict(self) -> dict[str, Any]:
        """The object that the schema's JSON describes; it shares nothing with this schema."""
        from headwater.log.schema.json_format import type_to_value

        value = type_to_value(self)
        assert isinstance(value, dict)
        return value

    def to_json(self) -> str:
        """The schema's JSON, as it stands in `metaData.schemaString`."""
        from headwater.log.schema.json_format import schema_to_json

        return schema_to_json(self)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> StructType:
        """The Delta schema that holds what an Arrow schema describes (see `headwater.log.schema.arrow`)."""
        from headwater.log.schema.arrow import schema_from_arrow

        return schema_from_arrow(schema)

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema of this schema (see `headwater.log.schema.arrow`)."""
        from headwater.log.schema.arrow import schema_to_arrow

        return schema_to_arrow(self)

    @classmethod
    def from_spark(cls, schema: Any) -> StructType:
        """The schema of a `pyspark.sql.types.StructType` (see `headwater.log.schema.spark`)."""
        from headwater.log.schema.spark import schema_from_spark

        return schema_from_spark(schema)

    def to_spark(self) -> Any:
        """This schema as a `pyspark.sql.types.StructType` (see `headwater.log.schema.spark`)."""
        from headwater.log.schema.spark import schema_to_spark

        return schema_to_spark(self)


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | UserDefinedType | StructType
"""Any type a column can have."""


def is_string(data_type: DataType) -> bool:
    """Whether values of this type are strings: `string`, `char(n)`, `varchar(n)`."""
    return data_type == STRING or is_char(data_type)


def is_char(data_type: DataType) -> bool:
    """Whether this is `char(n)` or `varchar(n)`.

    delta-spark writes such columns as `string`, with the type in the column metadata (see `chars.py`); these
    types are for schemas that name them directly.
    """
    return isinstance(data_type, PrimitiveType) and _CHAR.fullmatch(data_type.name) is not None
