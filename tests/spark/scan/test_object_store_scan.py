"""Tables on object stores for which Spark has no filesystem: Python reads them on the executors, and says so."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater.errors import UnreadableInPythonError
from headwater.spark.scan import python as python_scan
from headwater.spark.scan.backends import choose_backend
from headwater.spark.scan.classic import ClassicBackend
from headwater.spark.scan.explain import scans
from headwater.spark.scan.python import PythonBackend
from headwater.spark.scan.read import read, read_changes
from headwater.storage import open_store
from support.corpus import CORPUS, table_id, tables
from support.corpus_sample import Entry, sample, to_arrow
from support.stores.storage_servers import moto_server
from support.tables.change_histories import HISTORIES, History, changing_table
from support.tables.delta_tables import DeltaTable, field, inline_vector, relative_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from support.stores.storage_servers import Endpoint

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        yield endpoint


class Bucket:
    """Where a test puts its tables."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self.root = f"{endpoint.root}/{name}"
        self.options = endpoint.options

    def upload(self, path: Path, name: str = "table") -> str:
        """Copy a table there; its URI."""
        uri = f"{self.root}/{name}"
        store = open_store(uri, self.options)
        for file in path.rglob("*"):
            if file.is_file():
                store.put(str(file.relative_to(path)), file.read_bytes())
        return uri


@pytest.fixture
def bucket(s3: Endpoint, tmp_path: Path) -> Bucket:
    return Bucket(s3, f"{tmp_path.parent.name}-{tmp_path.name}")


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def values_of(frame: DataFrame) -> list[Any]:
    return sorted(row[0] for row in frame.collect())


@pytest.mark.skipif(CORPUS is None, reason="the conformance corpus is not beside the repository")
@pytest.mark.parametrize("entry", [pytest.param(t, id=table_id(t)) for t in sample("variant-shredding")])
def test_rows_are_those_of_other_readers(entry: Entry, spark: SparkSession, bucket: Bucket) -> None:
    from pyspark.sql import functions

    sys.path.insert(0, str(CORPUS))
    from rowhash import row_hash

    uri = bucket.upload(Path(CORPUS or "") / entry["path"])
    frame = read(spark, uri, storage_options=bucket.options)
    assert frame.columns == [c["name"] for c in entry["columns"]]
    assert row_hash(to_arrow(frame, functions)) == entry["row_hash"]
    for predicate in entry.get("predicates", ())[:2]:
        found = read(spark, uri, where=predicate["sql"], storage_options=bucket.options)
        assert found.count() == predicate["rows"], predicate["sql"]


