"""Checkpoints of synthetic tables: classic, multi-part, and V2 with sidecars, as delta-spark lays them out.

Implements the spec's section Checkpoints for the writer's side. The order of the rows and the size of the row
groups decide what a reader can skip, so both are copied from what real writers do (see `spark_order`).
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.actions import NON_FILE_ACTIONS, REMOVE, V2_ACTIONS, Stats, add_type, file_actions
from benchmarks.columns import spark_hash

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.columns import Files

Order: TypeAlias = Literal["spark", "sorted"]

SPARK_STATE_PARTITIONS = 50
"""delta-spark replays the log in this many hash partitions and writes them one after the other."""
NULL_HASH = 42
"""Spark's hash of a null key: where the actions without a path go."""


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """What a checkpoint holds: `files` are `num_adds` live files followed by the tombstones."""

    version: int
    files: Files
    num_adds: int
    non_file_actions: list[dict[str, Any]]
    """Actions as in a commit: `{"protocol": {...}}`."""
    stats: Stats
    order: Order
    row_group_rows: int
    modified_ms: int

    def rows(self) -> tuple[np.ndarray, int]:
        """The order of the file actions, and before which of them the other actions stand."""
        if self.order == "sorted":
            return np.arange(len(self.files)), 0
        return spark_order(self.files)


def spark_order(files: Files) -> tuple[np.ndarray, int]:
    """delta-spark's order: hash partitions of the path one after the other, each sorted by path.

    Every row group therefore spans all partition values and statistics; `protocol` and `metaData` stand where
    the null key is hashed to, deep in the file.
    """
    bucket = np.mod(spark_hash(files.path), SPARK_STATE_PARTITIONS)
    text = np.ascontiguousarray(files.path).view(f"S{files.path.shape[1]}").ravel()
    order = np.lexsort((text, bucket))
    return order, int(np.searchsorted(bucket[order], np.mod(NULL_HASH, SPARK_STATE_PARTITIONS)))


def write_classic(log: Path, content: CheckpointContent) -> None:
    """`n.checkpoint.parquet`, following the V1 spec."""
    order, others_at = content.rows()
    name = f"{content.version:020}.checkpoint.parquet"
    size_bytes = _write_parquet(log / name, content, order, others_at, _v1_schema(content))
    _write_last_checkpoint(log, content, size_bytes, num_actions=len(order) + len(content.non_file_actions))


def write_multi_part(log: Path, content: CheckpointContent, parts: int) -> None:
    """`n.checkpoint.o.p.parquet`, clustered by Spark's hash of the path as the spec demands."""
    order, _ = content.rows()
    part_of = np.mod(spark_hash(content.files.path), parts)[order]
    size_bytes = 0
    for part in range(parts):
        name = f"{content.version:020}.checkpoint.{part + 1:010}.{parts:010}.parquet"
        others_at = 0 if part == np.mod(NULL_HASH, parts) else None
        size_bytes += _write_parquet(log / name, content, order[part_of == part], others_at, _v1_schema(content))
    num_actions = len(order) + len(content.non_file_actions)
    _write_last_checkpoint(log, content, size_bytes, num_actions=num_actions, parts=parts)


def write_v2(log: Path, content: CheckpointContent, sidecars: int, seed: int) -> None:
    """`n.checkpoint.u.parquet`, following the V2 spec, with all file actions in `_sidecars`."""
    order, _ = content.rows()
    part_of = np.mod(spark_hash(content.files.path), sidecars)[order]
    (log / "_sidecars").mkdir()
    ids = np.random.default_rng([seed, 100])
    schema = pa.schema([("add", add_type(content.stats)), ("remove", REMOVE)])
    actions = [{"checkpointMetadata": {"version": content.version}}, *content.non_file_actions]
    total_bytes = 0
    for sidecar in range(sidecars):
        name = f"{_uuid(ids)}.parquet"
        size_bytes = _write_parquet(log / "_sidecars" / name, content, order[part_of == sidecar], None, schema)
        total_bytes += size_bytes
        reference = {"path": name, "sizeInBytes": size_bytes, "modificationTime": content.modified_ms}
        actions.append({"sidecar": reference})
    top = pa.schema([*_v1_schema(content), *V2_ACTIONS.items()])
    path = log / f"{content.version:020}.checkpoint.{_uuid(ids)}.parquet"
    pq.write_table(_other_actions(actions, top), path, compression="snappy", store_schema=False)
    num_actions = len(order) + len(actions)
    _write_last_checkpoint(log, content, total_bytes + path.stat().st_size, num_actions=num_actions)


def _v1_schema(content: CheckpointContent) -> pa.Schema:
    """All actions of a V1 checkpoint, in delta-spark's order of columns."""
    columns = {
        "txn": NON_FILE_ACTIONS["txn"],
        "add": add_type(content.stats),
        "remove": REMOVE,
        **NON_FILE_ACTIONS,
    }
    return pa.schema(list(columns.items()))


def _uuid(rng: np.random.Generator) -> uuid.UUID:
    return uuid.UUID(bytes=rng.bytes(16), version=4)


def _write_parquet(
    path: Path, content: CheckpointContent, order: np.ndarray, others_at: int | None, schema: pa.Schema
) -> int:
    """Write the file actions of `order`, and before the `others_at`-th the other actions; the size in bytes.

    One row group is built at a time: memory is bound by `row_group_rows`, not by the number of files.
    """
    with pq.ParquetWriter(path, schema, compression="snappy", store_schema=False) as writer:
        starts = range(0, max(len(order), 1), content.row_group_rows)
        for start in starts:
            stop = min(start + content.row_group_rows, len(order))
            cuts = [start, stop]
            holds_others = others_at is not None and (start <= others_at < stop or others_at == start)
            if others_at is not None and holds_others:
                cuts.insert(1, others_at)
            pieces = [_file_rows(content, order[a:b], schema) for a, b in itertools.pairwise(cuts)]
            if holds_others:
                pieces.insert(1, _other_actions(content.non_file_actions, schema))
            group = pa.concat_tables(pieces)
            writer.write_table(group, row_group_size=len(group))
    return path.stat().st_size


def _file_rows(content: CheckpointContent, rows: np.ndarray, schema: pa.Schema) -> pa.Table:
    columns = file_actions(content.files.take(rows), rows < content.num_adds, content.stats)
    return pa.table([columns.get(f.name, pa.nulls(len(rows), f.type)) for f in schema], schema=schema)


def _other_actions(actions: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([_as_arrow(action.get(field.name)) for action in actions], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _as_arrow(action: dict[str, Any] | None) -> dict[str, Any] | None:
    """The same action with its maps as lists of pairs, which is how Arrow takes maps from Python."""
    if action is None:
        return None
    changed = dict(action)
    if "configuration" in changed:
        changed["configuration"] = list(changed["configuration"].items())
    if "format" in changed:
        changed["format"] = {**changed["format"], "options": []}
    return changed


def _write_last_checkpoint(
    log: Path, content: CheckpointContent, size_bytes: int, *, num_actions: int, parts: int | None = None
) -> None:
    hint: dict[str, Any] = {"version": content.version, "size": num_actions}
    if parts is not None:
        hint["parts"] = parts
    hint |= {"sizeInBytes": size_bytes, "numOfAddFiles": content.num_adds}
    (log / "_last_checkpoint").write_text(json.dumps(hint, separators=(",", ":")))
    for path in [log / "_last_checkpoint", *log.rglob("*.parquet")]:
        os.utime(path, ns=(content.modified_ms * 1_000_000,) * 2)
