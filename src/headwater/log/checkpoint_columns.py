"""The columns of a checkpoint, and its few rows that are not about files (spec: "Checkpoint Schema").

Every row is one action: one column has a value, all others are null. Built without `pa.array`, whose first use is slow
(see `columns.py`).
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log import columns as build
from headwater.log.file_chunks import REMOVE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.actions import CheckpointMetadata, DomainMetadata, Metadata, Protocol, Sidecar, Txn

_STRING_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())

REMOVE = pa.struct(list(REMOVE_COLUMNS.items()))
"""Without `stats` and `tags`: what a checkpoint keeps of a removed file is only its tombstone."""

_TABLE_ACTIONS = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _STRING_MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _STRINGS),
            ("configuration", _STRING_MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _STRINGS),
            ("writerFeatures", _STRINGS),
        ]
    ),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
}
_V2_ACTIONS = {
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _STRING_MAP)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", _STRING_MAP),
        ]
    ),
}


def v1_schema(add: pa.DataType) -> pa.Schema:
    """The columns of a checkpoint after the V1 spec."""
    return pa.schema({"txn": _TABLE_ACTIONS["txn"], "add": add, "remove": REMOVE, **_TABLE_ACTIONS}.items())


def v2_schema(add: pa.DataType) -> pa.Schema:
    """The columns of a checkpoint after the V2 spec."""
    return pa.schema([*v1_schema(add), *_V2_ACTIONS.items()])


def sidecar_schema(add: pa.DataType) -> pa.Schema:
    """The columns of a sidecar."""
    return pa.schema([("add", add), ("remove", REMOVE)])


def rows_of(schema: pa.Schema, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Rows for the actions in each of the columns, one after the other; in a row, all other columns are null."""
    total = sum(map(len, columns.values()))
    arrays: dict[str, list[pa.Array]] = {name: [] for name in schema.names}
    before = 0
    for name, values in columns.items():
        after = total - before - len(values)
        parts = [pa.nulls(before, values.type), values, pa.nulls(after, values.type)]
        arrays[name] = [part for part in parts if len(part)]
        before += len(values)
    return pa.table(
        [
            pa.chunked_array(arrays[field.name], type=field.type)
            if arrays[field.name]
            else pa.chunked_array([pa.nulls(total, field.type)])
            for field in schema
        ],
        schema=schema,
    )


# --- actions as arrays -----------------------------------------------------------------------------------


def protocol_rows(protocol: Protocol) -> pa.Array:
    """The `protocol`; its lists of features are there exactly if its versions demand them."""
    reader = (protocol.reader_features or ()) if protocol.min_reader_version >= 3 else None
    writer = (protocol.writer_features or ()) if protocol.min_writer_version >= 7 else None
    return build.structs(
        {
            "minReaderVersion": build.int32s([protocol.min_reader_version]),
            "minWriterVersion": build.int32s([protocol.min_writer_version]),
            "readerFeatures": _string_lists([reader]),
            "writerFeatures": _string_lists([writer]),
        }
    )


def metadata_rows(metadata: Metadata) -> pa.Array:
    """The `metaData`."""
    format_ = {
        "provider": build.strings([metadata.format.provider]),
        "options": build.string_maps([metadata.format.options]),
    }
    return build.structs(
        {
            "id": build.strings([metadata.id]),
            "name": build.strings([metadata.name]),
            "description": build.strings([metadata.description]),
            "format": build.structs(format_),
            "schemaString": build.strings([metadata.schema_string]),
            "partitionColumns": _string_lists([metadata.partition_columns]),
            "configuration": build.string_maps([metadata.configuration]),
            "createdTime": build.int64s([metadata.created_time]),
        }
    )


def txn_rows(txns: Sequence[Txn]) -> pa.Array:
    """The `txn` actions."""
    return build.structs(
        {
            "appId": build.strings([txn.app_id for txn in txns]),
            "version": build.int64s([txn.version for txn in txns]),
            "lastUpdated": build.int64s([txn.last_updated for txn in txns]),
        }
    )


def domain_rows(domains: Sequence[DomainMetadata]) -> pa.Array:
    """The `domainMetadata` actions."""
    return build.structs(
        {
            "domain": build.strings([domain.domain for domain in domains]),
            "configuration": build.strings([domain.configuration for domain in domains]),
            "removed": build.bools([domain.removed for domain in domains]),
        }
    )


def checkpoint_metadata_rows(found: CheckpointMetadata) -> pa.Array:
    """The `checkpointMetadata`."""
    return build.structs({"version": build.int64s([found.version]), "tags": build.string_maps([found.tags])})


def sidecar_rows(sidecars: Sequence[Sidecar]) -> pa.Array:
    """The `sidecar` actions."""
    return build.structs(
        {
            "path": build.strings([sidecar.path for sidecar in sidecars]),
            "sizeInBytes": build.int64s([sidecar.size_in_bytes for sidecar in sidecars]),
            "modificationTime": build.int64s([sidecar.modification_time for sidecar in sidecars]),
            "tags": build.string_maps([sidecar.tags for sidecar in sidecars]),
        }
    )


def _string_lists(values: Sequence[Sequence[str] | None]) -> pa.Array:
    items = build.strings([item for value in values for item in value or ()])
    offsets = array("i", accumulate((len(value or ()) for value in values), initial=0))
    present = [value is not None for value in values]
    validity = None if all(present) else build.bitmap(present)
    return pa.Array.from_buffers(
        _STRINGS, len(values), [validity, pa.py_buffer(offsets)], present.count(False), children=[items]
    )
