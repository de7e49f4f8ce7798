from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import ColumnNotFoundError, SchemaError
from headwater.log.actions.model import Metadata, Protocol
from headwater.log.schema import (
    INTEGER,
    LONG,
    ArrayType,
    MappingMode,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    column_id,
    drop_field_ids,
    mapping_mode,
    nested_ids,
    physical_name,
    physical_path,
    to_physical,
)
from support.corpus import CORPUS, MISSING

if TYPE_CHECKING:
    from pathlib import Path


def mapped(name: str, type_: Any, physical: str, id_: int, **more: Any) -> StructField:
    metadata = {"delta.columnMapping.id": id_, "delta.columnMapping.physicalName": physical, **more}
    return StructField(name, type_, metadata=metadata)


# The column definition of the spec's "Column Mapping", and one column more.
SCHEMA = StructType(
    [
        mapped("e", ArrayType(StructType([mapped("d", INTEGER, "col-d", 5)])), "col-e", 4),
        mapped(
            "s",
            StructType([mapped("x", MapType(LONG, StructType([mapped("y", LONG, "col-y", 8)])), "col-x", 7)]),
            "col-s",
            6,
        ),
    ]
)


def test_names_and_ids_come_from_the_column_metadata() -> None:
    assert physical_name(SCHEMA.field("e")) == "col-e"
    assert column_id(SCHEMA.field("e")) == 4


def test_a_path_is_translated_at_every_level() -> None:
    assert physical_path(SCHEMA, ["S", "x"], "name") == ("col-s", "col-x")
    assert physical_path(SCHEMA, ["S", "x"], "id") == ("col-s", "col-x")
    assert physical_path(SCHEMA, ["S", "x"], "none") == ("s", "x")
    with pytest.raises(ColumnNotFoundError):
        physical_path(SCHEMA, ["s", "nope"], "name")


@pytest.mark.parametrize("mode", ["name", "id"])
def test_the_physical_schema_has_physical_names_and_field_ids_at_all_levels(mode: MappingMode) -> None:
    physical = to_physical(SCHEMA, mode)

    assert str(physical) == (
        "struct<col-e:array<struct<col-d:int>>,col-s:struct<col-x:map<bigint,struct<col-y:bigint>>>>"
    )
    assert physical.fields[0].metadata["parquet.field.id"] == 4
    element = physical.fields[0].type
    assert isinstance(element, ArrayType)
    assert isinstance(element.element_type, StructType)
    assert element.element_type.fields[0].metadata["parquet.field.id"] == 5


def test_without_column_mapping_the_schema_is_physical_already() -> None:
    assert to_physical(SCHEMA, "none") == SCHEMA


def test_field_ids_can_be_left_out_for_readers_by_name() -> None:
    without = drop_field_ids(to_physical(SCHEMA, "name"))

    assert "parquet.field.id" not in without.to_json()
    assert without.names == ("col-e", "col-s")


def test_the_storage_of_user_defined_types_is_not_mapped() -> None:
    vector = UserDefinedType(StructType([StructField("size", INTEGER)]), {"class": "VectorUDT"})
    schema = StructType([mapped("v", vector, "col-v", 1)])

    assert to_physical(schema, "name").fields[0].type == vector


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_column_without_a_physical_name_is_an_error_that_names_it(mode: MappingMode) -> None:
    broken = StructType([mapped("a", ArrayType(StructType([StructField("b", LONG)])), "col-a", 1)])

    with pytest.raises(SchemaError, match=r"column a\.element\.b has no physical name"):
        to_physical(broken, mode)
    with pytest.raises(SchemaError, match="column b has no physical name"):
        physical_name(StructField("b", LONG))


def test_only_the_id_mode_needs_ids() -> None:
    schema = StructType([StructField("a", LONG, metadata={"delta.columnMapping.physicalName": "col-a"})])

    assert to_physical(schema, "name").names == ("col-a",)
    with pytest.raises(SchemaError, match="column a has no id"):
        to_physical(schema, "id")


@pytest.mark.parametrize("bad", ["7", 1.5, True, -1, 2**31])
def test_a_bad_id_is_an_error(bad: object) -> None:
    field = StructField("a", LONG, metadata={"delta.columnMapping.id": bad})

    with pytest.raises(SchemaError, match="column a has the bad id"):
        column_id(field)


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(SchemaError, match="unknown column mapping mode 'ID'"):
        to_physical(SCHEMA, "ID")  # type: ignore[arg-type]


# --- nested ids (IcebergCompatV2) ----------------------------------------------------------------------


