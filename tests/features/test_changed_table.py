"""Changes of tables: properties, columns, clustering, and the protocol that follows from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headwater.errors import InvalidCommitError, InvalidTablePropertyError
from headwater.features.clustering import clustering_columns
from headwater.features.definition import TableDefinition, changed_table
from headwater.log.actions.model import Protocol
from headwater.log.schema import (
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
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from headwater.log.snapshot import Snapshot
from support.tables.feature_tables import (
    TWO_COLUMNS,
    alter,
    altered,
    append,
    commit_definition,
    create,
    definition,
    file,
    numbered,
    with_metadata,
)

LEGACY = ("appendOnly", "invariants", "checkConstraints", "generatedColumns", "changeDataFeed")


def clustered(snapshot: Snapshot, columns: list[str]) -> TableDefinition:
    return changed_table(
        snapshot.configuration,
        snapshot.metadata,
        cluster_by=columns,
        domains=snapshot.domain_metadata,
        new_id=numbered(),
    )


# --- properties and protocol -----------------------------------------------------------------------------


def test_legacy_features_raise_legacy_versions(tmp_path: Path) -> None:
    snapshot = alter(create(tmp_path), delta__enableChangeDataFeed="true")
    assert snapshot.protocol == Protocol(1, 4)
    assert alter(snapshot, delta__columnMapping__mode="name").protocol == Protocol(2, 5)


def test_moving_to_lists_lists_what_was_implied(tmp_path: Path) -> None:
    snapshot = alter(create(tmp_path), delta__enableChangeDataFeed="true")
    snapshot = alter(snapshot, delta__enableChangeDataFeed=None)
    snapshot = alter(snapshot, delta__enableDeletionVectors="true")
    assert snapshot.protocol == Protocol(3, 7, ("deletionVectors",), (*LEGACY, "deletionVectors"))


def test_a_listed_table_gets_the_feature_listed(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.enableInCommitTimestamps": "true"})
    after = altered(snapshot, delta__enableChangeDataFeed="true").protocol
    assert after == Protocol(1, 7, None, ("inCommitTimestamp", "changeDataFeed"))


def test_switching_a_feature_off_leaves_it_supported(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.enableDeletionVectors": "true"})
    assert alter(snapshot, delta__enableDeletionVectors="false").protocol == snapshot.protocol


def test_wishes_for_the_protocol_come_as_properties_too(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    table = altered(
        snapshot, delta__minReaderVersion="3", delta__minWriterVersion="7", delta__feature__timestampNtz="supported"
    )
    assert table.protocol == Protocol(3, 7, ("timestampNtz",), ("appendOnly", "invariants", "timestampNtz"))
    assert table.metadata == snapshot.metadata


def test_what_does_not_change_is_not_judged(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    odd = msgspec.structs.replace(snapshot.metadata, configuration={"delta.fromTheFuture": "x"})
    after = altered(with_metadata(snapshot, odd), owner="me")
    assert after.metadata.configuration == {"delta.fromTheFuture": "x", "owner": "me"}


def test_a_property_is_replaced_under_its_proper_name(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.checkpointInterval": "5"})
    assert altered(snapshot, DELTA__CHECKPOINTINTERVAL="7").metadata.configuration == {"delta.checkpointInterval": "7"}


@pytest.mark.parametrize("value", ["9", None])
def test_internal_properties_are_not_users_to_change(value: str | None, tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidTablePropertyError, match="maxColumnId"):
        altered(snapshot, delta__columnMapping__maxColumnId=value)


def test_a_change_that_changes_nothing_is_the_same_definition(tmp_path: Path) -> None:
    snapshot = create(
        tmp_path, properties={"delta.columnMapping.mode": "id", "delta.enableRowTracking": "true"}, cluster_by=["id"]
    )
    table = altered(snapshot)
    assert (table.protocol, table.metadata, table.domains) == (snapshot.protocol, snapshot.metadata, ())


def test_replacing_everything_starts_columns_afresh_but_keeps_what_writers_know(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.columnMapping.mode": "name"}), file("a"))
    wanted = msgspec.structs.replace(
        snapshot.metadata,
        schema_string=StructType([StructField("other", STRING)]).to_json(),
        configuration={"delta.columnMapping.mode": "name"},
    )
    table = changed_table(snapshot.configuration, wanted, replaces=True, new_id=numbered("r"))
    [field] = table.schema.fields
    assert field.metadata == {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-r1"}
    assert table.metadata.configuration["delta.columnMapping.maxColumnId"] == "3"


# --- types -----------------------------------------------------------------------------------------------

WIDER: list[tuple[DataType, DataType]] = [
    (BYTE, SHORT),
    (BYTE, INTEGER),
    (BYTE, LONG),
    (BYTE, DOUBLE),
    (SHORT, INTEGER),
    (SHORT, DOUBLE),
    (INTEGER, LONG),
    (INTEGER, DOUBLE),
    (FLOAT, DOUBLE),
    (DATE, TIMESTAMP_NTZ),
    (INTEGER, DecimalType(10, 0)),
    (BYTE, DecimalType(12, 2)),
    (LONG, DecimalType(20, 0)),
    (DecimalType(5, 2), DecimalType(7, 2)),
    (DecimalType(5, 2), DecimalType(7, 4)),
]
NOT_WIDER: list[tuple[DataType, DataType]] = [
    (LONG, INTEGER),
    (LONG, DOUBLE),
    (INTEGER, FLOAT),
    (DOUBLE, FLOAT),
    (STRING, LONG),
    (LONG, STRING),
    (DATE, TIMESTAMP),
    (INTEGER, DecimalType(9, 0)),
    (LONG, DecimalType(19, 0)),
    (DecimalType(5, 2), DecimalType(5, 3)),
    (DecimalType(5, 2), DecimalType(6, 1)),
    (LONG, ArrayType(LONG)),
]


def of_type(type_: DataType) -> StructType:
    return StructType([StructField("x", type_), StructField("y", LONG)])


@pytest.mark.parametrize(("before", "after"), WIDER, ids=str)
def test_types_are_widened_and_the_change_is_recorded(before: DataType, after: DataType, tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=of_type(before), properties={"delta.enableTypeWidening": "true"})
    snapshot = alter(append(snapshot, file("a")), of_type(after))
    field = snapshot.schema.field("x")
    assert field.type == after
    assert field.metadata["delta.typeChanges"] == [{"toType": after.json_name, "fromType": before.json_name}]


@pytest.mark.parametrize(("before", "after"), NOT_WIDER, ids=str)
def test_other_changes_of_type_are_refused(before: DataType, after: DataType, tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=of_type(before), properties={"delta.enableTypeWidening": "true"})
    with pytest.raises(InvalidCommitError, match=r"column x.* cannot change"):
        altered(snapshot, of_type(after))


def test_widening_needs_the_feature(tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=of_type(INTEGER))
    with pytest.raises(InvalidCommitError, match="enableTypeWidening"):
        altered(snapshot, of_type(LONG))


def test_widening_can_be_enabled_in_the_same_change(tmp_path: Path) -> None:
    snapshot = alter(create(tmp_path, schema=of_type(INTEGER)), of_type(LONG), delta__enableTypeWidening="true")
    assert snapshot.schema.field("x").type == LONG


def test_widening_inside_arrays_and_maps_says_where(tmp_path: Path) -> None:
    def nested(key: DataType, value: DataType) -> StructType:
        return of_type(MapType(key, ArrayType(value)))

    properties = {"delta.enableTypeWidening": "true"}
    snapshot = alter(create(tmp_path, schema=nested(INTEGER, SHORT), properties=properties), nested(LONG, INTEGER))
    snapshot = alter(snapshot, nested(LONG, LONG))
    assert snapshot.schema.field("x").metadata["delta.typeChanges"] == [
        {"toType": "long", "fromType": "integer", "fieldPath": "key"},
        {"toType": "integer", "fromType": "short", "fieldPath": "value.element"},
        {"toType": "long", "fromType": "integer", "fieldPath": "value.element"},
    ]


def test_a_column_that_does_not_say_what_it_was_is_still_remembered(tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=of_type(INTEGER), properties={"delta.enableTypeWidening": "true"})
    snapshot = alter(snapshot, of_type(LONG))
    again = alter(snapshot, StructType([*of_type(LONG).fields, StructField("z", LONG)]))  # from a DataFrame
    assert again.schema.field("x").metadata == snapshot.schema.field("x").metadata


def test_a_renamed_column_is_widened_as_itself(tmp_path: Path) -> None:
    properties = {"delta.enableTypeWidening": "true", "delta.columnMapping.mode": "name"}
    snapshot = create(tmp_path, schema=of_type(INTEGER), properties=properties)
    x, y = snapshot.schema.fields
    snapshot = alter(snapshot, StructType([replace(x, name="z", type=LONG), y]))
    assert snapshot.schema.field("z").metadata["delta.typeChanges"] == [{"toType": "long", "fromType": "integer"}]


def test_a_change_that_is_not_recorded_is_not_committed(tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=of_type(INTEGER), properties={"delta.enableTypeWidening": "true"})
    snapshot = append(snapshot, file("a"))
    table = altered(snapshot, of_type(LONG))
    bare = msgspec.structs.replace(table.metadata, schema_string=of_type(LONG).to_json())
    with pytest.raises(InvalidCommitError, match="not recorded"):
        commit_definition(snapshot, with_metadata(table, bare))


def test_replacing_all_files_forgets_old_types(tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=of_type(INTEGER), properties={"delta.enableTypeWidening": "true"})
    snapshot = alter(snapshot, of_type(LONG))
    table = changed_table(snapshot.configuration, snapshot.metadata, replaces=True)
    assert table.schema.field("x").metadata == {}


# --- clustering ------------------------------------------------------------------------------------------

STATS = {"numRecords": 1, "nullCount": {"id": 0, "name": 0}}


def test_an_existing_table_can_be_clustered_and_unclustered(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a", stats=STATS))
    snapshot = commit_definition(snapshot, clustered(snapshot, ["name"]), "CLUSTER BY")
    assert {"clustering", "domainMetadata"} <= set(snapshot.protocol.writer_features or ())
    assert clustering_columns(snapshot.domain_metadata) == [("name",)]
    snapshot = commit_definition(snapshot, clustered(snapshot, ["id", "name"]), "CLUSTER BY")
    assert clustering_columns(snapshot.domain_metadata) == [("id",), ("name",)]
    snapshot = commit_definition(snapshot, clustered(snapshot, []), "CLUSTER BY")
    assert clustering_columns(snapshot.domain_metadata) == []


def test_clustering_by_the_same_columns_writes_nothing(tmp_path: Path) -> None:
    snapshot = create(tmp_path, cluster_by=["id"])
    assert clustered(snapshot, ["id"]).domains == ()
    assert clustered(create(tmp_path / "other"), []).domains == ()


def test_a_partitioned_table_cannot_be_clustered(tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError, match="clustered and partitioned"):
        clustered(create(tmp_path, partition_columns=["name"]), ["id"])


def test_files_of_clustered_tables_have_statistics_for_their_columns(tmp_path: Path) -> None:
    snapshot = create(tmp_path, cluster_by=["name"])
    append(snapshot, file("a", stats=STATS), file("empty", 0))
    with pytest.raises(InvalidCommitError, match="'b' has no statistics for the clustering column name"):
        append(snapshot, file("b", stats={"numRecords": 1, "nullCount": {"id": 0}}))


def test_clustering_by_a_column_needs_its_statistics_in_all_files(tmp_path: Path) -> None:
    snapshot = append(
        create(tmp_path), file("a", stats=STATS), file("b", stats={"numRecords": 1, "nullCount": {"id": 0}})
    )
    assert commit_definition(snapshot, clustered(snapshot, ["id"]), "CLUSTER BY").version == 2
    snapshot = snapshot.refresh()
    with pytest.raises(InvalidCommitError, match=r"cannot be clustered by name.*'b'"):
        commit_definition(snapshot, clustered(snapshot, ["id", "name"]), "CLUSTER BY")


def test_a_clustering_column_cannot_be_dropped(tmp_path: Path) -> None:
    snapshot = create(tmp_path, cluster_by=["name"], properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidCommitError, match="is clustered by"):
        alter(snapshot, StructType(snapshot.schema.fields[:1]))
    renamed = alter(snapshot, StructType([snapshot.schema.fields[0], replace(snapshot.schema.fields[1], name="title")]))
    assert renamed.schema.names == ("id", "title")


# --- identity columns ------------------------------------------------------------------------------------


def identity(mark: int | None = None, step: int = 1, start: int = 1, explicit: bool = False) -> StructType:
    metadata: dict[str, object] = {
        "delta.identity.start": start,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": explicit,
    }
    if mark is not None:
        metadata["delta.identity.highWaterMark"] = mark
    return StructType([StructField("k", LONG, metadata=metadata), *TWO_COLUMNS.fields])


def test_marks_move_with_the_step(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, schema=identity()), file("a"))
    snapshot = alter(alter(snapshot, identity(5)), identity(9))
    with pytest.raises(InvalidCommitError, match="back from 9 to 8"):
        alter(snapshot, identity(8))
    with pytest.raises(InvalidCommitError, match="back from 9 to None"):
        alter(snapshot, identity(None))


def test_marks_of_descending_columns_move_down(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, schema=identity(step=-2)), file("a"))
    snapshot = alter(alter(snapshot, identity(-5, step=-2)), identity(-9, step=-2))
    with pytest.raises(InvalidCommitError, match="back from -9 to -7"):
        alter(snapshot, identity(-7, step=-2))


@pytest.mark.parametrize("other", [{"start": 2}, {"step": 3}, {"explicit": True}])
def test_the_definition_of_an_identity_column_stays(other: dict[str, int], tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, schema=identity()), file("a"))
    with pytest.raises(InvalidCommitError, match="identity column k cannot change"):
        alter(snapshot, identity(**other))  # type: ignore[arg-type]


def test_an_identity_column_cannot_be_a_partition_column() -> None:
    with pytest.raises(InvalidCommitError, match="partition column"):
        definition(identity(), partition_columns=["k"])
