"""Definitions of new tables: the lowest protocol that is enough, and everything that follows from a wish."""

from __future__ import annotations

import pytest

from headwater.errors import ColumnNotFoundError, InvalidCommitError, InvalidTablePropertyError, SchemaError
from headwater.features.clustering import clustering_columns
from headwater.log.actions.model import Protocol
from headwater.log.schema import (
    BOOLEAN,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    physical_name,
)
from support.tables.feature_tables import TWO_COLUMNS, definition


def with_column(type_: object = LONG, **metadata: object) -> StructType:
    return StructType([*TWO_COLUMNS.fields, StructField("x", type_, metadata=metadata)])  # type: ignore[arg-type]


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}


def test_a_plain_table_has_the_default_protocol() -> None:
    table = definition(name="t", description="d", properties={"owner": "me"})
    assert table.protocol == Protocol(1, 2)
    assert table.metadata.configuration == {"owner": "me"}
    assert (table.metadata.id, table.metadata.name, table.metadata.description) == ("the-table", "t", "d")
    assert table.schema == TWO_COLUMNS
    assert table.domains == ()


@pytest.mark.parametrize(
    ("properties", "protocol"),
    [
        ({"delta.appendOnly": "true"}, Protocol(1, 2)),
        ({"delta.constraints.positive": "id > 0"}, Protocol(1, 3)),
        ({"delta.enableChangeDataFeed": "true"}, Protocol(1, 4)),
        ({"delta.enableChangeDataCapture": "true"}, Protocol(1, 4)),
        ({"delta.columnMapping.mode": "name"}, Protocol(2, 5)),
        ({"delta.columnMapping.mode": "id"}, Protocol(2, 5)),
        ({"delta.columnMapping.mode": "none"}, Protocol(1, 2)),
        ({"delta.enableDeletionVectors": "true"}, Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))),
        ({"delta.enableDeletionVectors": "false"}, Protocol(1, 2)),
        ({"delta.checkpointPolicy": "v2"}, Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",))),
        ({"delta.checkpointPolicy": "classic"}, Protocol(1, 2)),
        ({"delta.enableTypeWidening": "true"}, Protocol(3, 7, ("typeWidening",), ("typeWidening",))),
        ({"delta.enableRowTracking": "true"}, Protocol(1, 7, None, ("rowTracking", "domainMetadata"))),
        ({"delta.enableInCommitTimestamps": "true"}, Protocol(1, 7, None, ("inCommitTimestamp",))),
        ({"delta.enableIcebergCompatV1": "true"}, Protocol(2, 7, None, ("columnMapping", "icebergCompatV1"))),
        ({"delta.enableIcebergCompatV2": "true"}, Protocol(2, 7, None, ("columnMapping", "icebergCompatV2"))),
        ({"delta.minWriterVersion": "7"}, Protocol(1, 7, None, ())),
        ({"delta.minReaderVersion": "3"}, Protocol(3, 7, (), ())),
    ],
    ids=str,
)
def test_properties_bring_their_features(properties: dict[str, str], protocol: Protocol) -> None:
    assert definition(properties=properties).protocol == protocol


@pytest.mark.parametrize(
    ("schema", "protocol"),
    [
        (with_column(TIMESTAMP_NTZ), Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))),
        (with_column(ArrayType(TIMESTAMP_NTZ)), Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))),
        (with_column(VARIANT), Protocol(3, 7, ("variantType",), ("variantType",))),
        (with_column(**{"delta.generationExpression": "id + 1"}), Protocol(1, 4)),
        (with_column(**IDENTITY), Protocol(1, 6)),
        (with_column(CURRENT_DEFAULT="7"), Protocol(1, 7, None, ("allowColumnDefaults",))),
        (with_column(**{"delta.invariants": '{"expression":{"expression":"x > 3"}}'}), Protocol(1, 2)),
    ],
    ids=["ntz", "nested ntz", "variant", "generated", "identity", "default", "invariant"],
)
def test_columns_bring_their_features(schema: StructType, protocol: Protocol) -> None:
    assert definition(schema).protocol == protocol


def test_row_tracking_names_its_hidden_columns() -> None:
    configuration = definition(properties={"delta.enableRowTracking": "true"}).metadata.configuration
    assert configuration["delta.rowTracking.materializedRowIdColumnName"] == "_row-id-col-1"
    assert configuration["delta.rowTracking.materializedRowCommitVersionColumnName"] == "_row-commit-version-col-2"


