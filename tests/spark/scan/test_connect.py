"""Reading on Spark Connect: the same rows as everywhere, with DataFrame operations only."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import FileNameError
from headwater.spark.scan.explain import scans
from headwater.spark.scan.read import read
from support.corpus import CORPUS, table_id
from support.corpus_sample import Entry, sample, to_arrow
from support.tables.delta_tables import DeltaTable, field, inline_vector, mapped, relative_vectors, struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def values_of(frame: DataFrame) -> list[Any]:
    return sorted(row[0] for row in frame.collect())


# --- the corpus -----------------------------------------------------------------------------------------


@pytest.mark.skipif(CORPUS is None, reason="the conformance corpus is not beside the repository")
@pytest.mark.parametrize("entry", [pytest.param(t, id=table_id(t)) for t in sample()])
def test_rows_are_those_of_other_readers(entry: Entry, remote: SparkSession) -> None:
    from pyspark.sql.connect import functions

    sys.path.insert(0, str(CORPUS))
    from rowhash import row_hash

    path = Path(CORPUS or "") / entry["path"]
    frame = read(remote, path)
    assert frame.columns == [c["name"] for c in entry["columns"]]
    assert row_hash(to_arrow(frame, functions)) == entry["row_hash"]
    for predicate in entry.get("predicates", ())[:3]:
        assert frame.where(predicate["sql"]).count() == predicate["rows"], predicate["sql"]
        assert read(remote, path, where=predicate["sql"]).count() == predicate["rows"], predicate["sql"]


def test_a_session_as_users_make_it(connect_url: str, tmp_path: Path) -> None:
    # In a process of its own: from then on PySpark takes every column function for one of Spark Connect.
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("p", "string"), partition_columns=("p",))
    action = table.file(ids(1, 2, 3), partitionValues={"p": "a"}, deletionVector=inline_vector([1]))
    table.commit({"protocol": vectors_protocol()}, action)
    program = (
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from headwater.spark.scan.read import read\n"
        "spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()\n"
        "print(sorted(map(tuple, read(spark, sys.argv[2]).where('p = \"a\"').collect())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, connect_url, str(table.path)], capture_output=True, text=True)
    assert done.stdout.strip() == "[(1, 'a'), (3, 'a')]", done.stderr


# --- partition values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("string", 'it\'s "ä" \\ %20 😀', 'it\'s "ä" \\ %20 😀'),
        ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ("string", "", None),
        ("byte", "-128", -128),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "NaN", "nan"),
        ("float", "0.1", 0.10000000149011612),
        ("boolean", "true", True),
        ("binary", "\u0001a", bytearray(b"\x01a")),
        ("date", "0001-01-01", datetime.date(1, 1, 1)),
        ("timestamp_ntz", "2024-01-31 12:00:00.000001", datetime.datetime(2024, 1, 31, 12, 0, 0, 1)),
        ("decimal(38,18)", "-12345678901234567890.000000000000000001", "-12345678901234567890.000000000000000001"),
    ],
)
def test_partition_values_of_every_type(
    remote: SparkSession, tmp_path: Path, type_: str, text: str, value: object
) -> None:
    features = ("timestampNtz",) if type_ == "timestamp_ntz" else ()
    table = DeltaTable(
        tmp_path / "t", field("p", type_), field("id", "long"), partition_columns=("p",), features=features
    )
    table.append(ids(1), partitionValues={"p": text})
    table.append(ids(2), partitionValues={"p": None})
    (found,) = read(remote, table.path).where("id = 1").collect()
    assert (str(found.p) if isinstance(value, str) else found.p) == value
    assert read(remote, table.path).where("id = 2").collect()[0].p is None
    if value is not None:
        assert values_of(read(remote, table.path).where("p is not null").select("id")) == [1]


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_timestamps_do_not_depend_on_the_session(remote: SparkSession, tmp_path: Path, zone: str) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("p", "timestamp"), partition_columns=("p",))
    table.append(ids(1), partitionValues={"p": "2024-01-31T12:00:00.000001Z"})
    before = remote.conf.get("spark.sql.session.timeZone")
    remote.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert read(remote, table.path).where("p = timestamp'2024-01-31T12:00:00.000001Z'").count() == 1
        local = {"UTC": "2024-01-31 12:00:00.000001", "America/Los_Angeles": "2024-01-31 04:00:00.000001"}[zone]
        assert read(remote, table.path, where=f"p = '{local}'").count() == 1
        assert read(remote, table.path, where=f"p > '{local}'").count() == 0
    finally:
        remote.conf.set("spark.sql.session.timeZone", str(before))


def test_partition_columns_in_files_are_ignored(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("p", "string"), field("id", "long"), partition_columns=("p",))
    table.append(pa.table({"p": ["lie"], "id": pa.array([1], pa.int64())}), partitionValues={"p": "truth"})
    assert read(remote, table.path).collect() == [("truth", 1)]


def test_a_table_of_partition_columns_only(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("p", "integer"), partition_columns=("p",))
    table.append(ids(1, 2), partitionValues={"p": "7"})
    assert values_of(read(remote, table.path)) == [7, 7]


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["100%/50%25 x.parquet", "😀/ä+&=;,@!'().parquet", "[x]{y,z}*?\\#|^`.parquet", "_dir/no-ending"]
)
def test_any_file_name(remote: SparkSession, tmp_path: Path, name: str) -> None:
    table = DeltaTable(
        tmp_path / "my [tables] %41" / "t", field("id", "long"), field("p", "long"), partition_columns=("p",)
    )
    table.append(ids(7), name, partitionValues={"p": "8"})
    table.append(ids(9), "x.parquet", partitionValues={"p": "9"})
    assert sorted(read(remote, table.path).collect()) == [(7, 8), (9, 9)]


def test_a_colon_in_a_file_name(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.append(ids(7), "at=2024-01-01 00:00:00/a.parquet")
    assert values_of(read(remote, table.path)) == [7]


@pytest.mark.parametrize("name", ["_hidden.parquet", "d/.hidden.parquet", "a._COPYING_", "at=00:00/[x].parquet"])
def test_files_that_spark_would_not_find_are_refused(remote: SparkSession, tmp_path: Path, name: str) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.append(ids(1), name)
    with pytest.raises(FileNameError, match="cannot be asked for"):
        read(remote, table.path)


def test_a_file_that_is_gone_is_named_with_version_and_cause(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "a table", field("id", "long"))
    table.append(ids(1), "gone [file].parquet")
    frame = read(remote, table.path)
    (table.path / "gone [file].parquet").unlink()
    said = r"gone \[file\]\.parquet is gone, and version 1 .*VACUUM"
    remote.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(hw.StorageError, match=said):
            frame.collect()
    finally:
        remote.conf.unset("spark.sql.files.ignoreMissingFiles")
    with pytest.raises(hw.StorageError, match=said):
        read(remote, table.path)


def test_many_files_leave_no_setting_behind(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.commit(*(table.file(ids(n)) for n in range(40)))
    before = dict(remote.conf.getAll)
    assert read(remote, table.path).count() == 40
    assert dict(remote.conf.getAll) == before
    remote.conf.set(THRESHOLD, "3")
    try:
        assert read(remote, table.path).count() == 40
        assert remote.conf.get(THRESHOLD) == "3"
    finally:
        remote.conf.unset(THRESHOLD)


def test_versions_and_empty_tables(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("nothing", "void"))
    table.append(ids(1))
    table.append(ids(2))
    assert values_of(read(remote, f"{table.path}@v1")) == [1]
    empty = read(remote, table.path, version=0)
    assert empty.columns == ["id", "nothing"]
    assert empty.collect() == []


# --- pruning and explain --------------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Ten files in two partitions, each with ten ids of its own."""
    table = DeltaTable(tmp_path / "wide", field("id", "long"), field("p", "integer"), partition_columns=("p",))
    table.commit(*(table.file(ids(*range(n * 10, n * 10 + 10)), partitionValues={"p": str(n % 2)}) for n in range(10)))
    return table.path


