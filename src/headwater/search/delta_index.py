"""The search index of a Delta table: its definition, where its splits are, and which data files they cover.

Each immutable data file has at most one split, below `_search_index/`, a directory that every VACUUM passes over. Its
key names the definition and the data file (path and size), so it stays true for every version that names the file:
deleted rows are in it too, and are subtracted by a search. A split exists as soon as its one object does; concurrent
builders write the same content, and one that is lost costs only time.

The definition is kept in a metadata domain of the table's log. It names columns by their names in data files, so they
may be renamed, and with their types, so the index stays readable for versions in which a column is gone. Bound to the
schema of one version, it gives two configurations of the same fields: by the names of splits and by those of queries.
Its fingerprint covers everything on which the content of a split depends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError, SchemaError, SearchConfigError, SearchIndexNotFoundError
from headwater.log.actions.paths import canonical_array
from headwater.log.files.arrow import binaries
from headwater.log.files.listing import columns_of
from headwater.log.schema import ArrayType, DataType, MapType, StructField, StructType, transform_fields
from headwater.log.schema.mapping import COLUMN_ID_KEY, PHYSICAL_NAME_KEY
from headwater.search.choices import index_config
from headwater.search.config import ARRAY_KEY, IndexConfig
from headwater.search.query.tree import FieldPath, Nothing, map_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.schema import MappingMode
    from headwater.log.snapshot import Snapshot
    from headwater.search.engine.scoring import Statistics
    from headwater.search.query.tree import Leaf, Query
    from headwater.storage.base import ObjectStore


DIRECTORY = "_search_index/"
"""Below the table. It begins with an underscore: hidden from those who read the table and from those who vacuum it."""
SUFFIX = ".split"
_ELSEWHERE = "elsewhere/"
"""For data files outside the table (shallow clones have them), and those with very long names: called by a hash."""
_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.\-]+:/)"
_MAX_NAME_BYTES = 200
"""Disks allow 255 for a name, and a split's is longer than its data file's."""


@dataclass(frozen=True, slots=True)
class SearchCoverage:
    """How much of a version of a table its search index covers; the rest is read and searched row by row.

    >>> print(SearchCoverage(version=3, num_files=12, num_covered_files=10, size_bytes=1200, covered_bytes=900))
    version 3: 10 of 12 files are indexed (75% of the bytes); the other 2 are searched row by row
    """

    version: int
    num_files: int
    """Live files that may hold what is looked for; all of them where nothing rules some out."""
    num_covered_files: int
    size_bytes: int
    covered_bytes: int

    @property
    def share(self) -> float:
        """The share of the bytes that the index covers, from 0 to 1; 1 for a table without bytes."""
        return self.covered_bytes / self.size_bytes if self.size_bytes else 1.0

    @property
    def is_complete(self) -> bool:
        return self.num_covered_files == self.num_files

    def __str__(self) -> str:
        covered = f"version {self.version}: {self.num_covered_files} of {self.num_files} files are indexed"
        if self.is_complete:
            return covered
        rest = self.num_files - self.num_covered_files
        others = "the other one is" if rest == 1 else f"the other {rest} are"
        return f"{covered} ({int(self.share * 100)}% of the bytes); {others} searched row by row"


@dataclass(frozen=True, slots=True)
class SearchIndexed:
    """The result of `headwater.search_index`."""

    num_files: int
    """Data files that got a split now."""
    num_records: int
    """Their rows."""
    size_bytes: int
    """What the new splits take."""
    coverage: SearchCoverage
    """What is covered afterwards."""


def directory_of(fingerprint: str) -> str:
    """Return the directory of the splits of one definition."""
    return f"{DIRECTORY}{fingerprint}/"


def split_keys(files: pa.Table, fingerprint: str) -> pa.ChunkedArray:
    """Return the keys (as bytes) of the splits that data files have, or would have, in the table's store.

    `files` has the columns `path` (as the log has it) and `size`.
    """
    paths = files.column("path")
    names = pa.chunked_array([_names(chunk) for chunk in paths.chunks], pa.binary())
    sizes = files.column("size").cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(directory_of(fingerprint).encode(), names, b".", sizes, SUFFIX.encode(), b"")


def _names(paths: pa.Array) -> pa.Array:
    """Return data files as parts of keys: the path below the table, or else a hash."""
    names = canonical_array(paths).cast(pa.binary())
    last = pc.replace_substring_regex(names, pattern="^(?s:.*)/", replacement="")
    by_hash = pc.or_(
        pc.match_substring_regex(paths, _ABSOLUTE), pc.greater(pc.binary_length(last), pa.scalar(_MAX_NAME_BYTES))
    )
    if not pc.any(by_hash).as_py():
        return names
    hashed = [f"{_ELSEWHERE}{sha256(name).hexdigest()}".encode() for name in names.filter(by_hash).to_pylist()]
    return pc.replace_with_mask(names, by_hash, binaries(hashed).cast(pa.binary()))


def existing_splits(store: ObjectStore, fingerprint: str | None = None) -> pa.Table:
    """List existing splits: columns `key` (bytes), `size_bytes` and `modified_ms`.

    Without a fingerprint, those of all definitions that the table has ever had.
    """
    prefix = DIRECTORY if fingerprint is None else directory_of(fingerprint)
    found = columns_of(store.list_from(prefix, recursive=True))
    return found.filter(pc.ends_with(found.column("key"), SUFFIX.encode()))


def with_splits(files: pa.Table, splits: pa.Table, fingerprint: str) -> pa.Table:
    """Add the columns `split` (the key as text) and `split_bytes` to data files, null where a file has no split."""
    wanted = split_keys(files, fingerprint)
    places = pc.index_in(wanted, value_set=splits.column("key").combine_chunks())
    keys = pc.if_else(places.is_valid(), wanted, pa.scalar(None, pa.binary()))
    sizes = splits.column("size_bytes").combine_chunks().take(places.combine_chunks())
    return files.append_column("split", keys).append_column("split_bytes", sizes)


def coverage(version: int, files: pa.Table) -> SearchCoverage:
    """Return how much of some files, with the columns `size` and `split`, is covered."""
    sizes, covered = files.column("size"), files.column("split").is_valid()
    return SearchCoverage(
        version=version,
        num_files=files.num_rows,
        num_covered_files=pc.sum(covered).as_py() or 0,
        size_bytes=pc.sum(sizes).as_py() or 0,
        covered_bytes=pc.sum(sizes.filter(covered)).as_py() or 0,
    )


def unneeded_splits(splits: pa.Table, needed: pa.ChunkedArray, cutoff_ms: int) -> pa.Table:
    """Choose the splits that VACUUM may delete: old enough, and of data files that are no longer needed.

    `needed` holds the keys of splits of data files that some reader may still need; see `split_keys`.
    """
    old = pc.less(splits.column("modified_ms"), cutoff_ms)
    unneeded = pc.invert(pc.is_in(splits.column("key"), value_set=needed.combine_chunks()))
    return splits.filter(pc.and_(old, unneeded))


DOMAIN = "headwater.searchIndex"
FORMAT = 1
"""Part of every fingerprint: raise it when the same definition gives other splits."""
_FOUND_BY = (PHYSICAL_NAME_KEY, COLUMN_ID_KEY)


@dataclass(frozen=True)
class IndexedColumn:
    name: str
    """In data files: the physical name where the table has column mapping."""
    field: StructField
    """As the table had it when the index was defined."""
    types: tuple[str, ...]
    """How it is indexed: `text`, `string`, `json` or `ip`; none for what its type says."""
    tokenizer: str | None


@dataclass(frozen=True)
class SearchDefinition:
    columns: tuple[IndexedColumn, ...]

    def to_json(self) -> str:
        """Return the text that the metadata domain keeps."""
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
        """Read the text of the metadata domain."""
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
    """Define an index over columns of a table.

    `columns` says how each column is indexed: `text`, `string`, `json` or `ip`, several of them for one column; None
    for the default of its type.

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
    """Return the name of a column in data files."""
    return field.name if mode == "none" else str(field.metadata.get(PHYSICAL_NAME_KEY, field.name))


