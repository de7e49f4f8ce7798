"""Table properties: names, values, and what they ask of the protocol."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidTablePropertyError, UnsupportedProtocolError
from headwater.log.actions.model import Protocol
from headwater.log.configuration.properties import PROPERTIES, checked_properties, checked_property
from support.tables.feature_tables import definition

# The reference's list of properties; each is known, whether it can be set or not.
REFERENCE = [
    "appendOnly",
    "autoOptimize",
    "autoOptimize.autoCompact",
    "autoOptimize.optimizeWrite",
    "castIcebergTimeType",
    "checkpoint.writeStatsAsJson",
    "checkpoint.writeStatsAsStruct",
    "checkpointInterval",
    "checkpointPolicy",
    "checkpointRetentionDuration",
    "columnMapping.maxColumnId",
    "columnMapping.mode",
    "coordinatedCommits.commitCoordinator-preview",
    "coordinatedCommits.commitCoordinatorConf-preview",
    "coordinatedCommits.tableConf-preview",
    "dataSkippingNumIndexedCols",
    "dataSkippingStatsColumns",
    "dataSkippingStringPrefixLength",
    "deletedFileRetentionDuration",
    "dropFeatureTruncateHistory.retentionDuration",
    "enableChangeDataCapture",
    "enableChangeDataFeed",
    "enableDeletionVectors",
    "enableExpiredLogCleanup",
    "enableFullRetentionRollback",
    "enableInCommitTimestamps",
    "enableMaterializePartitionColumnsFeature",
    "enableRowTracking",
    "enableTypeWidening",
    "enableVariantShredding",
    "ignoreIcebergBucketPartition",
    "ignoreProtocolDefaults",
    "inCommitTimestampEnablementTimestamp",
    "inCommitTimestampEnablementVersion",
    "isolationLevel",
    "logRetentionDuration",
    "minReaderVersion",
    "minWriterVersion",
    "parquet.format.version",
    "randomPrefixLength",
    "randomizeFilePrefixes",
    "redirectReaderWriter-preview",
    "redirectWriterOnly-preview",
    "requireCheckpointProtectionBeforeVersion",
    "rowTrackingSuspended",
    "sampleRetentionDuration",
    "setTransactionRetentionDuration",
    "universalFormat.enabledFormats",
    "universalFormat.iceberg.atomicConversion.supported",
    "writePartitionColumnsToParquet",
]


@pytest.mark.parametrize("name", REFERENCE)
def test_every_property_of_the_reference_is_known(name: str) -> None:
    assert f"delta.{name}" in PROPERTIES


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("delta.appendOnly", "TRUE", "true"),
        ("DELTA.AppendOnly", "false", "false"),
        ("delta.checkpointInterval", "25", "25"),
        ("delta.dataSkippingNumIndexedCols", "-1", "-1"),
        ("delta.logRetentionDuration", "interval 30 days", "interval 30 days"),
        ("delta.deletedFileRetentionDuration", "2 weeks", "2 weeks"),
        ("delta.isolationLevel", "writeserializable", "WriteSerializable"),
        ("delta.columnMapping.mode", "NAME", "name"),
        ("delta.targetFileSize", "128mb", "128mb"),
        ("delta.checkpointPolicy", "V2", "v2"),
    ],
)
def test_good_values_are_kept_in_their_proper_form(name: str, value: str, kept: str) -> None:
    assert checked_property(name, value)[1] == kept
    assert checked_property(name, value)[0] in PROPERTIES


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.appendOnly", ""),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "ten"),
        ("delta.checkpointInterval", "²"),
        ("delta.checkpointInterval", "99999999999"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.logRetentionDuration", "interval 1 month"),
        ("delta.logRetentionDuration", "forever"),
        ("delta.deletedFileRetentionDuration", "interval -1 days"),
        ("delta.isolationLevel", "SnapshotIsolation"),
        ("delta.columnMapping.mode", "physical"),
        ("delta.columnMapping.maxColumnId", "7"),
        ("delta.rowTracking.materializedRowIdColumnName", "x"),
        ("delta.inCommitTimestampEnablementVersion", "0"),
        ("delta.universalFormat.enabledFormats", "iceberg"),
        ("delta.enableIcebergCompatV3", "true"),
        ("delta.minReaderVersion", "4"),
        ("delta.minWriterVersion", "8"),
        ("delta.constraints.positive", " "),
        ("delta.feature.deletionVectors", "maybe"),
    ],
)
def test_bad_values_are_refused_with_the_name_of_the_property(name: str, value: str) -> None:
    with pytest.raises(InvalidTablePropertyError, match=name.replace(".", r"\.")):
        checked_property(name, value)


def test_a_misspelt_property_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidTablePropertyError, match=r"Did you mean delta\.enableDeletionVectors"):
        checked_property("delta.enableDeletionVector", "true")


def test_a_property_that_resembles_nothing_is_refused_too() -> None:
    with pytest.raises(InvalidTablePropertyError, match=r"must not start with 'delta\.'"):
        checked_property("delta.colour", "blue")


def test_properties_of_users_stay_as_they_are() -> None:
    mine = {"owner": "me", "Quality": " Gold ", "deltaish": "x", "pipelines.id": "7"}
    assert checked_properties(mine)[0] == mine


def test_a_value_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidTablePropertyError, match="must be a text"):
        checked_property("delta.checkpointInterval", 10)  # type: ignore[arg-type]


def test_wishes_for_the_protocol_are_not_kept_as_properties() -> None:
    table = definition(
        properties={
            "delta.minReaderVersion": "2",
            "delta.minWriterVersion": "5",
            "delta.ignoreProtocolDefaults": "true",
        }
    )
    assert table.protocol == Protocol(2, 5)
    assert table.metadata.configuration == {}


def test_a_feature_can_be_asked_for_by_property_in_any_case() -> None:
    table = definition(properties={"delta.feature.deletionvectors": "supported"})
    assert table.protocol == Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
    assert table.metadata.configuration == {}


@pytest.mark.parametrize("name", ["catalogManaged", "coordinatedCommits-preview", "noSuchFeature"])
def test_a_feature_that_cannot_be_written_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedProtocolError, match=name):
        definition(properties={f"delta.feature.{name}": "supported"})
