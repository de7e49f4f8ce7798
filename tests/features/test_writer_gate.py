"""Which tables may be written (spec: "Writer Version Requirements", "Table Features")."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import CorruptLogError, UnsupportedProtocolError
from headwater.features.registry import FEATURES, check_writable
from headwater.log.actions.model import Metadata, Protocol
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration import TableConfiguration
from support.tables.feature_tables import create, reopened

METADATA = Metadata("id", '{"type":"struct","fields":[]}')
# Features that no promise is made for yet; each has a reason in the registry.
NOT_WRITTEN = {
    "catalogManaged",
    "catalogOwned",
    "catalogOwned-preview",
    "checkpointProtection",
    "collations",
    "collations-preview",
    "coordinatedCommits-preview",
    "geospatial",
    "icebergCompatV3",
    "icebergWriterCompatV1",
    "icebergWriterCompatV3",
    "inCommitTimestamp-preview",
    "liquid",
    "redirectReaderWriter-preview",
    "redirectWriterOnly-preview",
}


@pytest.mark.parametrize("writer", range(1, 7))
def test_all_legacy_writer_versions_are_written(writer: int) -> None:
    check_writable(TableConfiguration(Protocol(1, writer), METADATA))


@pytest.mark.parametrize("versions", [(2, 5), (2, 6)])
def test_column_mapping_by_version_is_written(versions: tuple[int, int]) -> None:
    check_writable(TableConfiguration(Protocol(*versions), METADATA))


@pytest.mark.parametrize("writer", [0, -1, 8, 99])
def test_other_writer_versions_are_refused_by_number(writer: int) -> None:
    with pytest.raises(UnsupportedProtocolError, match=rf"writer version {writer}; .*1 to 7"):
        check_writable(TableConfiguration(Protocol(1, writer), METADATA))


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_each_known_feature_is_written_or_refused_with_its_reason(name: str) -> None:
    feature = FEATURES[name]
    required = {name, *feature.requires, *(r for f in feature.requires for r in FEATURES[f].requires)}
    readers = tuple(n for n in required if FEATURES[n].for_readers)
    protocol = Protocol(3, 7, readers, tuple(required))
    if name not in NOT_WRITTEN:
        check_writable(TableConfiguration(protocol, METADATA))
        assert feature.writes
        return
    with pytest.raises(UnsupportedProtocolError, match=name) as caught:
        check_writable(TableConfiguration(protocol, METADATA))
    assert feature.reason
    assert feature.reason in str(caught.value)
    assert name in caught.value.features


def test_an_unknown_writer_feature_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedProtocolError, match=r"quantumColumns \(unknown to this release\)") as caught:
        check_writable(TableConfiguration(Protocol(1, 7, None, ("appendOnly", "quantumColumns")), METADATA))
    assert caught.value.features == ("quantumColumns",)


def test_a_reader_feature_that_is_not_a_writer_feature_too_is_not_valid() -> None:
    with pytest.raises(CorruptLogError, match="deletionVectors is in readerFeatures"):
        check_writable(TableConfiguration(Protocol(3, 7, ("deletionVectors",), ()), METADATA))


def test_writer_version_7_needs_a_list() -> None:
    with pytest.raises(CorruptLogError, match="writerFeatures"):
        check_writable(TableConfiguration(Protocol(1, 7), METADATA))


def test_a_list_under_an_older_writer_version_is_not_valid() -> None:
    with pytest.raises(CorruptLogError, match="only writer version 7"):
        check_writable(TableConfiguration(Protocol(1, 4, None, ("changeDataFeed",)), METADATA))


@pytest.mark.parametrize("name", ["rowTracking", "clustering"])
def test_a_feature_without_the_one_it_requires_is_not_valid(name: str) -> None:
    with pytest.raises(CorruptLogError, match=f"{name} needs domainMetadata"):
        check_writable(TableConfiguration(Protocol(1, 7, None, (name,)), METADATA))


def test_a_transaction_on_such_a_table_does_not_even_start(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["collations","domainMetadata"]}}'
    )
    newer = reopened(snapshot)
    with pytest.raises(UnsupportedProtocolError, match="collations"):
        Transaction(newer.ctx, newer)
