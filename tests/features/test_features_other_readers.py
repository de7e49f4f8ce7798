"""Tables with each feature, created and written through transactions, as deltalake and DuckDB read them.

The two share their log replay (delta-kernel-rs), so they are one vote; what they refuse by name is left to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from headwater.log.actions.model import Add
from headwater.log.schema import TIMESTAMP_NTZ, StructField, StructType, to_physical
from headwater.log.snapshot import Snapshot
from support.tables.feature_tables import NOW_MS, TWO_COLUMNS, alter, append, create, reopened

IDENTITY = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.highWaterMark": 2,
    "delta.identity.allowExplicitInsert": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "append only": {"properties": {"delta.appendOnly": "true"}},
    "constraint": {"properties": {"delta.constraints.positive": "id > 0"}},
    "change data feed": {"properties": {"delta.enableChangeDataFeed": "true"}},
    "mapping by name": {"properties": {"delta.columnMapping.mode": "name"}},
    "mapping by id": {"properties": {"delta.columnMapping.mode": "id"}},
    "deletion vectors": {"properties": {"delta.enableDeletionVectors": "true"}},
    "row tracking": {"properties": {"delta.enableRowTracking": "true"}},
    "in-commit timestamps": {"properties": {"delta.enableInCommitTimestamps": "true"}},
    "V2 checkpoints": {"properties": {"delta.checkpointPolicy": "v2"}},
    "type widening": {"properties": {"delta.enableTypeWidening": "true"}},
    "Iceberg V1": {"properties": {"delta.enableIcebergCompatV1": "true"}},
    "Iceberg V2": {"properties": {"delta.enableIcebergCompatV2": "true"}},
    "clustered": {"cluster_by": ["id"]},
    "domains": {"properties": {"delta.feature.domainMetadata": "supported"}},
    "vacuum protocol check": {"properties": {"delta.feature.vacuumProtocolCheck": "supported"}},
    "version 7": {"properties": {"delta.minWriterVersion": "7"}},
    "version 3": {"properties": {"delta.minReaderVersion": "3"}},
    "mapping, row tracking": {"properties": {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}},
    "partitioned": {"partition_columns": ["name"]},
    "mapping, partitioned": {"properties": {"delta.columnMapping.mode": "name"}, "partition_columns": ["name"]},
    "timestamp without zone": {"schema": StructType([*TWO_COLUMNS.fields, StructField("t", TIMESTAMP_NTZ)])},
    "identity": {
        "schema": StructType(
            [StructField(f.name, f.type, metadata=IDENTITY) if f.name == "id" else f for f in TWO_COLUMNS]
        )
    },
    "generated": {
        "schema": StructType(
            [
                TWO_COLUMNS.fields[0],
                StructField(
                    "name", TWO_COLUMNS.fields[1].type, metadata={"delta.generationExpression": "cast(id as string)"}
                ),
            ]
        )
    },
    "default": {
        "schema": StructType(
            [
                TWO_COLUMNS.fields[0],
                StructField("name", TWO_COLUMNS.fields[1].type, metadata={"CURRENT_DEFAULT": "'x'"}),
            ]
        )
    },
}
# What these readers cannot do (deltalake 1.6.6, DuckDB 1.5.5).
DELTALAKE_REFUSES = {"type widening", "vacuum protocol check"}
DUCKDB_SEES_NULLS = {"mapping, partitioned"}  # in the partition column; deltalake and delta-spark see its values


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    yield connection
    connection.close()


def write(path: Path, snapshot: Snapshot, ids: list[int]) -> Add:
    """A data file with the rows (id, text of the id), as the table wants its files."""
    physical = to_physical(snapshot.schema, snapshot.mapping_mode).to_arrow()
    logical = snapshot.schema.names
    partitioned = snapshot.partition_columns
    columns = {"id": ids, "name": ["x" if partitioned else str(i) for i in ids], "t": [None] * len(ids)}
    kept = [i for i, name in enumerate(logical) if name not in partitioned]
    arrays = [pa.array(columns[logical[i]], physical.field(i).type) for i in kept]
    name = f"part-{ids[0]}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema([physical.field(i) for i in kept])), path / name)
    stats = {"numRecords": len(ids), "nullCount": {physical.field(i).name: 0 for i in kept if logical[i] != "t"}}
    values = {physical.field(i).name: "x" for i, column in enumerate(logical) if column in partitioned}
    return Add(name, (path / name).stat().st_size, values, NOW_MS, stats=json.dumps(stats))


@pytest.mark.parametrize("kind", KINDS)
def test_other_readers_see_the_rows(kind: str, tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    snapshot = create(tmp_path, **KINDS[kind])
    snapshot = append(snapshot, write(tmp_path, snapshot, [1, 2]))
    snapshot = append(snapshot, write(tmp_path, snapshot, [3]))
    expected = [(i, "x" if snapshot.partition_columns else str(i)) for i in (1, 2, 3)]
    found = duck.execute(f"SELECT id, name FROM delta_scan('{tmp_path}') ORDER BY id").fetchall()
    assert found == ([(i, None) for i, _ in expected] if kind in DUCKDB_SEES_NULLS else expected)
    if kind in DELTALAKE_REFUSES:
        return
    table = DeltaTable(tmp_path)
    assert table.version() == snapshot.version
    protocol = table.protocol()
    assert protocol.min_reader_version == snapshot.protocol.min_reader_version
    assert protocol.min_writer_version == snapshot.protocol.min_writer_version
    assert set(protocol.writer_features or ()) == set(snapshot.protocol.writer_features or ())
    assert table.metadata().configuration == snapshot.properties
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT id, name FROM t ORDER BY id").read_all())
    assert list(zip(*(rows.column(i).to_pylist() for i in range(2)), strict=True)) == expected


# Those where a writer must understand what another one has written.
CONTINUED = [
    "mapping by id",
    "row tracking",
    "in-commit timestamps",
    "Iceberg V2",
    "clustered",
    "mapping, row tracking",
    "mapping, partitioned",
    "identity",
]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", CONTINUED)
def test_delta_spark_reads_and_continues_the_table(kind: str, tmp_path: Path, delta_spark: Any) -> None:
    snapshot = create(tmp_path, **KINDS[kind])
    snapshot = append(snapshot, write(tmp_path, snapshot, [1, 2]))
    text = "x" if snapshot.partition_columns else "3"
    columns, values = ("name", f"'{text}'") if kind == "identity" else ("id, name", f"3L, '{text}'")
    delta_spark.sql(f"INSERT INTO delta.`{tmp_path}` ({columns}) VALUES ({values})")
    snapshot = reopened(snapshot)
    snapshot = append(snapshot, write(tmp_path, snapshot, [4]))
    rows = sorted((row["id"], row["name"]) for row in map(json.loads, delta_spark.rows(tmp_path)))
    expected = [(i, "x" if snapshot.partition_columns else str(i)) for i in (1, 2, 3, 4)]
    assert rows == expected
    if "rowTracking" in (snapshot.protocol.writer_features or ()):
        assert sorted(snapshot.files().column("baseRowId").to_pylist()) == [0, 2, 3]
    if snapshot.configuration.has_in_commit_timestamps:
        times = [commit.timestamp for commit in snapshot.history()]
        assert times == sorted(set(times), reverse=True)


def test_a_table_that_got_column_mapping_later_is_read(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    snapshot = create(tmp_path)
    snapshot = append(snapshot, write(tmp_path, snapshot, [1]))
    snapshot = alter(snapshot, delta__columnMapping__mode="name")
    first, second = snapshot.schema.fields
    renamed = StructType([first, StructField("title", second.type, metadata=second.metadata)])
    alter(snapshot, renamed)
    assert duck.execute(f"SELECT id, title FROM delta_scan('{tmp_path}')").fetchall() == [(1, "1")]


def test_a_table_that_got_row_tracking_later_is_read(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    snapshot = create(tmp_path)
    snapshot = append(snapshot, write(tmp_path, snapshot, [1, 2]))
    snapshot = alter(snapshot, delta__enableRowTracking="true")
    append(snapshot, write(tmp_path, snapshot, [3]))
    assert duck.execute(f"SELECT count(*) FROM delta_scan('{tmp_path}')").fetchall() == [(3,)]
    assert DeltaTable(tmp_path).version() == 3
