"""Reading tables: values, names and types come from the log, whatever directories and files look like."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ReadOptionError, TimeTravelError
from headwater.spark.scan.read import read
from support.tables.delta_tables import DeltaTable, field, struct_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
UTC = datetime.UTC


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def values_of(frame: Any, column: str = "id") -> list[Any]:
    return sorted(row[column] for row in frame.select(column).collect())


# --- partition values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("string", "a b", "a b"),
        ("string", "ä/😀%20=&?#'\"", "ä/😀%20=&?#'\""),
        ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ("string", " ", " "),
        ("byte", "-128", -128),
        ("short", "32767", 32767),
        ("integer", "-2147483648", -2147483648),
        ("long", "9223372036854775807", 2**63 - 1),
        ("float", "0.1", pytest.approx(0.1)),
        ("double", "-1.5E-300", -1.5e-300),
        ("double", "Infinity", float("inf")),
        ("decimal(10,2)", "-12.30", Decimal("-12.30")),
        (
            "decimal(38,18)",
            "12345678901234567890.123456789012345678",
            Decimal("12345678901234567890.123456789012345678"),
        ),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("date", "1969-12-31", datetime.date(1969, 12, 31)),
        ("binary", "\x01\x02é", b"\x01\x02\xc3\xa9"),
        ("timestamp_ntz", "2024-03-31 02:30:00.123456", datetime.datetime(2024, 3, 31, 2, 30, 0, 123456)),
    ],
)
def test_partition_values_are_typed_by_the_log(
    spark: SparkSession, tmp_path: Path, type_: str, text: str, value: object
) -> None:
    table = DeltaTable(
        tmp_path / "t",
        field("p", type_),
        field("id", "long"),
        partition_columns=("p",),
        features=("timestampNtz",) if type_ == "timestamp_ntz" else (),
    )
    table.append(ids(1), partitionValues={"p": text})
    table.append(ids(2), partitionValues={"p": ""})
    table.append(ids(3), partitionValues={"p": None})
    table.append(ids(4), partitionValues={})
    frame = read(spark, table.path)
    assert frame.columns == ["p", "id"]
    assert [row.p for row in frame.where("id = 1").collect()] == [value]
    assert values_of(frame.where("p is null")) == [2, 3, 4]
    assert values_of(frame.where("p is not null")) == [1]


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-31 12:00:00", datetime.datetime(2024, 1, 31, 12)),
        ("2024-01-31 12:00:00.000001", datetime.datetime(2024, 1, 31, 12, 0, 0, 1)),
        ("2024-01-31T12:00:00.5Z", datetime.datetime(2024, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("1969-12-31T23:59:59.999999Z", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_timestamp_partitions_depend_on_the_session_only_where_they_name_no_zone(
    spark: SparkSession, tmp_path: Path, zone: str, text: str, value: datetime.datetime
) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("p", "timestamp"), partition_columns=("p",))
    table.append(ids(1), partitionValues={"p": text})
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    value = value if value.tzinfo is not None else value.replace(tzinfo=ZoneInfo(zone))
    (instant,) = read(session, table.path).toArrow().column("p").to_pylist()
    assert instant.astimezone(UTC) == value
    assert read(session, table.path).where(f"p = timestamp'{value.isoformat()}'").count() == 1


def test_a_partition_value_that_is_no_such_value_raises(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("p", "integer"), field("id", "long"), partition_columns=("p",))
    table.append(ids(1), partitionValues={"p": "seven"})
    with pytest.raises(hw.CorruptLogError, match="'p' is not a valid int"):
        read(spark, table.path).collect()


def test_partition_columns_in_files_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("p", "string"), field("id", "long"), partition_columns=("p",))
    table.append(pa.table({"p": ["lie", "lie"], "id": pa.array([1, 2], pa.int64())}), partitionValues={"p": "truth"})
    assert read(spark, table.path).distinct().collect() == [("truth", 1), ("truth", 2)]
    assert read(spark, table.path).where("p = 'lie'").count() == 0


def test_two_files_of_one_directory_in_different_partitions(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("p", "integer"), partition_columns=("p",))
    table.append(ids(1), "d/a.parquet", partitionValues={"p": "1"})
    table.append(ids(2), "d/b.parquet", partitionValues={"p": "2"})
    assert read(spark, table.path).orderBy("id").collect() == [(1, 1), (2, 2)]


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "plain.parquet",
        "with space/a b.parquet",
        "100%/50%25.parquet",
        "😀/ä+&=;,@!'().parquet",
        "[x]{y}*?#|^`.parquet",
        "ts=2024-01-01 00:00:00/a.parquet",
        "_underscore/.hidden.parquet",
        "no-ending",
    ],
)
def test_any_file_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = DeltaTable(tmp_path / "my tables %41" / "t", field("id", "long"))
    table.append(ids(7), name)
    assert values_of(read(spark, table.path)) == [7]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_absolute_paths(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    elsewhere = DeltaTable(tmp_path / "else where", field("id", "long"))
    action = elsewhere.file(ids(5), "a b.parquet")
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    absolute = f"{scheme}{elsewhere.path}/a b.parquet".replace(" ", "%20")
    table.commit({"add": {**action["add"], "path": absolute}})
    assert values_of(read(spark, table.path)) == [5]


def test_a_file_that_is_gone_is_named_with_version_and_cause(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "a table", field("id", "long"))
    table.append(ids(1), "gone file.parquet")
    (table.path / "gone file.parquet").unlink()
    frame = read(spark, table.path)
    with pytest.raises(hw.HeadwaterError, match=r"gone file\.parquet is gone, and version 1 .*VACUUM") as caught:
        frame.collect()
    assert isinstance(caught.value, hw.StorageError)
    with pytest.raises(hw.HeadwaterError):
        frame.toArrow()


def test_missing_files_are_an_error_even_if_the_session_ignores_them(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"))
    table.append(ids(1), "gone.parquet")
    table.append(ids(2), "here.parquet")
    (table.path / "gone.parquet").unlink()
    session = spark.newSession()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    with pytest.raises(hw.HeadwaterError):
        read(session, table.path).collect()
    assert values_of(read(session, table.path, ignoreMissingFiles=True)) == [2]


def test_errors_of_other_reads_stay_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException):
        spark.read.parquet(str(tmp_path / "nothing"))


def test_a_store_that_spark_cannot_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    from headwater.storage import open_store

    table = DeltaTable(tmp_path / "t", field("id", "long"))
    log = "_delta_log/00000000000000000000.json"
    open_store("memory://scan/t").put(log, (table.path / log).read_bytes())
    with pytest.raises(hw.StorageError, match="no filesystem for memory://"):
        read(spark, "memory://scan/t")


# --- columns --------------------------------------------------------------------------------------------


def test_columns_missing_in_a_file_are_null_and_unknown_ones_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    inner = struct_of(field("a", "long"), field("b", "string"))
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("new", "string"), field("s", inner))
    old = pa.table({"id": pa.array([1], pa.int64()), "s": [{"a": 3}], "_change_type": ["insert"], "x": [1]})
    table.append(old)
    assert read(spark, table.path).collect() == [(1, None, (3, None))]


def test_order_and_nullability_are_those_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(
        tmp_path / "t",
        field("z", "string", comment="the last"),
        field("p2", "integer"),
        field("id", "long", nullable=False),
        field("p1", "integer"),
        partition_columns=("p1", "p2"),
    )
    table.append(pa.table({"id": [1], "z": ["z"]}), partitionValues={"p1": "1", "p2": "2"})
    frame = read(spark, table.path)
    assert [(f.name, f.nullable) for f in frame.schema] == [("z", True), ("p2", True), ("id", False), ("p1", True)]
    assert frame.schema["z"].metadata == {"comment": "the last"}
    assert frame.collect() == [("z", 2, 1, 1)]


def test_void_columns_are_null_at_every_level(spark: SparkSession, tmp_path: Path) -> None:
    inner = struct_of(field("a", "long"), field("nothing", "void"))
    table = DeltaTable(
        tmp_path / "t",
        field("v", "void"),
        field("id", "long"),
        field("s", inner),
        field("items", {"type": "array", "elementType": inner, "containsNull": True}),
        field("voids", {"type": "array", "elementType": "void", "containsNull": True}),
    )
    table.append(pa.table({"id": pa.array([1], pa.int64()), "s": [{"a": 2}], "items": [[{"a": 3}, None]]}))
    frame = read(spark, table.path)
    assert frame.columns == ["v", "id", "s", "items", "voids"]
    assert frame.collect() == [(None, 1, (2, None), [(3, None), None], None)]
    assert frame.where("v is null").count() == 1
    assert frame.where("v is not null").count() == 0


def test_widened_columns_are_read_from_old_files(spark: SparkSession, tmp_path: Path) -> None:
    change = {"delta.typeChanges": [{"fromType": "byte", "toType": "decimal(4,1)"}]}
    in_array = {"delta.typeChanges": [{"fromType": "short", "toType": "decimal(6,1)", "fieldPath": "element"}]}
    decimals = {"type": "array", "elementType": "decimal(6,1)", "containsNull": True}
    table = DeltaTable(
        tmp_path / "t",
        field("l", "long"),
        field("d", "decimal(4,1)", **change),
        field("ds", decimals, **in_array),
        features=("typeWidening",),
    )
    table.append(
        pa.table(
            {
                "l": pa.array([1], pa.int32()),
                "d": pa.array([-128], pa.int8()),
                "ds": pa.array([[-32768]], pa.list_(pa.int16())),
            }
        )
    )
    table.append(
        pa.table(
            {
                "l": pa.array([2**40], pa.int64()),
                "d": pa.array([Decimal("1.5")], pa.decimal128(4, 1)),
                "ds": pa.array([[Decimal("2.5")]], pa.list_(pa.decimal128(6, 1))),
            }
        )
    )
    frame = read(spark, table.path)
    assert frame.schema.simpleString() == "struct<l:bigint,d:decimal(4,1),ds:array<decimal(6,1)>>"
    assert frame.orderBy("l").collect() == [
        (1, Decimal("-128.0"), [Decimal("-32768.0")]),
        (2**40, Decimal("1.5"), [Decimal("2.5")]),
    ]
    assert frame.where("d = 1.5").count() == 1


# --- versions and options -------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> DeltaTable:
    """Versions 1 to 3 add the ids 1 to 3."""
    table = DeltaTable(tmp_path / "history", field("id", "long"))
    for n in (1, 2, 3):
        table.append(ids(n))
    return table


def test_version_by_argument_option_and_path(spark: SparkSession, history: DeltaTable) -> None:
    assert values_of(read(spark, history.path)) == [1, 2, 3]
    assert values_of(read(spark, history.path, version=2)) == [1, 2]
    assert values_of(read(spark, history.path, versionAsOf="2")) == [1, 2]
    assert values_of(read(spark, f"{history.path}@v1")) == [1]
    assert values_of(read(spark, history.path, 0)) == []


def test_a_frame_stays_at_its_version(spark: SparkSession, history: DeltaTable) -> None:
    frame = read(spark, history.path)
    history.append(ids(4))
    assert values_of(frame) == [1, 2, 3]
    assert values_of(read(spark, history.path)) == [1, 2, 3, 4]


def test_time_travel_by_timestamp(spark: SparkSession, history: DeltaTable) -> None:
    import os

    start = datetime.datetime(2024, 7, 1, 12, tzinfo=UTC)
    for version in range(4):
        stamp = (start + datetime.timedelta(hours=version)).timestamp()
        os.utime(history.path / "_delta_log" / f"{version:020d}.json", (stamp, stamp))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")  # two hours ahead of UTC on that day
    assert values_of(read(session, history.path, timestamp="2024-07-01 16:30:00")) == [1, 2]
    assert values_of(read(session, history.path, timestamp="2024-07-01T14:30:00Z")) == [1, 2]
    assert values_of(read(session, history.path, timestampAsOf="2024-07-01 15:00:00")) == [1]
    assert values_of(read(session, f"{history.path}@20240701150000000")) == [1]
    with pytest.raises(hw.VersionNotFoundError):
        read(session, history.path, timestamp="2024-07-01 13:59:59.999")


def test_a_table_whose_name_looks_like_time_travel(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "events@v1", field("id", "long"))
    table.append(ids(9))
    assert values_of(read(spark, str(table.path))) == [9]
    assert values_of(read(spark, f"{table.path}@v0")) == []


def test_two_versions_at_once_are_refused(spark: SparkSession, history: DeltaTable) -> None:
    for arguments in ({"version": 1, "timestamp": "2024-01-01"}, {"version": 1, "versionAsOf": 1}):
        with pytest.raises(TimeTravelError):
            read(spark, history.path, **arguments)
    with pytest.raises(TimeTravelError):
        read(spark, f"{history.path}@v1", version=1)


def test_unknown_options_are_refused_by_name(spark: SparkSession, history: DeltaTable) -> None:
    with pytest.raises(ReadOptionError, match="mergeSchema"):
        read(spark, history.path, mergeSchema=True)


def test_no_table_no_version(spark: SparkSession, history: DeltaTable, tmp_path: Path) -> None:
    with pytest.raises(hw.TableNotFoundError):
        read(spark, tmp_path / "nothing")
    with pytest.raises(hw.VersionNotFoundError):
        read(spark, history.path, version=17)


def test_reading_sets_nothing_in_the_session(spark: SparkSession, history: DeltaTable) -> None:
    before = dict(spark.conf.getAll)
    assert values_of(read(spark, history.path)) == [1, 2, 3]
    assert dict(spark.conf.getAll) == before


def test_session_settings_of_the_user_do_not_change_rows(spark: SparkSession, history: DeltaTable) -> None:
    session = spark.newSession()
    for key, value in {
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parquet.fieldId.read.enabled": "true",
    }.items():
        session.conf.set(key, value)
    assert values_of(read(session, history.path).where("id > 1")) == [2, 3]
