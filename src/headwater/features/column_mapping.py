"""Column mapping for writers: ids and physical names (spec: "Writer Requirements for Column Mapping").

A column keeps its id and physical name for life, whatever it is called; a new one gets an id above all that were ever
given and a unique physical name. On a table that did without mapping, the physical names are the names
that its files already have. Names of columns as users write them are parsed and checked here too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidCommitError, SchemaError
from headwater.features.feature import Feature, Kind, Path, fields_by_path, replaces_all_files
from headwater.log.configuration.properties import COLUMN_MAPPING_MODE, MAX_COLUMN_ID
from headwater.log.schema import ArrayType, MapType, StructType, transform_fields
from headwater.log.schema.mapping import COLUMN_ID_KEY, NESTED_IDS_KEYS, PHYSICAL_NAME_KEY, nested_ids
from headwater.log.schema.types import check_characters, dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headwater.log.actions.model import Metadata
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.schema import DataType, StructField

_KEYS = (COLUMN_ID_KEY, PHYSICAL_NAME_KEY, *NESTED_IDS_KEYS)


@dataclass(frozen=True, slots=True)
class Mapped:
    """A schema with ids and physical names."""

    schema: StructType
    max_column_id: int


def mode_of(configuration: Mapping[str, str]) -> str:
    """Return the column mapping mode that properties ask for."""
    return COLUMN_MAPPING_MODE.read(configuration)


def check_mode_change(old: str, new: str) -> None:
    """Raise `InvalidCommitError` unless an existing table may go from one mode to the other."""
    if old != new and (old, new) != ("none", "name"):
        raise InvalidCommitError(
            f"the column mapping mode of a table cannot change from {old} to {new}: its data files would have to be "
            "rewritten. Only none to name is possible; for another mode, write a new table."
        )


def without_mapping(schema: StructType) -> StructType:
    """Return the schema without ids and physical names, which a DataFrame may have brought along from another table."""

    def change(field: StructField, _path: Path) -> StructField:
        if not any(key in field.metadata for key in _KEYS):
            return field
        return replace(field, metadata={k: v for k, v in field.metadata.items() if k not in _KEYS})

    return transform_fields(schema, change)


def with_mapping(
    schema: StructType,
    before: StructType | None,
    *,
    was_mapped: bool,
    max_column_id: int,
    nested: bool,
    new_id: Callable[[], str],
) -> Mapped:
    """Give every column its id and physical name.

    Args:
        schema: the wanted schema; columns of the table are known by their physical name or, without one, by name.
        before: the schema so far; None for a new table.
        was_mapped: whether the table had column mapping before; if not, existing columns keep their names in files.
        max_column_id: the highest id that was ever given.
        nested: whether array elements, map keys and values get ids too (`icebergCompatV2`).
        new_id: where physical names come from.
    """
    known = {} if before is None else dict(fields_by_path(before))
    claims = _claims(schema, known) if was_mapped else {}
    used = [max_column_id, *(i for field in known.values() for i in _ids(field))] if was_mapped else [0]
    next_id = max(used) + 1
    given: dict[Path, dict[str, Any]] = {}
    for path, field in fields_by_path(schema):
        metadata = {k: v for k, v in field.metadata.items() if k not in _KEYS}
        old = claims.get(path)
        if old is not None:
            metadata |= {key: old.metadata[key] for key in _KEYS if key in old.metadata}
        if COLUMN_ID_KEY not in metadata:
            metadata[COLUMN_ID_KEY], next_id = next_id, next_id + 1
        if PHYSICAL_NAME_KEY not in metadata:
            keeps_name = not was_mapped and path in known
            metadata[PHYSICAL_NAME_KEY] = field.name if keeps_name else f"col-{new_id()}"
        if nested:
            mapped = replace(field, metadata=metadata)
            next_id = _give_nested_ids(mapped, metadata, next_id)
        given[path] = metadata
    changed = transform_fields(schema, lambda field, path: replace(field, metadata=given[path]))
    return Mapped(changed, max(next_id - 1, max_column_id))


def _claims(schema: StructType, known: dict[Path, StructField]) -> dict[Path, StructField]:
    """Which column of the table each column of the wanted schema is.

    A column that says its id is that one; where two say the same (`select(a, a as b)` copies metadata), the one at the
    old place. A column that says nothing is the one with its name, unless that was renamed. Ids are what tells columns
    apart: physical names are those of the files, and two structs may well have fields of the same name.
    """
    by_id = {f.metadata[COLUMN_ID_KEY]: (p, f) for p, f in known.items() if type(f.metadata.get(COLUMN_ID_KEY)) is int}
    by_folded = {_folded(path): (path, field) for path, field in known.items()}
    wanted = list(fields_by_path(schema))
    said = [
        (path, by_id[id_])
        for path, field in wanted
        if type(id_ := field.metadata.get(COLUMN_ID_KEY)) is int
        and id_ in by_id
        and field.metadata.get(PHYSICAL_NAME_KEY) == by_id[id_][1].metadata.get(PHYSICAL_NAME_KEY)
    ]
    same_name = [(path, by_folded[folded]) for path, _ in wanted if (folded := _folded(path)) in by_folded]
    claims: dict[Path, StructField] = {}
    taken: set[Path] = set()
    for path, (old_path, old) in (*sorted(said, key=lambda claim: claim[0] != claim[1][0]), *same_name):
        if path not in claims and old_path not in taken:
            claims[path] = old
            taken.add(old_path)
    return claims


def _folded(path: Path) -> Path:
    return tuple(part.lower() for part in path)


def _ids(field: StructField) -> list[int]:
    own = field.metadata.get(COLUMN_ID_KEY)
    return [*nested_ids(field).values(), *([own] if isinstance(own, int) else [])]


def _give_nested_ids(field: StructField, metadata: dict[str, Any], next_id: int) -> int:
    """Ids for what has no name of its own inside a column; keys start with the physical name, which never changes."""
    name = metadata[PHYSICAL_NAME_KEY]
    have = nested_ids(field)
    ids: dict[str, int] = {}
    for inner in _nameless(field.type):
        key = ".".join(inner)
        if key not in have:
            have[key], next_id = next_id, next_id + 1
        ids[f"{name}.{key}"] = have[key]
    for key in NESTED_IDS_KEYS:  # the spec's name, and the one that delta-spark reads
        if ids:
            metadata[key] = dict(ids)
        else:
            metadata.pop(key, None)
    return next_id


def _nameless(type_: DataType, path: Path = ()) -> Iterator[Path]:
    match type_:
        case ArrayType(element_type=element):
            yield (*path, "element")
            yield from _nameless(element, (*path, "element"))
        case MapType(key_type=key, value_type=value):
            yield (*path, "key")
            yield from _nameless(key, (*path, "key"))
            yield (*path, "value")
            yield from _nameless(value, (*path, "value"))


# --- at commit -----------------------------------------------------------------------------------------


def column_mapping_rule(draft: Draft, attempt: Attempt) -> Draft:
    """New metaData has valid ids and physical names, and goes on from the old ones."""
    if draft.metadata is None:
        return draft
    snapshot = attempt.snapshot
    mode = attempt.configuration.mapping_mode
    if snapshot is not None and snapshot.mapping_mode != mode and not replaces_all_files(draft, attempt):
        check_mode_change(snapshot.mapping_mode, mode)
    if mode == "none":
        return draft
    highest = _max_column_id(draft.metadata)
    _check_columns(attempt.configuration.schema, highest)
    if snapshot is not None and highest < _max_column_id(snapshot.metadata):
        raise InvalidCommitError(
            f"the table property {MAX_COLUMN_ID.name} may only grow: it is {_max_column_id(snapshot.metadata)}, and "
            f"the commit would set it to {highest}."
        )
    return draft


def _max_column_id(metadata: Metadata) -> int:
    text = metadata.configuration.get(MAX_COLUMN_ID.name, "0")
    if not text.isdecimal():
        raise InvalidCommitError(f"the table property {MAX_COLUMN_ID.name} must be a number, but it is {text!r}.")
    return int(text)


def _check_columns(schema: StructType, highest: int) -> None:
    seen: dict[object, Path] = {}
    for path, field in fields_by_path(schema):
        name, own = field.metadata.get(PHYSICAL_NAME_KEY), field.metadata.get(COLUMN_ID_KEY)
        if not isinstance(name, str) or not name or not isinstance(own, int):
            raise InvalidCommitError(
                f"column {dotted(path)} has no physical name or no id, though the table uses column mapping."
            )
        # A physical name is unique among its siblings: on a table that had no mapping it is just the name.
        where = (*path[:-1], name)
        for key, what in ((where, f"physical name {name!r}"), *((i, f"id {i}") for i in _ids(field))):
            if key in seen:
                raise InvalidCommitError(f"columns {dotted(seen[key])} and {dotted(path)} have the same {what}.")
            seen[key] = path
        if max(_ids(field)) > highest:
            raise InvalidCommitError(
                f"column {dotted(path)} has the id {max(_ids(field))}, above {MAX_COLUMN_ID.name}, which is {highest}."
            )


COLUMN_MAPPING = Feature(
    "columnMapping",
    Kind.READER_WRITER,
    legacy_reader_version=2,
    legacy_writer_version=5,
    enabled=lambda properties: mode_of(properties) != "none",
    check_commit=column_mapping_rule,
)


# --- names of columns ----------------------------------------------------------------------------------

_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")
_FORBIDDEN = " ,;{}()\n\t="
"""What other writers refuse in the names of Parquet columns."""


def column_path(column: str | Sequence[str]) -> tuple[str, ...]:
    """Return the path to a column as a user writes it: dots lead into structs, backticks quote.

    >>> column_path("address.city"), column_path("`a.b`.c"), column_path(["a.b"])
    (('address', 'city'), ('a.b', 'c'), ('a.b',))
    """
    if not isinstance(column, str):
        return tuple(column)
    parts: list[str] = []
    position = 0
    while position <= len(column):
        match = _PART.match(column, position)
        end = len(column) if match is None else match.end()
        if match is None or (end < len(column) and column[end] != "."):
            raise SchemaError(f"{column!r} is not the name of a column: write a.b, or `a.b` for a name with a dot.")
        parts.append(match[2].strip() if match[1] is None else match[1].replace("``", "`"))
        position = end + 1
    return tuple(parts)


def column_list(text: str) -> list[tuple[str, ...]]:
    """Return a list of columns with commas, as in `delta.dataSkippingStatsColumns`.

    >>> column_list("a, b.c, `d,e`")
    [('a',), ('b', 'c'), ('d,e',)]
    """
    parts = re.findall(r"(?:`(?:[^`]|``)*`|[^`,])+", text)
    return [column_path(part.strip()) for part in parts if part.strip()]


def check_names(schema: StructType, *, mapped: bool) -> None:
    """Raise unless other readers and writers can tell the columns apart and store them.

    Raises:
        SchemaError: two columns differ only in case, or, without column mapping, a name has forbidden characters, or a
            name has one that no column may have.
    """
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path, field in fields_by_path(schema):
        check_characters((field.name,), "the schema")
        folded = tuple(map(_folded_name, path))
        if folded in seen:
            raise SchemaError(f"the columns {dotted(seen[folded])} and {dotted(path)} have the same name.")
        seen[folded] = path
        bad = [character for character in _FORBIDDEN if character in field.name]
        if not field.name or (bad and not mapped):
            raise SchemaError(
                f"the column {dotted(path)} cannot be stored under its name, because of {bad[0]!r}. Rename it, or "
                "set the table property delta.columnMapping.mode to name."
                if bad
                else "a column needs a name."
            )


def _folded_name(name: str) -> str:
    """Return the name as Java compares it without regard to case: letter by letter, by upper and then lower case.

    >>> _folded("Stra\u00dfe") == _folded("STRASSE"), _folded("\u017f") == _folded("S")
    (False, True)
    """
    raised = (other if len(other := letter.upper()) == 1 else letter for letter in name)
    return "".join(other if len(other := letter.lower()) == 1 else letter for letter in raised)
