"""What must be true of a simulated history: one serial order, the log's, explains everything.

Rows are numbers in a partition. Each transaction left a note of what it read and of what it meant to do; here the notes
are played again one after the other, in the order of the versions, on a plain set of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import MissingCommitError, ObjectNotFoundError, VersionNotFoundError
from headwater.log.actions.deletion_vectors import read_vectors, to_bitmap
from headwater.log.actions.model import DeletionVector
from headwater.log.opening import open_snapshot
from headwater.log.segment import list_log
from support.oracles.log_model import Model

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.storage import ObjectStore
    from support.simulation.simulation import SimulatedStore

Row = tuple[str, int]
Rows = frozenset[Row]
Matches = Callable[[Row], bool]


@dataclass
class Note:
    """What one transaction read and did, as it saw it."""

    id: str
    what: str
    read_version: int
    matches: Matches | None = None
    """Rows that it looked for; None if it looked for none."""
    saw: Rows = frozenset()
    """The rows that it found."""
    takes: Rows = frozenset()
    """Rows that it removes."""
    brings: Rows = frozenset()
    """Rows that it adds."""
    counted: dict[str, int] = field(default_factory=dict)
    """What it read and counted on by one: an application's progress, a domain, a property."""
    level: str = "Serializable"
    files: frozenset[str] = frozenset()
    """Where it knows the rows that it read: the files that it changes. It may not fail because of others."""
    outcome: str = "crashed"
    """Or `committed`, `unknown`, or the name of an error after which nothing may have happened."""
    version: int | None = None
    winner: int | None = None
    """The version that stood in its way."""


@dataclass
class History:
    """Everything that was done to one table."""

    notes: list[Note] = field(default_factory=list)
    contents: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    """The rows of each data file, in their order, those that a deletion vector deletes included."""

    def held(self, path: str, vector: DeletionVector | None, store: SimulatedStore) -> Rows:
        """The rows of a logical file."""
        rows = self.contents[path]
        if vector is None:
            return frozenset(rows)
        [deleted] = read_vectors([vector], store, _nowhere)
        return frozenset(row for number, row in enumerate(rows) if number not in to_bitmap(deleted))


def _nowhere(path: str) -> tuple[ObjectStore, str]:
    raise AssertionError(f"all vectors are in the table, not at {path}")


def check(history: History, store: SimulatedStore, ctx: LogContext) -> None:
    """Raise AssertionError unless the history is right."""
    assert store.twice == [], "a commit was put where one had been cleaned up"
    commits = {version: _lines(data) for version, data in sorted(store.commits.items())}
    assert list(commits) == list(range(len(commits))), "the versions are not contiguous"
    placed = _check_acknowledged(history, commits)
    states = _check_order(history, commits, placed, store)
    _check_conflicts(history, commits, states)
    if commits:
        _check_readers(commits, ctx)


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def _check_acknowledged(history: History, commits: dict[int, list[dict[str, Any]]]) -> dict[int, Note]:
    """Every acknowledged commit is in the log exactly once, and nothing that was said to have failed is."""
    ids = [lines[0]["commitInfo"]["txnId"] for lines in commits.values()]
    assert len(set(ids)) == len(ids), "a transaction was committed twice"
    notes = {note.id: note for note in history.notes}
    placed = {version: notes[id_] for version, id_ in enumerate(ids)}
    for note in history.notes:
        found = ids.index(note.id) if note.id in ids else None
        if note.outcome == "committed":
            assert found == note.version, f"{note} is at {found}"
        elif note.outcome not in ("crashed", "unknown"):
            assert found is None, f"{note} failed, and is in the log at {found}"
    return placed


def _check_order(
    history: History, commits: dict[int, list[dict[str, Any]]], placed: dict[int, Note], store: SimulatedStore
) -> list[Rows]:
    """Played in the order of the versions, every transaction saw what it should, and did what it meant to.

    The rows of each version are returned.
    """
    states: list[Rows] = []
    by_appends: list[Rows] = []
    counters: dict[str, int] = {}
    model = Model()
    rows: Rows = frozenset()
    for version, note in placed.items():
        _check_reads(note, version, states, by_appends)
        for name, value in note.counted.items():
            assert counters.get(name, 0) == value, f"{note} at {version}: {name} was {counters.get(name, 0)}"
            counters[name] = value + 1
        assert note.takes <= rows, f"{note} at {version} removes rows that are gone: {note.takes - rows}"
        assert not note.brings & (rows - note.takes), f"{note} at {version} brings rows that are there"
        rows = (rows - note.takes) | note.brings
        model.apply(line for line in commits[version] if "commitInfo" not in line)
        held = [history.held(a["path"], _vector(a), store) for a in model.adds]
        assert sum(map(len, held)) == len(rows), f"version {version} has other rows than it should"
        assert frozenset().union(*held) == rows, f"version {version} has other rows than it should"
        states.append(rows)
        by_appends.append(note.brings if note.matches is None and not note.takes else frozenset())
        _check_files(history, commits[version])
    return states


def _check_files(history: History, lines: list[dict[str, Any]]) -> None:
    """Statistics count all rows of a data file, whatever its deletion vector; row ids stay with their rows."""
    removed = {line["remove"]["path"]: line["remove"] for line in lines if "remove" in line}
    for add in (line["add"] for line in lines if "add" in line):
        assert json.loads(add["stats"])["numRecords"] == len(history.contents[add["path"]]), add
        before = removed.get(add["path"], add)
        for name in ("baseRowId", "defaultRowCommitVersion"):
            assert add.get(name) == before.get(name), add


