"""Alterations that need the log only, on tables that deltalake wrote; names and parameters as delta-spark has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headwater.commands.alter.properties import clustering_paths
from headwater.errors import (
    ColumnNotFoundError,
    InvalidCommitError,
    InvalidTablePropertyError,
    SchemaError,
    UnsupportedProtocolError,
)
from headwater.log.schema import DOUBLE, INTEGER, LONG, STRING, ArrayType, DecimalType, PrimitiveType, StructField
from support.commands import (
    add_columns,
    add_constraint,
    add_feature,
    cluster_by,
    drop_columns,
    drop_constraint,
    drop_default,
    drop_feature,
    remove_domain,
    rename_column,
    reorder_column,
    set_column_comment,
    set_column_type,
    set_default,
    set_domain,
    set_nullable,
    set_properties,
    unset_properties,
    upgrade,
)
from support.tables.plain_tables import MAPPED, actions, last_commit, names, newest, plain_table


@pytest.fixture
def table(tmp_path: Path) -> str:
    return plain_table(tmp_path / "t")


@pytest.fixture
def mapped(tmp_path: Path) -> str:
    path = plain_table(tmp_path / "mapped")
    set_properties(newest(path), MAPPED)
    return path


def accept(*_: object) -> None:
    """For rules whose rows are fine."""


def rows_by_deltalake(path: str) -> list[dict[str, Any]]:
    # Its SQL engine, for its Arrow dataset has wrong rows with column mapping.
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("select * from t order by 1").read_all())
    return found.to_pylist()


# --- properties ------------------------------------------------------------------------------------------


def test_properties_are_set_and_unset(table: str) -> None:
    set_properties(newest(table), {"delta.appendOnly": "false", "my": "1"})
    assert last_commit(table) == ("SET TBLPROPERTIES", {"properties": {"delta.appendOnly": "false", "my": "1"}})
    assert DeltaTable(table).metadata().configuration == {"delta.appendOnly": "false", "my": "1"}

    unset_properties(newest(table), ["my"])
    assert last_commit(table) == ("UNSET TBLPROPERTIES", {"properties": ["my"], "ifExists": "false"})
    assert newest(table).properties == {"delta.appendOnly": "false"}


def test_a_property_that_is_not_set_cannot_be_unset_unless_said_so(table: str) -> None:
    with pytest.raises(InvalidTablePropertyError, match="has no table property my"):
        unset_properties(newest(table), ["my"])
    unset_properties(newest(table), ["my"], if_exists=True)
    assert newest(table).version == 1


def test_names_of_properties_count_in_any_case(table: str) -> None:
    set_properties(newest(table), {"DELTA.appendonly": "TRUE"})
    assert newest(table).properties == {"delta.appendOnly": "true"}
    unset_properties(newest(table), ["delta.APPENDONLY"])
    assert newest(table).properties == {}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "no properties"),
        ({"delta.nope": "1"}, "there is no table property delta.nope"),
        ({"delta.checkpointInterval": "x"}, "whole number"),
        ({"delta.columnMapping.maxColumnId": "9"}, "cannot be set"),
        ({"delta.constraints.x": "id > 0"}, "addConstraint"),
    ],
)
def test_properties_that_cannot_be_set(table: str, properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidTablePropertyError, match=message):
        set_properties(newest(table), properties)
    assert newest(table).version == 0


def test_the_comment_is_the_description(table: str) -> None:
    set_properties(newest(table), {"comment": "what it is for"})
    assert DeltaTable(table).metadata().description == "what it is for"
    assert newest(table).properties == {}
    unset_properties(newest(table), ["comment"])
    assert newest(table).metadata.description is None


def test_a_property_that_needs_a_feature_upgrades_the_protocol(table: str) -> None:
    set_properties(newest(table), {"delta.enableChangeDataFeed": "true"})
    assert newest(table).protocol.min_writer_version == 4
    set_properties(newest(table), {"delta.feature.vacuumProtocolCheck": "supported"})
    assert "vacuumProtocolCheck" in (newest(table).protocol.reader_features or ())
    assert "delta.feature.vacuumProtocolCheck" not in newest(table).properties


# --- columns ---------------------------------------------------------------------------------------------


def test_columns_are_added_in_their_place(table: str) -> None:
    add_columns(
        newest(table), [StructField("e", INTEGER, metadata={"comment": "ee"}), StructField("f", STRING)], "FIRST"
    )
    assert names(newest(table))[:3] == ["e", "f", "id"]
    assert last_commit(table) == (
        "ADD COLUMNS",
        {
            "columns": [
                {
                    "column": {"name": "e", "type": "integer", "nullable": True, "metadata": {"comment": "ee"}},
                    "position": "FIRST",
                },
                {"column": {"name": "f", "type": "string", "nullable": True, "metadata": {}}, "position": "AFTER e"},
            ]
        },
    )
    assert [row["e"] for row in rows_by_deltalake(table)] == [None, None]


def test_fields_are_added_inside_structs_arrays_and_maps(table: str) -> None:
    add_columns(newest(table), [StructField("point.z", LONG)], "AFTER x")
    add_columns(newest(table), [StructField("points.element.w", STRING)])
    snapshot = newest(table)
    assert names(snapshot, "point") == ["x", "z", "y"]
    assert str(snapshot.schema.field("points").type) == "array<struct<x:int,y:string,w:string>>"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (StructField("ID", LONG), "there is a column id already"),
        (StructField("n", LONG, nullable=False), "cannot be added as NOT NULL"),
        (StructField("n", LONG, metadata={"CURRENT_DEFAULT": "1"}), "use setDefault"),
        (StructField("n", LONG, metadata={"delta.generationExpression": "id"}), "when a table is created"),
        (StructField("n", LONG, metadata={"delta.identity.start": 1}), "when a table is created"),
        (StructField("nope.n", LONG), "there is no column nope"),
        (StructField("points.n", LONG), "only structs have fields"),
        (StructField("a b", LONG), "cannot be stored under its name"),
    ],
)
def test_columns_that_cannot_be_added(table: str, column: StructField, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        add_columns(newest(table), [column])
    assert newest(table).version == 0


def test_columns_are_renamed_without_touching_files(mapped: str) -> None:
    before = newest(mapped).files().column("path").to_pylist()
    rename_column(newest(mapped), "amount", "sum")
    assert last_commit(mapped) == ("RENAME COLUMN", {"oldColumnPath": "amount", "newColumnPath": "sum"})
    rename_column(newest(mapped), "POINT.x", "a b")
    assert last_commit(mapped)[1] == {"oldColumnPath": "point.x", "newColumnPath": "point.a b"}
    rows = rows_by_deltalake(mapped)
    assert [row["sum"] for row in rows] == [5, None]
    assert [row["point"]["a b"] for row in rows] == [1, 2]
    assert newest(mapped).files().column("path").to_pylist() == before


def test_columns_are_dropped_and_a_new_one_of_the_same_name_is_empty(mapped: str) -> None:
    drop_columns(newest(mapped), ["amount", "point.y"])
    assert last_commit(mapped) == ("DROP COLUMNS", {"columns": ["amount", "point.y"]})
    assert names(newest(mapped)) == ["id", "point", "points", "prices", "name"]
    assert names(newest(mapped), "point") == ["x"]
    add_columns(newest(mapped), [StructField("amount", INTEGER)])
    assert [row["amount"] for row in rows_by_deltalake(mapped)] == [None, None]


def test_dropping_what_is_not_there(mapped: str) -> None:
    with pytest.raises(ColumnNotFoundError):
        drop_columns(newest(mapped), ["nope"])
    assert drop_columns(newest(mapped), ["nope"], if_exists=True) is None
    drop_columns(newest(mapped), ["nope", "name"], if_exists=True)
    assert last_commit(mapped) == ("DROP COLUMNS", {"columns": ["name"]})


def test_renaming_and_dropping_need_column_mapping(table: str) -> None:
    with pytest.raises(InvalidCommitError, match=r"delta\.columnMapping\.mode"):
        rename_column(newest(table), "id", "key")
    with pytest.raises(InvalidCommitError, match=r"delta\.columnMapping\.mode"):
        drop_columns(newest(table), ["id"])


def test_columns_that_rules_depend_on_stay(mapped: str) -> None:
    add_constraint(newest(mapped), "positive", "point.x > 0", accept)
    with pytest.raises(InvalidCommitError, match=r"cannot be renamed.*constraint positive \(point\.x > 0\)"):
        rename_column(newest(mapped), "point", "p")
    with pytest.raises(InvalidCommitError, match=r"cannot be dropped.*positive"):
        drop_columns(newest(mapped), ["point.x"])
    rename_column(newest(mapped), "point.y", "z")  # the constraint does not name it
    drop_constraint(newest(mapped), "POSITIVE")
    rename_column(newest(mapped), "point", "p")
    assert "p" in names(newest(mapped))


def test_partition_columns_are_renamed_but_not_dropped(tmp_path: Path) -> None:
    rows = pa.table({"day": ["a", "b"], "id": [1, 2]})
    path = plain_table(tmp_path / "t", rows, partition_by=["day"])
    set_properties(newest(path), MAPPED)
    with pytest.raises(InvalidCommitError, match="partitioned by it"):
        drop_columns(newest(path), ["day"])
    with pytest.raises(SchemaError, match="only partition columns"):
        drop_columns(newest(path), ["id"])
    rename_column(newest(path), "day", "date")
    assert newest(path).partition_columns == ["date"]
    assert rows_by_deltalake(path) == [{"date": "a", "id": 1}, {"date": "b", "id": 2}]


def test_the_list_of_columns_with_statistics_follows(mapped: str) -> None:
    set_properties(newest(mapped), {"delta.dataSkippingStatsColumns": "id, point.x, `name`"})
    rename_column(newest(mapped), "point", "place")
    assert newest(mapped).properties["delta.dataSkippingStatsColumns"] == "id,place.x,name"
    drop_columns(newest(mapped), ["name"])
    assert newest(mapped).properties["delta.dataSkippingStatsColumns"] == "id,place.x"


def test_columns_are_moved_and_described(table: str) -> None:
    reorder_column(newest(table), "amount", "FIRST")
    shown = {"name": "amount", "type": "integer", "nullable": True, "metadata": {}}
    assert last_commit(table) == ("CHANGE COLUMN", {"column": shown, "position": "FIRST"})
    reorder_column(newest(table), "point.x", "AFTER y")
    assert names(newest(table))[0] == "amount"
    assert names(newest(table), "point") == ["y", "x"]
    assert sorted(row["id"] for row in rows_by_deltalake(table) if row["amount"] == 5) == [1]

    set_column_comment(newest(table), "point.x", "east")
    described = {"name": "point.x", "type": "integer", "nullable": True, "metadata": {"comment": "east"}}
    assert last_commit(table) == ("CHANGE COLUMN", {"column": described})
    set_column_comment(newest(table), "point.x", None)
    assert newest(table).schema.resolve(["point", "x"])[-1].metadata == {}


# --- types, nulls, defaults ----------------------------------------------------------------------------------


def test_a_type_becomes_wider_and_the_change_is_recorded(table: str) -> None:
    with pytest.raises(InvalidCommitError, match=r"delta\.enableTypeWidening"):
        set_column_type(newest(table), "amount", LONG)
    set_properties(newest(table), {"delta.enableTypeWidening": "true"})
    set_column_type(newest(table), "amount", LONG)
    set_column_type(newest(table), "prices.value", DOUBLE)
    schema = newest(table).schema
    # As delta-spark records them.
    assert schema.field("amount").metadata["delta.typeChanges"] == [{"toType": "long", "fromType": "integer"}]
    assert schema.field("prices").metadata["delta.typeChanges"] == [
        {"toType": "double", "fromType": "integer", "fieldPath": "value"}
    ]
    assert last_commit(table)[1]["column"]["name"] == "prices.value"
    set_column_type(newest(table), "amount", DecimalType(20, 0))
    assert len(newest(table).schema.field("amount").metadata["delta.typeChanges"]) == 2
    assert set_column_type(newest(table), "amount", DecimalType(20, 0)) is None


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("amount", STRING), ("id", INTEGER), ("id", DOUBLE), ("amount", DecimalType(9, 0)), ("points", ArrayType(LONG))],
)
def test_types_that_do_not_hold_every_value(table: str, name: str, wanted: Any) -> None:
    set_properties(newest(table), {"delta.enableTypeWidening": "true"})
    with pytest.raises(InvalidCommitError, match="only types that hold every value"):
        set_column_type(newest(table), name, wanted)


def test_a_column_that_a_constraint_names_keeps_its_type(table: str) -> None:
    set_properties(newest(table), {"delta.enableTypeWidening": "true"})
    add_constraint(newest(table), "small", "amount < 10 or amount is null", accept)
    with pytest.raises(InvalidCommitError, match=r"given another type.*small"):
        set_column_type(newest(table), "amount", LONG)


def test_a_varchar_becomes_longer(table: str) -> None:
    add_columns(newest(table), [StructField("code", PrimitiveType("varchar(3)"))])
    set_column_type(newest(table), "code", PrimitiveType("varchar(5)"))
    assert newest(table).schema.field("code").metadata == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
    with pytest.raises(InvalidCommitError, match="longer values"):
        set_column_type(newest(table), "code", PrimitiveType("varchar(4)"))
    set_column_type(newest(table), "code", STRING)
    assert newest(table).schema.field("code") == StructField("code", STRING)
    with pytest.raises(InvalidCommitError, match="longer values"):
        set_column_type(newest(table), "code", PrimitiveType("varchar(4)"))


def test_not_null_is_set_after_a_look_at_the_rows(table: str) -> None:
    looked_at: list[tuple[str, ...]] = []
    set_nullable(newest(table), "ID", False, lambda _schema, path: looked_at.append(path))
    assert looked_at == [("id",)]
    assert not newest(table).schema.field("id").nullable
    assert last_commit(table)[1]["column"]["nullable"] is False
    assert set_nullable(newest(table), "id", False) is None
    set_nullable(newest(table), "id", True)
    assert newest(table).schema.field("id").nullable
    with pytest.raises(SchemaError, match="inside an array or map"):
        set_nullable(newest(table), "points.element.x", False)


def test_a_default_needs_the_feature(table: str) -> None:
    with pytest.raises(InvalidCommitError, match="addFeatureSupport"):
        set_default(newest(table), "amount", "5", accept)
    add_feature(newest(table), "allowColumnDefaults")
    set_default(newest(table), "amount", "5", accept)
    assert newest(table).schema.field("amount").metadata["CURRENT_DEFAULT"] == "5"
    with pytest.raises(InvalidCommitError, match="drop them first"):
        drop_feature(newest(table), "allowColumnDefaults")
    drop_default(newest(table), "amount")
    assert newest(table).schema.field("amount").metadata == {}
    assert drop_default(newest(table), "amount") is None
    with pytest.raises(SchemaError, match="only top-level"):
        set_default(newest(table), "point.x", "5", accept)


# --- constraints, clustering, domains, protocol ---------------------------------------------------------


def test_constraints_come_and_go(table: str) -> None:
    add_constraint(newest(table), "Positive", "id > 0", accept)
    assert last_commit(table) == ("ADD CONSTRAINT", {"name": "Positive", "expr": "id > 0"})
    assert newest(table).properties == {"delta.constraints.positive": "id > 0"}
    assert newest(table).protocol.min_writer_version == 3
    with pytest.raises(InvalidCommitError, match="already: id > 0"):
        add_constraint(newest(table), "POSITIVE", "id > 1", accept)
    with pytest.raises(InvalidCommitError, match="has no constraint nope: it has positive"):
        drop_constraint(newest(table), "nope")
    drop_constraint(newest(table), "POSITIVE")
    assert last_commit(table) == ("DROP CONSTRAINT", {"name": "POSITIVE", "expr": "id > 0", "existed": "true"})
    assert drop_constraint(newest(table), "positive", if_exists=True) is None
    with pytest.raises(InvalidCommitError, match="cannot be the name"):
        add_constraint(newest(table), "a b", "id > 0", accept)


def test_a_constraint_whose_rows_break_it_is_not_added(table: str) -> None:
    def refuse(name: str, expression: str) -> None:
        raise ValueError(f"{name}: {expression}")

    with pytest.raises(ValueError, match="c: id > 1"):
        add_constraint(newest(table), "c", "id > 1", refuse)
    assert newest(table).version == 0


def test_clustering_columns_are_set_and_cleared(mapped: str) -> None:
    cluster_by(newest(mapped), ["ID", "point.x"])
    assert last_commit(mapped) == ("CLUSTER BY", {"oldClusteringColumns": "", "newClusteringColumns": "id,point.x"})
    assert clustering_paths(newest(mapped)) == [("id",), ("point", "x")]
    rename_column(newest(mapped), "id", "key")
    assert clustering_paths(newest(mapped)) == [("key",), ("point", "x")]
    with pytest.raises(InvalidCommitError, match="clustered by it"):
        drop_columns(newest(mapped), ["key"])
    with pytest.raises(InvalidCommitError, match="clustered by it"):
        drop_columns(newest(mapped), ["point"])
    cluster_by(newest(mapped), [])
    parameters = {"oldClusteringColumns": "key,point.x", "newClusteringColumns": ""}
    assert last_commit(mapped) == ("CLUSTER BY", parameters)
    [domain] = actions(mapped, newest(mapped).version)["domainMetadata"]
    assert domain["removed"] is False
    drop_columns(newest(mapped), ["key"])


def test_what_cannot_be_clustered_by(table: str, tmp_path: Path) -> None:
    for column in ("points", "prices"):
        with pytest.raises(InvalidCommitError, match="no minimum and maximum"):
            cluster_by(newest(table), [column])
    with pytest.raises(ColumnNotFoundError):
        cluster_by(newest(table), ["nope"])
    partitioned = plain_table(tmp_path / "p", pa.table({"day": ["a"], "id": [1]}), partition_by=["day"])
    with pytest.raises(InvalidCommitError, match="is partitioned by day"):
        cluster_by(newest(partitioned), ["id"])


def test_domains_of_users_come_and_go(table: str) -> None:
    set_domain(newest(table), "com.example.lineage", '{"from":1}')
    assert newest(table).domain_metadata == {"com.example.lineage": '{"from":1}'}
    assert last_commit(table) == ("SET DOMAIN METADATA", {"domain": "com.example.lineage"})
    remove_domain(newest(table), "com.example.lineage")
    assert newest(table).domain_metadata == {}
    # Spec: writers should preserve an accurate pre-image of the configuration.
    [removed] = actions(table, newest(table).version)["domainMetadata"]
    assert removed == {"domain": "com.example.lineage", "configuration": '{"from":1}', "removed": True}
    with pytest.raises(InvalidCommitError, match="has no metadata domain"):
        remove_domain(newest(table), "com.example.lineage")


@pytest.mark.parametrize("domain", ["delta.clustering", "delta.mine", ""])
def test_domains_of_the_system_are_protected(table: str, domain: str) -> None:
    with pytest.raises(InvalidCommitError):
        set_domain(newest(table), domain, "{}")
    with pytest.raises(InvalidCommitError):
        remove_domain(newest(table), domain)


def test_the_protocol_goes_up_and_never_down(table: str) -> None:
    upgrade(newest(table), 1, 4)
    name, parameters = last_commit(table)
    assert (name, parameters) == ("UPGRADE PROTOCOL", {"newProtocol": {"minReaderVersion": 1, "minWriterVersion": 4}})
    assert upgrade(newest(table), 1, 4) is None
    with pytest.raises(InvalidCommitError, match="cannot go down"):
        upgrade(newest(table), 1, 2)
    upgrade(newest(table), 3, 7)
    protocol = newest(table).protocol
    # Nobody has proven that the features of writer version 4 were never used.
    assert {"changeDataFeed", "generatedColumns", "checkConstraints"} <= set(protocol.writer_features or ())


def test_features_are_added_and_dropped(table: str) -> None:
    add_feature(newest(table), "domainMetadata")
    assert last_commit(table) == ("ADD FEATURE", {"featureName": "domainMetadata"})
    assert add_feature(newest(table), "domainMetadata") is None
    with pytest.raises(InvalidCommitError, match="without truncating"):
        drop_feature(newest(table), "domainMetadata", truncate_history=True)
    drop_feature(newest(table), "domainMetadata")
    expected = {"featureName": "domainMetadata", "truncateHistory": "false"}
    assert last_commit(table) == ("DROP FEATURE", expected)
    assert not newest(table).protocol.supports("domainMetadata")
    with pytest.raises(UnsupportedProtocolError, match="there is no table feature 'nope'"):
        add_feature(newest(table), "nope")
    with pytest.raises(InvalidCommitError, match="nothing to drop"):
        drop_feature(newest(table), "deletionVectors")