def test_char_columns_are_strings_that_remember() -> None:
    table = definition(StructType([StructField("code", PrimitiveType("varchar(3)"))]))
    [field] = table.schema.fields
    assert field.type == STRING
    assert field.metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}


def test_partition_columns_are_found_in_any_case() -> None:
    assert definition(partition_columns=["NAME"]).metadata.partition_columns == ("name",)


@pytest.mark.parametrize(
    ("schema", "columns", "message"),
    [
        (TWO_COLUMNS, ["id", "name"], "all of its columns"),
        (TWO_COLUMNS, ["id", "id"], "twice"),
        (with_column(ArrayType(LONG)), ["x"], "array"),
        (with_column(VARIANT), ["x"], "variant"),
    ],
)
def test_impossible_partition_columns_are_refused(schema: StructType, columns: list[str], message: str) -> None:
    with pytest.raises(InvalidCommitError, match=message):
        definition(schema, partition_columns=columns)


def test_a_partition_column_that_is_not_there_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ColumnNotFoundError, match="Did you mean name"):
        definition(partition_columns=["nam"])


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{b", "a)b", "a\tb", "a=b"])
def test_names_that_others_cannot_store_need_column_mapping(name: str) -> None:
    schema = StructType([StructField(name, LONG)])
    with pytest.raises(SchemaError, match=r"delta\.columnMapping\.mode"):
        definition(schema)
    [field] = definition(schema, properties={"delta.columnMapping.mode": "name"}).schema.fields
    assert field.name == name
    assert physical_name(field) == "col-1"


def test_columns_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(SchemaError, match="same name"):
        definition(StructType([StructField("a", LONG), StructField("A", LONG)]))


def test_nested_columns_that_differ_only_in_case_are_refused() -> None:
    inner = StructType([StructField("a", LONG), StructField("A", LONG)])
    with pytest.raises(SchemaError, match="same name"):
        definition(StructType([StructField("s", ArrayType(inner))]))


@pytest.mark.parametrize("name", ["_change_type", "_COMMIT_VERSION", "_commit_timestamp"])
def test_the_columns_of_the_change_data_feed_are_reserved(name: str) -> None:
    schema = StructType([StructField(name, LONG), StructField("id", LONG)])
    assert definition(schema).schema == schema
    with pytest.raises(InvalidCommitError, match="change data feed"):
        definition(schema, properties={"delta.enableChangeDataFeed": "true"})


@pytest.mark.parametrize(
    "metadata",
    [
        {**IDENTITY, "delta.identity.step": 0},
        {**IDENTITY, "delta.identity.start": "1"},
        {**IDENTITY, "delta.identity.start": 2**63},
        {**IDENTITY, "delta.identity.allowExplicitInsert": "no"},
        {**IDENTITY, "delta.generationExpression": "1"},
        {"delta.identity.start": 1},
    ],
)
def test_identity_columns_are_defined_completely(metadata: dict[str, object]) -> None:
    with pytest.raises(InvalidCommitError, match="identity column x"):
        definition(with_column(**metadata))


def test_identity_columns_are_of_type_bigint() -> None:
    with pytest.raises(InvalidCommitError, match="bigint"):
        definition(with_column(STRING, **IDENTITY))


def test_clustering_columns_stand_in_a_domain() -> None:
    schema = StructType([StructField("a", LONG), StructField("s", StructType([StructField("b", STRING)]))])
    table = definition(schema, cluster_by=["A", "s.b"])
    assert table.protocol == Protocol(1, 7, None, ("clustering", "domainMetadata"))
    [domain] = table.domains
    # The form that delta-spark and the kernels read: a path for each column.
    assert domain.configuration == '{"clusteringColumns":[["a"],["s","b"]],"domainName":"delta.clustering"}'


def test_clustering_columns_go_by_physical_name() -> None:
    table = definition(cluster_by=["name"], properties={"delta.columnMapping.mode": "name"})
    expected = [(physical_name(table.schema.field("name")),)]
    assert clustering_columns({table.domains[0].domain: table.domains[0].configuration}) == expected


