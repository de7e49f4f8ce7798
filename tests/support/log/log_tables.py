"""Log files for tests: actions as dictionaries, commits, compacted files and checkpoints of every kind.

Checkpoints are written with pyarrow, after the spec's "Checkpoint Schema".
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from support.oracles.log_model import Action
    from support.stores.log_store import DictStore

LOG = "_delta_log/"
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "part", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)

# --- actions ------------------------------------------------------------------------------------------


def protocol(reader: int = 1, writer: int = 2, **fields: Any) -> Action:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **fields}}


def features(*names: str, reader: Sequence[str] | None = None) -> Action:
    """A protocol of version (3, 7)."""
    return protocol(3, 7, readerFeatures=list(names if reader is None else reader), writerFeatures=list(names))


def metadata(configuration: dict[str, str] | None = None, **fields: Any) -> Action:
    return {
        "metaData": {
            "id": "af23c9d7-fff1-4a5a-a2c8-55c59bd782aa",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": configuration or {},
            **fields,
        }
    }


def add(path: str, size: int = 100, **fields: Any) -> Action:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": 1512909768000,
            "dataChange": True,
            **fields,
        }
    }


def remove(path: str, **fields: Any) -> Action:
    return {"remove": {"path": path, "deletionTimestamp": 1515488792485, "dataChange": True, **fields}}


def vector(name: str, offset: int | None = 1, cardinality: int = 6) -> dict[str, Any]:
    """A deletion vector descriptor."""
    found = {"storageType": "u", "pathOrInlineDv": name, "sizeInBytes": 40, "cardinality": cardinality}
    return found if offset is None else {**found, "offset": offset}


def txn(app_id: str, version: int, **fields: Any) -> Action:
    return {"txn": {"appId": app_id, "version": version, **fields}}


def domain(name: str, configuration: str = "{}", *, removed: bool = False) -> Action:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


def commit_info(**fields: Any) -> Action:
    return {"commitInfo": {"timestamp": 1515491537026, "operation": "WRITE", **fields}}


# --- files of the log -----------------------------------------------------------------------------------


def lines(actions: Iterable[Action]) -> bytes:
    return "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions).encode()


def commit_key(version: int) -> str:
    return f"{LOG}{version:020d}.json"


def put_commit(store: DictStore, version: int, *actions: Action) -> None:
    store.objects[commit_key(version)] = lines(actions)


def put_compacted(store: DictStore, first: int, last: int, *actions: Action) -> None:
    store.objects[f"{LOG}{first:020d}.{last:020d}.compacted.json"] = lines(actions)


def put_hint(store: DictStore, version: int, **fields: Any) -> None:
    store.objects[f"{LOG}_last_checkpoint"] = json.dumps({"version": version, "size": 2, **fields}).encode()


def simple_table(commits: int) -> DictStore:
    """A table whose commit `n` adds the file `f<n>`."""
    from support.stores.log_store import DictStore

    store = DictStore()
    put_commit(store, 0, protocol(), metadata(), add("f0"))
    for version in range(1, commits):
        put_commit(store, version, add(f"f{version}"))
    return store


# --- checkpoints ---------------------------------------------------------------------------------------

_STRINGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
COLUMNS: dict[str, pa.DataType] = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "add": pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", _STRINGS),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            ("tags", _STRINGS),
            ("deletionVector", _VECTOR),
            ("baseRowId", pa.int64()),
            ("defaultRowCommitVersion", pa.int64()),
            ("clusteringProvider", pa.string()),
        ]
    ),
    "remove": pa.struct(
        [
            ("path", pa.string()),
            ("deletionTimestamp", pa.int64()),
            ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()),
            ("partitionValues", _STRINGS),
            ("size", pa.int64()),
            ("deletionVector", _VECTOR),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("createdTime", pa.int64()),
            ("configuration", _STRINGS),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _STRINGS)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", _STRINGS),
        ]
    ),
}
V1_COLUMNS = [name for name in COLUMNS if name not in ("checkpointMetadata", "sidecar")]


def parquet(
    actions: Iterable[Action], columns: Iterable[str] = tuple(COLUMNS), row_group_size: int | None = None
) -> bytes:
    """Actions as a Parquet file, one row an action."""
    schema = pa.schema([(name, COLUMNS[name]) for name in columns])
    rows = [{name: _for_arrow(action.get(name)) for name in schema.names} for action in actions]
    return parquet_of(pa.Table.from_pylist(rows, schema=schema), row_group_size)


def parquet_of(table: pa.Table, row_group_size: int | None = None) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, row_group_size=row_group_size, write_page_checksum=True)
    return target.getvalue()


def _for_arrow(value: Any) -> Any:
    """Dictionaries as pyarrow wants maps: lists of pairs."""
    if not isinstance(value, dict):
        return value
    maps = {"partitionValues", "tags", "configuration", "options"}
    return {
        name: list(inner.items()) if name in maps and isinstance(inner, dict) else _for_arrow(inner)
        for name, inner in value.items()
    }


def put_classic(store: DictStore, version: int, actions: Sequence[Action], row_group_size: int | None = None) -> str:
    key = f"{LOG}{version:020d}.checkpoint.parquet"
    store.objects[key] = parquet(actions, V1_COLUMNS, row_group_size)
    return key


def put_multipart(store: DictStore, version: int, actions: Sequence[Action], parts: int) -> list[str]:
    """A multi-part checkpoint; action `i` stands in part `i % parts`."""
    keys = [f"{LOG}{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1)]
    for index, key in enumerate(keys):
        store.objects[key] = parquet(actions[index::parts], V1_COLUMNS)
    return keys


def put_v2(
    store: DictStore,
    version: int,
    actions: Sequence[Action],
    *,
    json_format: bool = False,
    sidecars: int = 0,
    classic_name: bool = False,
    uuid: str = UUID,
) -> str:
    """A checkpoint after the V2 spec; with `sidecars`, they hold all file actions."""
    files = [a for a in actions if "add" in a or "remove" in a]
    top = [{"checkpointMetadata": {"version": version, "tags": {}}}]
    top += [a for a in actions if not sidecars or a not in files]
    for number in range(sidecars):
        name = f"{version}-{uuid}-{number}.parquet"
        data = parquet(files[number::sidecars], ("add", "remove"))
        store.objects[f"{LOG}_sidecars/{name}"] = data
        top.append({"sidecar": {"path": name, "sizeInBytes": len(data), "modificationTime": 0, "tags": {}}})
    middle = "" if classic_name else f"{uuid}."
    key = f"{LOG}{version:020d}.checkpoint.{middle}{'json' if json_format else 'parquet'}"
    store.objects[key] = lines(top) if json_format else parquet(top)
    return key
