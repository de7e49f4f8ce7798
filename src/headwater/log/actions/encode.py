"""Writing commits: actions to newline-delimited JSON (spec: "Delta Log Entries").

`commitInfo` comes first, as tables with in-commit timestamps need it; then protocol, metaData and the rest. Required
fields are written even when they have their default value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headwater._version import __version__
from headwater.errors import InvalidCommitError
from headwater.log.actions.model import Add, DeletionVector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headwater.log.actions.decode import TableState
    from headwater.log.actions.model import AddCdcFile, DomainMetadata, Metadata, Protocol, Remove
    from headwater.log.commit.draft import Attempt, Draft

ENGINE = f"Headwater/{__version__}"
_ENCODER = msgspec.json.Encoder()


def encode_commit(draft: Draft, attempt: Attempt, transaction_id: str, facts: dict[str, Any]) -> bytes:
    """The bytes of a commit file. `facts` are further fields of `commitInfo` (`readVersion`, `isolationLevel`, ...)."""
    info = commit_info(draft, attempt, transaction_id, facts)
    try:
        lines = [_ENCODER.encode({"commitInfo": info})]
        lines += map(_ENCODER.encode, _actions(draft, attempt))
    except (UnicodeEncodeError, TypeError) as error:
        raise InvalidCommitError(f"the commit cannot be written as JSON: {error}") from error
    return b"\n".join(lines) + b"\n"


def encode_actions(state: TableState, files: Iterable[Add | Remove]) -> bytes:
    """Reconciled actions as newline-delimited JSON: those of a log compaction file."""
    lines: list[object] = []
    if state.protocol is not None:
        lines.append({"protocol": protocol_fields(state.protocol)})
    if state.metadata is not None:
        lines.append({"metaData": metadata_fields(state.metadata)})
    lines += [{"txn": txn} for txn in state.txns.values()]
    lines += [{"domainMetadata": domain_fields(domain)} for domain in state.domains.values()]
    for file in files:
        lines.append({"add": _written(_Add, file)} if isinstance(file, Add) else {"remove": _written(_Remove, file)})
    return b"".join(_ENCODER.encode(line) + b"\n" for line in lines)


def commit_info(draft: Draft, attempt: Attempt, transaction_id: str, facts: dict[str, Any]) -> dict[str, Any]:
    operation = draft.operation
    info: dict[str, Any] = {
        **draft.commit_info,
        "timestamp": attempt.now_ms,
        "operation": operation.name,
        "operationParameters": {name: _parameter(value) for name, value in operation.parameters.items()},
        **facts,
        "engineInfo": ENGINE,
        "txnId": transaction_id,
    }
    if operation.metrics:
        info["operationMetrics"] = {name: str(value) for name, value in operation.metrics.items()}
    if operation.user_metadata is not None:
        info["userMetadata"] = operation.user_metadata
    if operation.tags:
        info["tags"] = dict(operation.tags)
    return info


def _parameter(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _actions(draft: Draft, attempt: Attempt) -> Iterator[object]:
    if draft.protocol is not None:
        yield {"protocol": protocol_fields(draft.protocol)}
    if draft.metadata is not None:
        yield {"metaData": metadata_fields(draft.metadata)}
    yield from ({"txn": txn} for txn in draft.txns)
    yield from ({"domainMetadata": domain_fields(domain)} for domain in draft.domains)
    for remove in draft.removes:
        written = _written(_Remove, remove)
        if remove.deletion_timestamp is None:
            # Without one the file would count as removed at the epoch, and VACUUM would not spare it.
            written.deletion_timestamp = attempt.now_ms
        yield {"remove": written}
    yield from ({"add": _written(_Add, add)} for add in draft.adds)
    yield from ({"cdc": _written(_AddCdcFile, cdc)} for cdc in draft.cdc)


def protocol_fields(protocol: Protocol) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(protocol)
    return fields


def metadata_fields(metadata: Metadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        **({} if metadata.name is None else {"name": metadata.name}),
        **({} if metadata.description is None else {"description": metadata.description}),
        "format": {"provider": metadata.format.provider, "options": metadata.format.options},
        "schemaString": metadata.schema_string,
        "partitionColumns": metadata.partition_columns,
        "configuration": metadata.configuration,
        **({} if metadata.created_time is None else {"createdTime": metadata.created_time}),
    }


def domain_fields(domain: DomainMetadata) -> dict[str, Any]:
    return {"domain": domain.domain, "configuration": domain.configuration, "removed": domain.removed}


# File actions can be many, so they are encoded as structs. Those of `actions` leave out all defaults, which is right
# for optional fields and wrong for required ones: here required fields have no default, and optional ones may be unset.

_Text = str | msgspec.UnsetType
_Number = int | msgspec.UnsetType
_Map = dict[str, str | None] | msgspec.UnsetType
_Vector = DeletionVector | msgspec.UnsetType


class _Written(msgspec.Struct, rename="camel", gc=False):
    """Base of the file actions as they are written."""


class _Add(_Written):
    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int | None
    data_change: bool
    stats: _Text = msgspec.UNSET
    tags: _Map = msgspec.UNSET
    deletion_vector: _Vector = msgspec.UNSET
    base_row_id: _Number = msgspec.UNSET
    default_row_commit_version: _Number = msgspec.UNSET
    clustering_provider: _Text = msgspec.UNSET


class _Remove(_Written):
    path: str
    data_change: bool
    deletion_timestamp: _Number = msgspec.UNSET
    extended_file_metadata: bool | msgspec.UnsetType = msgspec.UNSET
    partition_values: _Map = msgspec.UNSET
    size: _Number = msgspec.UNSET
    stats: _Text = msgspec.UNSET
    tags: _Map = msgspec.UNSET
    deletion_vector: _Vector = msgspec.UNSET
    base_row_id: _Number = msgspec.UNSET
    default_row_commit_version: _Number = msgspec.UNSET


class _AddCdcFile(_Written):
    path: str
    partition_values: dict[str, str | None]
    size: int
    data_change: bool
    tags: _Map = msgspec.UNSET


_WrittenAction = TypeVar("_WrittenAction", bound=_Written)
_REQUIRED: dict[type[_Written], int] = {_Add: 5, _Remove: 2, _AddCdcFile: 4}


def _written(kind: type[_WrittenAction], action: Add | Remove | AddCdcFile) -> _WrittenAction:
    """Return an action for writing: optional fields that are None are left out."""
    values = [getattr(action, name) for name in kind.__struct_fields__]
    required = _REQUIRED[kind]
    return kind(*values[:required], *(msgspec.UNSET if value is None else value for value in values[required:]))
