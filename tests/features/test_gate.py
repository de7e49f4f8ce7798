"""The protocol gate (spec: "Reader Version Requirements", "Table Features")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import CorruptLogError, UnsupportedProtocolError
from headwater.features.registry import FEATURES, check_readable
from headwater.log.actions.model import Format, Metadata, Protocol
from headwater.log.configuration import TableConfiguration

METADATA = Metadata("id", '{"type":"struct","fields":[]}')


def protocol(reader: int, writer: int, readers: list[str] | None = None, writers: list[str] | None = None) -> Protocol:
    return Protocol(
        reader,
        writer,
        None if readers is None else tuple(readers),
        None if writers is None else tuple(writers),
    )


@pytest.mark.parametrize(
    "readable",
    [
        protocol(1, 1),
        protocol(1, 2),
        protocol(1, 6),
        protocol(2, 5),
        protocol(2, 6),
        protocol(1, 7, None, ["appendOnly", "invariants"]),
        protocol(2, 7, None, ["columnMapping", "identityColumns"]),  # the spec's own example
        protocol(3, 7, ["columnMapping"], ["columnMapping", "identityColumns"]),
        protocol(3, 7, [], []),
        protocol(3, 7, ["deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"], []),
        protocol(1, 7, [], ["appendOnly"]),
        protocol(1, 2, None, None),
        # Writer features are no concern of a reader, not even unknown ones or versions.
        protocol(1, 7, None, ["someFutureFeature"]),
        protocol(3, 7, ["deletionVectors"], ["deletionVectors", "someFutureFeature"]),
        protocol(1, 8),
        protocol(2, 99),
    ],
    ids=str,
)
def test_what_we_understand_is_readable(readable: Protocol) -> None:
    check_readable(TableConfiguration(readable, METADATA))


@pytest.mark.parametrize("version", [-1, 0, 4, 5, 2**31 - 1])
def test_other_reader_versions_are_refused_by_number(version: int) -> None:
    with pytest.raises(UnsupportedProtocolError, match=rf"reader version {version}; .*1 to 3"):
        check_readable(TableConfiguration(protocol(version, 7, [], []), METADATA))


@pytest.mark.parametrize("writer", [1, 2, 5, 6])
def test_reader_version_3_needs_writer_version_7(writer: int) -> None:
    with pytest.raises(CorruptLogError, match="reader version 3 needs writer version 7"):
        check_readable(TableConfiguration(protocol(3, writer, ["deletionVectors"], ["deletionVectors"]), METADATA))


def test_reader_version_3_needs_a_list_of_reader_features() -> None:
    with pytest.raises(CorruptLogError, match="readerFeatures"):
        check_readable(TableConfiguration(protocol(3, 7, None, ["appendOnly"]), METADATA))


@pytest.mark.parametrize("reader", [1, 2])
def test_reader_features_under_an_older_reader_version_are_not_ignored(reader: int) -> None:
    with pytest.raises(CorruptLogError, match=r"deletionVectors.*only reader version 3"):
        check_readable(TableConfiguration(protocol(reader, 7, ["deletionVectors"], ["deletionVectors"]), METADATA))


def test_an_unknown_reader_feature_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedProtocolError, match="quantumColumns") as caught:
        check_readable(TableConfiguration(protocol(3, 7, ["deletionVectors", "quantumColumns"], []), METADATA))
    assert caught.value.features == ("quantumColumns",)
    assert "deletionVectors" not in str(caught.value)


def test_all_missing_features_are_named_together() -> None:
    with pytest.raises(UnsupportedProtocolError) as caught:
        check_readable(TableConfiguration(protocol(3, 7, ["b", "catalogManaged", "timestampNtz", "a"], []), METADATA))
    assert caught.value.features == ("b", "catalogManaged", "a")
    assert "its catalog" in str(caught.value), "what is known about a feature is said"


@pytest.mark.parametrize("name", ["deletionvectors", "DeletionVectors", " deletionVectors", ""])
def test_feature_names_are_compared_letter_by_letter(name: str) -> None:
    with pytest.raises(UnsupportedProtocolError):
        check_readable(TableConfiguration(protocol(3, 7, [name], []), METADATA))


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_each_known_feature_is_read_or_refused_as_the_registry_says(name: str) -> None:
    if FEATURES[name].reads_log:
        check_readable(TableConfiguration(protocol(3, 7, [name], [name]), METADATA))
    else:
        with pytest.raises(UnsupportedProtocolError, match=name) as caught:
            check_readable(TableConfiguration(protocol(3, 7, [name], [name]), METADATA))
        assert FEATURES[name].reason in str(caught.value)


@pytest.mark.parametrize("name", sorted(name for name, feature in FEATURES.items() if not feature.reads_log))
@pytest.mark.parametrize("reader", [1, 2, 3])
def test_what_readers_must_understand_counts_in_either_list(name: str, reader: int) -> None:
    lopsided = protocol(reader, 7, ["deletionVectors"] if reader == 3 else None, ["deletionVectors", name])
    with pytest.raises(UnsupportedProtocolError, match=name) as caught:
        check_readable(TableConfiguration(lopsided, METADATA))
    assert caught.value.features == (name,)


@pytest.mark.parametrize("provider", ["parquet", "PARQUET"])
def test_parquet_is_readable(provider: str) -> None:
    check_readable(TableConfiguration(protocol(1, 2), Metadata("id", "{}", format=Format(provider))))


@pytest.mark.parametrize("provider", ["orc", "csv", ""])
def test_other_data_files_are_refused_by_name(provider: str) -> None:
    with pytest.raises(UnsupportedProtocolError, match=f"{provider!r}"):
        check_readable(TableConfiguration(protocol(1, 2), Metadata("id", "{}", format=Format(provider))))


def table_with(tmp_path: Path, action: dict[str, Any]) -> Path:
    log = tmp_path / "_delta_log"
    log.mkdir()
    metadata = {"id": "x", "format": {"provider": "parquet"}, "schemaString": METADATA.schema_string}
    lines = [{"protocol": action}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def test_opening_a_table_passes_the_gate_and_names_the_table(tmp_path: Path) -> None:
    features = {"readerFeatures": ["x-new"], "writerFeatures": ["x-new"]}
    path = table_with(tmp_path, {"minReaderVersion": 3, "minWriterVersion": 7, **features})
    with pytest.raises(UnsupportedProtocolError, match=rf"{path}.* at version 0 .*x-new") as caught:
        hw.open_log(path)
    assert caught.value.features == ("x-new",)


def test_a_contradictory_protocol_names_the_table(tmp_path: Path) -> None:
    path = table_with(tmp_path, {"minReaderVersion": 3, "minWriterVersion": 6, "readerFeatures": []})
    with pytest.raises(CorruptLogError, match=rf"{path}.* at version 0 "):
        hw.open_log(path)


def test_a_refresh_passes_the_gate_again(tmp_path: Path) -> None:
    snapshot = hw.open_log(table_with(tmp_path, {"minReaderVersion": 1, "minWriterVersion": 2}))
    newer = {"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(newer))
    with pytest.raises(UnsupportedProtocolError, match="reader version 9"):
        snapshot.refresh()
    assert hw.open_log(tmp_path, version=0).version == 0, "older versions stay readable"
