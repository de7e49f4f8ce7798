"""The configuration of a search index: one `FieldConfig` for each field, together an `IndexConfig`.

An index field is made from one top-level column. A column may have two of them (the same message as text and as one
exact string), and may have none that is indexed: then it is only kept in the rows. The configuration travels as
`docMappingJson` in the log's `add` (spec 002, "AddAction") and inside every split; the spec's own example has only
names and types, and what it leaves out is read as the default for the type.

>>> from headwater.log.schema import STRING
>>> config = IndexConfig((FieldConfig("message", "message", "text", STRING, tokenizer="default"),))
>>> config.field("message").tokenizer
'default'
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from headwater.errors import ColumnNotFoundError, SchemaError, SearchConfigError
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
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
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    UserDefinedType,
    is_string,
)
from headwater.log.schema.json_format import parse_type, type_to_value
from headwater.search.analysis import TOKENIZERS
from headwater.search.types import is_day_time_interval, is_time

FieldKind: TypeAlias = Literal["text", "string", "json", "ip", "i64", "f64", "bool", "stored"]
"""How values are indexed: `stored` is not at all (binary, variant, void: nothing in them can be searched)."""

KINDS: Final[tuple[str, ...]] = get_args(FieldKind)

ARRAY_KEY: Final = "_values"
"""A top-level array of anything but structs is indexed as the JSON object `{"_values": [...]}`."""

MAX_SCALED_PRECISION: Final = 18
"""The most digits of decimals that are indexed as whole numbers (the unscaled value): exact, and in their order."""

_INTEGERS: Final = frozenset({LONG, INTEGER, SHORT, BYTE, DATE, TIMESTAMP, TIMESTAMP_NTZ})
_INSTANTS: Final = frozenset({TIMESTAMP, TIMESTAMP_NTZ})


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """One field of the index.

    Attributes:
        name: what queries call it: the column's name, or `<column>.raw` / `<column>.text` for a column's second field.
        column: the top-level column it is made from.
        kind: how its values are indexed (see `FieldKind`). Timestamps are i64 microseconds since the epoch, dates i64
            days, day-time intervals i64 microseconds, decimals of up to 18 digits i64 unscaled values, longer decimals
            strings (see `headwater.search.query.values`).
        data_type: the column's type.
        tokenizer: for text and json: default, raw, whitespace or en_stem; "raw" for every other kind.
        fast: whether there is a columnar copy in the index, for sorting and aggregating.
        indexed: whether it can be searched.
        stored: whether the column is in the split's rows.
    """

    name: str
    column: str
    kind: FieldKind
    data_type: DataType
    tokenizer: str = "raw"
    fast: bool = False
    indexed: bool = True
    stored: bool = True

    @property
    def index_name(self) -> str:
        """The name inside the tantivy index: without dots, which would be paths into a JSON field there.

        >>> from headwater.log.schema import STRING
        >>> FieldConfig("message.raw", "message", "string", STRING).index_name
        'message%2Eraw'
        """
        escaped = self.name.replace("%", "%25").replace(".", "%2E")
        return f"%2D{escaped[1:]}" if escaped.startswith("-") else escaped

    @property
    def has_terms(self) -> bool:
        """Whether there are terms to look up; if not, a value is found as the range of itself, in the columnar copy.

        Almost every instant and every measurement is a value of its own, so terms of them would be the larger part of
        many an index; nearly all questions about them are ranges.
        """
        return not (self.fast and (self.kind == "f64" or self.data_type in _INSTANTS))

    @property
    def ordered(self) -> bool:
        """Whether the order of the indexed values is Spark's order of the column's values, so that ranges are right."""
        if self.kind == "string":
            return is_string(self.data_type)
        return self.kind in ("i64", "f64", "bool")

    @property
    def exact(self) -> bool:
        """Whether a value is found in the index by `=` exactly where Spark's `=` holds on the column."""
        return self.kind in ("string", "i64", "f64", "bool")


