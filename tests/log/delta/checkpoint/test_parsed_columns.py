"""`stats_parsed` and `partitionValues_parsed`: typed by the schema, named as data files name their columns."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import CorruptLogError
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.filters.pruning import TableShape
from headwater.log.schema import LONG, StructField, StructType
from headwater.log.stats.columns import column_names, indexed_leaves
from support.log.checkpoint_states import NO_JSON, STRUCT, reopened
from support.log.log_tables import LOG, add, features, metadata, put_commit
from support.stores.log_store import DictStore, open_table

UTC = dt.UTC
VALUES: dict[str, tuple[str, Any, Any, pa.DataType]] = {
    "i8": ("byte", -128, -128, pa.int8()),
    "i16": ("short", 300, 300, pa.int16()),
    "i32": ("integer", -70000, -70000, pa.int32()),
    "i64": ("long", 2**60, 2**60, pa.int64()),
    "f32": ("float", 1.5, 1.5, pa.float32()),
    "f64": ("double", -0.25, -0.25, pa.float64()),
    "dec": ("decimal(20,3)", 12345678901234567.125, Decimal("12345678901234567.125"), pa.decimal128(20, 3)),
    "text": ("string", "é\n", "é\n", pa.string()),
    "flag": ("boolean", True, True, pa.bool_()),
    "day": ("date", "2024-02-29", dt.date(2024, 2, 29), pa.date32()),
    "at": (
        "timestamp",
        "2024-02-29T12:30:00.123Z",
        dt.datetime(2024, 2, 29, 12, 30, 0, 123000, UTC),
        pa.timestamp("us", "UTC"),
    ),
    "ntz": (
        "timestamp_ntz",
        "2024-02-29T12:30:00.123",
        dt.datetime(2024, 2, 29, 12, 30, 0, 123000),
        pa.timestamp("us"),
    ),
}
"""For each column: its Delta type, a bound as JSON has it, the same as a value, and its type in Arrow."""


def field(name: str, type_: Any, **mapped: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": mapped}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def checkpointed(
    schema: dict[str, Any], *adds: dict[str, Any], partitions: tuple[str, ...] = (), **properties: str
) -> tuple[DictStore, pa.StructArray]:
    """A table with a checkpoint, and the `add` column of that."""
    store = DictStore()
    more = {"schemaString": json.dumps(schema), "partitionColumns": list(partitions)}
    put_commit(store, 0, features("timestampNtz", "columnMapping"), metadata(STRUCT | properties, **more), *adds)
    write_checkpoint(open_table(store))
    found = pq.read_table(io.BytesIO(store.objects[f"{LOG}{0:020d}.checkpoint.parquet"]))
    return store, found.column("add").combine_chunks().drop_null()


def by_path(adds: pa.StructArray, name: str) -> dict[str, Any]:
    return dict(zip(*(adds.field(column).to_pylist() for column in ("path", name)), strict=True))


def stats(**parts: Any) -> str:
    return json.dumps({"numRecords": 3, **parts}, ensure_ascii=False).replace(
        "1.2345678901234568e+16", "12345678901234567.125"
    )


def test_bounds_of_every_type_are_values_of_that_type() -> None:
    schema = struct(*(field(name, spec[0]) for name, spec in VALUES.items()), field("raw", "binary"))
    bounds = {name: spec[1] for name, spec in VALUES.items()}
    text = stats(minValues=bounds, maxValues=bounds, nullCount=dict.fromkeys(VALUES, 1) | {"raw": 2})
    store, adds = checkpointed(schema, add("f", stats=text))
    parsed = adds.field("stats_parsed")
    assert [f.name for f in parsed.type] == ["numRecords", "minValues", "maxValues", "nullCount", "tightBounds"]
    assert {f.name: f.type for f in parsed.type.field("minValues").type} == {n: s[3] for n, s in VALUES.items()}
    expected = {name: spec[2] for name, spec in VALUES.items()}
    [row] = parsed.to_pylist()
    assert row == {
        "numRecords": 3,
        "minValues": expected,
        "maxValues": expected,
        "nullCount": dict.fromkeys(VALUES, 1) | {"raw": 2},
        "tightBounds": None,
    }
    assert reopened(store).files().column("stats").to_pylist() == [text]


def test_nested_columns_have_nested_statistics_with_physical_names() -> None:
    def mapped(name: str, type_: Any, number: int) -> dict[str, Any]:
        keys = {"delta.columnMapping.physicalName": f"col-{number}", "delta.columnMapping.id": number}
        return field(name, type_, **keys)

    schema = struct(
        mapped(
            "s",
            struct(
                mapped("x", "long", 2), mapped("l", {"type": "array", "elementType": "long", "containsNull": True}, 3)
            ),
            1,
        ),
        mapped("p", "integer", 4),
    )
    text = stats(
        minValues={"col-1": {"col-2": 5}},
        maxValues={"col-1": {"col-2": 6}},
        nullCount={"col-1": {"col-2": 0, "col-3": 1}},
        tightBounds=False,
    )
    properties = {"delta.columnMapping.mode": "name"}
    store, adds = checkpointed(
        schema,
        add("f", stats=text, partitionValues={"col-4": "7"}),
        add("g", partitionValues={"col-4": ""}),
        partitions=("p",),
        **properties,
    )
    assert by_path(adds, "stats_parsed") == {"f": json.loads(text), "g": None}
    assert by_path(adds, "partitionValues_parsed") == {"f": {"col-4": 7}, "g": {"col-4": None}}
    assert adds.field("partitionValues_parsed").type == pa.struct([("col-4", pa.int32())])
    found = reopened(store)
    assert found.files("p = 7 and s.x < 6").num_rows == 1
    assert found.files("s.x > 6", columns=["path"]).column("path").to_pylist() == ["g"]


def test_partition_values_have_the_types_of_their_columns() -> None:
    texts = {
        "i32": ("integer", "-5", -5),
        "dec": ("decimal(6,2)", "-12.50", Decimal("-12.50")),
        "day": ("date", "2024-02-29", dt.date(2024, 2, 29)),
        "at": ("timestamp", "2024-02-29 01:02:03.4", dt.datetime(2024, 2, 29, 1, 2, 3, 400000, UTC)),
        "flag": ("boolean", "true", True),
        "text": ("string", "a=b", "a=b"),
        "f32": ("float", "1.25", 1.25),
        "raw": ("binary", "\u0001\u0002", b"\x01\x02"),
    }
    schema = struct(field("id", "long"), *(field(name, spec[0]) for name, spec in texts.items()))
    values = {name: spec[1] for name, spec in texts.items()}
    _, adds = checkpointed(
        schema,
        add("f", partitionValues=values),
        add("g", partitionValues=dict.fromkeys(texts)),
        partitions=tuple(texts),
    )
    expected = {name: spec[2] for name, spec in texts.items()}
    assert sorted(adds.field("partitionValues_parsed").to_pylist(), key=str) == sorted(
        [expected, dict.fromkeys(texts)], key=str
    )


def test_a_partition_value_that_is_none_of_its_type_is_reported() -> None:
    schema = struct(field("id", "long"), field("p", "integer"))
    with pytest.raises(CorruptLogError, match="'p'"):
        checkpointed(schema, add("f", partitionValues={"p": "x"}), partitions=("p",))


def test_bounds_that_the_type_cannot_hold_are_not_known() -> None:
    schema = struct(field("i8", "byte"), field("dec", "decimal(4,1)"), field("f", "double"))
    odd = {"i8": 300, "dec": 1.25, "f": "NaN"}
    _, adds = checkpointed(schema, add("f", stats=stats(minValues=odd, maxValues=odd)), add("g", stats="not JSON"))
    rows = by_path(adds, "stats_parsed")
    assert rows["f"]["minValues"] == {"i8": None, "dec": None, "f": None}
    assert rows["g"]["numRecords"] is None


def test_a_changed_schema_changes_the_columns_and_loses_nothing() -> None:
    old = struct(field("a", "integer"))
    text = stats(minValues={"a": 1}, maxValues={"a": 2}, nullCount={"a": 0})
    store, _ = checkpointed(old, add("f", stats=text), **NO_JSON)
    new = struct(field("a", "long"), field("b", "string"))
    later = stats(minValues={"a": 5, "b": "x"}, maxValues={"a": 6, "b": "y"}, nullCount={"a": 0, "b": 0})
    put_commit(store, 1, metadata(STRUCT | NO_JSON, schemaString=json.dumps(new)), add("g", stats=later))
    write_checkpoint(open_table(store))
    adds = pq.read_table(io.BytesIO(store.objects[f"{LOG}{1:020d}.checkpoint.parquet"])).column("add")
    rows = adds.combine_chunks().drop_null().field("stats_parsed").to_pylist()
    assert [row["minValues"] for row in rows] == [{"a": 1, "b": None}, {"a": 5, "b": "x"}]
    found = reopened(store)
    assert found.files("a < 2", columns=["path"]).column("path").to_pylist() == ["f"]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, [f"c{n}" for n in range(32)]),
        ({"delta.dataSkippingNumIndexedCols": "2"}, ["c0", "c1"]),
        ({"delta.dataSkippingNumIndexedCols": "0"}, []),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, [f"c{n}" for n in range(40)]),
        ({"delta.dataSkippingStatsColumns": "C7, `c3`"}, ["c3", "c7"]),
        ({"delta.dataSkippingStatsColumns": "c7", "delta.dataSkippingNumIndexedCols": "1"}, ["c7"]),
    ],
)
def test_the_table_says_which_columns_have_statistics(properties: dict[str, str], expected: list[str]) -> None:
    shape = TableShape(StructType(StructField(f"c{n}", LONG) for n in range(40)), (), "none")
    assert [leaf.path[0] for leaf in indexed_leaves(shape, properties)] == expected


def test_a_struct_stands_for_its_fields_and_partition_columns_do_not_count() -> None:
    inner = StructType([StructField("x", LONG), StructField("y.z", LONG)])
    shape = TableShape(
        StructType([StructField("p", LONG), StructField("s", inner), StructField("t", LONG)]), ("p",), "none"
    )
    assert [leaf.path for leaf in indexed_leaves(shape, {"delta.dataSkippingStatsColumns": "s"})] == [
        ("s", "x"),
        ("s", "y.z"),
    ]
    assert [leaf.path for leaf in indexed_leaves(shape, {"delta.dataSkippingStatsColumns": "s.`y.z`"})] == [
        ("s", "y.z")
    ]
    assert [leaf.path for leaf in indexed_leaves(shape, {"delta.dataSkippingNumIndexedCols": "1"})] == [("s", "x")]


def test_names_in_a_list_may_be_quoted() -> None:
    assert column_names("a, b.c, `d.e`.f, `g``h`") == [("a",), ("b", "c"), ("d.e", "f"), ("g`h",)]