def test_nested_ids_of_the_example_of_the_spec() -> None:
    col2 = StructField(
        "col2",
        MapType(INTEGER, ArrayType(INTEGER)),
        metadata={"parquet.field.nested.ids": {"col2.key": 102, "col2.value": 103, "col2.value.element": 104}},
    )
    assert nested_ids(col2) == {"key": 102, "value": 103, "value.element": 104}
    assert nested_ids(StructField("plain", LONG)) == {}


def test_nested_ids_reach_the_parquet_file(tmp_path: Path) -> None:
    ids = {"delta.columnMapping.nested.ids": {"col-m.key": 2, "col-m.value": 3, "col-m.value.element": 4}}
    schema = StructType([mapped("m", MapType(LONG, ArrayType(LONG)), "col-m", 1, **ids)])

    arrow = to_physical(schema, "id").to_arrow()
    pq.write_table(arrow.empty_table(), tmp_path / "f.parquet")

    written = pq.read_schema(tmp_path / "f.parquet").field(0)
    assert field_ids(written) == [b"1", [b"2"], [b"3", [b"4"]]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({"other.element": 1}, "nested id for 'other.element', which is not inside it"),
        ({"a.element": "x"}, r"column a\.element has the bad id 'x'"),
        (7, "bad nested ids"),
    ],
)
def test_bad_nested_ids_are_an_error(ids: object, message: str) -> None:
    field = StructField("a", ArrayType(LONG), metadata={"parquet.field.nested.ids": ids})

    with pytest.raises(SchemaError, match=message):
        nested_ids(field)


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_ids_are_those_of_files_that_delta_spark_wrote() -> None:
    """The field ids of a table with IcebergCompatV2, as delta-spark wrote them to the Parquet file."""
    assert CORPUS is not None
    table = CORPUS / "tables" / "delta-golden" / "table-with-icebegCompatV2Enabled"
    commit = (table / "_delta_log" / f"{0:020}.json").read_bytes().splitlines()
    metadata = next(a["metaData"] for a in map(msgspec.json.decode, commit) if "metaData" in a)

    arrow = to_physical(StructType.from_json(metadata["schemaString"]), "name").to_arrow()

    written = [pq.read_schema(f) for f in sorted(table.glob("*.parquet"))]
    assert written
    for file_schema in written:
        assert [field_ids(arrow.field(f.name)) for f in file_schema] == [field_ids(f) for f in file_schema]


def field_ids(field: pa.Field) -> list[object]:
    """The field ids of an Arrow field and everything inside it."""
    own = (field.metadata or {}).get(b"PARQUET:field_id")
    if pa.types.is_map(field.type):
        return [own, field_ids(field.type.key_field), field_ids(field.type.item_field)]
    if pa.types.is_list(field.type):
        return [own, field_ids(field.type.value_field)]
    if pa.types.is_struct(field.type):
        return [own, *map(field_ids, field.type)]
    return [own]


# --- the mode ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "configured", "expected"),
    [
        (Protocol(2, 5), "name", "name"),
        (Protocol(2, 5), "ID", "id"),
        (Protocol(2, 5), None, "none"),
        (Protocol(2, 7, None, ("columnMapping",)), "name", "name"),
        (Protocol(3, 7, ("columnMapping",), ("columnMapping",)), "name", "name"),
        # Real tables list the feature on one side only.
        (Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "columnMapping")), "name", "name"),
        (Protocol(3, 7, ("columnMapping",), ()), "id", "id"),
        (Protocol(1, 7, None, ("columnMapping",)), "name", "name"),
        (Protocol(1, 5), "name", "name"),
        (Protocol(1, 6), "id", "id"),
        (Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)), "name", "none"),
        (Protocol(1, 7, None, ("appendOnly",)), "name", "none"),
        (Protocol(1, 4), "name", "none"),
        (Protocol(1, 2), "name", "none"),
    ],
)
def test_the_mode_counts_only_if_the_protocol_supports_it(
    protocol: Protocol, configured: str | None, expected: str
) -> None:
    configuration = {} if configured is None else {"delta.columnMapping.mode": configured}

    assert mapping_mode(protocol, Metadata("id", configuration=configuration)) == expected


def test_a_mode_that_the_spec_does_not_know_is_an_error() -> None:
    with pytest.raises(SchemaError, match="unknown column mapping mode 'position'"):
        mapping_mode(Protocol(2, 5), Metadata("id", configuration={"delta.columnMapping.mode": "position"}))
