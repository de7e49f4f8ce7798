from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from test_schema_json import schema_strings

from headwater.errors import SchemaError
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
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
    UserDefinedType,
)
from support.corpus import CORPUS, MISSING, tables
from support.log.schema_strategies import arrow_types, metadata, schemas


def to_arrow(data_type: DataType) -> pa.DataType:
    return StructType([StructField("x", data_type)]).to_arrow().field("x").type


def from_arrow(arrow_type: pa.DataType) -> DataType:
    return StructType.from_arrow(pa.schema([pa.field("x", arrow_type)])).field("x").type


BOTH_WAYS = [
    (STRING, pa.string()),
    (LONG, pa.int64()),
    (INTEGER, pa.int32()),
    (SHORT, pa.int16()),
    (BYTE, pa.int8()),
    (FLOAT, pa.float32()),
    (DOUBLE, pa.float64()),
    (BOOLEAN, pa.bool_()),
    (BINARY, pa.binary()),
    (DATE, pa.date32()),
    (TIMESTAMP, pa.timestamp("us", "UTC")),
    (TIMESTAMP_NTZ, pa.timestamp("us")),
    (VOID, pa.null()),
    (DecimalType(38, 18), pa.decimal128(38, 18)),
    (ArrayType(LONG, contains_null=False), pa.list_(pa.field("element", pa.int64(), nullable=False))),
    (MapType(STRING, LONG), pa.map_(pa.string(), pa.field("value", pa.int64()))),
    (
        StructType([StructField("a", LONG, nullable=False)]),
        pa.struct([pa.field("a", pa.int64(), nullable=False)]),
    ),
]


@pytest.mark.parametrize(("data_type", "arrow_type"), BOTH_WAYS, ids=str)
def test_types_map_both_ways(data_type: DataType, arrow_type: pa.DataType) -> None:
    assert to_arrow(data_type) == arrow_type
    assert from_arrow(arrow_type) == data_type


@pytest.mark.parametrize(
    ("data_type", "arrow_type"),
    [
        (PrimitiveType("char(5)"), pa.string()),
        (ArrayType(PrimitiveType("varchar(5)")), pa.list_(pa.field("element", pa.string()))),
        (
            VARIANT,
            pa.struct(
                [
                    pa.field("metadata", pa.binary(), nullable=False),
                    pa.field("value", pa.binary(), nullable=False),
                ]
            ),
        ),
        (UserDefinedType(ArrayType(DOUBLE), {"class": "V"}), pa.list_(pa.field("element", pa.float64()))),
    ],
    ids=str,
)
def test_types_that_arrow_cannot_tell_are_held_and_remembered(data_type: DataType, arrow_type: pa.DataType) -> None:
    schema = StructType([StructField("x", data_type)])

    assert to_arrow(data_type) == arrow_type
    assert StructType.from_arrow(schema.to_arrow()) == schema


@pytest.mark.parametrize(
    ("arrow_type", "data_type"),
    [
        (pa.large_string(), STRING),
        (pa.string_view(), STRING),
        (pa.large_binary(), BINARY),
        (pa.binary_view(), BINARY),
        (pa.binary(16), BINARY),
        (pa.dictionary(pa.int8(), pa.string()), STRING),
        (pa.run_end_encoded(pa.int32(), pa.int64()), LONG),
        (pa.uint8(), SHORT),
        (pa.uint16(), INTEGER),
        (pa.uint32(), LONG),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.float16(), FLOAT),
        (pa.date64(), DATE),
        (pa.timestamp("s"), TIMESTAMP_NTZ),
        (pa.timestamp("ms", "Europe/Paris"), TIMESTAMP),
        (pa.timestamp("ns", "UTC"), TIMESTAMP),
        (pa.decimal32(5, 2), DecimalType(5, 2)),
        (pa.decimal256(38, 2), DecimalType(38, 2)),
        (pa.large_list(pa.int64()), ArrayType(LONG)),
        (pa.list_(pa.int64(), 3), ArrayType(LONG)),
        (pa.list_view(pa.int64()), ArrayType(LONG)),
        (pa.large_list_view(pa.large_string()), ArrayType(STRING)),
        (pa.map_(pa.large_string(), pa.list_(pa.uint8())), MapType(STRING, ArrayType(SHORT))),
    ],
    ids=str,
)
def test_other_arrow_forms_of_the_same_values_are_accepted(arrow_type: pa.DataType, data_type: DataType) -> None:
    assert from_arrow(arrow_type) == data_type


