"""Structs of Thrift's compact protocol come out as they went in; bytes that are none are refused by name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.parquet.splice.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    Field,
    Items,
    ThriftError,
    _Pairs,
    decoded,
    encoded,
)

TABLE = pa.table(
    {
        "id": pa.array(range(200), pa.int16()),
        "name": ["", None, "é", "a much longer text"] * 50,
        "at": pa.array(range(200), pa.timestamp("us", "UTC")),
        "x": [0.5, float("nan"), -0.0, None] * 50,
        "nested": [{"a": [1, None], "m": [("k", 2)]}, None] * 100,
    },
    pa.schema(
        [
            pa.field("id", pa.int16(), nullable=False, metadata={"PARQUET:field_id": "7"}),
            ("name", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("x", pa.float64()),
            ("nested", pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64()))])),
        ]
    ),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "many row groups": {"row_group_size": 10},
    "no statistics, no schema of Arrow": {"write_statistics": False, "store_schema": False},
    "pages of the second version": {"data_page_version": "2.0", "compression": "zstd", "use_dictionary": False},
    "page index": {"write_page_index": True, "max_rows_per_page": 20, "write_page_checksum": True},
    "order": {"sorting_columns": [pq.SortingColumn(0, descending=True, nulls_first=True)]},
    "bloom filters": {"bloom_filter_options": {"id": True, "name": True}},
}


def footer(file: bytes) -> bytes:
    """Its length stands before the magic number at the end (https://parquet.apache.org/docs/file-format)."""
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def by_pyarrow(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, **options)
    return sink.getvalue()


def by_duckdb(directory: Path) -> bytes:
    with duckdb.connect() as connection:
        connection.register("rows", TABLE).execute(f"COPY rows TO '{directory}/f' (FORMAT parquet)")
    return (directory / "f").read_bytes()


def by_delta_rs(directory: Path) -> bytes:
    write_deltalake(directory, TABLE)
    [path] = directory.glob("*.parquet")
    return path.read_bytes()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_footers_of_pyarrow_come_out_as_they_went_in(options: dict[str, Any]) -> None:
    found = footer(by_pyarrow(**options))
    assert encoded(decoded(found)) == found


@pytest.mark.parametrize("written", [by_duckdb, by_delta_rs])
def test_footers_of_other_writers_come_out_as_they_went_in(written: Any, tmp_path: Path) -> None:
    found = footer(written(tmp_path))
    assert encoded(decoded(found)) == found


def test_a_footer_says_what_pyarrow_reads_in_it() -> None:
    file = by_pyarrow(row_group_size=50)
    metadata = pq.read_metadata(io.BytesIO(file))
    found = decoded(memoryview(footer(file)))
    # The numbers of fields are those of `FileMetaData`, `SchemaElement` and `RowGroup` in parquet.thrift.
    assert found[3] == Field(I64, metadata.num_rows)
    assert found[6] == Field(BINARY, metadata.created_by.encode())
    names = [element[4].value.decode() for element in found[2].value.values]
    assert names[:4] == ["schema", "id", "name", "at"]
    assert [group[2].value for group in found[4].value.values] == [
        metadata.row_group(group).total_byte_size for group in range(4)
    ]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (Field(TRUE, True), "11"),
        (Field(FALSE, False), "12"),
        (Field(BYTE, 255), "13ff"),
        (Field(I16, -1), "1401"),
        (Field(I32, 150), "15ac02"),
        (Field(I32, -150), "15ab02"),
        (Field(I64, -(2**63)), "16ffffffffffffffffff01"),
        (Field(DOUBLE, b"12345678"), "173132333435363738"),
        (Field(BINARY, b"ab"), "18026162"),
        (Field(LIST, Items(I32, [1, 2])), "19250204"),
        (Field(LIST, Items(TRUE, [True, False])), "19210102"),
        (Field(LIST, Items(BYTE, [7] * 15)), "19f30f" + "07" * 15),
        (Field(SET, Items(BINARY, [])), "1a08"),
        (Field(MAP, _Pairs(0, 0, [])), "1b00"),
        (Field(MAP, _Pairs(BINARY, I32, [(b"k", 1)])), "1b0185016b02"),
        (Field(STRUCT, {2: Field(I32, 0)}), "1c250000"),
    ],
)
def test_every_type_is_written_as_the_protocol_says(value: Field, code: str) -> None:
    """https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md"""
    data = bytes.fromhex(code + "00")
    assert encoded({1: value}) == data
    assert decoded(data) == {1: value}


