"""Deletion vectors that we have written, as others read them: deltalake and DuckDB see the rows that are left.

Positions from 0 to a million, runs, single rows and many of them; inline, alone in a file and several in one; written
at once and by writers who met.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

from headwater.features.context import TableRef
from headwater.log.commit import row_changes
from headwater.log.commit.row_changes import RowChange
from headwater.log.commit.transaction import Transaction
from headwater.log.opening import open_snapshot
from support.log.commit_tables import add
from support.log.deletions import DELETE, delete, vector_table_in, write_small_inline

if TYPE_CHECKING:
    from support.oracles.delta_spark_oracle import DeltaSparkOracle

ROWS = 200_000
FOURTH = BitMap64(range(0, ROWS, 4))
DELETED = {
    "first": BitMap64([0]),
    "last": BitMap64([ROWS - 1]),
    "odd": BitMap64([1, 5, 9]),
    "run": BitMap64(range(10, 150_000)),
    "sparse": BitMap64(range(0, ROWS, 7)),
    "dense": BitMap64(range(ROWS)) - BitMap64(range(0, ROWS, 5)),
    "both": BitMap64(range(65_530, 65_550)) | BitMap64([3, 131_072]),
    "all but one": BitMap64(range(ROWS)) - BitMap64([77]),
    "nothing": BitMap64(),
    "all": BitMap64(range(ROWS)),
}


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    yield connection
    connection.close()


def with_rows_deleted(path: Path) -> None:
    """A table with a file for each case; a second commit deletes half of the rows, one that it met the other half."""
    ctx = TableRef(path).context()
    table = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    files = []
    for part in DELETED:
        name = f"part={part.replace(' ', '_')}.parquet"
        pq.write_table(table, path / name, row_group_size=70_000)
        files.append(add(name, part, 0, ROWS - 1, rows=ROWS, size=(path / name).stat().st_size))
    snapshot = vector_table_in(ctx, *files, **{"delta.checkpointInterval": "2"})
    late = Transaction(ctx, snapshot)
    for file, rows in zip(files, DELETED.values(), strict=True):
        late.delete_rows([RowChange(file.path, rows & FOURTH)])
    rest = [RowChange(file.path, rows - FOURTH) for file, rows in zip(files, DELETED.values(), strict=True)]
    delete(ctx, snapshot, *rest)
    assert late.commit(DELETE).attempts == 2


@pytest.mark.parametrize("kind", ["small ones inline", "all in files", "all inline"])
def test_all_readers_see_the_rows_that_are_left(
    kind: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"small ones inline": 256, "all in files": 0, "all inline": 1 << 20}[kind]
    monkeypatch.setattr(row_changes, "write_vectors", write_small_inline(limit))
    with_rows_deleted(tmp_path)
    left = {part: BitMap64(range(ROWS)) - rows for part, rows in DELETED.items()}
    expected = sorted((part, len(rows), sum(rows)) for part, rows in left.items() if rows)
    question = "SELECT part, count(*), CAST(sum(id) AS BIGINT) FROM {} GROUP BY part ORDER BY part"

    assert open_snapshot(TableRef(tmp_path).context()).verify() == []
    assert duck.execute(question.format(f"delta_scan('{tmp_path}')")).fetchall() == expected
    answer = QueryBuilder().register("t", DeltaTable(tmp_path)).execute(question.format("t")).read_all()
    assert sorted(tuple(row.values()) for row in pa.table(answer).to_pylist()) == expected


def test_delta_spark_vacuums_a_table_with_our_vectors(tmp_path: Path, delta_spark: DeltaSparkOracle) -> None:
    """Its VACUUM throws on vectors that stand in the log, and finds those in files."""
    with_rows_deleted(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    answer = delta_spark.sql(f"VACUUM delta.`{tmp_path}`")
    assert answer == [{"path": f"file:{tmp_path}"}]
    assert before <= {path for path in tmp_path.rglob("*") if path.is_file()}
    left = sum(ROWS - len(rows) for rows in DELETED.values())
    assert delta_spark.sql(f"SELECT count(*) AS n FROM delta.`{tmp_path}`") == [{"n": left}]