@pytest.mark.parametrize(
    "arrow_type",
    [
        pa.duration("us"),
        pa.time32("s"),
        pa.time64("us"),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int64())]),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.uuid(),
        pa.dictionary(pa.int8(), pa.duration("s")),
    ],
    ids=str,
)
def test_what_delta_cannot_hold_is_an_error_that_names_the_column(arrow_type: pa.DataType) -> None:
    nested = pa.schema([pa.field("a", pa.list_(pa.struct([pa.field("b", arrow_type)])))])

    with pytest.raises(SchemaError, match=r"column a\.element\.b: Delta cannot hold the Arrow type"):
        StructType.from_arrow(nested)


def test_an_unknown_type_has_no_arrow_form() -> None:
    schema = StructType([StructField("a", ArrayType(PrimitiveType("geometry(OGC:CRS84)")))])

    with pytest.raises(SchemaError, match=r"column a\.element: type geometry\(OGC:CRS84\) is not known"):
        schema.to_arrow()


@given(schemas(arrow_types))
def test_every_schema_of_known_types_survives_arrow(schema: StructType) -> None:
    assert StructType.from_arrow(schema.to_arrow()) == schema


@given(schemas(arrow_types))
def test_every_schema_survives_the_bytes_of_an_arrow_schema(schema: StructType) -> None:
    assert StructType.from_arrow(pa.ipc.read_schema(schema.to_arrow().serialize())) == schema


def test_void_is_always_nullable_in_arrow() -> None:
    never_null = ArrayType(VOID, contains_null=False)
    schema = StructType([StructField("v", VOID, nullable=False), StructField("a", never_null)])

    arrow = schema.to_arrow()

    assert arrow.field("v").nullable
    assert StructType.from_arrow(arrow) == StructType([StructField("v", VOID), StructField("a", never_null)])
    with pytest.raises(SchemaError, match="column m: the keys of a map cannot be of type void"):
        StructType([StructField("m", MapType(VOID, LONG))]).to_arrow()


def test_a_remembered_type_gives_way_when_the_data_has_changed() -> None:
    field = StructType([StructField("x", PrimitiveType("char(5)"))]).to_arrow().field(0)

    changed = StructType.from_arrow(pa.schema([field.with_type(pa.int64())]))

    assert changed.field("x").type == LONG


def test_field_ids_are_where_the_parquet_writer_looks() -> None:
    schema = StructType([StructField("x", LONG, metadata={"parquet.field.id": 7})])

    assert schema.to_arrow().field("x").metadata[b"PARQUET:field_id"] == b"7"


def test_arrow_metadata_of_others_is_not_taken_for_column_metadata() -> None:
    field = pa.field("x", pa.int64(), metadata={b"PARQUET:field_id": b"7", b"note": b"n"})

    assert StructType.from_arrow(pa.schema([field])).field("x").metadata == {}


@pytest.mark.parametrize("bad", [b"{", b"[1]", b'"text"', b"\xff"])
def test_broken_delta_metadata_in_arrow_is_an_error(bad: bytes) -> None:
    field = pa.field("x", pa.int64(), metadata={b"delta.metadata": bad})

    with pytest.raises(SchemaError, match="column x: its Delta metadata"):
        StructType.from_arrow(pa.schema([field]))


@given(metadata)
def test_column_metadata_is_json_under_one_key(values: dict[str, Any]) -> None:
    field = StructType([StructField("x", LONG, metadata=values)]).to_arrow().field("x")

    stored = field.metadata or {}
    assert json.loads(stored.get(b"delta.metadata", b"{}")) == values
    assert set(stored) <= {b"delta.metadata"}


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_schemas_of_the_corpus_survive_arrow() -> None:
    assert CORPUS is not None
    converted = 0
    for entry in tables():
        for text in schema_strings(CORPUS / entry["path"]):
            schema = StructType.from_json(text)
            if "geometry" in text:
                continue
            assert StructType.from_arrow(schema.to_arrow()) == schema
            converted += 1
    assert converted > 200


def test_the_schema_model_does_not_import_arrow() -> None:
    code = "import sys, headwater.log.schema; assert not {'pyarrow', 'pyspark'} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)