def test_far_numbers_of_fields_are_written_out() -> None:
    fields = {1: Field(TRUE, True), 16: Field(I32, 0), 32: Field(I32, 0)}
    assert encoded(fields).hex() == "11" + "f500" + "0540" + "00" + "00"
    assert decoded(encoded(fields)) == fields


INTEGERS = st.one_of(st.integers(-100, 100), st.integers(-(2**63), 2**63 - 1))
PLAIN: dict[int, st.SearchStrategy[Any]] = {
    BYTE: st.integers(0, 255),
    I16: st.integers(-(2**15), 2**15 - 1),
    I32: st.integers(-(2**31), 2**31 - 1),
    I64: INTEGERS,
    DOUBLE: st.binary(min_size=8, max_size=8),
    BINARY: st.binary(max_size=200),
}


def items(type_: int, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=20).map(lambda found: Items(type_, found))


def pairs(types: tuple[int, int]) -> st.SearchStrategy[Any]:
    both = st.lists(st.tuples(PLAIN[types[0]], PLAIN[types[1]]), min_size=1, max_size=3)
    return both.map(lambda found: _Pairs(*types, found))


def fields_with(structs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.one_of(
        items(STRUCT, structs), items(TRUE, st.booleans()), *(items(type_, value) for type_, value in PLAIN.items())
    )
    maps = st.tuples(st.sampled_from(list(PLAIN)), st.sampled_from(list(PLAIN))).flatmap(pairs)
    values = {**PLAIN, LIST: lists, SET: lists, MAP: maps, STRUCT: structs}
    field = st.one_of(
        st.sampled_from([Field(TRUE, True), Field(FALSE, False)]),
        *(st.builds(Field, st.just(type_), value) for type_, value in values.items()),
    )
    return st.dictionaries(st.one_of(st.integers(1, 40), st.integers(-(2**15), 2**15 - 1)), field, max_size=6)


STRUCTS: st.SearchStrategy[Any] = st.recursive(st.just({}), fields_with, max_leaves=6)
few = settings(max_examples=100, derandomize=True)


@few
@given(STRUCTS)
def test_any_struct_comes_out_as_it_went_in(fields: Any) -> None:
    data = encoded(fields)
    assert decoded(data) == fields
    assert encoded(decoded(data)) == data


def test_a_footer_that_ends_too_early_is_refused() -> None:
    found = footer(by_pyarrow())
    for length in range(len(found)):
        with pytest.raises(ThriftError):
            decoded(found[:length])


@few
@example(b"\x1c" * 100_000)  # structs in structs
@example(b"\x19" + b"\x19" * 100_000)  # lists in lists
@example(b"\x15" + b"\xff" * 1_000_000)  # a number without an end
@example(b"\x15" + b"\x80" * 1_000_000 + b"\x01\x00")  # a number whose end is far
@example(b"\x16" + b"\xff" * 9 + b"\x7f\x00")  # a number of 70 bits
@example(b"\x18" + b"\xff" * 9 + b"\x01")  # a text of 16 exabytes
@example(b"\x19\xfc" + b"\xff" * 9 + b"\x01")  # as many structs
@example(b"\x1b" + b"\xff" * 9 + b"\x01\x33")  # as many pairs
@example(b"\x1d\x00")  # an unknown type
@given(st.binary(max_size=60))
def test_bytes_are_a_struct_or_refused_by_name(data: bytes) -> None:
    try:
        found = decoded(data)
    except ThriftError:
        return
    assert decoded(encoded(found)) == found


@few
@given(st.data())
def test_a_damaged_footer_is_another_struct_or_refused_by_name(data: st.DataObject) -> None:
    damaged = bytearray(footer(by_pyarrow()))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decoded(bytes(damaged))
    except ThriftError:
        return
    assert decoded(encoded(found)) == found