def _check_conflicts(history: History, commits: dict[int, list[dict[str, Any]]], states: list[Rows]) -> None:
    """Who only changed other rows of the same files, or other files, was in nobody's way."""
    for note in history.notes:
        is_compaction = bool(note.files) and note.level == "SnapshotIsolation"
        unlike = ("ConcurrentAppendException", "ConcurrentDeleteReadException")
        assert not is_compaction or note.outcome not in unlike, f"{note} failed, though it only moves rows"
        if not note.files or note.outcome not in ("ConcurrentDeleteDeleteException", "ConcurrentDeleteReadException"):
            continue
        assert note.winner is not None
        lines = commits[note.winner]
        again = {line["add"]["path"] for line in lines if "add" in line}
        gone = {line["remove"]["path"] for line in lines if "remove" in line} - again
        lost = states[note.winner - 1] - states[note.winner]
        same_rows = bool((gone | again) & note.files) if is_compaction else bool(lost & note.saw)
        # Rows that were read and then moved elsewhere are not told from others there.
        moved = any(_moved(commits[version]) & note.files for version in range(note.read_version + 1, note.winner))
        assert same_rows or moved or gone & note.files, f"{note} failed because of {note.winner}, which did nothing"


def _moved(lines: list[dict[str, Any]]) -> set[str]:
    """The files whose rows a commit moved."""
    return {line["remove"]["path"] for line in lines if "remove" in line and not line["remove"]["dataChange"]}


def _vector(add: dict[str, Any]) -> DeletionVector | None:
    fields = add.get("deletionVector")
    return None if fields is None else msgspec.convert(fields, DeletionVector)


def _check_reads(note: Note, version: int, states: list[Rows], by_appends: list[Rows]) -> None:
    if note.matches is None:
        return
    saw = {row for row in states[note.read_version] if note.matches(row)}
    assert saw == note.saw, f"{note}: version {note.read_version} has other rows"
    if note.level == "SnapshotIsolation":
        return
    now = {row for row in states[version - 1] if note.matches(row)}
    if note.level == "WriteSerializable":
        now -= frozenset().union(*by_appends[note.read_version + 1 :])
    assert now == saw, f"{note} at {version}: its reads are not valid there: {now ^ saw}"


def _check_readers(commits: dict[int, list[dict[str, Any]]], ctx: LogContext) -> None:
    """A reader sees what a naive replay of all commits gives; checksums agree; row ids and times are in order."""
    model = Model()
    last_ms, mark = 0, -1
    for version, lines in commits.items():
        info = lines[0]["commitInfo"]
        model.apply(line for line in lines if "commitInfo" not in line)
        stamp = info.get("inCommitTimestamp")
        if stamp is not None:
            assert stamp > last_ms, "in-commit timestamps must grow"
            last_ms = stamp
        for added in (line["add"] for line in lines if "add" in line):
            first = added.get("baseRowId")
            if first is not None and added["dataChange"] and added.get("deletionVector") is None:
                assert first > mark, "row ids were given away twice"
                mark = first + json.loads(added["stats"])["numRecords"] - 1
        _check_checksum(version, model, info, ctx)
    snapshot = open_snapshot(ctx)
    assert snapshot.version == len(commits) - 1
    files = snapshot.files(columns=["path", "size"])
    found = sorted(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True))
    assert found == sorted((add["path"], add["size"]) for add in model.adds)
    assert snapshot.app_transactions == {t["appId"]: t["version"] for t in model.txns.values()}
    assert snapshot.metadata.configuration == model.metadata["configuration"]
    for version in (snapshot.version, snapshot.version // 2):
        older = _opened(ctx, version)
        if older is not None:
            assert older.verify() == [], f"version {version}"


def _check_checksum(version: int, model: Model, info: dict[str, Any], ctx: LogContext) -> None:
    """The checksum of a version, where there is one, says what the naive replay gives."""
    try:
        crc = json.loads(ctx.store.get(f"_delta_log/{version:020d}.crc"))
    except ObjectNotFoundError:
        return
    vectors = [add["deletionVector"] for add in model.adds if add.get("deletionVector")]
    domains = {d["domain"]: d["configuration"] for d in model.domains.values() if not d.get("removed")}
    expected = {
        "txnId": info["txnId"],
        "numFiles": len(model.adds),
        "tableSizeBytes": sum(add["size"] for add in model.adds),
        "metadata": model.metadata,
        "protocol": model.protocol,
        "numDeletionVectorsOpt": len(vectors),
        "numDeletedRecordsOpt": sum(vector["cardinality"] for vector in vectors),
        "inCommitTimestampOpt": info.get("inCommitTimestamp"),
    }
    assert {name: crc.get(name) for name in expected} == expected, f"version {version}"
    assert sum(crc["fileSizeHistogram"]["fileCounts"]) == len(model.adds)
    if "setTransactions" in crc:
        recorded = {t["appId"]: t["version"] for t in crc["setTransactions"]}
        assert recorded == {t["appId"]: t["version"] for t in model.txns.values()}
    if "domainMetadata" in crc:
        assert {d["domain"]: d["configuration"] for d in crc["domainMetadata"]} == domains


def _opened(ctx: LogContext, version: int) -> Any:
    try:
        return open_snapshot(ctx, version=version)
    except VersionNotFoundError:
        return None
    except MissingCommitError:
        # Cleaned up too, but the listing lagged behind and something that is of no use was left.
        assert version < max(list_log(ctx).checkpoints), f"version {version} is lost"
        return None