def definition_of(snapshot: Snapshot) -> SearchDefinition | None:
    """Return the definition that a table has; None if it has no search index."""
    text = snapshot.domain_metadata.get(DOMAIN)
    return None if text is None else SearchDefinition.from_json(text)


def required_definition(snapshot: Snapshot) -> SearchDefinition:
    """Return the definition that a table has, or raise `SearchIndexNotFoundError`."""
    found = definition_of(snapshot)
    if found is None:
        raise SearchIndexNotFoundError(
            f"{snapshot.uri} has no search index, which also says how its columns are searched: make one with "
            'headwater.search_index(table, columns={"message": "text"})'
        )
    return found


def fingerprint_of(snapshot: Snapshot) -> str | None:
    """Return the fingerprint of a table's definition; None if the table has no index, or none that fits it."""
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
    """A definition together with the schema of one version."""

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
        """A text that is the same for the same content of splits."""
        types = [(f.name, str(f.type)) for f in self.stored_schema.fields]
        facts = json.dumps([FORMAT, self.stored.to_json(), types])
        return sha256(facts.encode()).hexdigest()[:16]

    def stored_query(self, query: Query) -> Query:
        """Translate a query on the fields of this version to the fields of the splits."""

        def change(leaf: Leaf) -> Query:
            column = self.shown_schema.field(self.shown.field(leaf.on.field).column)
            keys = _keys_in_files(leaf.on.path, column.type, self.mode)
            if keys is None:  # a struct without such a field
                return Nothing()
            return msgspec.structs.replace(leaf, on=FieldPath(self.fields[leaf.on.field], keys))

        return map_leaves(query, change)

    def stored_statistics(self, statistics: Statistics | None) -> Statistics | None:
        """Translate statistics by the names of this version to the names of the splits."""
        return None if statistics is None else _renamed(statistics, self.fields)

    def shown_statistics(self, statistics: Statistics) -> Statistics:
        """Translate statistics by the names of the splits to the names of this version."""
        return _renamed(statistics, {stored: name for name, stored in self.fields.items()})


def _renamed(statistics: Statistics, names: Mapping[str, str]) -> Statistics:
    return replace(
        statistics,
        tokens={names[name]: count for name, count in statistics.tokens.items()},
        frequencies={names[name]: counts for name, counts in statistics.frequencies.items()},
    )


def bind(definition: SearchDefinition, snapshot: Snapshot) -> BoundIndex:
    """Find the columns of a definition in a version: which it has, under which names and of what type."""
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
    """Return a column with the names of data files at all levels, and only the metadata by which readers find it."""

    def change(inner: StructField, _path: tuple[str, ...]) -> StructField:
        kept = {} if mode == "none" else {k: v for k, v in inner.metadata.items() if k in _FOUND_BY}
        return StructField(_name(inner, mode), inner.type, True, kept)

    if mode != "none":  # a column that the version does not have may be from before it had column mapping
        field = replace(field, metadata={PHYSICAL_NAME_KEY: name, **field.metadata})
    return transform_fields(StructType([field]), change).fields[0]


def _keys_in_files(path: tuple[str, ...], type_: DataType, mode: MappingMode) -> tuple[str, ...] | None:
    """Return the keys into a JSON field as its splits have them; None for a field that no struct of the column has.

    Fields of structs have their names in data files there, which stay the same when columns are renamed.
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
