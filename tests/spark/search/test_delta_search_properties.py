"""Search on a Delta table equals a naive reading of its rows, after every kind of commit and for every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import headwater as hw
from headwater import DeltaTable
from support.search.delta_search_cases import COLUMNS, SCHEMA, Asked, Row, found_ids, queries, rows

pytestmark = pytest.mark.spark

OPERATIONS = ("append", "delete", "update", "merge", "optimize", "restore", "index")


class Model:
    """What the table must hold, version by version."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.versions: dict[int, dict[int, Row]] = {}

    def record(self, version: int) -> None:
        self.versions[version] = dict(self.rows)

    def ids(self, version: int, asked: Asked) -> list[int]:
        return sorted(number for number, row in self.versions[version].items() if asked.finds(row))


def change(spark: Any, table: DeltaTable, path: str, model: Model, operation: str, data: st.DataObject) -> None:
    """One commit (or more), in the table and in the model."""
    new = data.draw(rows(1 + max(model.rows, default=0) + 1000, 4), label="rows")
    remainder = data.draw(st.integers(0, 2), label="remainder")
    match operation:
        case "append":
            hw.write(spark.createDataFrame(new, SCHEMA).coalesce(1), path, mode="append")
            model.rows |= {row[0]: row for row in new}
        case "delete":
            table.delete(f"id % 3 = {remainder}")
            model.rows = {number: row for number, row in model.rows.items() if number % 3 != remainder}
        case "update":
            table.update(f"id % 3 = {remainder}", {"message": "'Disk FULL again'"})
            for number, (_, host, _, took) in list(model.rows.items()):
                if number % 3 == remainder:
                    model.rows[number] = (number, host, "Disk FULL again", took)
        case "merge":
            changed = {number: (number, "web-1", "retry timeout", 5) for number in list(model.rows)[:2]}
            source = spark.createDataFrame([*changed.values(), *new], SCHEMA)
            merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
            model.rows |= changed | {row[0]: row for row in new}
        case "optimize":
            table.optimize().executeCompaction()
        case "restore":
            version = data.draw(st.sampled_from(sorted(model.versions)), label="version")
            if version != hw.open_log(path).version:
                table.restoreToVersion(version)
            model.rows = dict(model.versions[version])
        case "index":
            assert hw.search_index(table).coverage.is_complete


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), vectors=st.booleans(), partitioned=st.booleans(), mapping=st.booleans())
def test_search_equals_a_naive_reading_after_every_kind_of_commit(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, data: Any, vectors: bool, partitioned: bool, mapping: bool
) -> None:
    path = str(tmp_path_factory.mktemp("searched") / "table")
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    if mapping:
        properties["delta.columnMapping.mode"] = "name"
    model = Model()
    first = data.draw(rows(0, 8), label="first rows")
    model.rows = {row[0]: row for row in first}
    frame = spark.createDataFrame(first, SCHEMA).repartition(2, "id")
    hw.write(frame, path, partition_by=("host",) if partitioned else (), properties=properties)
    model.record(0)
    table = DeltaTable.forPath(spark, path)
    hw.search_index(table, columns=COLUMNS)
    model.record(hw.open_log(path).version)

    operations = data.draw(st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=5), label="operations")
    for operation in operations:
        change(spark, table, path, model, operation, data)
        model.record(hw.open_log(path).version)

    for version in model.versions:
        for asked in data.draw(st.lists(queries, min_size=4, max_size=4), label=f"queries of version {version}"):
            note(f"{asked} at version {version}")
            assert found_ids(spark, path, asked.text, version) == model.ids(version, asked)
