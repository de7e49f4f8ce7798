"""Partition values as writers have spelled them: what delta-spark reads is read, in the zone that is asked for.

The expected values are delta-spark's answers to the same tables (where it is installed,
`tests/spark/tables/test_partition_value_readers.py` asks it again); texts that it reads as null are refused here, for
nobody wrote them to mean null.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptLogError
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.files.arrow import strings
from headwater.log.opening import open_snapshot
from headwater.log.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)
from headwater.log.stats.values import parse_text
from support.log.checkpoint_states import STRUCT
from support.log.log_tables import add, features, metadata, put_commit
from support.stores.log_store import DictStore, context, open_table

_DAY_US = 86_400_000_000
_JANUARY_5 = 19_727
_MORNING = _JANUARY_5 * _DAY_US + 3_723_000_000
"""2024-01-05 01:02:03."""
_YEAR_10000 = 2_932_897

READ: list[tuple[DataType, str, Any]] = [
    (DATE, "2024-01-05", _JANUARY_5),
    (DATE, "2024-1-5", _JANUARY_5),
    (DATE, " 2024-01-05 ", _JANUARY_5),
    (DATE, "2024-01-05T00:00:00", _JANUARY_5),
    (DATE, "2024-01-05 10:00:00", _JANUARY_5),
    (DATE, "2024", _JANUARY_5 - 4),
    (DATE, "2024-02", _JANUARY_5 + 27),
    (DATE, "+2024-01-05", _JANUARY_5),
    (DATE, "+10000-01-01", _YEAR_10000),
    (DATE, "10000-01-01", _YEAR_10000),
    (DATE, "0000-01-01", -719_528),
    (DATE, "-0001-01-01", -719_893),
    (DATE, "+200000-12-31", 72_329_337),
    (TIMESTAMP, "2024-01-05 01:02:03", _MORNING),
    (TIMESTAMP, "2024-1-5 1:2:3", _MORNING),
    (TIMESTAMP, "2024-01-05T01:02:03Z", _MORNING),
    (TIMESTAMP, "2024-01-05T01:02:03.000Z", _MORNING),
    (TIMESTAMP, "2024-01-05T01:02:03.5+02:00", _MORNING - 7_199_500_000),
    (TIMESTAMP, "2024-01-05 01:02:03+2", _MORNING - 7_200_000_000),
    (TIMESTAMP, "2024-01-05 01:02:03 UTC+3", _MORNING - 10_800_000_000),
    (TIMESTAMP, "2024-01-05 01:02:03 Europe/Berlin", _MORNING - 3_600_000_000),
    (TIMESTAMP, "2024-01-05 01:02:03 PST", _MORNING + 28_800_000_000),
    (TIMESTAMP, "2024-01-05 01:02:03.1234567", _MORNING + 123_456),
    (TIMESTAMP, "2024-01-05T01:02:03.123456789Z", _MORNING + 123_456),
    (TIMESTAMP, "2024-01-05 01:02", _MORNING - 3_000_000),
    (TIMESTAMP, "2024-01-05", _JANUARY_5 * _DAY_US),
    (TIMESTAMP, "+10000-01-01T00:00:00.000000Z", _YEAR_10000 * _DAY_US),
    (TIMESTAMP, "10000-01-01 00:00:00", _YEAR_10000 * _DAY_US),
    (TIMESTAMP, "-0001-01-01T00:00:00Z", -719_893 * _DAY_US),
    (TIMESTAMP_NTZ, "2024-01-05 01:02:03", _MORNING),
    (TIMESTAMP_NTZ, "2024-01-05T01:02:03", _MORNING),
    (TIMESTAMP_NTZ, "2024-01-05T01:02:03Z", _MORNING),
    (TIMESTAMP_NTZ, "2024-01-05 01:02:03+02:00", _MORNING),
    (TIMESTAMP_NTZ, "2024-1-5", _JANUARY_5 * _DAY_US),
    (TIMESTAMP_NTZ, "+10000-01-01 00:00:00", _YEAR_10000 * _DAY_US),
    (TIMESTAMP_NTZ, "-0001-01-01 00:00:00", -719_893 * _DAY_US),
    *((BOOLEAN, text, True) for text in ("true", "True", "TRUE", "1", "t", "yes", "y", " true ")),
    *((BOOLEAN, text, False) for text in ("false", "0", "F", "no")),
    *((INTEGER, text, 5) for text in ("5", " 5", "+5", "05", "5.0", "5.7")),
    (INTEGER, "-0", 0),
    (DOUBLE, " 1.5", 1.5),
    (DOUBLE, "1.5d", 1.5),
    (DOUBLE, "1E3", 1000.0),
    (DOUBLE, "0x1p3", 8.0),
    (DOUBLE, "-inf", float("-inf")),
    (DOUBLE, "+Infinity", float("inf")),
    (FLOAT, "1.0E10", 1e10),
    (FLOAT, "3.5e38", float("inf")),
    (DecimalType(10, 2), "1.5", Decimal("1.50")),
    (DecimalType(10, 2), " +1.5", Decimal("1.50")),
    (DecimalType(10, 2), "1e2", Decimal("100.00")),
    (DecimalType(10, 2), "1.555", Decimal("1.56")),
]

REFUSED: list[tuple[DataType, str]] = [
    *((DATE, text) for text in ("20240105", "2024-13-01", "2024-02-30", "today", "epoch", "x", "99999999-01-01")),
    *((TIMESTAMP, text) for text in ("01:02:03", "now", "2024-01-05 24:00:00", "2024-01-05 01:02:03 NOWHERE")),
    (TIMESTAMP, "+300000-01-01 00:00:00"),
    *((BOOLEAN, text) for text in ("2", "truth", " ")),
    *((INTEGER, text) for text in ("5e1", "five", "2147483648", "9" * 2_000)),
    (BYTE, "128"),
    *((DOUBLE, text) for text in ("1_000", "1,5", "0x10")),
    *((DecimalType(10, 2), text) for text in ("123456789012", "NaN", "1e999999999", "1_0")),
]


def table(type_: DataType, *texts: str | None, version: int = 0, **properties: str) -> DictStore:
    """A table with one file for each text, partitioned by a column of the type."""
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("p", type_.json_name), ("x", "long"))
    ]
    more = {"schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": ["p"]}
    store = DictStore()
    adds = [add(f"f{number}", partitionValues={"p": text}) for number, text in enumerate(texts)]
    put_commit(store, version, features("timestampNtz"), metadata(properties, **more), *adds)
    return store


def numbers(values: pa.Array) -> list[Any]:
    """Points in time as numbers, which have no end."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    found: list[Any] = values.to_pylist()
    return found


