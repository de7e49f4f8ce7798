"""The types of a table's columns as frozen values, and the functions to find columns and to rewrite schemas.

This is the model behind the spec's "Schema Serialization Format"; `json_format` reads and writes its JSON, `arrow` and
`spark` convert it. A type that is not known keeps its name, so that a schema of a newer writer survives a round trip.

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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headwater.errors import ColumnNotFoundError, SchemaError
from headwater.storage.redaction import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa


MAX_DECIMAL_PRECISION = 38

SQL_ALIASES = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}
"""The names in Spark's SQL that are not those of the schema JSON."""
PRIMITIVE_NAMES = (
    *("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary"),
    *("date", "timestamp", "timestamp_ntz", "void", "variant"),
)
_SQL_NAMES = {name: alias for alias, name in SQL_ALIASES.items()}
_CHAR_OR_VARCHAR = re.compile(r"(?:char|varchar)\([1-9]\d{0,9}\)")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type that is only a name: `long`, `varchar(10)`, ... or one that is not known (`geometry(...)`)."""

    name: str

    @property
    def json_name(self) -> str:
        """The name in the schema JSON: `long`, where `str()` gives SQL's `bigint`."""
        return self.name

    @property
    def is_known(self) -> bool:
        """Whether Headwater can read and write values of this type; if not, only the name is kept."""
        return self.name in PRIMITIVE_NAMES or is_char(self)

    def __str__(self) -> str:
        return _SQL_NAMES.get(self.name, self.name)


STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
SHORT = PrimitiveType("short")
BYTE = PrimitiveType("byte")
INTEGRAL_TYPES = (BYTE, SHORT, INTEGER, LONG)
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
        return "udt"

    def __str__(self) -> str:
        return "udt"


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a struct column.

    `metadata` is the column metadata of the spec; `extra` holds JSON keys of the field that the spec does not name.
    Both count in comparisons, neither in the hash.
    """

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=_no_extra, hash=False)
    extra: Mapping[str, Any] = field(default_factory=_no_extra, hash=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.name}:{self.type}"


_MAX_REPR_FIELDS = 10
_MAX_REPR_CHARACTERS = 2_000
"""Tables have thousands of columns, and errors and debuggers show a schema all the time."""


@dataclass(frozen=True, repr=False)
class StructType:
    """The schema of a table, or the type of a struct column: fields in order."""

    fields: tuple[StructField, ...]
    extra: Mapping[str, Any] = field(default_factory=_no_extra, hash=False, repr=False, kw_only=True)

    def __init__(self, fields: Iterable[StructField] = (), *, extra: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "extra", extra if extra is not None else {})

    @property
    def json_name(self) -> str:
        return "struct"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        some = ", ".join(map(repr, self.fields[:_MAX_REPR_FIELDS]))
        more = len(self.fields) - _MAX_REPR_FIELDS
        return shortened(f"StructType([{some}{f', and {more:,} more' if more > 0 else ''}])", _MAX_REPR_CHARACTERS)

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
        """Return the field of this name: the exact one, or else the only one that differs just in case.

        Raises:
            ColumnNotFoundError: no field has this name, or several that differ only in case.

        >>> StructType([StructField("userId", LONG)]).field("USERID").name
        'userId'
        """
        return self.resolve((name,))[-1]

    def resolve(self, parts: Sequence[str]) -> tuple[StructField, ...]:
        """Return the fields on the path to a nested field: `resolve(("address", "city"))` gives two.

        Raises:
            ColumnNotFoundError: a part does not exist, or is not inside a struct.
        """
        return resolve(self, parts)

    def tree(self) -> str:
        """Return the schema as an indented tree, as Spark's `printSchema` shows it."""
        return "\n".join(["root", *_lines(self, " |")])

    conversions: ClassVar[Conversions]

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, Any]) -> StructType:
        """Parse a schema from its JSON: a text such as `metaData.schemaString`, or the decoded object.

        Raises:
            SchemaError: the JSON is not a schema; the message names the path of the bad field.
        """
        return cls.conversions.from_json(source)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that the schema's JSON describes; it shares nothing with this schema."""
        return self.conversions.to_dict(self)

    def to_json(self) -> str:
        """Return the schema's JSON, as `metaData.schemaString` has it."""
        return self.conversions.to_json(self)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> StructType:
        return cls.conversions.from_arrow(schema)

    def to_arrow(self) -> pa.Schema:
        return self.conversions.to_arrow(self)

    @classmethod
    def from_spark(cls, schema: Any) -> StructType:
        """Convert a `pyspark.sql.types.StructType`."""
        return cls.conversions.from_spark(schema)

    def to_spark(self) -> Any:
        """Convert this schema to a `pyspark.sql.types.StructType`."""
        return self.conversions.to_spark(self)


@dataclass(frozen=True, slots=True)
class Conversions:
    """The other forms of a schema. The modules that know them import this one, so the package connects them."""

    from_json: Callable[[str | bytes | Mapping[str, Any]], StructType]
    to_dict: Callable[[StructType], dict[str, Any]]
    to_json: Callable[[StructType], str]
    from_arrow: Callable[[pa.Schema], StructType]
    to_arrow: Callable[[StructType], pa.Schema]
    from_spark: Callable[[Any], StructType]
    to_spark: Callable[[StructType], Any]


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | UserDefinedType | StructType


