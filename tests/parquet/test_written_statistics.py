"""Statistics of written files: what the spec says, and never a bound that loses a row.

Most tests write Arrow rows with the code that executors run, without a Spark session. The oracle of the property is
brute force over the rows, the one that the pruning of other writers' statistics is tested with.
"""

from __future__ import annotations

import json
import math
import tempfile
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.actions.model import Add
from headwater.log.files.chunks import ADD_COLUMNS, MemoryChunk
from headwater.log.filters.expressions import Expression
from headwater.log.filters.pruning import ChunkPruner
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from headwater.log.schema.arrow import type_to_arrow
from headwater.parquet import write as parquet_file
from headwater.parquet.plan import WriteTarget, indexed_leaves, plan_files
from headwater.parquet.stats import bound_value
from headwater.spark.write.files import TaskWriter
from log.filters.test_pruning_properties import (
    LEAVES,
    SCHEMA,
    SHAPE,
    Row,
    evaluate,
    filters,
    has_negated_unknown,
    rows,
    value_of,
)

MAX = "\U0010ffff"


def texts(table: pa.Table, schema: StructType, **target: Any) -> list[str | None]:
    """The statistics of the files that a task writes for some rows, as JSON."""
    with tempfile.TemporaryDirectory() as directory:
        plan = plan_files(WriteTarget(uri=directory, schema=schema, **target))
        writer = TaskWriter(plan, 0)
        for batch in table.to_batches(max_chunksize=2):
            writer.write(batch)
        return [file.stats for file in writer.finish()]


def written(table: pa.Table, schema: StructType, **target: Any) -> list[dict[str, Any]]:
    """The same, decoded."""
    return [decoded(text) for text in texts(table, schema, **target)]


def decoded(text: str | None) -> Any:
    return json.loads(text or "null", parse_float=Decimal)


def column(values: list[Any], type_: DataType, **target: Any) -> dict[str, Any]:
    """The statistics of one column `c`."""
    table = pa.table({"c": pa.array(values, type_to_arrow(type_))})
    [found] = written(table, StructType([StructField("c", type_)]), **target)
    return found


# --- the property --------------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Row], Expression, int]:
    leaves = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=2, unique=True))
    found = draw(st.lists(rows(leaves), min_size=1, max_size=5))
    expr = draw(filters(leaves).filter(lambda e: not has_negated_unknown(e)))
    return found, expr, draw(st.integers(1, 4))


@settings(max_examples=250, deadline=None)
@given(cases())
def test_no_matching_row_is_lost_by_our_own_statistics(case: tuple[list[Row], Expression, int]) -> None:
    file_rows, expr, row_group_rows = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_file, "ROW_GROUP_ROWS", row_group_rows)
        patch.setattr(parquet_file, "LONG_TEXT_BYTES", 33)
        [text] = texts(pa.Table.from_pylist(file_rows, SCHEMA.to_arrow()), SCHEMA)
    [kept] = ChunkPruner(MemoryChunk([Add(path="f", size=1, stats=text)], ADD_COLUMNS), SHAPE).may_match(expr)
    matching = [row for row in file_rows if evaluate(expr, row)]
    assert kept.as_py() or not matching, f"{expr} drops a file with {matching} by {text}"
    check_bounds(decoded(text), file_rows)


def check_bounds(stats: dict[str, Any], file_rows: list[Row]) -> None:
    """What every reader may rely on, also one that orders -0.0 before 0.0 and takes NaN for what it likes."""
    assert stats["numRecords"] == len(file_rows)
    assert stats["tightBounds"] is True
    for path, type_ in LEAVES.items():
        values = [v for row in file_rows if (v := value_of(row, path)) is not None]
        assert value_of(stats["nullCount"], path) == len(file_rows) - len(values), path
        low, high = (_get(stats[kind], path) for kind in ("minValues", "maxValues"))
        if any(isinstance(v, float) and math.isnan(v) for v in values):
            assert high is None
        for value in values:
            if low is not None:
                assert _order(low, type_) <= _order(value, type_) or _is_nan(value)
            if high is not None:
                slack = timedelta(microseconds=999) if isinstance(value, datetime) else None
                upper = _order(high, type_)
                assert _order(value, type_) <= (upper if slack is None else upper + slack)


def _get(values: dict[str, Any], path: tuple[str, ...]) -> Any:
    for part in path:
        values = (values or {}).get(part)  # type: ignore[assignment]
    return values


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _order(value: Any, type_: DataType) -> Any:
    """A bound or a value in its type, ordered as the strictest reader orders it."""
    if type_ in (FLOAT, DOUBLE):
        number = float(value)
        return number, math.copysign(1, number)
    if isinstance(value, str):
        if type_ == STRING:
            return value.encode()
        return date.fromisoformat(value) if type_ == DATE else datetime.fromisoformat(value)
    return Decimal(value) if isinstance(type_, DecimalType) else value


# --- types, by the spec --------------------------------------------------------------------------------------