def test_where_skips_files_by_statistics(remote: SparkSession, wide: Path) -> None:
    frame = read(remote, wide, where="id between 25 and 34 and length(string(id)) = 2")
    assert values_of(frame.select("id")) == list(range(25, 35))
    (scan,) = scans(frame.where("id > 0").groupBy("p").count())
    assert (scan.files_kept, scan.files_total, scan.version) == (2, 10, 1)
    assert str(scan).endswith("by Spark's Parquet reader on Spark Connect")


def test_later_filters_on_partition_columns_skip_files(remote: SparkSession, wide: Path) -> None:
    # Files that are not asked for may as well be gone.
    frame = read(remote, wide)
    for action in hw.open_log(wide).files("p = 0").column("path").to_pylist():
        (wide / action).unlink()
    assert frame.where("p = 1").count() == 50


def test_columns_come_in_the_order_asked_for(remote: SparkSession, wide: Path) -> None:
    frame = read(remote, wide, columns=["P", "id"], where="id = 11")
    assert frame.columns == ["p", "id"]
    assert frame.collect() == [(1, 11)]
    with pytest.raises(hw.ColumnNotFoundError):
        read(remote, wide, columns=["no"])


def test_scans_of_both_sides_of_a_join_are_found(remote: SparkSession, wide: Path) -> None:
    one, other = read(remote, wide, where="p = 1"), read(remote, wide)
    assert [scan.files_kept for scan in scans(one.join(other, "id"))] == [5, 10]


