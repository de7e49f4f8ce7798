"""Changes of `metaData` that leave other writers' work valid (conflict rule 2).

A transaction that has no `metaData` of its own may go on after one of these: its files were written under the same
schema and the same rules. What the new properties demand of its actions is worked out anew before it commits.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.log.actions import Metadata

_IDENTITY_MARK = "delta.identity.highWaterMark"
_MAPPING_MODE = "delta.columnMapping.mode"
_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
_COLUMN_ID = "delta.columnMapping.id"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"

_SWITCHES = frozenset({"delta.enableRowTracking", "delta.enableDeletionVectors", "delta.enableInCommitTimestamps"})
"""Properties that may be switched on beside us. Switched off, they forbid what we may have written."""

_HARMLESS = frozenset(
    {
        "delta.rowTracking.materializedRowIdColumnName",
        "delta.rowTracking.materializedRowCommitVersionColumnName",
        "delta.checkpointPolicy",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.checkpointInterval",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
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
    mapped = _mapping_mode(before) == "none" and _mapping_mode(after) == "name"
    changed = {name for name, _ in before.configuration.items() ^ after.configuration.items()}
    changed -= _HARMLESS
    changed -= {name for name in _SWITCHES if after.configuration.get(name, "").lower() == "true"}
    if mapped:
        changed -= {_MAPPING_MODE, _MAX_COLUMN_ID}
    if changed:
        return False
    simplified = _without_own_names if mapped else _without_marks
    return bool(_parsed(before.schema_string, _without_marks) == _parsed(after.schema_string, simplified))


def _mapping_mode(metadata: Metadata) -> str:
    return metadata.configuration.get(_MAPPING_MODE, "none").lower()


def _parsed(schema: str, simplified: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    try:
        return json.loads(schema, object_hook=simplified)
    except (ValueError, RecursionError):  # no schema at all: then it is compared as it stands there
        return schema


def _without_marks(value: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema without the high-water marks of identity columns and without comments."""
    return {name: inner for name, inner in value.items() if name not in (_IDENTITY_MARK, "comment")}


def _without_own_names(value: dict[str, Any]) -> dict[str, Any]:
    """The same, and without column mapping where it changes nothing: the physical name is the name."""
    value = _without_marks(value)
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and _PHYSICAL_NAME in metadata and metadata[_PHYSICAL_NAME] == value.get("name"):
        plain = {name: inner for name, inner in metadata.items() if name not in (_PHYSICAL_NAME, _COLUMN_ID)}
        return {**value, "metadata": plain}
    return value