# --- text with rules of its own -------------------------------------------------------------------------
#
# Spark writes `char(n)` and `varchar(n)` columns as strings, and the declared type into the metadata of the top-level
# column. It pads values of `char(n)` with blanks, and so the literals that they are compared with. The collation of a
# string is in the metadata of the nearest field.


def is_string(data_type: DataType) -> bool:
    """Return whether values of this type are strings: `string`, `char(n)`, `varchar(n)`."""
    return data_type == STRING or is_char(data_type)


def is_char(data_type: DataType) -> bool:
    """Return whether a schema declares this type as `char(n)` or `varchar(n)` itself, not in the column metadata."""
    return isinstance(data_type, PrimitiveType) and _CHAR_OR_VARCHAR.fullmatch(data_type.name) is not None


CHAR_VARCHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""The column metadata key where Spark keeps the declared type of a column with `char(n)` or `varchar(n)`."""
COLLATIONS_KEY = "__COLLATIONS"
"""The metadata key where Spark keeps the collations of the strings in a column."""
_CHAR = re.compile(r"\bchar\(")


def strings_for_chars(schema: StructType) -> StructType:
    """Return the schema with `char(n)` and `varchar(n)` as strings, and their declaration in the column metadata.

    >>> strings_for_chars(StructType([StructField("code", PrimitiveType("char(3)"))])).to_dict()["fields"][0]
    {'name': 'code', 'type': 'string', 'nullable': True, 'metadata': {'__CHAR_VARCHAR_TYPE_STRING': 'char(3)'}}
    """
    return StructType(map(_string_for_char, schema.fields), extra=schema.extra)


def may_be_padded(path: Sequence[StructField]) -> bool:
    """Return whether a column, given by the fields on the path to it, may be a `char(n)`, which is compared padded.

    >>> may_be_padded([StructField("code", STRING, metadata={CHAR_VARCHAR_KEY: "char(3)"})])
    True
    """
    declared = str(path[0].metadata.get(CHAR_VARCHAR_KEY, ""))
    return _CHAR.search(declared) is not None or _CHAR.match(str(path[-1].type)) is not None


def compares_as_is(path: Sequence[StructField]) -> bool:
    """Return whether Spark compares values of a column, given by the fields on the path to it, byte by byte.

    It does not for text that has a collation, or the padding of `char(n)`.

    >>> compares_as_is([StructField("name", STRING, metadata={COLLATIONS_KEY: {"name": "icu.UNICODE_CI"}})])
    False
    """
    return not may_be_padded(path) and not any(COLLATIONS_KEY in field.metadata for field in path)


def _string_for_char(field: StructField) -> StructField:
    plain = _without_chars(field.type)
    if plain == field.type:
        return field
    return replace(field, type=plain, metadata={**field.metadata, CHAR_VARCHAR_KEY: str(field.type)})


def _without_chars(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return StructType((replace(f, type=_without_chars(f.type)) for f in data_type), extra=data_type.extra)
    return STRING if is_char(data_type) else change_parts(data_type, lambda part, _name: _without_chars(part))


# --- names ----------------------------------------------------------------------------------------------

_SHOWN_NAMES = 10
_CONTROL = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b", "\v": "\\v", "\a": "\\a"})
_HIDDEN_MARK = "\ufdd0"
"""A code point that Unicode reserves for the internal use of programs: it is not in any text."""


def hidden(name: str) -> str:
    """Return the name of a helper column that Headwater adds to the rows of a table.

    A column of a table cannot have such a name, because `check_characters` refuses it.
    """
    return f"{_HIDDEN_MARK}{name}"


def check_characters(names: Iterable[str], whose: str) -> None:
    """Raise `SchemaError` if a name has the mark of hidden columns, or NUL, which ends a name for Arrow.

    `whose` is the table or the DataFrame, for the message.
    """
    for name in names:
        if _HIDDEN_MARK in name:
            raise SchemaError(
                f"{whose} has a column {name!r}: U+FDD0 is not a character. Unicode reserves it for the internal use "
                "of programs, and Headwater marks hidden columns with it. Rename the column."
            )
        if "\0" in name:
            raise SchemaError(
                f"{whose} has a column {name!r}: a name cannot have the character NUL, because programs that read "
                "and write its values take that for the end of the name. Rename the column."
            )


def dotted(parts: Sequence[str]) -> str:
    """Return a path for messages: `a.b`, with backticks around parts that have dots themselves."""
    return ".".join(f"`{p}`" if "." in p or "`" in p else p for p in parts)


def resolve(schema: StructType, parts: Sequence[str]) -> tuple[StructField, ...]:
    """See `StructType.resolve`."""
    if not parts:
        raise ColumnNotFoundError("a column needs a name: the path is empty")
    found: list[StructField] = []
    struct = schema
    for depth, part in enumerate(parts):
        here = _find(struct, part, parts[:depth])
        found.append(here)
        if depth + 1 == len(parts):
            break
        if not isinstance(here.type, StructType):
            raise ColumnNotFoundError(
                f"there is no column {dotted(parts)}: {dotted(parts[: depth + 1])} is of type {here.type}, "
                "and only the fields of structs have names"
            )
        struct = here.type
    return tuple(found)


def _find(struct: StructType, name: str, parents: Sequence[str]) -> StructField:
    exact = struct._by_name.get(name)
    if exact is not None:
        return exact
    candidates = struct._by_folded_name.get(name.lower(), [])
    if len(candidates) == 1:
        return candidates[0]
    path = dotted([*parents, name])
    if candidates:
        names = ", ".join(f.name for f in candidates)
        raise ColumnNotFoundError(f"column {path} is ambiguous: it may mean {names}. Write the exact name.")
    raise ColumnNotFoundError(f"there is no column {path}. {_suggestion(struct, name)}")


def _suggestion(struct: StructType, name: str) -> str:
    close = get_close_matches(name.lower(), list(struct._by_folded_name), n=3, cutoff=0.6)
    if close:
        names = [struct._by_folded_name[c][0].name for c in close]
        return f"Did you mean {' or '.join(names)}?"
    if not struct.fields:
        return "There are no columns at all."
    shown = ", ".join(struct.names[:_SHOWN_NAMES])
    more = len(struct) - _SHOWN_NAMES
    return f"The columns are: {shown}{f' and {more} more' if more > 0 else ''}."


def _lines(data_type: DataType, prefix: str) -> list[str]:
    deeper = f"{prefix}    |"
    lines: list[str] = []
    match data_type:
        case StructType(fields=fields):
            for f in fields:
                name = f.name.translate(_CONTROL)
                lines.append(f"{prefix}-- {name}: {f.type.json_name} (nullable = {_lower(f.nullable)})")
                lines += _lines(f.type, deeper)
        case ArrayType(element_type=element, contains_null=nulls):
            lines.append(f"{prefix}-- element: {element.json_name} (containsNull = {_lower(nulls)})")
            lines += _lines(element, deeper)
        case MapType(key_type=key, value_type=value, value_contains_null=nulls):
            lines.append(f"{prefix}-- key: {key.json_name}")
            lines += _lines(key, deeper)
            lines.append(f"{prefix}-- value: {value.json_name} (valueContainsNull = {_lower(nulls)})")
            lines += _lines(value, deeper)
    return lines


def _lower(flag: bool) -> str:
    return "true" if flag else "false"


FieldChange: TypeAlias = Callable[[StructField, tuple[str, ...]], StructField]
"""Gets a field whose type is already rewritten, and the path to it in the original names."""


def transform_fields(struct: StructType, change: FieldChange, path: tuple[str, ...] = ()) -> StructType:
    """Return a struct with every field in it changed, from the innermost to the outermost.

    The storage of user-defined types stays as it is: its fields are Spark's, not columns of the table.
    """

    def changed(field: StructField) -> StructField:
        here = (*path, field.name)
        return change(replace(field, type=_transform_type(field.type, change, here)), here)

    return StructType(map(changed, struct.fields), extra=struct.extra)


def _transform_type(data_type: DataType, change: FieldChange, path: tuple[str, ...]) -> DataType:
    if isinstance(data_type, StructType):
        return transform_fields(data_type, change, path)
    return change_parts(data_type, lambda part, name: _transform_type(part, change, (*path, name)))


def change_parts(data_type: DataType, change: Callable[[DataType, str], DataType]) -> DataType:
    """Return an array or a map with other types for its `element`, `key` and `value`; any other type as it is."""
    match data_type:
        case ArrayType(element_type=element):
            return replace(data_type, element_type=change(element, "element"))
        case MapType(key_type=key, value_type=value):
            return replace(data_type, key_type=change(key, "key"), value_type=change(value, "value"))
    return data_type


def with_nullable_parts(data_type: DataType) -> DataType:
    """Return arrays and maps, and those inside them, with elements and values that may be null.

    >>> with_nullable_parts(ArrayType(LONG, contains_null=False)).contains_null
    True
    """
    match changed := change_parts(data_type, lambda part, _name: with_nullable_parts(part)):
        case ArrayType():
            return replace(changed, contains_null=True)
        case MapType():
            return replace(changed, value_contains_null=True)
    return changed


def quoted(name: str) -> str:
    """Return a column name for `functions.col`, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def part_in_files(type_: DataType) -> DataType | None:
    """Return the part of a type that files can hold: Parquet cannot hold void, nor structs of nothing else."""
    match type_:
        case _ if type_ == VOID:
            return None
        case StructType(fields=fields):
            kept = [replace(f, type=t) for f in fields if (t := part_in_files(f.type)) is not None]
            return StructType(kept) if kept or not fields else None
        case ArrayType(element_type=element):
            inner = part_in_files(element)
            return None if inner is None else replace(type_, element_type=inner)
        case MapType(key_type=key, value_type=value):
            inner_key, inner_value = part_in_files(key), part_in_files(value)
            if inner_key is None or inner_value is None:
                return None
            return replace(type_, key_type=inner_key, value_type=inner_value)
    return type_
