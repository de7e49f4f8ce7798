"""Partition values as text: the forms of the spec's table, and that our own reader gets the same values back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import PartitionValueError
from headwater.log.actions.paths import partition_directory
from headwater.log.files.arrow import same_value_runs
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
)
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.stats.values import partition_text
from headwater.parquet.plan import FileNames, log_path
from headwater.spark.scan.files import partition_values

SPEC: list[tuple[DataType, Any, str | None]] = [
    (STRING, "plain", "plain"),
    (STRING, "", None),
    (STRING, None, None),
    (PrimitiveType("varchar(9)"), "v", "v"),
    (LONG, -9_223_372_036_854_775_808, "-9223372036854775808"),
    (BYTE, -128, "-128"),
    (DATE, date(1970, 1, 1), "1970-01-01"),
    (DATE, date(1, 1, 1), "0001-01-01"),
    (TIMESTAMP, datetime(1970, 1, 1, 0, 0, 0, 123456, UTC), "1970-01-01T00:00:00.123456Z"),
    (TIMESTAMP, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "1969-12-31T23:59:59Z"),
    (TIMESTAMP_NTZ, datetime(1970, 1, 1), "1970-01-01 00:00:00"),
    (TIMESTAMP_NTZ, datetime(1970, 1, 1, 0, 0, 0, 123456), "1970-01-01 00:00:00.123456"),
    (BOOLEAN, True, "true"),
    (BOOLEAN, False, "false"),
    (BINARY, b"\x01\x02\x03", "\x01\x02\x03"),
    (BINARY, b"", None),
    (DecimalType(10, 2), Decimal("-12.30"), "-12.30"),
    (DecimalType(38, 0), Decimal("-1E+30"), "-1000000000000000000000000000000"),
    (DecimalType(20, 10), Decimal("0"), "0.0000000000"),
    (DOUBLE, 1.5, "1.5"),
    (DOUBLE, -0.0, "0.0"),
    (DOUBLE, math.inf, "Infinity"),
    (DOUBLE, math.nan, "NaN"),
    (FLOAT, 0.1, "0.1"),
]


@pytest.mark.parametrize(("type_", "value", "text"), SPEC, ids=[f"{t}-{v!r}" for t, v, _ in SPEC])
def test_the_forms_of_the_spec(type_: DataType, value: Any, text: str | None) -> None:
    found = partition_text(pa.scalar(value, type_to_arrow(type_)), type_, "c")
    assert found == text or (type_ in (DOUBLE, FLOAT) and float(found or "") == float(text or ""))


def test_the_instant_counts_whatever_the_zone_of_the_session() -> None:
    zoned = pa.scalar(datetime(2024, 1, 1, 12, tzinfo=UTC), pa.timestamp("us", "Asia/Tokyo"))
    assert partition_text(zoned, TIMESTAMP, "t") == "2024-01-01T12:00:00Z"


VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    STRING: st.text(min_size=1),
    LONG: st.integers(-(2**63), 2**63 - 1),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    TIMESTAMP_NTZ: st.datetimes(),
    BOOLEAN: st.booleans(),
    DecimalType(38, 9): st.decimals(-(10**28), 10**28, places=9, allow_nan=False),
    DOUBLE: st.floats(allow_nan=False),
    FLOAT: st.floats(width=32, allow_nan=False),
    BINARY: st.text(min_size=1).map(str.encode),
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(VALUES)).flatmap(lambda t: st.tuples(st.just(t), VALUES[t])))
def test_a_value_is_read_as_it_was_written(case: tuple[DataType, Any]) -> None:
    type_, value = case
    arrow = type_to_arrow(type_)
    text = partition_text(pa.scalar(value, arrow), type_, "c")
    maps = pa.chunked_array([pa.array([[("c", text)]], pa.map_(pa.string(), pa.string()))])
    read = partition_values(maps, StructField("c", type_), "c")[0]
    assert read.as_py() == pa.scalar(value, arrow).as_py()


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(PartitionValueError, match=r"column k holds the bytes ff00.*hex\(\)"):
        partition_text(pa.scalar(b"\xff\x00"), BINARY, "k")


def test_nested_values_are_refused() -> None:
    with pytest.raises(PartitionValueError, match="array"):
        partition_text(pa.scalar([1]), ArrayType(LONG), "k")


# --- directories -------------------------------------------------------------------------------------------


def test_directories_are_escaped_as_spark_does() -> None:
    # ExternalCatalogUtils.getPartitionPathString of Spark 4 gives these.
    values = {"a b": "x y", "c/d": "1:2=3%", "e": None, "f": "ü\n"}
    assert partition_directory(values) == "a b=x y/c%2Fd=1%3A2%3D3%25/e=__HIVE_DEFAULT_PARTITION__/f=ü%0A"


def test_a_name_that_no_file_system_takes_becomes_a_random_directory() -> None:
    key = FileNames().new_key(0, 0, {"p": "é" * 200})
    directory, name = key.split("/")
    assert len(directory) == 2
    assert name.startswith("part-00000-")


def test_names_are_unique_and_say_what_is_in_them() -> None:
    names = FileNames("_change_data", None, "zstd")
    keys = {names.new_key(7, 1, {"p": "1"}) for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("_change_data/p=1/cdc-00007-") and key.endswith(".c001.zstd.parquet") for key in keys)


def test_random_prefixes_take_the_place_of_directories() -> None:
    directory, _ = FileNames("", 5).new_key(0, 0, {"p": "1"}).split("/")
    assert len(directory) == 5
    assert directory.isalnum()


@given(st.text(min_size=1, max_size=20))
def test_the_path_in_the_log_is_decoded_once(text: str) -> None:
    directory = partition_directory({"p": text})
    assert directory is not None
    assert unquote(log_path(directory)) == directory
    assert log_path(directory).isascii()


# --- runs ----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.sampled_from([None, 0.0, -0.0, 1.0, math.nan]), min_size=1))
def test_runs_end_where_values_change(values: list[float | None]) -> None:
    texts = [partition_text(pa.scalar(value, pa.float64()), DOUBLE, "c") for value in values]
    expected = [0, *(i for i in range(1, len(texts)) if texts[i] != texts[i - 1]), len(texts)]
    assert same_value_runs([pa.array(values, pa.float64())]) == expected


def test_runs_of_several_columns_and_slices() -> None:
    one = pa.array(["x", "a", "a", "a", None]).slice(1)
    two = pa.array([9, 1, 1, 2, 2]).slice(1)
    assert same_value_runs([one, two]) == [0, 2, 3, 4]
