"""The actions of a search table's log, decoded and encoded (spec 002: "Action Types", "Transaction Log Format").

`protocol` and `metaData` are those of Delta. An `add` names a split, with its extended fields; `mergeskip` records a
split that a merge could not take. Each `add` keeps its own text, so that fields of newer writers that are not known
here go into the next checkpoint unchanged.

Version 0 holds `protocol` and `metaData` and nothing else. Later versions hold removes, then adds, then `mergeskip`
actions, and a `commitInfo`, which the specification lets every reader skip: it records the operation, and a writer
recognizes its own commit by it when the store's answer was lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import CorruptLogError, InvalidCommitError
from headwater.log.actions.decode import decode_lines, file_actions
from headwater.log.actions.encode import commit_info, protocol_fields
from headwater.log.actions.model import Add, FileActionLine, Int, Long, Remove, TableActionLine
from headwater.log.dialect import MAX_VERSION, LogName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.actions.decode import CommitActions
    from headwater.log.actions.model import Metadata
    from headwater.log.commit.draft import Attempt, Draft


def _wire_name(name: str) -> str:
    """Return the name of a field in JSON; fields that only Delta has get one that no writer uses."""
    if name in _OF_DELTA:
        return f"(delta) {name}"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_OF_DELTA = frozenset(
    {"deletion_vector", "base_row_id", "default_row_commit_version", "clustering_provider", "txn", "domain_metadata"}
    | {"raw"}
)
_NO_VALUES: dict[str, str | None] = {}


class SplitAdd(Add, frozen=True, rename=_wire_name):
    """A split that is part of the table from this version on.

    `min_values` and `max_values` are text, whatever the type of the column: numbers in decimal, booleans as `true` and
    `false`, dates as `2024-10-01`, timestamps as `2024-10-01T23:59:59.999999Z` (those without a zone without the `Z`).
    A column that is not in both has no bounds.

    >>> SplitAdd("part-0.split", 1_048_576, modification_time=0, num_records=1_000).num_records
    1000
    """

    deletion_vector: None = None
    base_row_id: None = None
    default_row_commit_version: None = None
    clustering_provider: None = None
    min_values: dict[str, str | None] | None = None
    max_values: dict[str, str | None] | None = None
    num_records: Long | None = None
    footer_start_offset: Long | None = None
    footer_end_offset: Long | None = None
    hotcache_start_offset: Long | None = None
    hotcache_length: Long | None = None
    has_footer_offsets: bool = False
    time_range_start: str | None = None
    time_range_end: str | None = None
    split_tags: tuple[str, ...] | None = None
    delete_opstamp: Long | None = None
    num_merge_ops: Int | None = None
    doc_mapping_json: str | None = None
    uncompressed_size_bytes: Long | None = None
    raw: bytes = b""
    """The action as it stands in a version file; empty for one that was not read from there."""

    def removed(self, deletion_timestamp: int, *, data_change: bool = True, **tags: str) -> SplitRemove:
        return SplitRemove(
            self.path,
            data_change=data_change,
            deletion_timestamp=deletion_timestamp,
            partition_values=self.partition_values,
            size=self.size,
            tags=dict(tags) or None,
        )


class SplitRemove(Remove, frozen=True, rename=_wire_name):
    """The split is no longer part of the table."""

    deletion_vector: None = None
    base_row_id: None = None
    default_row_commit_version: None = None


class MergeSkip(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """A split that an operation skipped (`mergeskip`): not to be tried again before `retry_after`."""

    path: str
    skip_timestamp: Long
    reason: str
    operation: str
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    retry_after: Long | None = None
    """Milliseconds since the epoch; None for at once."""
    skip_count: Int = 1


class SplitActionLine(FileActionLine, frozen=True):
    """One line of a version file, decoded for its file actions only."""

    cdc: None = None


class SplitTableLine(
    TableActionLine,
    frozen=True,
    rename={"txn": "(delta) txn", "domain_metadata": "(delta) domainMetadata"},
):
    """One line of a version file, decoded for everything but file actions."""

    txn: None = None
    domain_metadata: None = None
    mergeskip: MergeSkip | None = None


class _Line(msgspec.Struct, frozen=True, gc=False):
    """A line with the text of its `add`."""

    add: msgspec.Raw = msgspec.Raw()
    remove: SplitRemove | None = None


_LINE = msgspec.json.Decoder(_Line)
_ADD = msgspec.json.Decoder(SplitAdd)
_NOTHING = (b"", b"null")


def file_lines(commit: CommitActions) -> list[FileActionLine]:
    """Decode the file actions of a commit; each add keeps its text."""
    found: list[FileActionLine] = []
    for number, line in enumerate(decode_lines(_LINE, commit.data, commit.key), 1):
        text = bytes(line.add)
        if line.remove is not None:
            found.append(SplitActionLine(remove=line.remove))
        if text not in _NOTHING:
            found.append(SplitActionLine(add=read_add(text, f"{commit.key}, action {number}")))
    return found


def read_add(text: bytes, where: str) -> SplitAdd:
    """Read an add from its text; raises `CorruptLogError`, which says where it stands."""
    try:
        add = _ADD.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLogError(f"{where}: not a valid action: {error}") from error
    msgspec.structs.force_setattr(add, "raw", text)
    return add


_NAME = re.compile(r"(?P<version>\d{20})\.(?P<checkpoint>checkpoint\.)?json", re.ASCII)


def parse_name(name: str) -> LogName | None:
    """Return the meaning of a file name in `_transaction_log`, or None if it has none for a reader.

    >>> parse_name("00000000000000000010.checkpoint.json")
    LogName(kind='json', version=10, end_version=0, part=0, parts=0, uuid='')
    >>> parse_name("_last_checkpoint") is None
    True
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match["version"]) > MAX_VERSION:
        return None
    return LogName("json" if match["checkpoint"] else "commit", int(match["version"]))


