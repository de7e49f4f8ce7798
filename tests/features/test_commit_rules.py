"""What features forbid at commit: append-only, domains, change data, deletion vectors, protocol, shape, types."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.errors import InvalidCommitError, ProtocolChangedException
from headwater.features.basic_rules import check_user_domain
from headwater.features.protocols import without_feature
from headwater.log.actions.model import AddCdcFile, DeletionVector, DomainMetadata, Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.schema import INTEGER, LONG, STRING, TIMESTAMP_NTZ, StructField, StructType
from headwater.log.snapshot import Snapshot
from support.tables.feature_tables import (
    NOW_MS,
    TWO_COLUMNS,
    alter,
    altered,
    append,
    commit_definition,
    create,
    definition,
    file,
    removal,
    reopened,
    with_metadata,
)

VECTOR = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 2, 4)


def delete(snapshot: Snapshot, name: str, **fields: object) -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.remove([removal(name, **fields)])
    return transaction.commit(Operation("DELETE")).snapshot


# --- append-only -----------------------------------------------------------------------------------------


def test_append_only_tables_keep_their_rows(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.appendOnly": "true"}), file("a"))
    with pytest.raises(InvalidCommitError, match=r"only allows appends .*DELETE removes rows.*'a'"):
        delete(snapshot, "a")


def test_append_only_tables_may_be_rearranged(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.appendOnly": "true"}), file("a"))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.remove([removal("a", data_change=False)])
    transaction.add([file("b", data_change=False)])
    assert transaction.commit(Operation("OPTIMIZE")).snapshot.num_files == 1


def test_append_only_can_be_lifted_but_not_in_the_same_commit(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.appendOnly": "true"}), file("a"))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_metadata(altered(snapshot, delta__appendOnly="false").metadata)
    transaction.remove([removal("a")])
    with pytest.raises(InvalidCommitError, match="only allows appends"):
        transaction.commit(Operation("WRITE"))
    assert delete(alter(snapshot, delta__appendOnly="false"), "a").num_files == 0


def test_the_property_does_not_count_without_the_feature(tmp_path: Path) -> None:
    table = definition(properties={"delta.minWriterVersion": "2"})
    metadata = msgspec.structs.replace(table.metadata, configuration={})
    snapshot = append(create(tmp_path, with_metadata(table, metadata, Protocol(1, 1))), file("a"))
    line = '{"metaData":{"id":"the-table","format":{"provider":"parquet","options":{}},"schemaString":'
    line += msgspec.json.encode(metadata.schema_string).decode()
    line += ',"partitionColumns":[],"configuration":{"delta.appendOnly":"true"}}}'
    (tmp_path / "_delta_log" / f"{2:020d}.json").write_text(line)
    assert delete(reopened(snapshot), "a").num_files == 0


def test_unrelated_changes_do_not_bring_features_that_had_no_effect(tmp_path: Path) -> None:
    snapshot = create(tmp_path, with_metadata(definition(), None, Protocol(1, 1)))
    inert = msgspec.structs.replace(snapshot.metadata, configuration={"delta.appendOnly": "true"})
    assert altered(with_metadata(snapshot, inert), owner="me").protocol == Protocol(1, 1)


# --- protocol --------------------------------------------------------------------------------------------


def set_protocol(snapshot: Snapshot, protocol: Protocol, operation: str = "UPGRADE PROTOCOL") -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_protocol(protocol)
    return transaction.commit(Operation(operation)).snapshot


def test_features_do_not_vanish_from_the_protocol(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.feature.domainMetadata": "supported"})
    with pytest.raises(InvalidCommitError, match="would take domainMetadata from the protocol"):
        set_protocol(snapshot, Protocol(1, 7, None, ()))
    assert set_protocol(snapshot, Protocol(1, 7, None, ()), "DROP FEATURE").version == 1


def test_versions_do_not_go_down(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.minWriterVersion": "7"})
    with pytest.raises(InvalidCommitError, match=r"from \(1, 7\) to \(1, 1\)"):
        set_protocol(snapshot, Protocol(1, 1))


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(3, 7, ("deletionVectors",), ("appendOnly", "invariants")),
        Protocol(1, 7, None, ("appendOnly", "invariants", "rowTracking")),
        Protocol(1, 7, None, ("appendOnly", "invariants", "noSuchFeature")),
        Protocol(1, 8),
    ],
)
def test_protocols_that_contradict_themselves_are_not_written(protocol: Protocol, tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError):
        set_protocol(create(tmp_path), protocol)


def test_two_upgrades_at_once_conflict(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    first, second = altered(snapshot, delta__enableChangeDataFeed="true"), altered(snapshot, delta__appendOnly="true")
    commit_definition(snapshot, first)
    with pytest.raises(ProtocolChangedException):
        set_protocol(snapshot, Protocol(1, 3))
    assert second.protocol == Protocol(1, 2)


@pytest.mark.parametrize(
    ("properties", "missing"),
    [
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        ({"delta.enableRowTracking": "true"}, "rowTracking"),
        ({"delta.enableInCommitTimestamps": "true"}, "inCommitTimestamp"),
        ({"delta.enableChangeDataFeed": "true"}, "changeDataFeed"),
        ({"delta.constraints.c": "id > 0"}, "checkConstraints"),
        ({"delta.checkpointPolicy": "v2"}, "v2Checkpoint"),
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
        ({"delta.enableTypeWidening": "true"}, "typeWidening"),
    ],
)
def test_metadata_that_the_protocol_does_not_back_is_not_written(
    properties: dict[str, str], missing: str, tmp_path: Path
) -> None:
    snapshot = create(tmp_path)
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_metadata(msgspec.structs.replace(snapshot.metadata, configuration=properties))
    with pytest.raises(InvalidCommitError, match=f"make use of .*{missing}.*does not support"):
        transaction.commit(Operation("SET TBLPROPERTIES"))


@pytest.mark.parametrize(
    ("field", "missing"),
    [
        (StructField("x", TIMESTAMP_NTZ), "timestampNtz"),
        (StructField("x", LONG, metadata={"delta.generationExpression": "id"}), "generatedColumns"),
        (StructField("x", LONG, metadata={"CURRENT_DEFAULT": "1"}), "allowColumnDefaults"),
    ],
)
def test_columns_that_the_protocol_does_not_back_are_not_written(
    field: StructField, missing: str, tmp_path: Path
) -> None:
    snapshot = create(tmp_path)
    text = StructType([*TWO_COLUMNS.fields, field]).to_json()
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_metadata(msgspec.structs.replace(snapshot.metadata, schema_string=text))
    with pytest.raises(InvalidCommitError, match=f"make use of {missing}"):
        transaction.commit(Operation("ADD COLUMNS"))
    assert alter(snapshot, StructType([*TWO_COLUMNS.fields, field])).version == 1


# --- domains ---------------------------------------------------------------------------------------------


def set_domain(snapshot: Snapshot, name: str, text: str = "{}") -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_domain(DomainMetadata(name, text))
    return transaction.commit(Operation("SET DOMAIN")).snapshot


def test_domains_need_their_feature(tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError, match=r"delta\.feature\.domainMetadata = supported"):
        set_domain(create(tmp_path), "com.example.x")


def test_domains_of_users_are_kept(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.feature.domainMetadata": "supported"})
    assert set_domain(snapshot, "com.example.x", "anything").domain_metadata == {"com.example.x": "anything"}


@pytest.mark.parametrize("name", ["delta.somethingNew", "delta.rowTracking", "delta.clustering", "delta."])
def test_domains_of_features_are_not_users_to_set(name: str, tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.feature.domainMetadata": "supported"})
    with pytest.raises(InvalidCommitError, match=r"cannot be set|set by the commit itself"):
        set_domain(snapshot, name)
    with pytest.raises(InvalidCommitError, match="belong to table features"):
        check_user_domain(name)


# --- change data -----------------------------------------------------------------------------------------


def test_change_files_need_the_feed_to_be_on(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a"))
    change = AddCdcFile("_change_data/c", size=1)
    for expected in (False, True):
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.add_changes([change])
        transaction.remove([removal("a")])
        if expected:
            assert transaction.commit(Operation("DELETE")).version == 3
        else:
            with pytest.raises(InvalidCommitError, match=r"delta\.enableChangeDataFeed"):
                transaction.commit(Operation("DELETE"))
            snapshot = alter(snapshot, delta__enableChangeDataFeed="true")


def test_columns_of_the_feed_cannot_be_added_while_it_is_on(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(InvalidCommitError, match="_change_type"):
        altered(snapshot, StructType([*TWO_COLUMNS.fields, StructField("_change_type", STRING)]))


def test_the_feed_cannot_be_switched_on_over_its_columns(tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=StructType([*TWO_COLUMNS.fields, StructField("_commit_version", LONG)]))
    with pytest.raises(InvalidCommitError, match="_commit_version"):
        altered(snapshot, delta__enableChangeDataFeed="true")


# --- deletion vectors ------------------------------------------------------------------------------------


def delete_by_vector(snapshot: Snapshot, operation: str = "DELETE", rows: int | None = 4) -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.add([file("a", rows, deletion_vector=VECTOR)])
    transaction.remove([removal("a")])
    return transaction.commit(Operation(operation)).snapshot


def test_vectors_are_written_where_they_are_enabled(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.enableDeletionVectors": "true"}), file("a", 4))
    [row] = delete_by_vector(snapshot).files().to_pylist()
    assert row["deletionVector"]["cardinality"] == 2


def test_vectors_need_the_feature(tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError, match="does not support the feature deletionVectors"):
        delete_by_vector(append(create(tmp_path), file("a", 4)))


def test_new_vectors_need_the_property(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.feature.deletionVectors": "supported"}), file("a", 4))
    with pytest.raises(InvalidCommitError, match="enableDeletionVectors is not true"):
        delete_by_vector(snapshot)
    assert delete_by_vector(snapshot, "RESTORE").version == 2, "old vectors may come back"


@pytest.mark.parametrize("rows", [None, 1])
def test_a_file_with_a_vector_says_how_many_rows_it_has(rows: int | None, tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.enableDeletionVectors": "true"}), file("a", 4))
    with pytest.raises(InvalidCommitError, match=r"numRecords|has 1 rows"):
        delete_by_vector(snapshot, rows=rows)


# --- the shape of the table ------------------------------------------------------------------------------


def overwrite(snapshot: Snapshot, metadata: object) -> Snapshot:
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_metadata(metadata)  # type: ignore[arg-type]
    transaction.remove([removal(path) for path in snapshot.files().column("path").to_pylist()])
    transaction.add([file("new", partition_values={"name": "x"})])
    return transaction.commit(Operation("WRITE")).snapshot


def test_partitioning_changes_only_with_all_files(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a"), file("b"))
    partitioned = msgspec.structs.replace(snapshot.metadata, partition_columns=("name",))
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_metadata(partitioned)
    with pytest.raises(InvalidCommitError, match="partitioning of a table cannot change"):
        transaction.commit(Operation("REPLACE TABLE"))
    assert overwrite(snapshot, partitioned).partition_columns == ["name"]


def test_types_change_freely_when_all_files_are_replaced(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a"))
    other = StructType([StructField("id", STRING), StructField("name", LONG)])
    changed = msgspec.structs.replace(snapshot.metadata, schema_string=other.to_json())
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_metadata(changed)
    with pytest.raises(InvalidCommitError, match="cannot change from bigint to string"):
        transaction.commit(Operation("CHANGE COLUMN"))
    assert overwrite(snapshot, changed).schema == other


def test_a_file_that_stays_binds_the_schema(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a"), file("b"))
    other = StructType([StructField("id", INTEGER), *TWO_COLUMNS.fields[1:]])
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_metadata(msgspec.structs.replace(snapshot.metadata, schema_string=other.to_json()))
    transaction.remove([removal("a")])
    with pytest.raises(InvalidCommitError, match="old files cannot be read"):
        transaction.commit(Operation("WRITE"))


def test_nothing_is_asked_of_a_plain_append(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("a", None), file("b", None))
    assert snapshot.num_files == 2
    assert snapshot.timestamp > NOW_MS - 1


def test_a_dropped_feature_does_not_come_back_by_itself(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.feature.vacuumProtocolCheck": "supported"})
    lower = without_feature(snapshot.protocol, "vacuumProtocolCheck")
    snapshot = set_protocol(snapshot, lower, "DROP FEATURE")
    assert append(snapshot, file("a")).protocol == lower