TYPES: list[tuple[DataType, list[Any], Any, Any]] = [
    (LONG, [3, None, -(2**63)], -(2**63), 3),
    (INTEGER, [3, -7], -7, 3),
    (BOOLEAN, [True, False], False, True),
    (STRING, ["b", "é", ""], "", "é"),
    (PrimitiveType("varchar(5)"), ["b", "a"], "a", "b"),
    (DATE, [date(2024, 1, 31), date(1, 1, 1)], "0001-01-01", "2024-01-31"),
    (
        TIMESTAMP,
        [datetime(2024, 1, 1, 0, 0, 0, 123999, UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)],
        "1969-12-31T23:59:59.999Z",
        "2024-01-01T00:00:00.123Z",
    ),
    (TIMESTAMP_NTZ, [datetime(2024, 1, 1, 0, 0, 0, 1)], "2024-01-01T00:00:00.000", "2024-01-01T00:00:00.000"),
    (DecimalType(5, 2), [Decimal("-1.50"), Decimal("2")], Decimal("-1.50"), Decimal("2.00")),
    (DecimalType(15, 2), [Decimal("-1.50"), Decimal("2")], Decimal("-1.50"), Decimal("2.00")),
    (DecimalType(38, 10), [Decimal(10) ** 27, -(Decimal(10) ** 27)], -(Decimal(10) ** 27), Decimal(10) ** 27),
    (DOUBLE, [1.5, -2.0], Decimal("-2.0"), Decimal("1.5")),
    (DOUBLE, [math.inf, -math.inf], "-Infinity", "Infinity"),
    (FLOAT, [0.1], Decimal("0.10000000149011612"), Decimal("0.10000000149011612")),
]


@pytest.mark.parametrize(("type_", "values", "low", "high"), TYPES, ids=[f"{t}-{v[0]}" for t, v, *_ in TYPES])
def test_bounds_by_type(type_: DataType, values: list[Any], low: Any, high: Any) -> None:
    found = column(values, type_)
    assert (found["minValues"], found["maxValues"]) == ({"c": low}, {"c": high})
    assert found["nullCount"] == {"c": values.count(None)}


def test_the_sign_of_a_zero_makes_it_a_bound_for_every_order() -> None:
    for values in ([0.0], [-0.0], [0.0, -0.0]):
        found = column(values, DOUBLE)
        assert (str(found["minValues"]["c"]), str(found["maxValues"]["c"])) == ("-0.0", "0.0")


def test_a_nan_leaves_no_maximum() -> None:
    found = column([1.0, math.nan, None], DOUBLE)
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"c": 1}, {}, {"c": 1})
    only = column([math.nan], FLOAT)
    assert (only["minValues"], only["maxValues"], only["nullCount"]) == ({}, {}, {"c": 0})


def test_a_column_of_nulls_has_no_bounds() -> None:
    found = column([None, None], STRING)
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({}, {}, {"c": 2})


def test_years_without_an_agreed_text_have_no_bound() -> None:
    days = pa.array([0, 2_932_897], pa.int32()).cast(pa.date32())
    [found] = written(pa.table({"c": days}), StructType([StructField("c", DATE)]))
    assert (found["minValues"], found["maxValues"]) == ({"c": "1970-01-01"}, {})


@pytest.mark.parametrize("type_", [BINARY, ArrayType(LONG), MapType(STRING, LONG), VARIANT])
def test_other_types_are_only_counted(type_: DataType) -> None:
    arrow = type_to_arrow(type_)
    value: Any = {BINARY: b"x", VARIANT: {"metadata": b"\x01\x00", "value": b"\x00"}}.get(type_, [])  # type: ignore[call-overload]
    table = pa.table({"c": pa.array([None, value, value, None], arrow)})
    [found] = written(table, StructType([StructField("c", type_)]))
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({}, {}, {"c": 2})


def test_fields_of_structs_are_nested_and_null_where_the_struct_is() -> None:
    type_ = StructType([StructField("x", LONG), StructField("a", ArrayType(LONG)), StructField("v", VOID)])
    rows_ = [{"x": 1, "a": [1]}, {"x": None, "a": None}, None]
    found = column(rows_, type_)
    assert (found["minValues"], found["maxValues"]) == ({"c": {"x": 1}}, {"c": {"x": 1}})
    assert found["nullCount"] == {"c": {"x": 2, "a": 2}}


# --- text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a" * 32, "a" * 32, "a" * 32),
        ("a" * 33, "a" * 32, "a" * 32 + "\x7f"),
        ("a" * 32 + "é", "a" * 32, "a" * 32 + MAX),
        ("a" * 32 + "\x7f\x7f", "a" * 32, "a" * 32 + MAX),
        ("a" * 32 + MAX + "b", "a" * 32, "a" * 32 + MAX + "\x7f"),
        ("a" * 32 + MAX * 3, "a" * 32, "a" * 32 + MAX * 3),
        ("é" * 5_000, "é" * 32, "é" * 32 + MAX),
        ("😀" * 33, "😀" * 32, "😀" * 32 + MAX),
    ],
)
def test_text_is_cut_with_a_character_that_keeps_it_a_bound(text: str, low: str, high: str) -> None:
    found = column([text], STRING)
    assert (found["minValues"]["c"], found["maxValues"]["c"]) == (low, high)


