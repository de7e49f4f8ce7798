"""Rows of checkpoint columns, picked in passing or out of kept columns: the same rows either way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headwater.log.files import chunks as file_chunks
from headwater.log.files.chunks import ADD_COLUMNS, ParquetChunk, SubsetChunk
from headwater.log.files.parquet import ParquetObject
from headwater.storage import open_store

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 50_000


@pytest.fixture
def chunk(tmp_path: Path) -> ParquetChunk:
    """Adds with tombstones in between, as delta-spark's checkpoints have them."""
    is_add = [i % 7 != 3 for i in range(ROWS)]
    adds = [
        {"path": f"p{i}", "size": i, "partitionValues": [("date", f"d{i % 5}")]} if add else None
        for i, add in enumerate(is_add)
    ]
    type_ = pa.struct(
        [("path", pa.string()), ("size", pa.int64()), ("partitionValues", ADD_COLUMNS["partitionValues"])]
    )
    pq.write_table(pa.table({"add": pa.array(adds, type_)}), tmp_path / "c.parquet")
    store = open_store(tmp_path)
    return ParquetChunk(ParquetObject(store, store.head("c.parquet")), 0, "add", ADD_COLUMNS)


PATHS = [f"p{i}" for i in range(ROWS) if i % 7 != 3]


@pytest.mark.parametrize("small_rows", [0, ROWS], ids=["passing", "kept"])
def test_the_same_rows_however_often_they_are_asked_for(
    chunk: ParquetChunk, monkeypatch: pytest.MonkeyPatch, small_rows: int
) -> None:
    monkeypatch.setattr(file_chunks, "_SMALL_ROWS", small_rows)
    wanted = [0, 1, 2, 13, 14_000, 14_045, 20_000, len(PATHS) - 1]
    numbers = pa.array(wanted, pa.uint64())
    for _ in range(4):
        assert chunk.rows("path", numbers).to_pylist() == [PATHS[i] for i in wanted]
        assert chunk.rows("size", numbers).to_pylist() == [int(PATHS[i][1:]) for i in wanted]


def test_no_rows_at_all(chunk: ParquetChunk) -> None:
    assert chunk.rows("path", pa.array([], pa.uint64())).to_pylist() == []


def test_a_column_that_the_file_does_not_have_is_null(chunk: ParquetChunk) -> None:
    assert chunk.rows("clusteringProvider", pa.array([5], pa.uint64())).to_pylist() == [None]
    assert set(chunk.map_values("tags", "k").to_pylist()) == {None}


def test_partition_values_of_the_adds_alone(chunk: ParquetChunk) -> None:
    expected = [f"d{int(path[1:]) % 5}" for path in PATHS]
    assert chunk.map_values("partitionValues", "date").to_pylist() == expected
    assert pc.all(chunk.map_values("partitionValues", "region").is_null()).as_py()
    few = SubsetChunk(chunk, pa.array([3, 9], pa.uint64()))
    assert few.map_values("partitionValues", "date").to_pylist() == [expected[3], expected[9]]
