"""Protocols for features (spec: "Table Features for New and Existing Tables")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidCommitError, UnsupportedProtocolError
from headwater.features.protocols import add_feature, at_least, upgrade, with_features, without_feature
from headwater.features.registry import FEATURES, check_writable, implied_features, supported_features, supports
from headwater.log.actions.model import Metadata, Protocol
from headwater.log.configuration import TableConfiguration

METADATA = Metadata("id", '{"type":"struct","fields":[]}')
LEGACY = ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"]
WRITABLE = sorted(f.name for f in FEATURES.values() if f.writes and f.same_as is None)
LEGACY_PROTOCOLS = [Protocol(1, w) for w in range(1, 7)] + [Protocol(2, 5), Protocol(2, 6)]


@pytest.mark.parametrize(
    ("versions", "features"),
    [
        ((1, 1), set()),
        ((1, 2), {"appendOnly", "invariants"}),
        ((1, 3), {"appendOnly", "invariants", "checkConstraints"}),
        ((1, 4), set(LEGACY)),
        ((1, 5), set(LEGACY)),  # column mapping needs reader version 2 as well
        ((2, 5), {*LEGACY, "columnMapping"}),
        ((1, 6), {*LEGACY, "identityColumns"}),
        ((2, 6), {*LEGACY, "columnMapping", "identityColumns"}),
    ],
)
def test_legacy_versions_imply_what_the_spec_says(versions: tuple[int, int], features: set[str]) -> None:
    assert set(implied_features(*versions)) == features


@pytest.mark.parametrize(
    ("wanted", "versions"),
    [
        (["appendOnly"], (1, 2)),
        (["checkConstraints"], (1, 3)),
        (["changeDataFeed"], (1, 4)),
        (["generatedColumns"], (1, 4)),
        (["columnMapping"], (2, 5)),
        (["identityColumns"], (1, 6)),
        (["identityColumns", "columnMapping"], (2, 6)),
    ],
)
def test_legacy_features_alone_need_no_lists(wanted: list[str], versions: tuple[int, int]) -> None:
    assert with_features(Protocol(1, 2), wanted) == Protocol(*versions)


def test_what_is_supported_already_changes_nothing() -> None:
    protocol = Protocol(1, 4)
    assert with_features(protocol, ["appendOnly", "changeDataFeed"]) is protocol


def test_what_only_writers_are_told_of_is_told_to_readers_when_it_is_needed() -> None:
    lopsided = Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "columnMapping"))
    assert with_features(lopsided, ["deletionVectors"]) is lopsided
    assert with_features(lopsided, ["columnMapping"]) == Protocol(
        3, 7, ("deletionVectors", "columnMapping"), ("deletionVectors", "columnMapping")
    )
    assert with_features(Protocol(1, 7, None, ("columnMapping",)), ["columnMapping"]) == Protocol(
        2, 7, None, ("columnMapping",)
    )
    known_by_version = Protocol(2, 7, None, ("columnMapping",))
    assert with_features(known_by_version, ["columnMapping"]) is known_by_version


def test_moving_to_lists_assumes_that_every_implied_feature_was_used() -> None:
    # The spec's example: a table on (1, 4) may hold change data files, whatever its properties say now.
    after = with_features(Protocol(1, 4), ["deletionVectors"])
    assert after.min_reader_version == 3
    assert after.min_writer_version == 7
    assert after.reader_features == ("deletionVectors",)
    assert set(after.writer_features or ()) == {*LEGACY, "deletionVectors"}


def test_moving_to_lists_keeps_column_mapping_for_readers() -> None:
    after = with_features(Protocol(2, 5), ["timestampNtz"])
    assert set(after.reader_features or ()) == {"columnMapping", "timestampNtz"}
    assert {"columnMapping", "timestampNtz"} <= set(after.writer_features or ())


def test_writer_features_alone_leave_readers_alone() -> None:
    after = with_features(Protocol(1, 2), ["inCommitTimestamp"])
    assert after == Protocol(1, 7, None, ("appendOnly", "invariants", "inCommitTimestamp"))


def test_column_mapping_among_lists_is_reader_version_2_as_in_the_spec() -> None:
    after = with_features(Protocol(1, 1), ["columnMapping", "rowTracking"])
    assert after == Protocol(2, 7, None, ("columnMapping", "rowTracking", "domainMetadata"))


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("rowTracking", "domainMetadata"),
        ("clustering", "domainMetadata"),
        ("icebergCompatV1", "columnMapping"),
        ("icebergCompatV2", "columnMapping"),
    ],
)
def test_required_features_come_along(name: str, required: str) -> None:
    assert supports(with_features(Protocol(1, 2), [name]), required)


def test_another_name_of_a_feature_counts_as_the_feature() -> None:
    protocol = Protocol(1, 7, None, ("inCommitTimestamps",))
    assert supports(protocol, "inCommitTimestamp")
    assert with_features(protocol, ["inCommitTimestamp"]) is protocol


@given(st.sampled_from(LEGACY_PROTOCOLS), st.lists(st.sampled_from(WRITABLE), max_size=4))
def test_any_features_make_a_protocol_that_is_valid_and_loses_nothing(protocol: Protocol, wanted: list[str]) -> None:
    after = with_features(protocol, wanted)
    check_writable(TableConfiguration(after, METADATA))
    assert supported_features(after) >= supported_features(protocol) | set(wanted)
    assert after.min_reader_version >= protocol.min_reader_version
    assert after.min_writer_version >= protocol.min_writer_version
    assert with_features(after, wanted) == after


@given(st.sampled_from(LEGACY_PROTOCOLS), st.sampled_from(WRITABLE), st.sampled_from(WRITABLE))
def test_dropping_what_was_added_gives_back_what_was_supported(protocol: Protocol, first: str, second: str) -> None:
    before = with_features(protocol, [first], listed=True)
    after = with_features(before, [second], listed=True)
    new = supported_features(after) - supported_features(before)
    for name in new:
        after = without_feature(after, name)
    check_writable(TableConfiguration(after, METADATA))
    assert supported_features(after) == supported_features(before)


# --- upgradeTableProtocol, addFeatureSupport -------------------------------------------------------------


def test_an_upgrade_to_version_7_lists_what_was_implied() -> None:
    assert upgrade(Protocol(1, 2), 1, 7) == Protocol(1, 7, None, ("appendOnly", "invariants"))


def test_an_upgrade_to_reader_version_3_lists_reader_features() -> None:
    after = upgrade(Protocol(2, 5), 3, 7)
    assert after.reader_features == ("columnMapping",)
    assert "columnMapping" in (after.writer_features or ())


def test_an_upgrade_within_legacy_versions() -> None:
    assert upgrade(Protocol(1, 2), 2, 5) == Protocol(2, 5)


def test_an_upgrade_to_the_same_versions_changes_nothing() -> None:
    lists = Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))
    assert upgrade(lists, 3, 7) == lists
    assert upgrade(Protocol(1, 3), 1, 3) == Protocol(1, 3)


@pytest.mark.parametrize("versions", [(1, 1), (1, 3)])
def test_a_protocol_cannot_be_downgraded(versions: tuple[int, int]) -> None:
    with pytest.raises(InvalidCommitError, match="cannot go down"):
        upgrade(Protocol(2, 5), *versions)


@pytest.mark.parametrize("versions", [(0, 2), (4, 7), (1, 8)])
def test_there_are_no_other_versions(versions: tuple[int, int]) -> None:
    with pytest.raises(InvalidCommitError, match="there is no protocol"):
        upgrade(Protocol(1, 1), *versions)


def test_reader_version_2_needs_writer_version_5() -> None:
    with pytest.raises(InvalidCommitError, match="writer version 5"):
        at_least(Protocol(1, 2), 2, 4)


def test_adding_a_feature_by_name_lists_it_even_where_a_version_would_do() -> None:
    assert add_feature(Protocol(1, 2), "CHANGEDATAFEED").writer_features == (
        "appendOnly",
        "invariants",
        "changeDataFeed",
    )


def test_adding_a_feature_that_versions_imply_changes_nothing() -> None:
    assert add_feature(Protocol(1, 4), "changeDataFeed") == Protocol(1, 4)


def test_an_unknown_feature_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnsupportedProtocolError, match="Did you mean deletionVectors"):
        add_feature(Protocol(1, 2), "deletionVector")


def test_a_feature_that_is_not_written_cannot_be_added() -> None:
    with pytest.raises(UnsupportedProtocolError, match=r"catalogManaged cannot be added: only its catalog"):
        add_feature(Protocol(1, 2), "catalogManaged")


def test_dropping_the_last_listed_feature_goes_back_to_versions() -> None:
    assert without_feature(
        Protocol(3, 7, ("vacuumProtocolCheck",), ("appendOnly", "invariants", "vacuumProtocolCheck")),
        "vacuumProtocolCheck",
    ) == Protocol(1, 2)
