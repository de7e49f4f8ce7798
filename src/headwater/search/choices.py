"""From what a user chooses to the fields of an index: each choice is checked against its column and the others.

Choices come as arguments, or as the options `spark.indextables.indexing.*` that users of IndexTables know:
`typemap.<field>` and `tokenizer.<field>` are about one field; `fastfields`, `nonfastfields`, `storeonlyfields` and
`indexonlyfields` are lists with commas.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.errors import ColumnNotFoundError, SearchConfigError
from headwater.log.schema import StructField, StructType, UserDefinedType, is_string
from headwater.log.schema.types import check_characters
from headwater.search.analysis import check_tokenizer
from headwater.search.config import FieldConfig, IndexConfig, natural_kind
from headwater.search.types import row_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headwater.search.config import FieldKind


RESERVED_PREFIX: Final = "_hw_"
"""The prefix of the index's own fields, which no column may have."""
_CHOICES: Final = ("string", "text", "json", "ip")
_SECOND_NAMES: Final = {"string": "raw", "text": "text", "json": "json", "ip": "ip"}
_TOKENIZED: Final = ("text", "json")


@dataclass(frozen=True, slots=True)
class FieldChoices:
    """How columns are to be indexed, by names as a user writes them; `index_config` explains the fields."""

    types: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    fast: tuple[str, ...] = ()
    not_fast: tuple[str, ...] = ()
    stored_only: tuple[str, ...] = ()
    indexed_only: tuple[str, ...] = ()


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
    """Return the index configuration of a table: defaults by type, changed by arguments and by the options users know.

    Without any choice strings are `string` (exact), structs, arrays and maps `json`, and numbers, booleans, dates and
    timestamps are indexed as what they are; everything but text and json is fast. `SearchTable.create` explains the
    choices; two types of a column, as in `"text,string"`, make two fields. Arguments win over the options
    `spark.indextables.indexing.*`; other options are ignored.

    >>> from headwater.log.schema import LONG, STRING, StructField
    >>> table = StructType([StructField("id", LONG), StructField("message", STRING)])
    >>> [(f.name, f.kind) for f in index_config(table, types={"message": "text,string"}).fields]
    [('id', 'i64'), ('message', 'text'), ('message.raw', 'string')]

    Raises:
        SearchConfigError: a choice contradicts another, or the type of its column.
        ColumnNotFoundError: a choice is about a column that the table does not have.
    """
    choices = FieldChoices(
        types=types or {},
        tokenizers=tokenizers or {},
        fast=tuple(fast),
        not_fast=tuple(not_fast),
        stored_only=tuple(stored_only),
        indexed_only=tuple(indexed_only),
    )
    return build_config(schema, choices, partition_columns=partition_columns, options=options)