def test_metadata_columns_keep_working(remote: SparkSession, wide: Path) -> None:
    row = read(remote, wide).where("id = 34").select("_metadata.file_path", "_metadata.row_index").collect()[0]
    assert row.file_path.startswith(f"file:{wide}/part-")
    assert row.row_index == 4


# --- deletion vectors, row tracking, column mapping -------------------------------------------------------


def vectors_protocol() -> dict[str, Any]:
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }


def test_deletion_vectors_of_many_chunks(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), features=("deletionVectors",))
    deleted = [0, 63, 64, 65_535, 65_536, 199_999, *range(130_000, 140_000)]
    (far,) = relative_vectors(table.path, deleted, prefix="ab")
    table.commit(
        table.file(ids(*range(200_000)), deletionVector=far),
        table.file(ids(*range(200_000, 200_010)), deletionVector=inline_vector([0, 9])),
        table.file(ids(*range(300_000, 300_010))),
    )
    kept = set(range(200_000)) - set(deleted) | set(range(200_001, 200_009)) | set(range(300_000, 300_010))
    assert set(read(remote, table.path).toArrow().column("id").to_pylist()) == kept
    assert read(remote, table.path).where("id >= 130000").count() == len([n for n in kept if n >= 130_000])
    assert read(remote, table.path).select("_metadata.row_index").count() == len(kept)


def test_row_tracking(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(
        tmp_path / "t",
        field("id", "long"),
        configuration={
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_ids",
        },
        writer_features=("rowTracking", "domainMetadata"),
    )
    table.append(ids(5, 6), baseRowId=10, defaultRowCommitVersion=1)
    stored = ids(7, 8).append_column("_ids", pa.array([3, None], pa.int64()))
    table.append(stored, baseRowId=20, defaultRowCommitVersion=2)
    rows = read(remote, table.path, row_tracking=True).collect()
    assert sorted(map(tuple, rows)) == [(5, 10, 1), (6, 11, 1), (7, 3, 2), (8, 21, 2)]


def test_ids_decide_even_if_files_name_their_columns_differently(remote: SparkSession, tmp_path: Path) -> None:
    inner = struct_of(mapped("x", "long", "col-3", 3), mapped("y", "long", "col-4", 4))
    table = DeltaTable(
        tmp_path / "t",
        mapped("id", "long", "col-1", 1),
        mapped("s", inner, "col-2", 2),
        configuration={"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "4"},
        features=("columnMapping",),
    )

    def with_id(name: str, type_: pa.DataType, id_: int) -> pa.Field:
        return pa.field(name, type_, metadata={b"PARQUET:field_id": str(id_).encode()})

    def rows(names: list[str], id_: int, x: int, y: int) -> pa.Table:
        one, two, three, four = names
        kind = pa.struct([with_id(four, pa.int64(), 4), with_id(three, pa.int64(), 3)])
        schema = pa.schema([with_id(two, kind, 2), with_id(one, pa.int64(), 1)])
        return pa.Table.from_pylist([{one: id_, two: {three: x, four: y}}], schema)

    table.append(rows(["col-1", "col-2", "col-3", "col-4"], 1, 2, 3))
    table.append(rows(["col-4", "b", "y", "x"], 4, 5, 6))
    assert sorted(map(tuple, read(remote, table.path).collect())) == [(1, (2, 3)), (4, (5, 6))]
    assert values_of(read(remote, table.path).where("s.x = 5").select("id")) == [4]


def test_a_file_without_ids_is_refused_in_id_mode(remote: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(
        tmp_path / "t",
        mapped("id", "long", "id", 1),
        configuration={"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1"},
        features=("columnMapping",),
    )
    table.append(ids(1))
    with pytest.raises(hw.UnreadableDataFileError, match="no field ids"):
        read(remote, table.path)
