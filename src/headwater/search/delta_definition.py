"""What the search index of a Delta table is over: its definition, kept in a metadata domain of the table's log.

Columns are remembered by the names that data files have for them, so they may be renamed, and with their types, so the
index stays readable for versions in which a column is gone. Bound to the schema of one version, a definition gives
two configurations of the same fields: the one of the splits (names in files) and the one of queries (names of that
version). Everything on which the content of a split depends makes its fingerprint; other content, other splits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import CorruptLogError, SchemaError, SearchConfigError
from headwater.log.schema import ArrayType, DataType, MapType, StructField, StructType, transform_fields
from headwater.log.schema.mapping import COLUMN_ID_KEY, PHYSICAL_NAME_KEY
from headwater.search.delta_index import SearchIndexNotFoundError
from headwater.search.fields import ARRAY_KEY, IndexConfig, index_config
from headwater.search.query import FieldPath, Nothing, map_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.schema import MappingMode
    from headwater.log.snapshot import Snapshot
    from headwater.search.query import Leaf, Query
    from headwater.search.scoring import Statistics

DOMAIN = "headwater.searchIndex"
FORMAT = 1
"""Part of every fingerprint: raise it when the same definition gives other splits."""
_FOUND_BY = (PHYSICAL_NAME_KEY, COLUMN_ID_KEY)


@dataclass(frozen=True)
class IndexedColumn:
    """One column of a definition."""

    name: str
    """In data files: the physical name where the table has column mapping."""
    field: StructField
    """As the table had it when the index was defined."""
    types: tuple[str, ...]
    """How it is indexed: `text`, `string`, `json` or `ip`; none for what its type says."""
    tokenizer: str | None


@dataclass(frozen=True)
class SearchDefinition:
    """Which columns are indexed, and how."""

    columns: tuple[IndexedColumn, ...]

    def to_json(self) -> str:
        """As the metadata domain keeps it."""
        columns = [
            {
                "name": column.name,
                "types": list(column.types),
                "tokenizer": column.tokenizer,
                "field": json.loads(StructType([column.field]).to_json())["fields"][0],
            }
            for column in self.columns
        ]
        return json.dumps({"formatVersion": FORMAT, "columns": columns}, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> SearchDefinition:
        """The definition again.

        Raises:
            CorruptLogError: the text is none, or of a newer Headwater.
        """
        try:
            value = json.loads(text)
            if value["formatVersion"] != FORMAT:
                raise CorruptLogError(
                    f"the metadata domain {DOMAIN} has the format {value['formatVersion']}, and this version of "
                    f"Headwater knows format {FORMAT}: use a newer one"
                )
            return cls(tuple(_column(c) for c in value["columns"]))
        except (ValueError, KeyError, TypeError, IndexError, SchemaError, RecursionError) as error:
            raise CorruptLogError(
                f"the metadata domain {DOMAIN} is no definition of a search index: {error!r}. Define the index again "
                "with headwater.search_index(table, columns=...)."
            ) from error


def _column(value: dict[str, Any]) -> IndexedColumn:
    field = StructType.from_json({"type": "struct", "fields": [value["field"]]}).fields[0]
    return IndexedColumn(value["name"], field, tuple(value["types"]), value["tokenizer"])


def define(
    snapshot: Snapshot,
    columns: Mapping[str, str | Sequence[str] | None],
    tokenizers: Mapping[str, str] | None = None,
) -> SearchDefinition:
    """A definition over columns of a table.

    Args:
        snapshot: the table.
        columns: how each column is indexed: `text`, `string`, `json` or `ip`, several of them for one column; None for
            what its type says.
        tokenizers: of text columns.

    Raises:
        ColumnNotFoundError: the table has no such column.
        SearchConfigError: a column cannot be indexed that way.
    """
    if not columns:
        raise SearchConfigError(f"{snapshot.uri}: a search index needs at least one column")
    schema = snapshot.schema
    wanted = {schema.field(name).name: _types(types) for name, types in columns.items()}
    analysed = {schema.field(name).name: tokenizer for name, tokenizer in (tokenizers or {}).items()}
    stray = sorted(analysed.keys() - wanted.keys())
    if stray:
        raise SearchConfigError(
            f"{snapshot.uri}: tokenizers are given for {', '.join(stray)}, which is not among the columns to index"
        )
    definition = SearchDefinition(
        tuple(
            IndexedColumn(_name(f, snapshot.mapping_mode), f, wanted[f.name], analysed.get(f.name))
            for f in schema.fields
            if f.name in wanted
        )
    )
    bind(definition, snapshot)  # raises what is wrong about it
    return definition


def _types(types: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if types is None else (types,) if isinstance(types, str) else tuple(types)


def _name(field: StructField, mode: MappingMode) -> str:
    """The name of a column in data files."""
    return field.name if mode == "none" else str(field.metadata.get(PHYSICAL_NAME_KEY, field.name))


def definition_of(snapshot: Snapshot) -> SearchDefinition | None:
    """The definition that a table has; None if it has no search index."""
    text = snapshot.domain_metadata.get(DOMAIN)
    return None if text is None else SearchDefinition.from_json(text)


def required_definition(snapshot: Snapshot) -> SearchDefinition:
    """The definition that a table has.

    Raises:
        SearchIndexNotFoundError: it has no search index.
    """
    found = definition_of(snapshot)
    if found is None:
        raise SearchIndexNotFoundError(
            f"{snapshot.uri} has no search index, which also says how its columns are searched: make one with "
            'headwater.search_index(table, columns={"message": "text"})'
        )
    return found


def fingerprint_of(snapshot: Snapshot) -> str | None:
    """The fingerprint of a table's definition at a version; None if the table has no index, or none that fits it."""
    definition = definition_of(snapshot)
    if definition is None:
        return None
    try:
        return bind(definition, snapshot).fingerprint
    except SearchConfigError:  # a column was replaced by one of another type, which cannot be indexed that way
        return None


