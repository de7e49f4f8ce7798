"""Checkpoints that we write, as other readers see them: deltalake and DuckDB find the same files and rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headwater as hw
from headwater.log.delta.checkpoint.write import write_checkpoint
from support.corpus import CORPUS, table_id, tables
from support.log.checkpoint_states import NO_JSON, STRUCT, V2, configured

MODES = {"text": {}, "both": STRUCT, "columns": STRUCT | NO_JSON, "v2": V2, "v2 columns": V2 | STRUCT | NO_JSON}
READERS = {"delta-rs", "duckdb-delta"}
TABLES = [
    entry
    for entry in tables()
    if entry["expect"] == "ok"
    and set(entry.get("oracle") or ()) >= READERS
    and not any(entry.get(reason) for reason in ("setup", "slow", "disputed", "dissent", "data_files"))
]


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    yield connection
    connection.close()


def answers(path: Path, duck: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """What the others say of a table."""
    table = DeltaTable(path)
    adds = pa.table(table.get_add_actions())
    rows = duck.execute(f"SELECT COLUMNS(*)::VARCHAR FROM delta_scan('{path}')").fetchall()
    return {
        "version": table.version(),
        "schema": json.loads(table.schema().to_json()),
        "files": sorted(zip(adds.column("path").to_pylist(), adds.column("size_bytes").to_pylist(), strict=True)),
        "rows": sorted(map(repr, rows)),
    }


def checkpointed(path: Path, properties: dict[str, str]) -> None:
    """Write a checkpoint of the newest version; the commits before it are deleted, so that all must rely on it."""
    snapshot = hw.open_log(path)
    v2 = ["v2Checkpoint"] if V2.items() <= properties.items() and not snapshot.protocol.supports("v2Checkpoint") else []
    write_checkpoint(configured(snapshot, properties, v2))
    for commit in (path / "_delta_log").glob("*.json"):
        if int(commit.name[:20]) < snapshot.version:
            commit.unlink()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("partitioned", [True, False])
def test_others_read_a_table_with_our_checkpoint(
    partitioned: bool, mode: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    for start in range(0, 40, 10):
        ids = list(range(start, start + 10))
        columns = {"id": ids, "part": [f"p {n % 3}" for n in ids], "s": [{"x": n / 2, "y": str(n)} for n in ids]}
        by = ["part"] if partitioned else None
        write_deltalake(tmp_path, pa.table(columns), mode="append", partition_by=by)
    DeltaTable(tmp_path).delete("id = 15")
    before = answers(tmp_path, duck)
    checkpointed(tmp_path, MODES[mode])
    assert answers(tmp_path, duck) == before
    [(least,)] = duck.execute(f"SELECT count(*) FROM delta_scan('{tmp_path}') WHERE id >= 35").fetchall()
    assert least == 5
    if "v2" not in mode:  # whose rows deltalake does not read, though it reads the log
        assert len(DeltaTable(tmp_path).to_pyarrow_table(filters=[("id", ">=", 35)])) == 5


@pytest.mark.parametrize("entry", TABLES[::3], ids=table_id)
def test_others_read_tables_of_the_corpus_with_our_checkpoint(
    entry: dict[str, Any], tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    path = tmp_path / "table"
    shutil.copytree(Path(CORPUS or "") / entry["path"], path)
    if not list((path / "_delta_log").glob("*.json")):
        pytest.skip("there is no commit that the checkpoint could follow")
    before = answers(path, duck)
    checkpointed(path, {})
    assert answers(path, duck) == before