def build_config(
    schema: StructType,
    choices: FieldChoices,
    *,
    partition_columns: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> IndexConfig:
    """Return the index configuration of a table; see `index_config`."""
    resolved = _resolved(schema, choices, indexing_options(options or {}))
    row_schema(schema)  # a type that cannot be kept is an error now, and not in a task
    _refuse_both(resolved.fast, resolved.not_fast, "fast and not fast")
    _refuse_both(resolved.stored_only, resolved.indexed_only, "only stored and only indexed")
    config = IndexConfig(tuple(field for column in schema.fields for field in _fields(column, resolved)))
    _check(config, resolved)
    for name in partition_columns:
        column = schema.field(name).name
        if column in config.index_only_columns:
            raise SearchConfigError(f"column {column!r} is a partition column: it cannot be only indexed")
    return config


@dataclass(frozen=True, slots=True)
class _Resolved:
    """Choices by the names of the columns; `fast`, `not_fast` and `tokenizers` by those of fields."""

    kinds: Mapping[str, tuple[str, ...]]
    tokenizers: Mapping[str, str]
    fast: frozenset[str]
    not_fast: frozenset[str]
    stored_only: frozenset[str]
    indexed_only: frozenset[str]


def _resolved(schema: StructType, given: FieldChoices, said: FieldChoices) -> _Resolved:
    """Combine arguments and options: an argument about a field replaces what an option says about the same field."""
    kinds = {
        schema.field(name).name: _kinds(name, value)
        for choices in (said, given)
        for name, value in choices.types.items()
    }
    names = _FieldNames(schema, kinds)
    fast, not_fast = names.fields(given.fast), names.fields(given.not_fast)
    stored_only, indexed_only = names.columns(given.stored_only), names.columns(given.indexed_only)
    return _Resolved(
        kinds=kinds,
        tokenizers=names.keyed(said.tokenizers) | names.keyed(given.tokenizers),
        fast=fast | (names.fields(said.fast) - not_fast),
        not_fast=not_fast | (names.fields(said.not_fast) - fast),
        stored_only=stored_only | (names.columns(said.stored_only) - indexed_only),
        indexed_only=indexed_only | (names.columns(said.indexed_only) - stored_only),
    )


class _FieldNames:
    """Resolves the names that users write, in any case, to those of columns and fields."""

    def __init__(self, schema: StructType, kinds: Mapping[str, tuple[str, ...]]) -> None:
        self._schema = schema
        self._fields = StructType(
            StructField(name, column.type) for column in schema.fields for name in _field_names(column, kinds)
        )

    def field(self, name: str) -> str:
        try:
            return self._fields.field(name).name
        except ColumnNotFoundError:
            return self._schema.field(name).name

    def fields(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self.field(name) for name in names)

    def keyed(self, values: Mapping[str, str]) -> dict[str, str]:
        return {self.field(name): check_tokenizer(value, name) for name, value in values.items()}

    def columns(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self._schema.field(name).name for name in names)


def _fields(column: StructField, choices: _Resolved) -> list[FieldConfig]:
    check_characters((column.name,), "the table")
    if column.name.startswith(RESERVED_PREFIX):
        raise SearchConfigError(
            f"column {column.name!r}: names that start with {RESERVED_PREFIX!r} are the index's own"
        )
    natural = natural_kind(column.type)
    kinds = choices.kinds.get(column.name, (natural,))
    for kind in kinds:
        _check_kind(column, kind, natural)
    indexed = column.name not in choices.stored_only and natural != "stored"
    fields = []
    for name, kind in zip(_field_names(column, choices.kinds), kinds, strict=True):
        default_fast = kind not in _TOKENIZED and name not in choices.not_fast
        fields.append(
            FieldConfig(
                name=name,
                column=column.name,
                kind=cast("FieldKind", kind),
                data_type=column.type,
                tokenizer=choices.tokenizers.get(name, "default") if kind in _TOKENIZED else "raw",
                fast=indexed and (name in choices.fast or default_fast),
                indexed=indexed,
                stored=column.name not in choices.indexed_only,
            )
        )
    return fields if indexed else fields[:1]


def _field_names(column: StructField, kinds: Mapping[str, tuple[str, ...]]) -> list[str]:
    chosen = kinds.get(column.name, ("",))
    return [column.name, *(f"{column.name}.{_SECOND_NAMES[kind]}" for kind in chosen[1:])]


def _kinds(column: str, value: str | Sequence[str]) -> tuple[str, ...]:
    kinds = tuple(kind.strip().lower() for kind in (value.split(",") if isinstance(value, str) else value))
    for kind in kinds:
        if kind not in _CHOICES:
            raise SearchConfigError(f"column {column!r}: there is no type {kind!r}; there are {', '.join(_CHOICES)}")
    if not kinds or len(set(kinds)) != len(kinds):
        raise SearchConfigError(f"column {column!r}: {value!r} does not name types, each of them once")
    return kinds


def _check_kind(column: StructField, kind: str, natural: str) -> None:
    plain = column.type.sql_type if isinstance(column.type, UserDefinedType) else column.type
    if kind != natural and not is_string(plain):
        raise SearchConfigError(
            f"column {column.name!r} is of type {column.type}, which is indexed as {natural}: only columns of "
            f"strings can be {kind}"
        )


def _check(config: IndexConfig, choices: _Resolved) -> None:
    names = [field.name for field in config.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SearchConfigError(f"the field {twice[0]!r} of a column's second type has the name of another column")
    for name in sorted(choices.tokenizers):
        field = config.find(name)
        if field is None or field.kind not in _TOKENIZED or not field.indexed:
            raise SearchConfigError(f"field {name!r} is not tokenised: a tokenizer is for text and json fields")
    for name in sorted(choices.fast):
        field = config.find(name)
        if field is None or not field.indexed:
            raise SearchConfigError(f"field {name!r} is not indexed, so it cannot be fast")
    for column in sorted(choices.indexed_only):
        if not config.fields_of(column)[0].indexed:
            raise SearchConfigError(f"column {column!r} cannot be indexed, so it cannot be only indexed")


def _refuse_both(one: frozenset[str], other: frozenset[str], what: str) -> None:
    both = sorted(one & other)
    if both:
        raise SearchConfigError(f"{both[0]!r} cannot be {what} at the same time")


PREFIX: Final = "spark.indextables.indexing."
_LISTS: Final = {
    "fastfields": "fast",
    "nonfastfields": "not_fast",
    "storeonlyfields": "stored_only",
    "indexonlyfields": "indexed_only",
}
_PER_FIELD: Final = {"typemap": "types", "tokenizer": "tokenizers"}


def indexing_options(options: Mapping[str, str]) -> FieldChoices:
    """Pick the indexing options out of others.

    Spark does not keep the case of option names, so they are compared without it.

    >>> indexing_options({"spark.indextables.indexing.typemap.message": "text"}).types
    {'message': 'text'}
    """
    per_field: dict[str, Any] = {"types": {}, "tokenizers": {}}
    lists: dict[str, Any] = {}
    for option, value in options.items():
        if not option.lower().startswith(PREFIX):
            continue
        group, _, field = option[len(PREFIX) :].partition(".")
        if group.lower() in _PER_FIELD and field:
            per_field[_PER_FIELD[group.lower()]][field] = value
        elif group.lower() in _LISTS and not field:
            lists[_LISTS[group.lower()]] = _names(value)
        else:
            raise SearchConfigError(_unknown(option))
    return FieldChoices(**per_field, **lists)


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _unknown(option: str) -> str:
    known = [*(f"{PREFIX}{name}.<field>" for name in _PER_FIELD), *(f"{PREFIX}{name}" for name in _LISTS)]
    close = difflib.get_close_matches(option.lower(), known, n=1, cutoff=0.8)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
    return f"there is no option {option!r}; {hint}"
