"""Writing version files of search tables (spec 002: "Transaction Log Format", "Write Operations").

Version 0 holds `protocol` and `metaData` and nothing else. Later versions hold removes, then adds, then `mergeskip`
actions, and one line that the specification lets everybody skip over: `commitInfo`, which says who did what, and by
which a writer knows its own commit again when the store's answer was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import InvalidCommitError
from headwater.log.encoding import commit_info, protocol_fields
from headwater.log.split_actions import SplitAdd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.actions import Add, Metadata, Remove
    from headwater.log.draft import Attempt, Draft
    from headwater.log.split_actions import MergeSkip

_ENCODER = msgspec.json.Encoder()
_ADD_FIELDS = [
    (field, name)
    for field, name in zip(SplitAdd.__struct_fields__, SplitAdd.__struct_encode_fields__, strict=True)
    if field != "raw" and not name.startswith("(delta)")
]
_REQUIRED = frozenset({"path", "partitionValues", "size", "modificationTime", "dataChange"})


def encode_version(draft: Draft, attempt: Attempt, transaction_id: str, facts: dict[str, Any]) -> bytes:
    """The bytes of a version file."""
    try:
        lines = [*map(_ENCODER.encode, _actions(draft, attempt.now_ms))]
        if attempt.version > 0:
            lines.append(_ENCODER.encode({"commitInfo": commit_info(draft, attempt, transaction_id, facts)}))
    except (UnicodeEncodeError, TypeError) as error:
        raise InvalidCommitError(f"the version cannot be written as JSON: {error}") from error
    return b"\n".join(lines) + b"\n"


def _actions(draft: Draft, now_ms: int) -> Iterator[dict[str, Any]]:
    if draft.protocol is not None:
        yield {"protocol": protocol_fields(draft.protocol)}
    if draft.metadata is not None:
        yield {"metaData": metadata_fields(draft.metadata)}
    yield from ({"remove": remove_fields(remove, now_ms)} for remove in draft.removes)
    yield from ({"add": add_fields(add)} for add in draft.adds)
    yield from ({"mergeskip": skip_fields(skip)} for skip in draft.skips)


def metadata_fields(metadata: Metadata) -> dict[str, Any]:
    """The `metaData` action as JSON fields; what it does not say is null."""
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": metadata.format.provider, "options": metadata.format.options},
        "schemaString": metadata.schema_string,
        "partitionColumns": metadata.partition_columns,
        "configuration": metadata.configuration,
        "createdTime": metadata.created_time,
    }


def add_fields(add: Add) -> dict[str, Any]:
    """The `add` action as JSON fields; optional ones that are not known are left out."""
    known = {name: getattr(add, field, None) for field, name in _ADD_FIELDS}
    return {
        name: value
        for name, value in known.items()
        if name in _REQUIRED or not (value is None or (name == "hasFooterOffsets" and value is False))
    }


def remove_fields(remove: Remove, now_ms: int) -> dict[str, Any]:
    """The `remove` action as JSON fields; one without a timestamp is of now."""
    optional = {
        "extendedFileMetadata": remove.extended_file_metadata,
        "partitionValues": remove.partition_values,
        "size": remove.size,
        "tags": remove.tags,
    }
    removed_ms = now_ms if remove.deletion_timestamp is None else remove.deletion_timestamp
    return {
        "path": remove.path,
        "deletionTimestamp": removed_ms,
        "dataChange": remove.data_change,
        **{name: value for name, value in optional.items() if value is not None},
    }


def skip_fields(skip: MergeSkip) -> dict[str, Any]:
    """The `mergeskip` action as JSON fields."""
    fields: dict[str, Any] = msgspec.to_builtins(skip)
    return {**fields, "skipCount": skip.skip_count}
