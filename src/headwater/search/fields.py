"""What a search table indexes: one `FieldConfig` for each field of the index, together an `IndexConfig`.

An index field is made from one top-level column. A column may have two of them (the same message as text and as one
exact string), and may have none that is indexed: then it is only kept in the rows. The configuration travels as
`docMappingJson` in the log's `add` (spec 002, "AddAction") and inside every split.

>>> from headwater.log.schema import STRING
>>> config = IndexConfig((FieldConfig("message", "message", "text", STRING, tokenizer="default"),))
>>> config.field("message").tokenizer
'default'
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from headwater.errors import ColumnNotFoundError, SearchConfigError
from headwater.log.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    UserDefinedType,
    is_string,
)
from headwater.log.schema.lookup import check_characters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FieldKind: TypeAlias = Literal["text", "string", "json", "ip", "i64", "f64", "bool", "stored"]
"""How values are indexed: `stored` is not at all (binary, variant, void: nothing in them can be searched)."""

KINDS: Final[tuple[str, ...]] = get_args(FieldKind)

RESERVED_PREFIX: Final = "_hw_"
"""Index fields of our own start so; a column must not."""
ROW_ID_FIELD: Final = "_hw_rid"
"""u64, fast, the order of the index. `Split.row_numbers_of` turns its values into row numbers."""
NULL_FIELD: Final = "_hw_null"
"""Untokenised, one term for each column of the row that is null (the column's name): the exact answer to IS NULL."""
UNINDEXED_FIELD: Final = "_hw_unindexed"
"""Untokenised, one term for each field (its name) that could not take the row's value: see `Split.partial_fields`."""

ARRAY_KEY: Final = "_values"
"""A top-level array of anything but structs is indexed as the JSON object `{"_values": [...]}`."""

MAX_SCALED_PRECISION: Final = 18
"""Decimals of up to so many digits are indexed as whole numbers (the unscaled value): exact, and in their order."""

_INTEGERS: Final = frozenset({LONG, INTEGER, SHORT, BYTE, DATE, TIMESTAMP, TIMESTAMP_NTZ})
_INSTANTS: Final = frozenset({TIMESTAMP, TIMESTAMP_NTZ})
_DAY_TIME_UNITS: Final = ("day", "hour", "minute", "second")


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """One field of the index.

    Attributes:
        name: what queries call it: the column's name, or `<column>.raw` / `<column>.text` for a column's second field.
        column: the top-level column it is made from.
        kind: how its values are indexed (see `FieldKind`). Timestamps are i64 microseconds since the epoch, dates i64
            days, day-time intervals i64 microseconds, decimals of up to 18 digits i64 unscaled values, longer decimals
            strings (see `headwater.search.field_values.index_value`).
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
        """The field of this name: the exact one, or else the only one that differs just in case; or None."""
        exact = self._by_name.get(name)
        if exact is not None:
            return exact
        similar = self._by_folded_name.get(name.lower(), ())
        return similar[0] if len(similar) == 1 else None

    def field(self, name: str) -> FieldConfig:
        """The field of this name, as `find` finds it.

        Raises:
            ColumnNotFoundError: there is none; the message says which there are.
        """
        found = self.find(name)
        if found is None:
            raise ColumnNotFoundError(_unknown_field(name, [field.name for field in self.fields]))
        return found

    def fields_of(self, column: str) -> tuple[FieldConfig, ...]:
        """The fields made from a column: the one with its name first."""
        return tuple(field for field in self.fields if field.column == column)

    @property
    def indexed_fields(self) -> tuple[FieldConfig, ...]:
        """The fields that can be searched."""
        return tuple(field for field in self.fields if field.indexed)

    @property
    def text_fields(self) -> tuple[FieldConfig, ...]:
        """The tokenised text fields: what a query without a field name looks at."""
        return tuple(field for field in self.fields if field.indexed and field.kind == "text")

    @cached_property
    def index_only_columns(self) -> frozenset[str]:
        """The columns that can be searched, and whose values are not kept."""
        return frozenset(field.column for field in self.fields if not field.stored)

    def stored_schema(self, schema: StructType) -> StructType:
        """The part of a table's schema that is in a split's rows: all but the index-only columns."""
        return StructType(f for f in schema.fields if f.name not in self.index_only_columns)

    def to_json(self) -> str:
        """The configuration as `docMappingJson`."""
        from headwater.search.doc_mapping import to_doc_mapping

        return to_doc_mapping(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> IndexConfig:
        """Read a `docMappingJson`: ours, or another writer's with only names and types.

        Raises:
            SearchConfigError: it is not one.
        """
        from headwater.search.doc_mapping import from_doc_mapping

        return from_doc_mapping(text)


def index_config(
    schema: StructType,
    *,
    types: Mapping[str, str | Sequence[str]] | None = None,
    tokenizers: Mapping[str, str] | None = None,
    fast: Iterable[str] = (),
    not_fast: Iterable[str] = (),
    stored_only: Iterable[str] = (),
    indexed_only: Iterable[str] = (),
    partition_columns: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> IndexConfig:
    """The index configuration of a table: defaults by type, changed by arguments and by the options users know.

    Without any choice strings are `string` (exact), structs, arrays and maps `json`, and numbers, booleans, dates and
    timestamps are indexed as what they are; everything but text and json is fast.

    Args:
        schema: the table's.
        types: for columns of strings `string`, `text`, `json` (the column holds JSON objects) or `ip`; two of them for
            both: `{"message": ("text", "string")}` (or `"text,string"`) makes the fields `message` and `message.raw`.
        tokenizers: for text and json fields: `default`, `raw`, `whitespace`, `en_stem`.
        fast: fields that get a columnar copy in the index.
        not_fast: fields that get none.
        stored_only: columns that are not indexed.
        indexed_only: columns that are not kept in the rows: they can be searched, and never be read again.
        partition_columns: the table's; their values are always kept.
        options: `spark.indextables.indexing.*`: typemap.<field>, tokenizer.<field>, fastfields, nonfastfields,
            storeonlyfields, indexonlyfields. Arguments win over options; other options are left to others.

    >>> from headwater.log.schema import STRING, StructField
    >>> table = StructType([StructField("id", LONG), StructField("message", STRING)])
    >>> [(f.name, f.kind) for f in index_config(table, types={"message": "text,string"}).fields]
    [('id', 'i64'), ('message', 'text'), ('message.raw', 'string')]

    Raises:
        SearchConfigError: a choice contradicts another, or the type of its column.
        ColumnNotFoundError: a choice is about a column that the table does not have.
    """
    from headwater.search.field_choices import FieldChoices, build_config

    choices = FieldChoices.collect(
        schema,
        options=options or {},
        types=types or {},
        tokenizers=tokenizers or {},
        fast=tuple(fast),
        not_fast=tuple(not_fast),
        stored_only=tuple(stored_only),
        indexed_only=tuple(indexed_only),
    )
    return build_config(schema, choices, partition_columns)


def natural_kind(data_type: DataType) -> FieldKind:
    """How values of a type are indexed when nothing is said; nested values follow the same rules."""
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


def is_day_time_interval(data_type: DataType) -> bool:
    """Whether this is one of Spark's day-time intervals (`interval day to second`, `interval hour`, ...)."""
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    return name.startswith("interval ") and name.split()[1] in _DAY_TIME_UNITS


def is_time(data_type: DataType) -> bool:
    """Whether this is Spark's time of day, `time(6)`."""
    return isinstance(data_type, PrimitiveType) and data_type.name.startswith("time(")


def _unknown_field(name: str, known: Sequence[Any]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(map(repr, known)) or 'none'}"
    return f"the index has no field {name!r}{hint}"


def check_column_name(name: str) -> None:
    """Refuse the names that the index needs for itself, and those that no column may have."""
    check_characters((name,), "the table")
    if name.startswith(RESERVED_PREFIX):
        raise SearchConfigError(f"column {name!r}: names that start with {RESERVED_PREFIX!r} are the index's own")
