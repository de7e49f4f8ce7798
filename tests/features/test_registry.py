"""The registry of table features against the spec's table of names."""

from __future__ import annotations

import pytest

from headwater.features.feature import Kind
from headwater.features.registry import FEATURES

# Spec: "Valid Feature Names in Table Features", and "Writer Version Requirements" for the legacy versions.
SPEC = {
    "appendOnly": (Kind.WRITER, None, 2),
    "invariants": (Kind.WRITER, None, 2),
    "checkConstraints": (Kind.WRITER, None, 3),
    "generatedColumns": (Kind.WRITER, None, 4),
    "allowColumnDefaults": (Kind.WRITER, None, None),
    "changeDataFeed": (Kind.WRITER, None, 4),
    "columnMapping": (Kind.READER_WRITER, 2, 5),
    "identityColumns": (Kind.WRITER, None, 6),
    "deletionVectors": (Kind.READER_WRITER, None, None),
    "rowTracking": (Kind.WRITER, None, None),
    "timestampNtz": (Kind.READER_WRITER, None, None),
    "domainMetadata": (Kind.WRITER, None, None),
    "v2Checkpoint": (Kind.READER_WRITER, None, None),
    "icebergCompatV1": (Kind.WRITER, None, None),
    "icebergCompatV2": (Kind.WRITER, None, None),
    "clustering": (Kind.WRITER, None, None),
    "vacuumProtocolCheck": (Kind.READER_WRITER, None, None),
    # "In-Commit Timestamps" has a section, but no row in the table.
    "inCommitTimestamps": (Kind.WRITER, None, None),
}


@pytest.mark.parametrize("name", SPEC)
def test_each_name_of_the_spec_is_registered_as_it_says(name: str) -> None:
    feature = FEATURES[name]
    assert (feature.kind, feature.legacy_reader_version, feature.legacy_writer_version) == SPEC[name]


@pytest.mark.parametrize("name", SPEC)
def test_all_reader_features_of_the_spec_are_supported(name: str) -> None:
    assert FEATURES[name].reads_log


@pytest.mark.parametrize("name", ["rowTracking", "clustering"])
def test_features_that_need_domains_say_so(name: str) -> None:
    assert "domainMetadata" in FEATURES[name].requires


@pytest.mark.parametrize("name", ["icebergCompatV1", "icebergCompatV2"])
def test_iceberg_compatibility_needs_column_mapping(name: str) -> None:
    assert "columnMapping" in FEATURES[name].requires


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES.keys())
def test_what_a_feature_requires_is_registered_too(feature) -> None:
    assert set(feature.requires) <= set(FEATURES)


@pytest.mark.parametrize("feature", FEATURES.values(), ids=FEATURES.keys())
def test_what_is_not_supported_has_a_reason(feature) -> None:
    assert feature.reads_log or feature.reason


@pytest.mark.parametrize("name", ["typeWidening", "variantType", "catalogManaged", "inCommitTimestamp"])
def test_later_names_that_real_tables_carry_are_registered(name: str) -> None:
    assert name in FEATURES
