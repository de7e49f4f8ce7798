"""The actions of a synthetic table as Arrow columns (for checkpoints) and as JSON lines (for commits).

Implements the spec's sections Per-file Statistics, Checkpoint Schema and Delta Log Entries, for one table
schema: `id` long, `value` double, `name` string, `ts` timestamp, partitioned by `date`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from benchmarks.columns import Files

Stats: TypeAlias = Literal["json", "struct", "both"]
"""How a checkpoint keeps statistics: `stats`, `stats_parsed` (with `partitionValues_parsed`), or both."""

TABLE_ID = "7c1b1f0e-52f7-4d0c-9c40-3f2a5c1d8e11"
CREATED_MS = 1_735_689_600_000
TOMBSTONE_MS = 4_102_444_800_000
"""Deletion time of tombstones: far in the future, so that none ever expires and the table never changes."""

_STRING_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())
_TIMESTAMP = pa.timestamp("us", "UTC")
_DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)
_BOUNDS = pa.struct([("id", pa.int64()), ("value", pa.float64()), ("name", pa.string()), ("ts", _TIMESTAMP)])
_NULLS = pa.struct([(name, pa.int64()) for name in ("id", "value", "name", "ts")])
_STATS_PARSED = pa.struct(
    [("numRecords", pa.int64()), ("minValues", _BOUNDS), ("maxValues", _BOUNDS), ("nullCount", _NULLS)]
)
_PARTITION_PARSED = pa.struct([("date", pa.date32())])
REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _STRING_MAP),
        ("size", pa.int64()),
        ("deletionVector", _DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
    ]
)
NON_FILE_ACTIONS = {
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
V2_ACTIONS = {
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


def protocol_action(*, v2_checkpoints: bool) -> dict[str, Any]:
    """The `protocol` action: the oldest one that allows the layout."""
    if not v2_checkpoints:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint", "appendOnly", "invariants"],
    }


def metadata_action(stats: Stats, *, v2_checkpoints: bool) -> dict[str, Any]:
    """The `metaData` action, with the properties that ask for this form of statistics."""
    types = {"id": "long", "value": "double", "name": "string", "ts": "timestamp", "date": "date"}
    schema = {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()],
    }
    configuration: dict[str, str] = {}
    if stats != "json":
        configuration["delta.checkpoint.writeStatsAsStruct"] = "true"
    if stats == "struct":
        configuration["delta.checkpoint.writeStatsAsJson"] = "false"
    if v2_checkpoints:
        configuration["delta.checkpointPolicy"] = "v2"
    return {
        "id": TABLE_ID,
        "name": "events",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, separators=(",", ":")),
        "partitionColumns": ["date"],
        "configuration": configuration,
        "createdTime": CREATED_MS,
    }


# --- columns ------------------------------------------------------------------------------------------


def add_type(stats: Stats) -> pa.StructType:
    """The type of the checkpoint's `add` column."""
    columns: list[tuple[str, pa.DataType]] = [
        ("path", pa.string()),
        ("partitionValues", _STRING_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("tags", _STRING_MAP),
        ("deletionVector", _DELETION_VECTOR),
        ("baseRowId", pa.int64()),
        ("defaultRowCommitVersion", pa.int64()),
        ("clusteringProvider", pa.string()),
    ]
    if stats != "struct":
        columns.append(("stats", pa.string()))
    if stats != "json":
        columns += [("partitionValues_parsed", _PARTITION_PARSED), ("stats_parsed", _STATS_PARSED)]
    return pa.struct(columns)


def file_actions(files: Files, is_add: np.ndarray, stats: Stats) -> dict[str, pa.Array]:
    """The checkpoint columns `add` and `remove` of these files: an add where `is_add`, else a tombstone."""
    count = len(files)
    shared = {
        "path": files.paths(),
        "partitionValues": _partition_values(files),
        "size": pa.array(files.size_bytes),
        "dataChange": pa.repeat(False, count),
        "extendedFileMetadata": pa.repeat(True, count),
        "deletionTimestamp": pa.repeat(TOMBSTONE_MS, count),
        "modificationTime": pa.array(files.modified_ms),
    }
    add = dict(shared)
    if stats != "struct":
        add["stats"] = stats_json(files)
    if stats != "json":
        add["partitionValues_parsed"] = pa.StructArray.from_arrays(
            [pa.array(files.date)], fields=list(_PARTITION_PARSED)
        )
        add["stats_parsed"] = _stats_parsed(files)
    return {
        "add": _struct(add_type(stats), add, count, null=~is_add),
        "remove": _struct(REMOVE, shared, count, null=is_add),
    }


def _struct(kind: pa.StructType, columns: dict[str, pa.Array], count: int, null: np.ndarray) -> pa.Array:
    children = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(null))


