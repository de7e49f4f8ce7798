"""The version checksum: every field is compared, and none is ever believed (spec: "Version Checksum File")."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.log.delta.checksum import Discrepancy, read_checksum
from support.corpus import CORPUS, MISSING, tables
from support.log.log_tables import (
    LOG,
    add,
    commit_info,
    commit_key,
    domain,
    features,
    metadata,
    put_classic,
    put_commit,
    put_compacted,
    remove,
    txn,
    vector,
)
from support.log_settings import examined
from support.oracles.log_model import observed, replay
from support.stores.log_store import DictStore, open_table

CRC = f"{LOG}{2:020d}.crc"
PROTOCOL = features("deletionVectors", "inCommitTimestamp", "domainMetadata")
METADATA = metadata({"delta.enableInCommitTimestamps": "true"}, name="n", createdTime=5)
COMMITS = [
    [commit_info(inCommitTimestamp=1000, txnId="t0"), PROTOCOL, METADATA, add("f0", 0), add("f1", 1023)],
    [commit_info(inCommitTimestamp=2000, txnId="t1"), add("f2", 1024), add("f3", 4095), remove("f1"), txn("a", 7)],
    [
        commit_info(inCommitTimestamp=3000, txnId="t2"),
        add("f%204", 10**6, deletionVector=vector("v", 4, 9), partitionValues={"part": "x", "other": None}),
        add("f5", 4096, deletionVector=vector("w", 1, 10)),
        add("f6", 70, deletionVector=vector("x", 1, 0)),
        remove("f3"),
        domain("d", "conf"),
        domain("gone", "", removed=True),
    ],
]
LIVE = [a["add"] for c in COMMITS for a in c if "add" in a and a["add"]["path"] not in ("f1", "f3")]
CHECKSUM: dict[str, Any] = {
    "txnId": "t2",
    "tableSizeBytes": 0 + 1024 + 10**6 + 4096 + 70,
    "numFiles": 5,
    "numMetadata": 1,
    "numProtocol": 1,
    "inCommitTimestampOpt": 3000,
    "setTransactions": [{"appId": "a", "version": 7}],
    "domainMetadata": [{"domain": "d", "configuration": "conf", "removed": False}],
    "metadata": METADATA["metaData"],
    "protocol": PROTOCOL["protocol"],
    "fileSizeHistogram": {
        "sortedBinBoundaries": [0, 1024, 4096],
        "fileCounts": [2, 1, 2],
        "totalBytes": [70, 1024, 4096 + 10**6],
    },
    "allFiles": LIVE,
    "numDeletedRecordsOpt": 19,
    "numDeletionVectorsOpt": 3,
    "deletedRecordCountsHistogramOpt": {"deletedRecordCounts": [3, 1, 1, 0, 0, 0, 0, 0, 0, 0]},
}


@pytest.fixture(params=["commits", "checkpoint"])
def store(request: pytest.FixtureRequest) -> DictStore:
    """The table, with its state in commits or in a checkpoint."""
    found = DictStore()
    for version, actions in enumerate(COMMITS):
        put_commit(found, version, *actions)
    if request.param == "checkpoint":
        put_classic(found, 2, replay(COMMITS).actions(), row_group_size=3)
    return found


def verify(store: DictStore, checksum: Any) -> list[Discrepancy]:
    store.objects[CRC] = checksum if isinstance(checksum, bytes) else json.dumps(checksum).encode()
    return open_table(store).verify()


def changed(path: str, value: Any) -> dict[str, Any]:
    checksum = copy.deepcopy(CHECKSUM)
    *parents, name = path.split(".")
    inner = checksum
    for parent in parents:
        inner = inner[int(parent)] if isinstance(inner, list) else inner[parent]
    if isinstance(inner, list):
        inner[int(name)] = value
    else:
        inner[name] = value
    return checksum


def test_a_right_checksum_has_nothing_to_report(store: DictStore) -> None:
    assert verify(store, CHECKSUM) == []


def test_a_compacted_log_is_compared_as_well() -> None:
    store = DictStore()
    put_compacted(store, 0, 2, *replay(COMMITS).actions())
    put_commit(store, 2, *COMMITS[2])
    assert verify(store, CHECKSUM) == []
    assert [d.field for d in verify(store, changed("numFiles", 4))] == ["numFiles"]


def test_a_missing_checksum_is_fine(store: DictStore) -> None:
    assert open_table(store).verify() == []


@pytest.mark.parametrize("name", CHECKSUM)
def test_a_field_that_is_left_out_contradicts_nothing(store: DictStore, name: str) -> None:
    """Old writers recorded few of them."""
    assert verify(store, {k: v for k, v in CHECKSUM.items() if k != name}) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("numFiles", 6, "numFiles"),
        ("numFiles", 0, "numFiles"),
        ("tableSizeBytes", 1, "tableSizeBytes"),
        ("numMetadata", 2, "numMetadata"),
        ("numMetadata", 0, "numMetadata"),
        ("numProtocol", 2, "numProtocol"),
        ("txnId", "other", "txnId"),
        ("inCommitTimestampOpt", 2999, "inCommitTimestampOpt"),
        ("setTransactions", [], "setTransactions"),
        ("setTransactions.0.version", 8, "setTransactions"),
        ("setTransactions.0.appId", "b", "setTransactions"),
        ("domainMetadata", [], "domainMetadata"),
        ("domainMetadata.0.configuration", "other", "domainMetadata"),
        ("domainMetadata.0.removed", True, "domainMetadata"),
        ("metadata.name", "other", "metadata"),
        ("metadata.id", "other", "metadata"),
        ("metadata.createdTime", 6, "metadata"),
        ("metadata.configuration", {}, "metadata"),
        ("metadata.partitionColumns", ["part"], "metadata"),
        ("metadata.schemaString", '{"type":"struct","fields":[]}', "metadata"),
        ("metadata.schemaString", "not JSON", "metadata"),
        ("protocol.minReaderVersion", 2, "protocol"),
        ("protocol.minWriterVersion", 6, "protocol"),
        ("protocol.readerFeatures", ["deletionVectors"], "protocol"),
        ("protocol.writerFeatures", [], "protocol"),
        ("fileSizeHistogram.fileCounts", [1, 2, 2], "fileSizeHistogram.fileCounts"),
        ("fileSizeHistogram.fileCounts", [2, 1], "fileSizeHistogram.fileCounts"),
        ("fileSizeHistogram.totalBytes", [70, 1024, 0], "fileSizeHistogram.totalBytes"),
        ("fileSizeHistogram.totalBytes", [], "fileSizeHistogram.totalBytes"),
        ("fileSizeHistogram.sortedBinBoundaries", [], "fileSizeHistogram.sortedBinBoundaries"),
        ("fileSizeHistogram.sortedBinBoundaries", [1, 1024, 4096], "fileSizeHistogram.sortedBinBoundaries"),
        ("fileSizeHistogram.sortedBinBoundaries", [0, 4096, 1024], "fileSizeHistogram.sortedBinBoundaries"),
        ("fileSizeHistogram.sortedBinBoundaries", [0, 1024, 1024], "fileSizeHistogram.sortedBinBoundaries"),
        ("allFiles", [], "allFiles"),
        ("allFiles", LIVE[1:], "allFiles"),
        ("allFiles", [*LIVE, LIVE[0]], "allFiles"),
        ("allFiles", [*LIVE, {**LIVE[2], "deletionVector": None}], "allFiles"),
        ("allFiles.0.path", "other", "allFiles"),
        ("allFiles.0.size", 1, "allFiles"),
        ("allFiles.0.modificationTime", 1, "allFiles"),
        ("allFiles.2.partitionValues", {"part": "y"}, "allFiles"),
        ("allFiles.2.deletionVector.offset", 5, "allFiles"),
        ("allFiles.0.deletionVector", vector("v"), "allFiles"),
        ("numDeletedRecordsOpt", 18, "numDeletedRecordsOpt"),
        ("numDeletionVectorsOpt", 2, "numDeletionVectorsOpt"),
        (
            "deletedRecordCountsHistogramOpt.deletedRecordCounts",
            [2, 2, 1, 0, 0, 0, 0, 0, 0, 0],
            "deletedRecordCountsHistogramOpt",
        ),
        ("deletedRecordCountsHistogramOpt.deletedRecordCounts", [3, 1, 1], "deletedRecordCountsHistogramOpt"),
    ],
)
def test_each_wrong_field_is_reported_by_name_and_nothing_else(
    store: DictStore, path: str, value: Any, field: str
) -> None:
    found = verify(store, changed(path, value))
    assert [(d.source, d.field) for d in found] == [(CRC, field)]
    assert found[0].expected != found[0].actual
    assert field in str(found[0])


def test_all_wrong_fields_are_reported_together(store: DictStore) -> None:
    wrong = {**CHECKSUM, "numFiles": 1, "tableSizeBytes": 2, "setTransactions": [], "numDeletedRecordsOpt": 0}
    assert [d.field for d in verify(store, wrong)] == [
        "numFiles",
        "tableSizeBytes",
        "setTransactions",
        "numDeletedRecordsOpt",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("protocol.readerFeatures", sorted(PROTOCOL["protocol"]["readerFeatures"], reverse=True)),
        ("metadata.schemaString", json.dumps(json.loads(METADATA["metaData"]["schemaString"]), indent=2)),
        ("allFiles", LIVE[::-1]),
        ("allFiles.2.path", "f 4"),
        ("allFiles.2.partitionValues", {"part": "x"}),
        ("allFiles.0.dataChange", False),
        ("setTransactions.0.lastUpdated", 99),
        ("unknownField", {"a": [1]}),
        ("fileSizeHistogram", None),
    ],
)
def test_another_spelling_of_the_same_is_no_discrepancy(store: DictStore, path: str, value: Any) -> None:
    assert verify(store, changed(path, value)) == []


def test_a_removed_domain_in_the_checksum_says_nothing(store: DictStore) -> None:
    gone = {"domain": "gone", "configuration": "", "removed": True}
    assert verify(store, {**CHECKSUM, "domainMetadata": [*CHECKSUM["domainMetadata"], gone]}) == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"numFiles": "3"}',
        b'{"numFiles": 1.5}',
        b'{"numFiles": 99999999999999999999}',
        b'{"metadata": {}}',
        b'{"protocol": 5}',
        b'{"fileSizeHistogram": {}}',
        b'{"fileSizeHistogram": {"sortedBinBoundaries": 1, "fileCounts": [], "totalBytes": []}}',
        b'{"allFiles": [{"size": 1}]}',
        b'{"setTransactions": {"a": 1}}',
        b'{"numFiles": 1} trailing',
        b'{"unknown": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda data: repr(data[:40]),
)
def test_garbage_is_reported_and_breaks_nothing(store: DictStore, garbage: bytes) -> None:
    found = verify(store, garbage)
    assert [(d.source, d.field) for d in found] == [(CRC, "content")]
    assert observed(open_table(store)) == replay(COMMITS).state()


def test_a_size_histogram_of_no_files_at_all() -> None:
    store = DictStore()
    put_commit(store, 0, PROTOCOL, metadata())
    histogram = {"sortedBinBoundaries": [0, 10], "fileCounts": [0, 0], "totalBytes": [0, 0]}
    counts = {"deletedRecordCounts": [0] * 10}
    store.objects[f"{LOG}{0:020d}.crc"] = json.dumps(
        {"numFiles": 0, "fileSizeHistogram": histogram, "deletedRecordCountsHistogramOpt": counts}
    ).encode()
    assert open_table(store).verify() == []


@pytest.mark.parametrize(
    ("cardinality", "bin_"),
    [
        *((0, 0), (1, 1), (9, 1), (10, 2), (99, 2), (100, 3), (9999, 4), (10_000, 5), (999_999, 6)),
        *((1_000_000, 7), (10_000_000, 8), (2_147_483_646, 8), (2_147_483_647, 9), (2**40, 9)),
    ],
)
def test_deleted_records_fall_into_the_bins_of_the_spec(cardinality: int, bin_: int) -> None:
    store = DictStore()
    put_commit(store, 0, PROTOCOL, metadata(), add("f", deletionVector=vector("v", 1, cardinality)))
    counts = [0] * 10
    counts[bin_] = 1
    histogram = {"deletedRecordCounts": counts}
    store.objects[f"{LOG}{0:020d}.crc"] = json.dumps({"deletedRecordCountsHistogramOpt": histogram}).encode()
    assert open_table(store).verify() == []


@examined
@given(st.lists(st.integers(0, 50)), st.sets(st.integers(1, 60), max_size=6))
def test_file_sizes_fall_into_the_bins_that_brute_force_finds(sizes: list[int], boundaries: set[int]) -> None:
    starts = [0, *sorted(boundaries)]
    ends = [*starts[1:], float("inf")]
    bins = [[s for s in sizes if start <= s < end] for start, end in zip(starts, ends, strict=True)]
    histogram = {
        "sortedBinBoundaries": starts,
        "fileCounts": [len(b) for b in bins],
        "totalBytes": [sum(b) for b in bins],
    }
    store = DictStore()
    put_commit(store, 0, PROTOCOL, metadata(), *(add(f"f{i}", size) for i, size in enumerate(sizes)))
    store.objects[f"{LOG}{0:020d}.crc"] = json.dumps({"fileSizeHistogram": histogram}).encode()
    assert open_table(store).verify() == []


def test_a_timestamp_where_the_table_has_none_is_reported() -> None:
    store = DictStore()
    put_commit(store, 0, PROTOCOL, metadata())
    store.objects[f"{LOG}{0:020d}.crc"] = b'{"numFiles": 0, "inCommitTimestampOpt": 5}'
    assert [d.field for d in open_table(store).verify()] == ["inCommitTimestampOpt"]


@pytest.mark.parametrize("name", CHECKSUM)
@pytest.mark.parametrize("wrong", [None, -5, [], {}])
def test_a_wrong_checksum_never_changes_what_the_table_is(name: str, wrong: Any) -> None:
    store = DictStore()
    for version, actions in enumerate(COMMITS):
        put_commit(store, version, *actions)
    put_classic(store, 1, replay(COMMITS[:2]).actions())
    for version in (1, 2):
        store.objects[f"{LOG}{version:020d}.crc"] = json.dumps({**CHECKSUM, name: wrong}).encode()
    snapshot = open_table(store)
    assert observed(snapshot) == replay(COMMITS).state()
    assert (snapshot.version, snapshot.timestamp, len(snapshot.history())) == (2, 3000, 3)
    store.objects[commit_key(3)] = b'{"txn":{"appId":"z","version":1}}'
    assert observed(snapshot.refresh())["num_files"] == 5


def test_a_checksum_beyond_the_last_commit_is_not_a_version(store: DictStore) -> None:
    store.objects[f"{LOG}{3:020d}.crc"] = json.dumps(CHECKSUM).encode()
    assert open_table(store).version == 2


def test_only_the_checksum_of_the_version_itself_counts(store: DictStore) -> None:
    store.objects[f"{LOG}{1:020d}.crc"] = json.dumps(CHECKSUM).encode()
    assert open_table(store).verify() == []
    assert "numFiles" in [d.field for d in open_table(store, version=1).verify()]


def test_contradictions_in_a_commit_are_reported_even_if_there_is_nothing_to_compare(store: DictStore) -> None:
    put_commit(store, 3, commit_info(inCommitTimestamp=4000), add("f9", 1), add("f9", 2))
    store.objects[f"{LOG}{3:020d}.crc"] = json.dumps(CHECKSUM).encode()
    assert [(d.source, d.field) for d in open_table(store).verify()] == [(commit_key(3), "actions")]


def test_reading_a_checksum_decodes_it() -> None:
    store = DictStore({CRC: json.dumps(CHECKSUM).encode()})
    found = read_checksum(store, 2)
    assert found is not None
    assert not isinstance(found, Discrepancy)
    assert (found.num_files, found.txn_id, found.in_commit_timestamp_opt) == (5, "t2", 3000)
    assert read_checksum(store, 1) is None


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_the_checksums_of_real_tables_agree_with_their_logs() -> None:
    assert CORPUS is not None
    # Somebody changed this timestamp in the commit, a hundred million seconds back, and left the checksum as it was.
    known = {("cdc_ict_table", 1): [("inCommitTimestampOpt", 1683874206883, 1783874206883)]}
    checked = 0
    for entry in tables():
        path = CORPUS / entry["path"]
        if entry["expect"] != "ok" or entry.get("disputed") or not list(path.glob("_delta_log/0*.crc")):
            continue
        for crc in sorted(path.glob("_delta_log/0*.crc")):
            version = int(crc.name.split(".")[0])
            if (entry.get("version_files") or {}).get(str(version), 0) is None:
                continue
            found = hw.open_log(path, version=version).verify()
            expected = known.get((entry["name"], version), [])
            assert [(d.field, d.expected, d.actual) for d in found] == expected, f"{path} {version}"
            checked += 1
    assert checked > 50