def test_no_upper_bound_rather_than_a_wrong_one() -> None:
    assert "c" not in column(["a" * 32 + MAX * 40 + "b"], STRING)["maxValues"]
    assert bound_value(b"\xff\xfe", STRING, upper=True, prefix_length=32) is None


def test_the_table_says_where_text_is_cut() -> None:
    found = column(["abcdef"], STRING, properties={"delta.dataSkippingStringPrefixLength": "3"})
    assert (found["minValues"], found["maxValues"]) == ({"c": "abc"}, {"c": "abc\x7f"})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4), st.integers(0, 4), st.integers(1, 3))
def test_cut_text_bounds_all_values(values: list[str], prefix_length: int, row_group_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_file, "ROW_GROUP_ROWS", row_group_rows)
        patch.setattr(parquet_file, "LONG_TEXT_BYTES", 8)
        found = column(values, STRING, properties={"delta.dataSkippingStringPrefixLength": str(prefix_length)})
    low, high = found["minValues"]["c"], found["maxValues"].get("c")
    assert all(low.encode() <= text.encode() for text in values)
    assert high is None or all(text.encode() <= high.encode() for text in values)


# --- which columns ---------------------------------------------------------------------------------------------

WIDE = StructType(
    [
        StructField("a", LONG),
        StructField("s", StructType([StructField("x", LONG), StructField("y.z", LONG)])),
        StructField("list", ArrayType(LONG)),
        StructField("m", MapType(STRING, LONG)),
        StructField("end", LONG),
    ]
)


def indexed(**properties: str) -> list[tuple[str, ...]]:
    named = {f"delta.dataSkipping{name}": value for name, value in properties.items()}
    return [leaf.path for leaf in indexed_leaves(WIDE, WIDE, "none", named)]


def test_the_first_columns_get_statistics() -> None:
    many = StructType([StructField(f"c{i}", LONG) for i in range(40)])
    assert len(indexed_leaves(many, many, "none", {})) == 32
    assert indexed(NumIndexedCols="3") == [("a",), ("s", "x"), ("s", "y.z")]
    assert indexed(NumIndexedCols="0") == []
    assert indexed(NumIndexedCols="-1") == indexed()


def test_named_columns_get_statistics() -> None:
    assert indexed(StatsColumns="END, s.`y.z`") == [("s", "y.z"), ("end",)]
    assert indexed(StatsColumns="s,gone", NumIndexedCols="1") == [("s", "x"), ("s", "y.z")]
    assert indexed(StatsColumns="") == []


def test_leaves_know_their_place_among_the_columns_of_a_file() -> None:
    places = {leaf.path: leaf.column for leaf in indexed_leaves(WIDE, WIDE, "none", {})}
    assert places == {("a",): 0, ("s", "x"): 1, ("s", "y.z"): 2, ("list",): 3, ("m",): 4, ("end",): 6}


def test_keys_are_physical_names() -> None:
    def mapped(name: str, type_: DataType, id_: int) -> StructField:
        metadata = {"delta.columnMapping.physicalName": f"col-{name}", "delta.columnMapping.id": id_}
        return StructField(name, type_, metadata=metadata)

    schema = StructType([mapped("a", LONG, 1), mapped("s", StructType([mapped("x", LONG, 3)]), 2)])
    table = pa.table({"a": [1], "s": [{"x": 2}]})
    properties = {"delta.dataSkippingStatsColumns": "s"}
    [found] = written(table, schema, mapping_mode="name", properties=properties)
    assert found["minValues"] == {"col-s": {"col-x": 2}}
    assert found["nullCount"] == {"col-s": {"col-x": 0}}


def test_partition_columns_have_no_statistics_even_in_files() -> None:
    schema = StructType([StructField("p", LONG), StructField("x", LONG)])
    table = pa.table({"p": [1, 1], "x": [2, 3]})
    for materialize in (False, True):
        [found] = written(table, schema, partition_columns=("p",), materialize_partition_columns=materialize)
        assert (found["minValues"], found["maxValues"]) == ({"x": 2}, {"x": 3})


def test_files_without_statistics() -> None:
    table = pa.table({"x": [2, 3]})
    schema = StructType([StructField("x", LONG)])
    assert written(table, schema, statistics=False) == [None]
    [none_indexed] = written(table, schema, properties={"delta.dataSkippingNumIndexedCols": "0"})
    assert (none_indexed["numRecords"], none_indexed["minValues"], none_indexed["nullCount"]) == (2, {}, {})


def test_statistics_of_row_groups_are_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "ROW_GROUP_ROWS", 2)
    values = [Decimal(5), Decimal(-3), None, None, Decimal(9), Decimal(1)]
    found = column(values, DecimalType(30, 0))
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"c": -3}, {"c": 9}, {"c": 2})
    assert column([1.0, 2.0, math.nan, math.nan, 0.5], DOUBLE)["minValues"] == {"c": Decimal("0.5")}
