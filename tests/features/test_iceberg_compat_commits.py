"""Iceberg compatibility at commit (spec: "Writer Requirements for IcebergCompatV1" and "... V2")."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.errors import InvalidCommitError
from headwater.features.definition import changed_table, set_table
from headwater.features.iceberg_compat import must_materialize_partition_columns
from headwater.log.actions.model import DeletionVector
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.schema import LONG, ArrayType, StructField, StructType
from support.tables.feature_tables import TWO_COLUMNS, alter, append, create, definition, file, removal, with_metadata

VECTOR = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 1, 4)
V1 = {"delta.enableIcebergCompatV1": "true"}
V2 = {"delta.enableIcebergCompatV2": "true"}
BOTH = pytest.mark.parametrize("properties", [V1, V2], ids=["V1", "V2"])


@BOTH
def test_every_file_says_how_many_rows_it_has(properties: dict[str, str], tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=properties)
    assert append(snapshot, file("a", 3)).num_files == 1
    with pytest.raises(InvalidCommitError, match=r"'b' has no numRecords.*icebergCompat"):
        append(snapshot, file("b", None))


@BOTH
def test_no_file_has_a_deletion_vector(properties: dict[str, str], tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=properties), file("a", 3))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.add([file("a", 3, deletion_vector=VECTOR)])
    transaction.remove([removal("a")])
    with pytest.raises(InvalidCommitError, match="deletion vector"):
        transaction.commit(Operation("DELETE"))


@BOTH
def test_partition_columns_are_materialized(properties: dict[str, str]) -> None:
    table = definition(properties=properties)
    assert must_materialize_partition_columns(table.configuration)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, False),
        ({"delta.feature.icebergCompatV2": "supported", "delta.columnMapping.mode": "name"}, False),
        ({"delta.feature.materializePartitionColumns": "supported"}, True),
        ({"delta.enableMaterializePartitionColumnsFeature": "true"}, True),
    ],
)
def test_partition_columns_are_materialized_only_where_it_is_asked_for(
    properties: dict[str, str], expected: bool
) -> None:
    table = definition(properties=properties)
    assert must_materialize_partition_columns(table.configuration) is expected


@BOTH
def test_a_partition_spec_is_not_replaced_by_one_with_other_names(properties: dict[str, str], tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=properties, partition_columns=["name"])
    snapshot = append(snapshot, file("a", partition_values={"name": "x"}))
    for columns, allowed in ((("id",), False), ((), False), (("name",), True)):
        wanted = msgspec.structs.replace(snapshot.metadata, partition_columns=columns)
        transaction = Transaction(snapshot.ctx, snapshot)
        set_table(transaction, changed_table(snapshot.configuration, wanted, replaces=True))
        transaction.remove([removal("a")])
        if allowed:
            assert transaction.commit(Operation("REPLACE TABLE")).version == 2
        else:
            with pytest.raises(InvalidCommitError, match="partitioned by name"):
                transaction.commit(Operation("REPLACE TABLE"))


def test_enabling_on_a_table_with_files_that_fit(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.columnMapping.mode": "name"}), file("a", 1))
    assert "icebergCompatV2" in (alter(snapshot, delta__enableIcebergCompatV2="true").protocol.writer_features or ())


def test_enabling_needs_a_count_in_every_file(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.columnMapping.mode": "name"}), file("a", 1), file("b", None))
    with pytest.raises(InvalidCommitError, match="'b' has no numRecords"):
        alter(snapshot, delta__enableIcebergCompatV2="true")


def test_enabling_needs_files_with_their_partition_columns(tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    snapshot = create(tmp_path, properties=properties, partition_columns=["name"])
    snapshot = append(snapshot, file("a", 1, partition_values={"name": "x"}))
    with pytest.raises(InvalidCommitError, match="do not hold their partition columns"):
        alter(snapshot, delta__enableIcebergCompatV2="true")


def test_enabling_needs_files_with_ids_for_what_has_no_name(tmp_path: Path) -> None:
    schema = StructType([*TWO_COLUMNS.fields, StructField("list", ArrayType(LONG))])
    snapshot = append(create(tmp_path, schema=schema, properties={"delta.columnMapping.mode": "name"}), file("a", 1))
    with pytest.raises(InvalidCommitError, match="no ids for array elements"):
        alter(snapshot, delta__enableIcebergCompatV2="true")


def test_enabling_needs_column_mapping(tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError, match=r"delta\.columnMapping\.mode to name"):
        alter(create(tmp_path), delta__enableIcebergCompatV2="true")


def test_new_array_columns_get_ids_inside(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=V2)
    snapshot = alter(snapshot, StructType([*TWO_COLUMNS.fields, StructField("list", ArrayType(LONG))]))
    field = snapshot.schema.field("list")
    assert list(field.metadata["parquet.field.nested.ids"].values()) == [4]
    assert snapshot.properties["delta.columnMapping.maxColumnId"] == "4"


def test_schemas_without_ids_inside_are_not_committed(tmp_path: Path) -> None:
    from dataclasses import replace

    table = definition(StructType([StructField("list", ArrayType(LONG))]), properties=V2)
    [field] = table.schema.fields
    kept = {k: v for k, v in field.metadata.items() if not k.endswith("nested.ids")}
    text = StructType([replace(field, metadata=kept)]).to_json()
    with pytest.raises(InvalidCommitError, match="needs an id for each array element"):
        create(tmp_path, with_metadata(table, msgspec.structs.replace(table.metadata, schema_string=text)))
