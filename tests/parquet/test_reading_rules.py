"""What Arrow reads from a data file, Spark's Parquet reader reads the same; everything else is left to Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import UnreadableInPythonError
from headwater.log.files.parquet import ParquetObject
from headwater.log.schema import StructField, StructType
from headwater.log.schema.spark import parse_type
from headwater.parquet.read import ReaderSettings, conform, find_columns
from headwater.storage import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

AT = dt.datetime(2024, 2, 29, 23, 59, 59, 123000)
OLD = dt.datetime(1969, 12, 31, 23, 59, 59, 999000)
HELD: dict[str, pa.Array] = {
    "bool": pa.array([True, False, None]),
    "int8": pa.array([-128, 127, None], pa.int8()),
    "int16": pa.array([-129, 127, None], pa.int16()),
    "int32": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
    "small": pa.array([-1, 1, None], pa.int32()),
    "int64": pa.array([-(2**63), 2**63 - 1, None]),
    "uint8": pa.array([0, 255, None], pa.uint8()),
    "uint16": pa.array([0, 2**16 - 1, None], pa.uint16()),
    "uint32": pa.array([0, 2**32 - 1, None], pa.uint32()),
    "uint64": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "half": pa.array([1.5, -0.0, None], pa.float16()),
    "float": pa.array([0.1, -0.0, None], pa.float32()),
    "double": pa.array([0.1, 1e308, None]),
    "decimal(9,2)": pa.array([Decimal("1.25"), Decimal("-9999999.99"), None], pa.decimal128(9, 2)),
    "decimal(18,0)": pa.array([Decimal(10**17), Decimal(-1), None], pa.decimal128(18, 0)),
    "decimal(38,10)": pa.array([Decimal(10**27), Decimal("-1.5"), None], pa.decimal128(38, 10)),
    "date": pa.array([dt.date(2024, 2, 29), dt.date(1600, 1, 1), None]),
    "local us": pa.array([AT, OLD, None], pa.timestamp("us")),
    "local ms": pa.array([AT, OLD, None], pa.timestamp("ms")),
    "local ns": pa.array([AT, OLD, None], pa.timestamp("ns")),
    "utc us": pa.array([AT, OLD, None], pa.timestamp("us", "UTC")),
    "utc ms": pa.array([AT, OLD, None], pa.timestamp("ms", "UTC")),
    "utc ns": pa.array([AT, OLD, None], pa.timestamp("ns", "UTC")),
    "time ms": pa.array([1, 2, None], pa.time32("ms")),
    "time us": pa.array([1, 2, None], pa.time64("us")),
    "string": pa.array(["2024-02-29", "1", None]),
    "binary": pa.array([b"2024", b"\xc3\xa9", None]),
    "fixed": pa.array([b"abcd", b"\0\1\2\3", None], pa.binary(4)),
    "nothing": pa.nulls(3),
    "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "struct": pa.array([{"x": 1}, {"x": None}, None], pa.struct([("x", pa.int32())])),
    "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
}
WANTED = [
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *(
        "decimal(9,2)",
        "decimal(10,0)",
        "decimal(10,3)",
        "decimal(9,3)",
        "decimal(8,2)",
        "decimal(20,0)",
        "decimal(38,0)",
    ),
    *("decimal(38,10)", "decimal(38,20)", "date", "timestamp", "timestamp_ntz", "string", "binary"),
    *("array<int>", "array<bigint>", "array<string>", "struct<x:int>", "struct<x:bigint,y:int>", "struct<x:string>"),
    *("map<string,int>", "map<string,bigint>", "map<int,int>", "variant"),
]


def column_of(ddl: str) -> StructField:
    return StructField("c", parse_type(ddl))


def reads(held: pa.Array, ddl: str) -> pa.Array | None:
    """What Arrow makes of a column of a file, read as a type of the table; None if it leaves that to Spark."""
    field = column_of(ddl)
    try:
        found = find_columns([field], pa.schema([("c", held.type)]), "none")
        assert found["c"] is not None
        return conform(held, field.type, "none")
    except UnreadableInPythonError:
        return None


@pytest.mark.spark
def test_spark_reads_the_same_as_arrow(spark: SparkSession, tmp_path: Path) -> None:
    """Given columns of all types, when both read them as each other type, then Spark gives what Arrow gives."""
    pairs = [(kind, ddl) for kind in HELD for ddl in WANTED]
    read = {pair: found for pair in pairs if (found := reads(HELD[pair[0]], pair[1])) is not None}
    names = {pair: f"c{number}" for number, pair in enumerate(read)}
    pq.write_table(
        pa.table({name: HELD[kind] for (kind, _), name in names.items()}), tmp_path / "f.parquet", store_schema=False
    )
    frame = spark.read.schema(", ".join(f"{name} {ddl}" for (_, ddl), name in names.items())).parquet(str(tmp_path))
    seen = frame.toArrow()
    for pair, name in names.items():
        assert seen.column(name).to_pylist() == read[pair].to_pylist(), pair
    assert len(read) > 60


@pytest.mark.parametrize("kind", ["local us", "utc us"])
def test_the_oldest_timestamps_are_read_as_instants_and_as_local_ones(kind: str, tmp_path: Path) -> None:
    """INT96 is what Spark wrote for years; it has no time zone, and Spark reads it as either type."""
    pq.write_table(pa.table({"c": HELD[kind]}), tmp_path / "f.parquet", use_deprecated_int96_timestamps=True)
    store = open_store(str(tmp_path))
    [batch] = ParquetObject(store, store.head("f.parquet")).batches(["c"], [0])
    micros = [None if at is None else at.timestamp() for at in HELD["utc us"].to_pylist()]
    for ddl in ("timestamp", "timestamp_ntz"):
        read = reads(batch.column(0), ddl)
        assert read is not None
        assert [None if at is None else at.replace(tzinfo=dt.UTC).timestamp() for at in read.to_pylist()] == micros


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        ("local us", "date"),  # would lose the time of day
        ("local ns", "timestamp_ntz"),  # would lose nanoseconds
        ("utc ns", "timestamp"),
        ("string", "date"),  # would be parsed
        ("string", "int"),
        ("int64", "int"),
        ("int64", "string"),  # would be written out
        ("int64", "timestamp"),
        ("int64", "double"),  # would be rounded
        ("double", "float"),
        ("decimal(9,2)", "decimal(8,2)"),
        ("decimal(9,2)", "decimal(9,3)"),
        ("decimal(9,2)", "int"),
        ("date", "timestamp"),
        ("date", "int"),
        ("half", "float"),
        ("time us", "bigint"),
        ("uint32", "int"),
        ("uint32", "double"),
        ("nothing", "string"),
        ("int32", "tinyint"),  # by its values
        ("bool", "array<int>"),
        ("list", "int"),
        ("int32", "struct<x:int>"),
        ("struct", "struct<x:string>"),
        ("map", "array<int>"),
    ],
)
def test_what_contradicts_the_schema_is_left_to_spark(kind: str, ddl: str) -> None:
    assert reads(HELD[kind], ddl) is None


def test_a_decimal_that_a_column_was_widened_to_may_be_narrow() -> None:
    """Parquet has no 8-bit integers, so Spark alone would not believe that they fit."""
    changes = {"delta.typeChanges": [{"fromType": "byte", "toType": "decimal(4,1)"}]}
    field = StructField("c", parse_type("decimal(4,1)"), metadata=changes)
    held = pa.array([-128, 127, None], pa.int8())
    find_columns([field], pa.schema([("c", held.type)]), "none")
    assert conform(held, field.type, "none").to_pylist() == [Decimal("-128.0"), Decimal("127.0"), None]
    assert reads(held, "decimal(4,1)") is None, "not without a word in the log"


def with_id(name: str, id_: int | None, type_: pa.DataType | None = None) -> pa.Field:
    metadata = None if id_ is None else {"PARQUET:field_id": str(id_)}
    return pa.field(name, type_ or pa.int64(), metadata=metadata)


def mapped(name: str, id_: int) -> StructField:
    metadata = {"delta.columnMapping.id": id_, "delta.columnMapping.physicalName": f"col-{id_}"}
    return StructField(name, column_of("bigint").type, metadata=metadata)


def test_a_file_without_ids_is_refused_where_columns_have_them() -> None:
    with pytest.raises(UnreadableInPythonError, match="no field ids"):
        find_columns([mapped("a", 1)], pa.schema([with_id("col-1", None)]), "id")
    assert find_columns([mapped("a", 1)], pa.schema([with_id("col-1", 7)]), "id") == {"a": None}
    nested = pa.schema([pa.field("s", pa.list_(pa.struct([with_id("x", 7)])))])
    assert find_columns([mapped("a", 1)], nested, "id") == {"a": None}, "an id at any depth is one"
    assert find_columns([], pa.schema([with_id("col-1", None)]), "id") == {}, "nobody asks for a column"


@pytest.mark.parametrize(
    ("mode", "held"),
    [
        ("id", [with_id("x", 1), with_id("y", 1)]),
        ("name", [with_id("col-1", None), with_id("COL-1", None)]),
        ("none", [with_id("a", None), with_id("A", None)]),
    ],
)
def test_columns_that_cannot_be_told_apart_are_refused(mode: Any, held: list[pa.Field]) -> None:
    with pytest.raises(UnreadableInPythonError, match="2 columns that may be a"):
        find_columns([mapped("a", 1)], pa.schema(held), mode)
    inner = StructField("s", StructType([mapped("a", 1)]), metadata=mapped("s", 2).metadata)
    with pytest.raises(UnreadableInPythonError, match="2 columns that may be a"):
        find_columns([inner], pa.schema([with_id("s" if mode == "none" else "col-2", 2, pa.struct(held))]), mode)


def footer(notes: dict[str, str] | None = None, **options: Any) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    schema = pa.schema([("at", pa.timestamp("us"))], metadata=notes)
    pq.write_table(pa.Table.from_pylist([{"at": AT}], schema), sink, **options)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def test_files_that_do_not_say_who_wrote_them_are_taken_as_the_session_says() -> None:
    marked = {"org.apache.spark.version": "4.0.1"}
    for said in (False, True):
        settings = ReaderSettings(unmarked_is_old=said)
        assert settings.may_be_old(footer()) is said
        assert not settings.may_be_old(footer(marked))
        assert settings.may_be_old(footer({"org.apache.spark.version": "2.4.8"}))
        assert settings.may_be_old(footer(marked | {"org.apache.spark.legacyDateTime": ""}))


def test_the_oldest_timestamps_are_left_to_spark_where_the_session_moves_them() -> None:
    oldest = footer(use_deprecated_int96_timestamps=True)
    ReaderSettings().check(oldest)
    ReaderSettings(shifts_int96=True).check(footer())
    with pytest.raises(UnreadableInPythonError, match="another time zone"):
        ReaderSettings(shifts_int96=True).check(oldest)


ARROW_ONLY: dict[str, tuple[pa.Array, pa.DataType]] = {
    "string_view": (pa.array(["a", None], pa.string_view()), pa.string()),
    "binary_view": (pa.array([b"a", None], pa.binary_view()), pa.binary()),
    "large_string": (pa.array(["a", None], pa.large_string()), pa.string()),
    "dictionary": (pa.array(["a", None]).dictionary_encode(), pa.string()),
    "large_list": (pa.array([[1], None], pa.large_list(pa.int32())), pa.list_(pa.int32())),
    "fixed_list": (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), pa.list_(pa.int32())),
    "list_view": (pa.array([[1], None], pa.list_view(pa.int32())), pa.list_(pa.int32())),
    "nested view": (pa.array([["a"], None], pa.list_(pa.string_view())), pa.list_(pa.string())),
    "decimal32": (pa.array([Decimal("1.5"), None], pa.decimal32(4, 1)), pa.decimal128(4, 1)),
    "decimal256": (pa.array([Decimal("1.5"), None], pa.decimal256(4, 1)), pa.decimal128(4, 1)),
    "zone": (pa.array([AT, None], pa.timestamp("us", "Europe/Berlin")), pa.timestamp("us", "UTC")),
    "duration": (pa.array([5, None], pa.duration("us")), pa.int64()),
    "uuid": (pa.array([b"0" * 16, None], pa.uuid()), pa.binary(16)),
    "json": (pa.array(["{}", None], pa.json_()), pa.string()),
}


def test_types_are_those_of_parquet_not_those_of_arrows_own_schema(tmp_path: Path) -> None:
    table = pa.table({name: array for name, (array, _) in ARROW_ONLY.items()})
    pq.write_table(table, tmp_path / "f.parquet")
    store = open_store(str(tmp_path))
    for small_bytes in (0, 2**20):
        file = ParquetObject(store, store.head("f.parquet"), small_bytes=small_bytes)
        [batch] = file.batches(table.column_names, [0])
        for name, (_, expected) in ARROW_ONLY.items():
            column = batch.column(name)
            is_list = pa.types.is_list(expected)
            assert column.type == expected or (is_list and column.type.value_type == expected.value_type), name
            assert column.is_null().to_pylist() == [False, True]
        assert batch.column("string_view").to_pylist() == ["a", None]
        assert file.metadata.num_rows == 2


def test_texts_that_look_like_arrows_key_are_left_alone(tmp_path: Path) -> None:
    """Bounds of columns stand in the footer as well, and notes of others behind Arrow's."""
    text = "\x0cARROW:schema"
    schema = pa.schema([("s", pa.string_view())], metadata={"a": text, "z": text})
    pq.write_table(pa.table({"s": pa.array([text, text])}).cast(schema), tmp_path / "f.parquet")
    store = open_store(str(tmp_path))
    file = ParquetObject(store, store.head("f.parquet"))
    assert file.schema.field("s").type == pa.string()
    assert file.only_value(0, "s") == text
    [batch] = file.batches(["s"], [0])
    assert batch.column("s").to_pylist() == [text, text]
