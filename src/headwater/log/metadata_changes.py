"""Changes of `metaData` that leave other writers' work valid (conflict rule 2).

A transaction that has no `metaData` of its own may go on after one of these: its files were written under the same
schema and the same rules.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from headwater.log.actions import Metadata

_IDENTITY_MARK = "delta.identity.highWaterMark"

_HARMLESS = frozenset(
    {
        "delta.enableRowTracking",
        "delta.rowTracking.materializedRowIdColumnName",
        "delta.rowTracking.materializedRowCommitVersionColumnName",
        "delta.enableDeletionVectors",
        "delta.checkpointPolicy",
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.checkpointInterval",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.isolationLevel",
    }
)
"""Properties that say nothing about the files that are being written."""


def is_harmless(before: Metadata, after: Metadata) -> bool:
    """Whether files written under one `metaData` are right under the other."""
    same = msgspec.structs.replace(
        after,
        schema_string=before.schema_string,
        configuration=before.configuration,
        created_time=before.created_time,
        description=before.description,
        name=before.name,
    )
    if same != before:
        return False
    changed = {k for k, v in _items(before) ^ _items(after)} - _HARMLESS
    return not changed and _without_marks(before.schema_string) == _without_marks(after.schema_string)


def _items(metadata: Metadata) -> set[tuple[str, str]]:
    return set(metadata.configuration.items())


def _without_marks(schema: str) -> Any:
    """A schema without the high-water marks of identity columns and without comments."""
    return json.loads(schema, object_hook=_drop_marks)


def _drop_marks(value: dict[str, Any]) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if name not in (_IDENTITY_MARK, "comment")}
