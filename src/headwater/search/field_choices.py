"""From what a user chose to the fields of an index: each choice is checked against its column and the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from headwater.errors import ColumnNotFoundError, SearchConfigError
from headwater.log.schema import StructField, StructType, UserDefinedType, is_string
from headwater.search.analysis import check_tokenizer
from headwater.search.field_options import indexing_options
from headwater.search.fields import FieldConfig, FieldKind, IndexConfig, check_column_name, natural_kind
from headwater.search.row_types import row_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_CHOICES: Final = ("string", "text", "json", "ip")
_SECOND_NAMES: Final = {"string": "raw", "text": "text", "json": "json", "ip": "ip"}
_TOKENIZED: Final = ("text", "json")


@dataclass(frozen=True, slots=True)
class FieldChoices:
    """What was chosen, by the names of the columns; `fast`, `not_fast` and `tokenizers` by those of fields."""

    kinds: Mapping[str, tuple[str, ...]]
    tokenizers: Mapping[str, str]
    fast: frozenset[str]
    not_fast: frozenset[str]
    stored_only: frozenset[str]
    indexed_only: frozenset[str]

    @classmethod
    def collect(
        cls,
        schema: StructType,
        *,
        options: Mapping[str, str],
        types: Mapping[str, str | Sequence[str]],
        tokenizers: Mapping[str, str],
        fast: Sequence[str],
        not_fast: Sequence[str],
        stored_only: Sequence[str],
        indexed_only: Sequence[str],
    ) -> FieldChoices:
        """Arguments over options: an argument about a field replaces what an option says about the same field."""
        said = indexing_options(options)
        given = {schema.field(name).name: _kinds(name, kinds) for name, kinds in types.items()}
        kinds = {schema.field(name).name: _kinds(name, value) for name, value in said.types.items()} | given
        names = _FieldNames(schema, kinds)
        chosen_fast, chosen_not_fast = names.all_of(fast), names.all_of(not_fast)
        only_stored, only_indexed = names.columns(stored_only), names.columns(indexed_only)
        return cls(
            kinds=kinds,
            tokenizers=names.keyed(said.tokenizers) | names.keyed(tokenizers),
            fast=chosen_fast | (names.all_of(said.fast) - chosen_not_fast),
            not_fast=chosen_not_fast | (names.all_of(said.not_fast) - chosen_fast),
            stored_only=only_stored | (names.columns(said.stored_only) - only_indexed),
            indexed_only=only_indexed | (names.columns(said.indexed_only) - only_stored),
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

    def all_of(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self.field(name) for name in names)

    def keyed(self, values: Mapping[str, str]) -> dict[str, str]:
        return {self.field(name): check_tokenizer(value, name) for name, value in values.items()}

    def columns(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self._schema.field(name).name for name in names)


def build_config(schema: StructType, choices: FieldChoices, partition_columns: Sequence[str]) -> IndexConfig:
    """The fields for a schema.

    Raises:
        SearchConfigError: choices contradict each other, or the types of their columns.
        SchemaError: a column has a type that cannot be kept in a split.
    """
    row_schema(schema)  # a type that cannot be kept is an error now, and not in a task
    _refuse_both(choices.fast, choices.not_fast, "fast and not fast")
    _refuse_both(choices.stored_only, choices.indexed_only, "only stored and only indexed")
    fields = [field for column in schema.fields for field in _fields(column, choices)]
    config = IndexConfig(tuple(fields))
    _check(config, choices)
    for name in partition_columns:
        _check_partition_column(schema.field(name).name, config)
    return config


def _fields(column: StructField, choices: FieldChoices) -> list[FieldConfig]:
    check_column_name(column.name)
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


def _check(config: IndexConfig, choices: FieldChoices) -> None:
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


def _check_partition_column(name: str, config: IndexConfig) -> None:
    if name in config.index_only_columns:
        raise SearchConfigError(f"column {name!r} is a partition column: it cannot be only indexed")


def _refuse_both(one: frozenset[str], other: frozenset[str], what: str) -> None:
    both = sorted(one & other)
    if both:
        raise SearchConfigError(f"{both[0]!r} cannot be {what} at the same time")