def test_the_road_is_visible(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.append(ids(1, 2))
    table.append(ids(3))
    frame = read(spark, bucket.upload(table.path), storage_options=bucket.options, where="id < 3")
    (scan,) = scans(frame.groupBy("id").count())
    assert (scan.version, scan.files_kept, scan.files_total) == (2, 1, 2)
    assert "Python with obstore" in str(scan)
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain()
    assert "Python with obstore" in shown.getvalue()
    assert not any(value in shown.getvalue() for value in bucket.options.values() if value != "true")
    assert values_of(frame) == [1, 2]


def test_a_configured_filesystem_is_sparks_own(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    snapshot = hw.open_log(bucket.upload(table.path), storage_options=bucket.options)
    assert choose_backend(spark, snapshot) == PythonBackend(spark)
    assert choose_backend(spark, hw.open_log(table.path)) == ClassicBackend(spark)
    session = spark.newSession()
    session.conf.set("fs.s3.impl", "org.apache.hadoop.fs.LocalFileSystem")
    assert choose_backend(session, snapshot) == ClassicBackend(session)


def test_tables_in_memory_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    store = open_store("memory://refused/table")
    for file in table.path.rglob("*.json"):
        store.put(str(file.relative_to(table.path)), file.read_bytes())
    with pytest.raises(hw.StorageError, match="in the memory of this Python process"):
        read(spark, "memory://refused/table")


def test_deletion_vectors_partitions_and_row_ids_across_splits(
    spark: SparkSession, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Splits of a few hundred bytes: several for each row group, and several row groups for each file.
    monkeypatch.setattr(python_scan, "_RANGE_BYTES", 500)
    table = DeltaTable(
        tmp_path / "t",
        field("p", "date"),
        field("id", "long"),
        partition_columns=("p",),
        configuration={"delta.enableRowTracking": "true"},
        features=("deletionVectors",),
        writer_features=("rowTracking", "domainMetadata"),
    )
    (vector,) = relative_vectors(table.path, [0, 99, 100, 999])
    first = table.file(ids(*range(1000)), "a b%/[x].parquet", partitionValues={"p": "2024-01-31"})
    pq.write_table(ids(*range(1000)), table.path / "a b%/[x].parquet", row_group_size=100)
    first["add"] |= {"deletionVector": vector, "baseRowId": 5, "defaultRowCommitVersion": 1}
    first["add"]["size"] = (table.path / "a b%/[x].parquet").stat().st_size
    second = table.file(ids(7, 8), partitionValues={"p": None}, deletionVector=inline_vector([0]))
    second["add"] |= {"baseRowId": 5000, "defaultRowCommitVersion": 1}
    table.commit(first, second)
    uri = bucket.upload(table.path)
    frame = read(spark, uri, storage_options=bucket.options, row_tracking=True)
    rows = sorted((row.id, str(row.p), row._row_id) for row in frame.collect())
    kept = [n for n in range(1000) if n not in (0, 99, 100, 999)]
    assert rows == sorted([*((n, "2024-01-31", n + 5) for n in kept), (8, "None", 5001)])
    assert read(spark, uri, storage_options=bucket.options, columns=["p"]).count() == len(kept) + 1


def test_only_wanted_columns_are_read(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    # A column that Python cannot read is no matter as long as nobody asks for it.
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("bad", "long"), field("other", "long"))
    table.append(ids(1).append_column("bad", pa.array(["text"])).append_column("other", pa.array([2], pa.int64())))
    uri = bucket.upload(table.path)
    frame = read(spark, uri, storage_options=bucket.options, columns=["id"], where="other = 2")
    assert frame.columns == ["id"]
    assert frame.collect() == [(1,)]
    with pytest.raises(UnreadableInPythonError, match=r"\.parquet: it holds column bad as string, .* bigint"):
        read(spark, uri, storage_options=bucket.options).collect()


def test_old_files_lack_columns_and_hold_narrower_types(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    table = DeltaTable(
        tmp_path / "t",
        field("ID", "long"),
        field("d", "decimal(6,1)", **{"delta.typeChanges": [{"fromType": "byte", "toType": "decimal(6,1)"}]}),
        field("new", "string"),
        features=("typeWidening",),
    )
    table.append(pa.table({"id": pa.array([1], pa.int32()), "d": pa.array([-128], pa.int8()), "x": [0]}))
    (row,) = read(spark, bucket.upload(table.path), storage_options=bucket.options).collect()
    assert (row.ID, str(row.d), row.new) == (1, "-128.0", None)


def test_dates_of_the_old_calendar_are_refused(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    table = DeltaTable(tmp_path / "t", field("d", {"type": "array", "elementType": "date", "containsNull": True}))
    days = pa.array([[-200_000]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    rows = pa.table({"d": days}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    table.append(rows)
    with pytest.raises(UnreadableInPythonError, match="old calendar"):
        read(spark, bucket.upload(table.path), storage_options=bucket.options).collect()


def test_a_file_that_is_gone_is_named_with_version_and_cause(
    spark: SparkSession, tmp_path: Path, bucket: Bucket
) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.append(ids(1), "gone file.parquet")
    (table.path / "gone file.parquet").unlink()
    frame = read(spark, bucket.upload(table.path), storage_options=bucket.options)
    with pytest.raises(hw.StorageError, match=r"gone file\.parquet is gone, and version 1 .*VACUUM"):
        frame.collect()


def test_no_file_is_left_to_read(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("v", "void"))
    table.append(ids(1))
    uri = bucket.upload(table.path)
    frame = read(spark, uri, storage_options=bucket.options, where="id > 5")
    assert frame.columns == ["id", "v"]
    assert frame.collect() == []
    assert read(spark, uri, 0, storage_options=bucket.options).count() == 0


def test_options_of_sparks_reader_are_refused(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    with pytest.raises(UnreadableInPythonError, match="ignoreMissingFiles"):
        read(spark, bucket.upload(table.path), storage_options=bucket.options, ignoreMissingFiles=True)


# --- the change data feed --------------------------------------------------------------------------------


@pytest.mark.skipif(CORPUS is None, reason="the conformance corpus is not beside the repository")
@pytest.mark.parametrize("entry", [pytest.param(t, id=table_id(t)) for t in tables() if t.get("cdf")])
def test_changes_are_those_of_other_readers(entry: Entry, spark: SparkSession, bucket: Bucket) -> None:
    from pyspark.sql import functions

    sys.path.insert(0, str(CORPUS))
    from rowhash import row_hash

    expected, uri = entry["cdf"], bucket.upload(Path(CORPUS or "") / entry["path"])
    frame = read_changes(spark, uri, expected["start"], expected["end"], storage_options=bucket.options)
    table = to_arrow(frame, functions)
    assert table.num_rows == expected["num_rows"]
    assert row_hash(table.drop_columns(["_commit_timestamp"])) == expected["row_hash"]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_rows_that_changed(spark: SparkSession, tmp_path: Path, bucket: Bucket, history: History) -> None:
    table = changing_table(tmp_path / "t")
    expected = history(table)
    frame = read_changes(spark, bucket.upload(table.path), 0, storage_options=bucket.options)
    assert sorted(tuple(row) for row in frame.drop("_commit_timestamp").collect()) == expected
    assert all("Python with obstore" in str(scan) for scan in scans(frame))


def test_the_same_on_spark_connect(remote: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    table = changing_table(tmp_path / "t")
    table.append(ids(1), partitionValues={"p": "x"})
    uri = bucket.upload(table.path)
    frame = read(remote, uri, storage_options=bucket.options)
    assert frame.collect() == [(1, "x")]
    assert "Python with obstore" in str(scans(frame.where("id = 1"))[0])
    changes = read_changes(remote, uri, 0, storage_options=bucket.options)
    assert changes.drop("_commit_timestamp").collect() == [(1, "x", "insert", 1)]
    assert "Python with obstore" in str(scans(changes)[0])