@pytest.mark.parametrize(("type_", "text", "value"), [pytest.param(*c, id=f"{c[0]}-{c[1]}") for c in READ])
def test_a_text_that_another_writer_may_use_is_read(type_: DataType, text: str, value: object) -> None:
    assert numbers(parse_text(strings([text, None]), type_)) == [value, None]


@pytest.mark.parametrize(("type_", "text"), [pytest.param(*c, id=f"{c[0]}-{c[1][:30]}") for c in REFUSED])
def test_a_text_that_is_no_value_is_refused_with_the_column_s_name(type_: DataType, text: str) -> None:
    from headwater.log.files.chunks import values_of_key
    from headwater.log.schema.arrow import type_to_arrow
    from headwater.log.stats.values import typed_values

    snapshot = open_table(table(type_, text))
    maps = snapshot.files(columns=["partitionValues"]).column("partitionValues").combine_chunks()
    with pytest.raises(CorruptLogError, match="'p' is not a valid"):
        typed_values(values_of_key(maps, "p"), snapshot.schema.field("p"), type_to_arrow(type_))


def test_one_odd_text_among_plain_ones_changes_none_of_them() -> None:
    texts = strings(["2024-01-05", "2024-1-5", None, "+10000-01-01"])
    assert numbers(parse_text(texts, DATE)) == [_JANUARY_5, _JANUARY_5, None, _YEAR_10000]


