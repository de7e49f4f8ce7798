"""Identity columns at commit (spec: "Identity Columns").

Writers of rows generate the values. The rule here makes sure that the definition of a column stays as it was
and that its high-water mark only moves on, so that no value can be given twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.feature import (
    DEFAULT_KEY,
    GENERATION_KEY,
    IDENTITY_PREFIX,
    Feature,
    Kind,
    replaces_all_files,
    same_columns,
    schema_after,
)
from headwater.log.schema import LONG, transform_fields

if TYPE_CHECKING:
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.configuration import TableConfiguration
    from headwater.log.schema import StructField, StructType

START = "delta.identity.start"
STEP = "delta.identity.step"
HIGH_WATER_MARK = "delta.identity.highWaterMark"
ALLOW_EXPLICIT_INSERT = "delta.identity.allowExplicitInsert"
_LONG = range(-(2**63), 2**63)


def is_identity(field: StructField) -> bool:
    return any(key.startswith(IDENTITY_PREFIX) for key in field.metadata)


def check_identity_columns(table: TableConfiguration) -> None:
    """Raise `InvalidCommitError` unless every identity column is defined as the spec says."""
    for field in filter(is_identity, table.schema.fields):
        for key in (START, STEP):
            if not _is_long(field.metadata.get(key)):
                raise _bad(field, f"needs {key}, a whole number of 64 bits")
        if field.metadata[STEP] == 0:
            raise _bad(field, "cannot have a step of 0")
        if HIGH_WATER_MARK in field.metadata and not _is_long(field.metadata[HIGH_WATER_MARK]):
            raise _bad(field, f"has a bad {HIGH_WATER_MARK}: {field.metadata[HIGH_WATER_MARK]!r}")
        if not isinstance(field.metadata.get(ALLOW_EXPLICIT_INSERT), bool):
            raise _bad(field, f"needs {ALLOW_EXPLICIT_INSERT}, true or false")
        if field.type != LONG:
            raise _bad(field, f"must be of type bigint, not {field.type}")
        if field.name in table.partition_columns:
            raise _bad(field, "cannot be a partition column")
        if GENERATION_KEY in field.metadata or DEFAULT_KEY in field.metadata:
            raise _bad(field, "cannot have a generation expression or a default as well")


def identity_column_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Definitions are valid and do not change, marks only move on."""
    if draft.metadata is None:
        return draft
    after = schema_after(draft, attempt)
    check_identity_columns(attempt.configuration)
    snapshot = attempt.snapshot
    if snapshot is None or not any(map(is_identity, snapshot.schema.fields)):
        return draft
    for _, old, field in same_columns(snapshot.schema, after):
        if is_identity(old) and is_identity(field) and _differs(old, field) and not replaces_all_files(draft, attempt):
            _check_same(old, field)
    return draft


def merged_marks(schema: StructType, other: StructType) -> StructType:
    """Return the schema with the high-water marks of its identity columns at least as far on as those of another."""

    def change(field: StructField, path: tuple[str, ...]) -> StructField:
        old = marks.get(path)
        if old is None or not is_identity(field):
            return field
        step = field.metadata.get(STEP, 1)
        own = field.metadata.get(HIGH_WATER_MARK)
        farthest = old if own is None else (max if step > 0 else min)(old, own)
        return replace(field, metadata={**field.metadata, HIGH_WATER_MARK: farthest})

    marks = {
        path: old.metadata[HIGH_WATER_MARK]
        for path, old, field in same_columns(other, schema)
        if is_identity(field) and HIGH_WATER_MARK in old.metadata
    }
    return transform_fields(schema, change) if marks else schema


def _differs(old: StructField, new: StructField) -> bool:
    keys = (START, STEP, HIGH_WATER_MARK, ALLOW_EXPLICIT_INSERT)
    return any(old.metadata.get(key) != new.metadata.get(key) for key in keys)


def _check_same(old: StructField, new: StructField) -> None:
    for key in (START, STEP, ALLOW_EXPLICIT_INSERT):
        if old.metadata.get(key) != new.metadata.get(key):
            raise _bad(
                new, f"cannot change its {key} from {old.metadata.get(key)!r} to {new.metadata.get(key)!r} any more"
            )
    was, now = old.metadata.get(HIGH_WATER_MARK), new.metadata.get(HIGH_WATER_MARK)
    if was is not None and (now is None or (now - was) * (1 if new.metadata[STEP] > 0 else -1) < 0):
        raise _bad(new, f"cannot move its high-water mark back from {was} to {now}: values would be given twice")


def _is_long(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONG


def _bad(field: StructField, what: str) -> InvalidCommitError:
    return InvalidCommitError(f"the identity column {field.name} {what}.")


IDENTITY_COLUMNS = Feature(
    "identityColumns",
    Kind.WRITER,
    legacy_writer_version=6,
    column_keys=(START, STEP, HIGH_WATER_MARK, ALLOW_EXPLICIT_INSERT),
    check_definition=check_identity_columns,
    check_commit=identity_column_rule,
    in_use="columns are identity columns; drop them first",
)