# --- bound to a version -------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundIndex:
    """A definition with the schema of one version."""

    stored: IndexConfig
    """The fields of the splits."""
    stored_schema: StructType
    """Their columns, by the names of data files at all levels; how to read a data file for its split."""
    shown: IndexConfig
    """The fields of queries: columns that the version has, by its names."""
    shown_schema: StructType
    fields: dict[str, str]
    """The names of fields in splits, by their names in queries."""
    mode: MappingMode

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same content of splits."""
        types = [(f.name, str(f.type)) for f in self.stored_schema.fields]
        facts = json.dumps([FORMAT, self.stored.to_json(), types])
        return sha256(facts.encode()).hexdigest()[:16]

    def stored_query(self, query: Query) -> Query:
        """A query on the fields of this version as one on the fields of the splits."""

        def change(leaf: Leaf) -> Query:
            column = self.shown_schema.field(self.shown.field(leaf.on.field).column)
            keys = _keys_in_files(leaf.on.path, column.type, self.mode)
            if keys is None:  # a struct without such a field
                return Nothing()
            return msgspec.structs.replace(leaf, on=FieldPath(self.fields[leaf.on.field], keys))

        return map_leaves(query, change)

    def stored_statistics(self, statistics: Statistics | None) -> Statistics | None:
        """Statistics by the names of this version, by the names of the splits."""
        return None if statistics is None else _renamed(statistics, self.fields)

    def shown_statistics(self, statistics: Statistics) -> Statistics:
        """Statistics by the names of the splits, by the names of this version."""
        return _renamed(statistics, {stored: name for name, stored in self.fields.items()})


def _renamed(statistics: Statistics, names: Mapping[str, str]) -> Statistics:
    return replace(
        statistics,
        tokens={names[name]: count for name, count in statistics.tokens.items()},
        frequencies={names[name]: counts for name, counts in statistics.frequencies.items()},
    )


def bind(definition: SearchDefinition, snapshot: Snapshot) -> BoundIndex:
    """A definition with the schema of a version: which columns that version has, under which names and of what type."""
    mode = snapshot.mapping_mode
    present = {_name(f, mode): f for f in snapshot.schema.fields}
    stored_fields, shown_fields, names = [], [], {}
    for column in definition.columns:
        stored_fields.append(_in_files(present.get(column.name, column.field), column.name, mode))
        if column.name in present:
            shown_fields.append(present[column.name])
            names[present[column.name].name] = column.name
    stored_schema, shown_schema = StructType(stored_fields), StructType(shown_fields)
    stored = _config(stored_schema, {c.name: c for c in definition.columns})
    by_name = {c.name: c for c in definition.columns}
    shown = _config(shown_schema, {name: by_name[stored_name] for name, stored_name in names.items()})
    fields: dict[str, str] = {}
    for name, stored_name in names.items():
        pairs = zip(shown.fields_of(name), stored.fields_of(stored_name), strict=True)
        fields |= {one.name: other.name for one, other in pairs}
    return BoundIndex(stored, stored_schema, shown, shown_schema, fields, mode)


def _config(schema: StructType, columns: Mapping[str, IndexedColumn]) -> IndexConfig:
    return index_config(
        schema,
        types={name: list(column.types) for name, column in columns.items() if column.types},
        tokenizers={name: column.tokenizer for name, column in columns.items() if column.tokenizer is not None},
        indexed_only=schema.names,  # the rows are in the data file
    )


def _in_files(field: StructField, name: str, mode: MappingMode) -> StructField:
    """A column with the names of data files at all levels, with all that finds it there and nothing else."""

    def change(inner: StructField, _path: tuple[str, ...]) -> StructField:
        kept = {} if mode == "none" else {k: v for k, v in inner.metadata.items() if k in _FOUND_BY}
        return StructField(_name(inner, mode), inner.type, True, kept)

    if mode != "none":  # a column that the version does not have may be from before it had column mapping
        field = replace(field, metadata={PHYSICAL_NAME_KEY: name, **field.metadata})
    return transform_fields(StructType([field]), change).fields[0]


def _keys_in_files(path: tuple[str, ...], type_: DataType, mode: MappingMode) -> tuple[str, ...] | None:
    """The keys into a JSON field as its splits have them; None for a field that no struct of the column has.

    Fields of structs have their names in data files there, which says the same whatever they are called later.
    """
    keys: list[str] = []
    if path[:1] == (ARRAY_KEY,) and isinstance(type_, ArrayType) and not isinstance(type_.element_type, StructType):
        keys, path = [ARRAY_KEY], path[1:]
    for key in path:
        while isinstance(type_, ArrayType):
            type_ = type_.element_type
        match type_:
            case StructType(fields=fields):
                found = next((f for f in fields if f.name == key), None)
                if found is None:
                    return None
                keys.append(_name(found, mode))
                type_ = found.type
            case MapType(value_type=value):
                keys.append(key)
                type_ = value
            case _:
                keys.append(key)
    return tuple(keys)