# --- zones --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "text", "utc"),
    [
        ("America/Los_Angeles", "2024-01-05 01:02:03", "2024-01-05T09:02:03"),
        ("America/Los_Angeles", "2024-03-10 02:30:00", "2024-03-10T10:30:00"),  # an hour that does not occur
        ("America/Los_Angeles", "2024-11-03 01:30:00", "2024-11-03T08:30:00"),  # an hour that occurs twice
        ("America/Los_Angeles", "2024-1-5", "2024-01-05T08:00:00"),
        ("PST", "2024-01-05 01:02:03", "2024-01-05T09:02:03"),
        ("+02:00", "2024-01-05 01:02:03", "2024-01-04T23:02:03"),
        ("GMT-3:30", "2024-01-05 01:02:03", "2024-01-05T04:32:03"),
        ("EST", "2024-01-05 01:02:03", "2024-01-05T06:02:03"),
        ("Europe/Berlin", "2024-01-05T01:02:03Z", "2024-01-05T01:02:03"),
    ],
)
def test_a_timestamp_without_a_zone_is_in_the_zone_that_is_asked_for(zone: str, text: str, utc: str) -> None:
    """Also where the texts are not plain: a value far away makes each of them be looked at."""
    micros = (datetime.fromisoformat(utc).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    assert numbers(parse_text(strings([text]), TIMESTAMP, zone)) == [micros]
    assert numbers(parse_text(strings([text, "+10000-01-01T00:00:00Z"]), TIMESTAMP, zone))[0] == micros


def test_years_beyond_the_calendar_of_python_have_the_zones_of_years_like_them() -> None:
    """In July there is summer time in Berlin, in the year 12024 as in 2024; before there were zones, local time."""
    summer, winter, ancient = numbers(
        parse_text(
            strings(["+12024-07-01 12:00:00", "+12024-01-01 12:00:00", "-0004-07-01 12:00:00"]),
            TIMESTAMP,
            "Europe/Berlin",
        )
    )
    assert summer % _DAY_US == 10 * 3_600_000_000
    assert winter % _DAY_US == 11 * 3_600_000_000
    local = datetime(4, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")).utcoffset()
    assert local is not None
    assert ancient % _DAY_US == 12 * 3_600_000_000 - local // timedelta(microseconds=1)


def test_the_log_takes_a_timestamp_without_a_zone_for_utc_in_values_and_in_filters() -> None:
    store = table(TIMESTAMP, "2024-01-05 01:02:03", "2024-01-05T09:02:03Z", None)
    found = open_table(store).files("p = '2024-01-05 01:02:03'", ["path"])
    assert found.column("path").to_pylist() == ["f0"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_context_with_a_zone_prunes_by_that_zone(checkpoint: bool) -> None:
    """A checkpoint's parsed values were made in somebody's zone: the text counts."""
    store = table(TIMESTAMP, "2024-01-05 01:02:03", "2024-01-05T09:02:03Z", "2024-01-05T01:02:03Z", **STRUCT)
    if checkpoint:
        write_checkpoint(open_table(store))
    ctx = replace(context(store), time_zone="America/Los_Angeles")
    found = open_snapshot(ctx).files("p = TIMESTAMP '2024-01-05 09:02:03Z'", ["path"])
    assert sorted(found.column("path").to_pylist()) == ["f0", "f1"]


def test_a_zone_that_nobody_knows_matters_only_where_a_text_has_none() -> None:
    assert numbers(parse_text(strings(["2024-01-05T01:02:03Z"]), TIMESTAMP, "Mars/Olympus")) == [_MORNING]
    with pytest.raises(pa.ArrowInvalid, match="Mars/Olympus"):
        parse_text(strings(["2024-01-05 01:02:03"]), TIMESTAMP, "Mars/Olympus")


# --- round trips ----------------------------------------------------------------------------------------------


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_day_that_spark_has_comes_back(days: int) -> None:
    from headwater.log.stats.value_text import day_text

    assert numbers(parse_text(strings([day_text(days)]), DATE)) == [days]


@given(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.sampled_from(["UTC", "Europe/Berlin"]))
def test_every_instant_that_spark_has_comes_back_in_whatever_zone_it_is_read(us: int, zoned: bool, zone: str) -> None:
    from headwater.log.stats.value_text import timestamp_text

    text = timestamp_text(us, zoned=zoned)
    assert numbers(parse_text(strings([text]), TIMESTAMP if zoned else TIMESTAMP_NTZ, zone)) == [us]


def test_checkpoints_hold_far_values_as_columns() -> None:
    store = table(DATE, "+10000-01-01", "-0001-01-01", "2024-1-5", **STRUCT)
    write_checkpoint(open_table(store))
    found = open_table(store).files("p = '2024-01-05'", ["path"])
    assert found.column("path").to_pylist() == ["f2"]


def test_both_zeros_are_found_by_a_long_list() -> None:
    store = table(DOUBLE, "-0.0", "0.0", "1.0", "0.5")
    listed = ", ".join(f"{number}.0D" for number in range(200))
    found = open_table(store).files(f"p IN ({listed})", ["path"])
    assert sorted(found.column("path").to_pylist()) == ["f0", "f1", "f2"]
