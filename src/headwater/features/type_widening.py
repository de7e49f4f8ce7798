"""Type widening: columns whose type grows without rewriting the files (the table feature `typeWidening`).

Each change is recorded in the metadata of the column under `delta.typeChanges`, so that readers know which types its
files may hold. Which types can follow which is given by the feature; nothing else may change on a table with files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidCommitError
from headwater.features.feature import Feature, Kind, Path, replaces_all_files, same_columns, schema_after
from headwater.log.configuration.properties import ENABLE_TYPE_WIDENING
from headwater.log.schema import (
    DATE,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    StructType,
    transform_fields,
)
from headwater.log.schema.json_format import type_to_value
from headwater.log.schema.spark import TYPE_CHANGES_KEY
from headwater.log.schema.types import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.schema import DataType, StructField

_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""The digits before the point that a decimal needs to hold every value; files have at least 32 bits."""


def can_widen(before: DataType, after: DataType) -> bool:
    """Tell whether files of one type can be read as the other.

    >>> from headwater.log.schema import INTEGER, LONG
    >>> can_widen(INTEGER, LONG), can_widen(LONG, INTEGER)
    (True, False)
    """
    match before, after:
        case DecimalType(), DecimalType():
            scale = after.scale - before.scale
            return 0 <= scale <= after.precision - before.precision
        case _, DecimalType():
            digits = _DIGITS.get(before.json_name)
            return digits is not None and after.precision - after.scale >= digits
        case _ if before == DATE:
            return after == TIMESTAMP_NTZ
        case _:
            return after.json_name in _WIDER.get(before.json_name, ())


def changed_types(before: DataType, after: DataType, path: Path = ()) -> Iterator[tuple[Path, DataType, DataType]]:
    """The types that differ between two versions of one column, with the path inside it (`element`, `key`, `value`).

    Structs are not entered: their fields are columns of their own. A column without a type (void) is in no file, so it
    may take any.
    """
    match before, after:
        case _ if before == VOID:
            return
        case StructType(), StructType():
            return
        case ArrayType(), ArrayType():
            yield from changed_types(before.element_type, after.element_type, (*path, "element"))
        case MapType(), MapType():
            yield from changed_types(before.key_type, after.key_type, (*path, "key"))
            yield from changed_types(before.value_type, after.value_type, (*path, "value"))
        case _ if before != after:
            yield path, before, after


def with_type_changes(before: StructType, after: StructType) -> StructType:
    """Return the schema with every type change recorded in the metadata of its column.

    What was recorded before stays, whether or not the new schema brings it along.
    """
    old_fields = {path: old for path, old, _ in same_columns(before, after)}

    def change(field: StructField, path: Path) -> StructField:
        old = old_fields.get(path)
        if old is None:
            return field
        history = list(old.metadata.get(TYPE_CHANGES_KEY, ()))
        history += [_entry(*found) for found in changed_types(old.type, field.type)]
        if not history or field.metadata.get(TYPE_CHANGES_KEY) == history:
            return field
        return replace(field, metadata={**field.metadata, TYPE_CHANGES_KEY: history})

    return transform_fields(after, change)


def check_type_changes(before: StructType, after: StructType, *, enabled: bool) -> None:
    """Raise `InvalidCommitError` unless the types of all columns stay, or are widened on a table that allows it."""
    for path, old, field in same_columns(before, after):
        for inner, was, now in changed_types(old.type, field.type):
            what = f"column {dotted((*path, *inner))} cannot change from {was} to {now}"
            if not can_widen(was, now):
                raise InvalidCommitError(f"{what} without rewriting the table: old files cannot be read that way.")
            if not enabled:
                raise InvalidCommitError(f"{what}: set delta.enableTypeWidening to true to allow it.")
            recorded = [_without_version(entry) for entry in field.metadata.get(TYPE_CHANGES_KEY, ())]
            if _entry(inner, was, now) not in recorded:
                raise InvalidCommitError(f"{what}: the change is not recorded under {TYPE_CHANGES_KEY}.")


def type_widening_rule(draft: Draft, attempt: Attempt) -> Draft:
    """The type of a column changes only by widening, with the feature enabled, and the change is recorded."""
    snapshot = attempt.snapshot
    if draft.metadata is None or snapshot is None:
        return draft
    if draft.metadata.schema_string != snapshot.metadata.schema_string:
        after = schema_after(draft, attempt)
        enabled = TYPE_WIDENING.is_enabled(attempt.configuration)
        try:
            check_type_changes(snapshot.schema, after, enabled=enabled)
        except InvalidCommitError:
            if not replaces_all_files(draft, attempt):
                raise
    return draft


def without_type_changes(schema: StructType) -> StructType:
    """Return the schema without what was recorded, for a table whose files all have the types of the schema."""

    def change(field: StructField, _path: Path) -> StructField:
        if TYPE_CHANGES_KEY not in field.metadata:
            return field
        return replace(field, metadata={k: v for k, v in field.metadata.items() if k != TYPE_CHANGES_KEY})

    return transform_fields(schema, change)


def _entry(inner: Path, before: DataType, after: DataType) -> dict[str, Any]:
    entry: dict[str, Any] = {"toType": type_to_value(after), "fromType": type_to_value(before)}
    return {**entry, "fieldPath": ".".join(inner)} if inner else entry


def _without_version(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without the version, which the preview of the feature recorded as well."""
    return {key: value for key, value in entry.items() if key != "tableVersion"}


TYPE_WIDENING = Feature(
    "typeWidening",
    Kind.READER_WRITER,
    aliases=("typeWidening-preview",),
    enabled=ENABLE_TYPE_WIDENING.read,
    check_commit=type_widening_rule,
    properties=(ENABLE_TYPE_WIDENING,),
)
