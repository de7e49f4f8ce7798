"""Rows that were found, as bitmaps of positions: what a task makes of them. And parts of a table, by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.features.context import TableRef
from headwater.log.actions.deletion_vectors import to_bitmap
from headwater.spark.dml.matched import _bitmaps, matched_positions
from headwater.spark.dml.target import DmlTarget
from headwater.spark.session import SparkTable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**33)), max_size=20), max_size=4))
def test_a_task_unites_the_rows_of_each_file(batches: list[list[tuple[int, int]]]) -> None:
    def arrow(rows: list[tuple[int, int]]) -> pa.RecordBatch:
        columns = [pa.array([r[0] for r in rows], pa.int32()), pa.array([r[1] for r in rows], pa.int64())]
        return pa.RecordBatch.from_arrays(columns, ["file", "row"])

    found = [row for batch in _bitmaps(arrow(rows) for rows in batches) for row in batch.to_pylist()]
    located = {(row["file"], position) for row in found for position in to_bitmap(row["rows"])}
    assert located == {pair for rows in batches for pair in rows}
    assert len({row["file"] for row in found}) == len(found)


@pytest.mark.spark
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_are_found_and_chosen_by_position(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    path = str(tmp_path / "t")
    properties = {"delta.enableDeletionVectors": vectors}
    hw.write(spark.range(10).coalesce(1), path, properties=properties)
    hw.write(spark.range(10, 16).coalesce(1), path, mode="append")
    hw.DeltaTable.forPath(spark, path).delete("id = 1")  # positions count the deleted row, if it is still in the file
    target = DmlTarget.open(SparkTable(spark, TableRef(path)), "TEST")
    files = target.candidates()
    positions = matched_positions(target.rows(files).where("id IN (0, 5, 11, 12)"))
    assert sum(map(len, positions.values())) == 4

    def ids(**chosen: object) -> list[int]:
        return sorted(row.id for row in target.rows(files, **chosen).collect())  # type: ignore[arg-type]

    assert ids(only=positions) == [0, 5, 11, 12]
    assert ids(without=positions) == [i for i in range(16) if i not in (0, 1, 5, 11, 12)]
    [first] = [number for number, rows in positions.items() if 0 in rows]
    assert ids(numbers=[first], without={first: positions[first]}) == [2, 3, 4, 6, 7, 8, 9]
