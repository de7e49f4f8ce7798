"""Taking features out of tables again."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import InvalidCommitError, UnsupportedProtocolError
from headwater.features.definition import drop_feature
from headwater.features.registry import supports
from headwater.log.actions.model import DomainMetadata, Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.schema import LONG, StructField, StructType
from headwater.log.snapshot import Snapshot
from support.tables.feature_tables import TWO_COLUMNS, alter, append, commit_definition, create, file


def drop(snapshot: Snapshot, name: str) -> Snapshot:
    table = drop_feature(snapshot.configuration, name, snapshot.domain_metadata)
    return commit_definition(snapshot, table, "DROP FEATURE")


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"delta.appendOnly": "true"}, "appendOnly"),
        ({"delta.enableChangeDataFeed": "true"}, "changeDataFeed"),
        ({"delta.enableInCommitTimestamps": "true"}, "inCommitTimestamp"),
        ({"delta.enableRowTracking": "true"}, "rowTracking"),
        ({"delta.enableIcebergCompatV2": "true"}, "icebergCompatV2"),
        ({"delta.enableMaterializePartitionColumnsFeature": "true"}, "materializePartitionColumns"),
        ({"delta.feature.vacuumProtocolCheck": "supported"}, "vacuumProtocolCheck"),
        ({"delta.feature.allowColumnDefaults": "supported"}, "ALLOWCOLUMNDEFAULTS"),
        ({"delta.feature.domainMetadata": "supported"}, "domainMetadata"),
    ],
)
def test_a_feature_goes_with_its_properties(properties: dict[str, str], name: str, tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties=properties), file("a", 1))
    after = drop(snapshot, name)
    assert not supports(after.protocol, name)
    assert not set(properties) & set(after.properties)
    assert append(after, file("b", 1)).num_files == 2


def test_the_last_feature_takes_the_lists_with_it(tmp_path: Path) -> None:
    snapshot = alter(create(tmp_path), delta__enableInCommitTimestamps="true")
    after = drop(snapshot, "inCommitTimestamp")
    assert after.protocol == Protocol(1, 2)
    assert after.properties == {}


def test_a_legacy_feature_is_dropped_by_listing_the_others(tmp_path: Path) -> None:
    after = drop(
        create(tmp_path, properties={"delta.constraints.c": "id > 0", "delta.enableChangeDataFeed": "true"}),
        "changeDataFeed",
    )
    assert after.protocol == Protocol(1, 7, None, ("appendOnly", "invariants", "checkConstraints", "generatedColumns"))


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"delta.generationExpression": "id"}, "generatedColumns"),
        ({"CURRENT_DEFAULT": "1"}, "allowColumnDefaults"),
        ({"delta.invariants": '{"expression":{"expression":"x > 0"}}'}, "invariants"),
    ],
)
def test_a_feature_that_columns_use_stays(metadata: dict[str, str], name: str, tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=StructType([*TWO_COLUMNS.fields, StructField("x", LONG, metadata=metadata)]))
    with pytest.raises(InvalidCommitError, match=f"{name} cannot be dropped"):
        drop(snapshot, name)


def test_constraints_are_dropped_first(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.constraints.positive": "id > 0"})
    with pytest.raises(InvalidCommitError, match=r"it has constraints; drop them first \(positive\)"):
        drop(snapshot, "checkConstraints")
    after = drop(alter(snapshot, delta__constraints__positive=None), "checkConstraints")
    assert after.protocol == Protocol(1, 2)


@pytest.mark.parametrize(
    "name", ["deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint", "typeWidening", "variantType"]
)
def test_features_that_old_versions_need_to_be_read_stay(name: str, tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={f"delta.feature.{name}": "supported"})
    with pytest.raises(InvalidCommitError, match=f"{name} cannot be dropped: older versions"):
        drop(snapshot, name)


def test_a_feature_that_another_one_needs_stays(tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError, match="while the table supports rowTracking"):
        drop(create(tmp_path, properties={"delta.enableRowTracking": "true"}), "domainMetadata")


def test_a_feature_that_is_not_there_cannot_be_dropped(tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError, match="nothing to drop"):
        drop(create(tmp_path), "rowTracking")
    with pytest.raises(UnsupportedProtocolError, match="noSuchFeature"):
        drop(create(tmp_path / "other"), "noSuchFeature")


def test_domains_are_removed_before_their_feature(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.feature.domainMetadata": "supported"})
    for removed in (False, True):
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.set_domain(DomainMetadata("com.example.x", "{}", removed=removed))
        snapshot = transaction.commit(Operation("SET DOMAIN")).snapshot
        if not removed:
            with pytest.raises(InvalidCommitError, match=r"com\.example\.x"):
                drop(snapshot, "domainMetadata")
    assert not supports(drop(snapshot, "domainMetadata").protocol, "domainMetadata")


def test_clustering_goes_once_nothing_is_clustered(tmp_path: Path) -> None:
    from headwater.features.definition import changed_table

    snapshot = create(tmp_path, cluster_by=["id"])
    with pytest.raises(InvalidCommitError, match="while the table is clustered"):
        drop(snapshot, "clustering")
    nothing = changed_table(snapshot.configuration, snapshot.metadata, cluster_by=(), domains=snapshot.domain_metadata)
    after = drop(commit_definition(snapshot, nothing, "CLUSTER BY"), "clustering")
    assert after.protocol == Protocol(1, 7, None, ("domainMetadata",))
    assert after.domain_metadata == {}


def test_row_ids_go_on_above_the_mark_when_tracking_comes_back(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, properties={"delta.enableRowTracking": "true"}), file("a", 5))
    snapshot = append(drop(snapshot, "rowTracking"), file("b", 5))
    snapshot = alter(snapshot, delta__enableRowTracking="true")
    rows = {row["path"]: row["baseRowId"] for row in snapshot.files().to_pylist()}
    assert rows == {"a": 0, "b": 5}