def _partition_values(files: Files) -> pa.Array:
    offsets = pa.array(np.arange(len(files) + 1, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, pa.repeat("date", len(files)), _date_text(files))


def _date_text(files: Files) -> pa.Array:
    return pa.array(files.date).cast(pa.string())


def _name_text(number: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("user-", pc.utf8_lpad(pa.array(number).cast(pa.string()), 6, "0"), "")


def _time_text(time_ms: np.ndarray) -> pa.Array:
    text = pa.array(time_ms).cast(pa.timestamp("ms", "UTC")).cast(pa.string())
    return pc.binary_replace_slice(text, 10, 11, "T")


def _stats_parsed(files: Files) -> pa.Array:
    def bounds(low: bool) -> pa.Array:
        time_ms = pa.array(files.ts_min_ms if low else files.ts_max_ms).cast(pa.timestamp("ms", "UTC"))
        return pa.StructArray.from_arrays(
            [
                pa.array(files.id_min if low else files.id_max),
                pa.array(files.value_min if low else files.value_max),
                _name_text(files.name_min if low else files.name_max),
                time_ms.cast(_TIMESTAMP),
            ],
            fields=list(_BOUNDS),
        )

    zero = pa.array(np.zeros(len(files), dtype=np.int64))
    nulls = [zero, pa.array(files.value_nulls), pa.array(files.name_nulls), zero]
    children = [
        pa.array(files.num_records),
        bounds(low=True),
        bounds(low=False),
        pa.StructArray.from_arrays(nulls, fields=list(_NULLS)),
    ]
    return pa.StructArray.from_arrays(children, fields=list(_STATS_PARSED))


def stats_json(files: Files) -> pa.Array:
    """The `stats` strings: numRecords, minValues, maxValues and nullCount, as Spark orders them."""

    def text(numbers: np.ndarray) -> pa.Array:
        return pa.array(numbers).cast(pa.string())

    parts: list[str | pa.Array] = ['{"numRecords":', text(files.num_records)]
    bounds = {
        "minValues": (files.id_min, files.value_min, files.name_min, files.ts_min_ms),
        "maxValues": (files.id_max, files.value_max, files.name_max, files.ts_max_ms),
    }
    for key, (id_, value, name, ts_ms) in bounds.items():
        parts += [f',"{key}":{{"id":', text(id_), ',"value":', text(value), ',"name":"', _name_text(name)]
        parts += ['","ts":"', _time_text(ts_ms), '"}']
    parts += [',"nullCount":{"id":0,"value":', text(files.value_nulls), ',"name":', text(files.name_nulls)]
    parts += [',"ts":0}}']
    return pc.binary_join_element_wise(*parts, "")


# --- lines --------------------------------------------------------------------------------------------


def add_lines(files: Files) -> list[str]:
    """The `add` actions of these files, as lines of a commit."""
    stats = pc.replace_substring(stats_json(files), '"', '\\"')
    lines = pc.binary_join_element_wise(
        '{"add":{"path":"',
        files.paths(),
        '","partitionValues":{"date":"',
        _date_text(files),
        '"},"size":',
        pa.array(files.size_bytes).cast(pa.string()),
        ',"modificationTime":',
        pa.array(files.modified_ms).cast(pa.string()),
        ',"dataChange":true,"stats":"',
        stats,
        '"}}',
        "",
    )
    return list(lines.to_pylist())


def remove_lines(files: Files) -> list[str]:
    """The `remove` actions of these files, as lines of a commit."""
    lines = pc.binary_join_element_wise(
        '{"remove":{"path":"',
        files.paths(),
        f'","deletionTimestamp":{TOMBSTONE_MS},"dataChange":true,"extendedFileMetadata":true,',
        '"partitionValues":{"date":"',
        _date_text(files),
        '"},"size":',
        pa.array(files.size_bytes).cast(pa.string()),
        "}}",
        "",
    )
    return list(lines.to_pylist())