def test_clustering_columns_are_read_in_the_form_of_the_spec_too() -> None:
    assert clustering_columns({"delta.clustering": '{"clusteringColumns":["col-1","col-2"]}'}) == [
        ("col-1",),
        ("col-2",),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["flag"], "minimum"), (["id", "id"], "once"), (["s"], "minimum"), (["a", "b", "c", "d", "e"], "4 columns")],
)
def test_impossible_clustering_columns_are_refused(columns: list[str], message: str) -> None:
    fields = [StructField(name, LONG) for name in ("id", "a", "b", "c", "d", "e")]
    extra = [StructField("flag", BOOLEAN), StructField("s", StructType([StructField("x", LONG)]))]
    with pytest.raises(InvalidCommitError, match=message):
        definition(StructType([*fields, *extra]), cluster_by=columns)


def test_a_table_is_not_clustered_and_partitioned() -> None:
    with pytest.raises(InvalidCommitError, match="clustered and partitioned"):
        definition(cluster_by=["id"], partition_columns=["name"])


def test_columns_for_statistics_must_exist() -> None:
    definition(properties={"delta.dataSkippingStatsColumns": "ID, `name`"})
    with pytest.raises(InvalidTablePropertyError, match="dataSkippingStatsColumns"):
        definition(properties={"delta.dataSkippingStatsColumns": "id,nme"})


# --- Iceberg compatibility -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_iceberg_compatibility_brings_column_mapping(version: str) -> None:
    table = definition(properties={f"delta.enableIcebergCompat{version}": "true"})
    assert table.metadata.configuration["delta.columnMapping.mode"] == "name"


@pytest.mark.parametrize("type_", [ArrayType(LONG), MapType(STRING, LONG), PrimitiveType("void")])
def test_iceberg_v1_has_no_arrays_maps_and_voids(type_: object) -> None:
    with pytest.raises(InvalidCommitError, match=r"icebergCompatV1 does not allow the type .* of column x"):
        definition(with_column(type_), properties={"delta.enableIcebergCompatV1": "true"})


@pytest.mark.parametrize("type_", [VARIANT, PrimitiveType("void"), ArrayType(VARIANT)])
def test_iceberg_v2_has_only_the_types_of_its_list(type_: object) -> None:
    with pytest.raises(InvalidCommitError, match="icebergCompatV2 does not allow the type"):
        definition(with_column(type_), properties={"delta.enableIcebergCompatV2": "true"})


def test_iceberg_v2_gives_ids_to_what_has_no_name() -> None:
    # The example of the spec, "Example of storing identifiers for nested fields".
    integer = PrimitiveType("integer")
    schema = StructType(
        [
            StructField("col1", ArrayType(ArrayType(integer))),
            StructField("col2", MapType(integer, ArrayType(integer))),
            StructField("col3", MapType(integer, StructType([StructField("subcol1", ArrayType(integer))]))),
        ]
    )
    table = definition(schema, properties={"delta.enableIcebergCompatV2": "true"})

    def inner(field: StructField) -> set[str]:
        name = physical_name(field)
        return {key.removeprefix(f"{name}.") for key in field.metadata["parquet.field.nested.ids"]}

    col1, col2, col3 = table.schema.fields
    assert inner(col1) == {"element", "element.element"}
    assert inner(col2) == {"key", "value", "value.element"}
    assert inner(col3) == {"key", "value"}
    [subcol1] = col3.type.value_type.fields  # type: ignore[union-attr]
    assert inner(subcol1) == {"element"}
    every = (col1, col2, col3, subcol1)
    ids = [
        i
        for f in every
        for i in (f.metadata["delta.columnMapping.id"], *f.metadata["parquet.field.nested.ids"].values())
    ]
    assert sorted(ids) == list(range(1, len(ids) + 1)), "unique, and different from those of columns"
    assert table.metadata.configuration["delta.columnMapping.maxColumnId"] == str(len(ids))
    assert all(f.metadata["delta.columnMapping.nested.ids"] == f.metadata["parquet.field.nested.ids"] for f in every)


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableIcebergCompatV1": "true", "delta.enableIcebergCompatV2": "true"},
        {"delta.enableIcebergCompatV2": "true", "delta.enableDeletionVectors": "true"},
        {"delta.enableIcebergCompatV1": "true", "delta.feature.deletionVectors": "supported"},
        {"delta.enableIcebergCompatV1": "true", "delta.columnMapping.mode": "none"},
    ],
)
def test_what_iceberg_compatibility_excludes_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidCommitError, match=r"(?i)icebergCompat"):
        definition(properties=properties)


def test_iceberg_v2_bears_deletion_vectors_that_are_supported_but_off() -> None:
    definition(properties={"delta.enableIcebergCompatV2": "true", "delta.feature.deletionVectors": "supported"})
