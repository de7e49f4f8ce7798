"""Small tables with a change data feed, and what changed in them: the same for every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from support.tables.delta_tables import DeltaTable, field, inline_vector, relative_vectors

if TYPE_CHECKING:
    from pathlib import Path

Change = tuple[int, str | None, str, int]
"""id, p, type, version."""
History = Callable[[DeltaTable], list[Change]]

ENABLED = {"delta.enableChangeDataFeed": "true"}
FILTERS = ("_commit_version = 2", "_change_type = 'delete' and p = 'a'", "id > 1", "p = 'b' or _commit_version < 3")


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def removal(action: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The `remove` for an `add`."""
    kept = {k: v for k, v in action["add"].items() if k in ("path", "partitionValues", "size", "deletionVector")}
    return {"remove": {**kept, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True, **changes}}


def changing_table(path: Path) -> DeltaTable:
    """An empty table for a history: columns `id` and, for partitions, `p`."""
    return DeltaTable(
        path,
        field("id", "long"),
        field("p", "string"),
        partition_columns=("p",),
        configuration=ENABLED,
        features=("deletionVectors",),
    )


def added_removed_and_rearranged_files(table: DeltaTable) -> list[Change]:
    first = table.append(ids(1, 2), partitionValues={"p": "a"})
    second = table.append(ids(3), "of b [%41].parquet", partitionValues={"p": "b"})
    table.commit(removal(first))
    compacted = table.file(ids(3), partitionValues={"p": "b"}, dataChange=False)
    table.commit(removal(second, dataChange=False), compacted)
    return [
        (1, "a", "delete", 3),
        (1, "a", "insert", 1),
        (2, "a", "delete", 3),
        (2, "a", "insert", 1),
        (3, "b", "insert", 2),
    ]


def a_file_that_comes_and_goes(table: DeltaTable) -> list[Change]:
    action = table.append(ids(7), partitionValues={"p": None})
    table.commit(removal(action))
    table.commit(action)
    table.commit(removal(action))
    return [(7, None, "delete", 2), (7, None, "delete", 4), (7, None, "insert", 1), (7, None, "insert", 3)]


def vectors_that_grow_shrink_and_change(table: DeltaTable) -> list[Change]:
    action = table.append(ids(0, 1, 2, 3, 4), partitionValues={"p": "a"})
    (in_a_file,) = relative_vectors(table.path, [2, 3])
    for vector in (inline_vector([1, 2]), in_a_file, None):
        kept = {k: v for k, v in action["add"].items() if k != "deletionVector"}
        replaced = {"add": {**kept, **({"deletionVector": vector} if vector else {})}}
        table.commit(removal(action), replaced)
        action = replaced
    return [
        (0, "a", "insert", 1),
        (1, "a", "delete", 2),
        (1, "a", "insert", 1),
        (1, "a", "insert", 3),
        (2, "a", "delete", 2),
        (2, "a", "insert", 1),
        (2, "a", "insert", 4),
        (3, "a", "delete", 3),
        (3, "a", "insert", 1),
        (3, "a", "insert", 4),
        (4, "a", "insert", 1),
    ]


def deleted_rows_of_added_and_removed_files(table: DeltaTable) -> list[Change]:
    action = table.append(ids(0, 1, 2), partitionValues={"p": "a"}, deletionVector=inline_vector([1]))
    table.commit(removal(action), table.file(ids(8), partitionValues={"p": "b"}))
    return [
        (0, "a", "delete", 2),
        (0, "a", "insert", 1),
        (2, "a", "delete", 2),
        (2, "a", "insert", 1),
        (8, "b", "insert", 2),
    ]


def recorded_changes_speak_for_their_version(table: DeltaTable) -> list[Change]:
    old = table.append(ids(1, 2), partitionValues={"p": "a"})
    recorded = pa.table({"id": pa.array([2, 20], pa.int64()), "_change_type": ["update_preimage", "update_postimage"]})
    cdc = table.file(recorded, "_change_data/cdc-1.parquet", partitionValues={"p": "a"})["add"]
    cdc = {k: cdc[k] for k in ("path", "partitionValues", "size")} | {"dataChange": False}
    table.commit(removal(old), table.file(ids(1, 20), partitionValues={"p": "a"}), {"cdc": cdc})
    return [
        (1, "a", "insert", 1),
        (2, "a", "insert", 1),
        (2, "a", "update_preimage", 2),
        (20, "a", "update_postimage", 2),
    ]


HISTORIES: tuple[History, ...] = (
    added_removed_and_rearranged_files,
    a_file_that_comes_and_goes,
    vectors_that_grow_shrink_and_change,
    deleted_rows_of_added_and_removed_files,
    recorded_changes_speak_for_their_version,
)
