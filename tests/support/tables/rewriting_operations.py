"""Everything that reads or rewrites data files, as one list: operations that do the same to any table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import headwater as hw

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

Rows = dict[int, tuple[Any, ...]]
"""The other columns by `id`. Each file of a table has one row with an `id` that ends in 2, which operations change."""

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
TRACKING = {"delta.enableRowTracking": "true"}


@dataclass(frozen=True)
class Operation:
    """Something that is done to a table with the column `id` (bigint) and any others.

    Attributes:
        run: does it; returns the rows that it saw instead of those of the table, if it is a kind of reading.
        expected: the rows afterwards, by those before.
        properties: what the table must have.
        writes: whether it makes a version.
    """

    run: Callable[[SparkSession, Path], Rows | None]
    expected: Callable[[Rows], Rows] = lambda rows: rows
    properties: dict[str, str] | None = None
    writes: bool = True


def rows_of(spark: SparkSession, path: Path) -> Rows:
    return by_id(hw.read(spark, path).collect())


def by_id(rows: list[Row]) -> Rows:
    """Rows whose first column is `id`."""
    return {row[0]: tuple(bytes(v) if isinstance(v, bytearray) else v for v in row[1:]) for row in rows}


def without_chosen(rows: Rows) -> Rows:
    return {id_: value for id_, value in rows.items() if id_ % 10 != 2}


def moved(rows: Rows) -> Rows:
    return {-id_ if id_ % 10 == 2 else id_: value for id_, value in rows.items()}


def table(spark: SparkSession, path: Path) -> Any:
    return hw.DeltaTable.forPath(spark, path)


def _optimize(spark: SparkSession, path: Path) -> None:
    table(spark, path).optimize().executeCompaction()


def _zorder(spark: SparkSession, path: Path) -> None:
    table(spark, path).optimize().executeZOrderBy("id")


def _delete(spark: SparkSession, path: Path) -> None:
    table(spark, path).delete("id % 10 = 2")


def _update(spark: SparkSession, path: Path) -> None:
    table(spark, path).update("id % 10 = 2", {"id": "-id"})


def _merge(spark: SparkSession, path: Path) -> None:
    source = spark.range(2, 1000, 10).toDF("key")
    merge = table(spark, path).alias("t").merge(source.alias("s"), "t.id = s.key AND t.id < 1000")
    merge.whenMatchedUpdate(set={"id": "-s.key"}).execute()


def _upsert(spark: SparkSession, path: Path) -> None:
    """With the rows that the table has: reads keys in workers, and finds that nothing changes but one."""
    source = hw.read(spark, path).where("id % 10 = 2").localCheckpoint()
    merge = table(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def _purge(spark: SparkSession, path: Path) -> None:
    table(spark, path).delete("id % 10 = 2")
    table(spark, path).reorg().executePurge()


def _changes(spark: SparkSession, path: Path) -> Rows:
    """The inserts since the beginning, for which the files themselves stand."""
    changes = hw.read(spark, path, readChangeFeed="true", startingVersion=0)
    return by_id(changes.drop("_change_type", "_commit_version", "_commit_timestamp").collect())


def _search(spark: SparkSession, path: Path) -> Rows:
    """Builds an index of a column, and reads the other ones by what it finds."""
    hw.search_index(table(spark, path), columns={"id": None}, spark=spark)
    return by_id(table(spark, path).search("id:[0 TO 1000]").collect())


OPERATIONS: dict[str, Operation] = {
    "read": Operation(rows_of, writes=False),
    "OPTIMIZE": Operation(_optimize),
    "ZORDER": Operation(_zorder),
    "DELETE": Operation(_delete, without_chosen),
    "UPDATE in place": Operation(_update, moved),
    "UPDATE with changes": Operation(_update, moved, CHANGES),
    "UPDATE with vectors": Operation(_update, moved, VECTORS),
    "UPDATE with row ids": Operation(_update, moved, TRACKING),
    "MERGE": Operation(_merge, moved),
    "upsert": Operation(_upsert),
    "REORG": Operation(_purge, without_chosen, VECTORS),
    "changes": Operation(_changes, properties=CHANGES, writes=False),
    "search": Operation(_search),
}


def copies(
    spark: SparkSession, original: Path, directory: Path, names: Iterable[str] = tuple(OPERATIONS)
) -> Iterator[tuple[str, Operation, Path]]:
    """A copy of a table for each operation, with the properties that it needs."""
    for name in names:
        operation = OPERATIONS[name]
        path = directory / name.replace(" ", "-")
        shutil.copytree(original, path)
        if operation.properties == CHANGES:
            _record_changes(path)
        elif operation.properties:
            table(spark, path).setProperties(operation.properties)
        yield name, operation, path


def _record_changes(path: Path) -> None:
    """Let the table have had a change data feed from its first version on."""
    first = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] |= CHANGES
        if "protocol" in action and "writerFeatures" in action["protocol"]:
            action["protocol"]["writerFeatures"].append("changeDataFeed")
        elif "protocol" in action:
            action["protocol"]["minWriterVersion"] = 4
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