@dataclass(frozen=True)
class IndexConfig:
    """The fields of an index, in the order of the columns. A column's first field bears its name."""

    fields: tuple[FieldConfig, ...]

    @cached_property
    def _by_name(self) -> dict[str, FieldConfig]:
        return {field.name: field for field in self.fields}

    @cached_property
    def _by_folded_name(self) -> dict[str, list[FieldConfig]]:
        folded: dict[str, list[FieldConfig]] = {}
        for field in self.fields:
            folded.setdefault(field.name.lower(), []).append(field)
        return folded

    def find(self, name: str) -> FieldConfig | None:
        """Return the field of this name: the exact one, or else the only one that differs just in case; or None."""
        exact = self._by_name.get(name)
        if exact is not None:
            return exact
        similar = self._by_folded_name.get(name.lower(), ())
        return similar[0] if len(similar) == 1 else None

    def field(self, name: str) -> FieldConfig:
        """Return the field of this name, as `find` does, or raise `ColumnNotFoundError`."""
        found = self.find(name)
        if found is None:
            raise ColumnNotFoundError(self.unknown(name))
        return found

    def unknown(self, name: str) -> str:
        """Return the message for a field that does not exist."""
        known = [field.name for field in self.fields]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(map(repr, known)) or 'none'}"
        return f"the index has no field {name!r}; {hint}"

    def fields_of(self, column: str) -> tuple[FieldConfig, ...]:
        """Return the fields made from a column: the one with its name first."""
        return tuple(field for field in self.fields if field.column == column)

    @property
    def indexed_fields(self) -> tuple[FieldConfig, ...]:
        return tuple(field for field in self.fields if field.indexed)

    @property
    def text_fields(self) -> tuple[FieldConfig, ...]:
        """The fields that a query without a field name looks at."""
        return tuple(field for field in self.fields if field.indexed and field.kind == "text")

    @cached_property
    def index_only_columns(self) -> frozenset[str]:
        """The columns that can be searched, and whose values are not kept."""
        return frozenset(field.column for field in self.fields if not field.stored)

    def stored_schema(self, schema: StructType) -> StructType:
        """Return the part of a table's schema that is in a split's rows: all but the index-only columns."""
        return StructType(f for f in schema.fields if f.name not in self.index_only_columns)

    def to_json(self) -> str:
        """Return the configuration as `docMappingJson`."""
        return msgspec.json.encode(_Mapping([_mapped(field) for field in self.fields])).decode()

    @staticmethod
    def from_json(text: str | bytes) -> IndexConfig:
        """Read a `docMappingJson`: ours, or another writer's with only names and types.

        Raises:
            SearchConfigError: the text is something else.
        """
        return _from_json(text)


def natural_kind(data_type: DataType) -> FieldKind:
    """Return how values of a type are indexed by default; nested values follow the same rules."""
    match data_type:
        case UserDefinedType(sql_type=sql_type):
            return natural_kind(sql_type)
        case StructType() | ArrayType() | MapType():
            return "json"
        case DecimalType(precision=precision):
            return "i64" if precision <= MAX_SCALED_PRECISION else "string"
    if data_type in _INTEGERS or is_day_time_interval(data_type) or is_time(data_type):
        return "i64"
    if data_type in (FLOAT, DOUBLE):
        return "f64"
    if data_type == BOOLEAN:
        return "bool"
    return "string" if is_string(data_type) else "stored"


_TYPES: dict[str, DataType] = {"i64": LONG, "f64": DOUBLE, "bool": BOOLEAN, "stored": BINARY}


class _Field(msgspec.Struct, rename="camel"):
    name: str
    type: str
    column: str | None = None
    data_type: Any = None
    tokenizer: str | None = None
    fast: bool = False
    indexed: bool = True
    stored: bool = True


class _Mapping(msgspec.Struct):
    fields: list[_Field]


def _mapped(field: FieldConfig) -> _Field:
    return _Field(
        name=field.name,
        type=field.kind,
        column=field.column,
        data_type=type_to_value(field.data_type),
        tokenizer=field.tokenizer,
        fast=field.fast,
        indexed=field.indexed,
        stored=field.stored,
    )


@lru_cache(maxsize=64)
def _from_json(text: str | bytes) -> IndexConfig:
    """Read the JSON, which is the same in most splits of a table."""
    try:
        mapping = msgspec.json.decode(text, type=_Mapping)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SearchConfigError(f"the docMappingJson of a split cannot be read: {error}") from error
    return IndexConfig(tuple(_field(field) for field in mapping.fields))


def _field(field: _Field) -> FieldConfig:
    tokenizer = field.tokenizer or ("default" if field.type in ("text", "json") else "raw")
    if field.type not in KINDS or tokenizer not in TOKENIZERS:
        raise SearchConfigError(
            f"field {field.name!r} of a split is of type {field.type!r} with tokenizer {tokenizer!r}; Headwater knows "
            f"the types {', '.join(KINDS)} and the tokenizers {', '.join(TOKENIZERS)}"
        )
    try:
        data_type = _TYPES.get(field.type, STRING) if field.data_type is None else parse_type(field.data_type, ())
    except SchemaError as error:
        raise SearchConfigError(f"field {field.name!r} of a split: {error}") from error
    return FieldConfig(
        name=field.name,
        column=field.column if field.column is not None else field.name,
        kind=cast("FieldKind", field.type),
        data_type=data_type,
        tokenizer=tokenizer,
        fast=field.fast,
        indexed=field.indexed,
        stored=field.stored,
    )