_ENCODER = msgspec.json.Encoder()
_ADD_FIELDS = [
    (field, name)
    for field, name in zip(SplitAdd.__struct_fields__, SplitAdd.__struct_encode_fields__, strict=True)
    if field != "raw" and not name.startswith("(delta)")
]
_REQUIRED = frozenset({"path", "partitionValues", "size", "modificationTime", "dataChange"})


def encode_version(draft: Draft, attempt: Attempt, transaction_id: str, facts: dict[str, Any]) -> bytes:
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
    """Return the `metaData` action as JSON fields; missing ones are null."""
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
    """Return the `add` action as JSON fields, without optional ones that are not known."""
    known = {name: getattr(add, field, None) for field, name in _ADD_FIELDS}
    return {
        name: value
        for name, value in known.items()
        if name in _REQUIRED or not (value is None or (name == "hasFooterOffsets" and value is False))
    }


def remove_fields(remove: Remove, now_ms: int) -> dict[str, Any]:
    """Return the `remove` action as JSON fields; the timestamp is the current time by default."""
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
    fields: dict[str, Any] = msgspec.to_builtins(skip)
    return {**fields, "skipCount": skip.skip_count}


def operation_of(commit: CommitActions) -> str:
    """Return the operation by the names that the history of a table uses."""
    actions = commit.table_actions
    files = list(file_actions(commit))
    adds = [file for file in files if isinstance(file, Add)]
    if actions.metadata is not None:
        return "CREATE TABLE"
    if len(adds) < len(files):
        if not any(file.data_change for file in files):
            return "MERGE SPLITS"
        return "REPLACE FILES" if adds else "REMOVE FILES"
    if adds:
        return "WRITE"
    if actions.skips:
        return "MERGE SKIP"
    return "UPGRADE PROTOCOL" if actions.protocol is not None else "UNKNOWN"
