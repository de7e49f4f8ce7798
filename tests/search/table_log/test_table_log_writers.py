"""Many writers on one search table, with a store that fails: no version is lost, none is written twice (spec 002)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    DeltaConcurrentModificationException,
    ObjectAlreadyExistsError,
    StorageError,
    StorageThrottledError,
    TableNotFoundError,
    VersionNotFoundError,
)
from headwater.log.actions.model import Format, Metadata
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.indextables.actions import MergeSkip
from headwater.log.opening import open_snapshot
from headwater.log.snapshot import Snapshot
from headwater.search.table_log import create_search_log, initialise, open_search_log, search_context
from headwater.storage import open_store
from support.search.table_logs import SCHEMA, append, grown, live, log_files, split, version_file
from support.simulation.simulation import Odds, World, without_shared_locks
from support.stores.faults import Fault, FaultyStore, RaiseAfter, RaiseBefore, script
from support.stores.scripted_s3 import scripted_s3_server

HISTORIES = int(os.environ.get("HEADWATER_SIMULATIONS", "80"))
FIRST_SEED = int(os.environ.get("HEADWATER_FIRST_SEED", "1"))
METADATA = Metadata("1", SCHEMA.to_json(), Format("indextables", {}), ("year",))
WEATHER = (
    Odds(),
    Odds(throttled=0.02, lost_answer=0.02),
    Odds(crash=0.02),
    Odds(throttled=0.02, lost_answer=0.02, crash=0.01, outage=0.01),
    Odds(hidden=0.2),
)

without_shared_locks("headwater.log")


# --- put-if-absent ---------------------------------------------------------------------------------------------


def test_a_version_file_is_never_overwritten(tmp_path: Path) -> None:
    grown(tmp_path, 2)
    before = [version_file(tmp_path, version).read_bytes() for version in range(3)]
    store = open_store(tmp_path)
    for version in range(3):
        with pytest.raises(ObjectAlreadyExistsError):
            store.put_if_absent(f"_transaction_log/{version:020d}.json", b"{}")
    assert [version_file(tmp_path, version).read_bytes() for version in range(3)] == before


def test_a_lost_answer_does_not_make_a_second_version(tmp_path: Path) -> None:
    create_search_log(tmp_path, SCHEMA)
    lost = RaiseAfter(StorageThrottledError("no answer"))
    store = FaultyStore(open_store(tmp_path), script(Fault(lost, "put_if_absent", nth=1)))
    ctx = search_context(store, sleep=lambda _: None)
    snapshot = append(open_snapshot(ctx), "a.split")
    assert (snapshot.version, log_files(tmp_path)) == (1, ["0", "1"])


def test_a_lost_answer_to_version_0_still_creates_the_table_once(tmp_path: Path) -> None:
    lost = RaiseAfter(StorageThrottledError("no answer"))
    store = FaultyStore(open_store(tmp_path), script(Fault(lost, "put_if_absent", nth=1)))
    assert initialise(search_context(store, sleep=lambda _: None), METADATA)
    assert log_files(tmp_path) == ["0"]


def test_a_writer_that_never_learns_the_outcome_says_so(tmp_path: Path) -> None:
    create_search_log(tmp_path, SCHEMA)
    dead = [Fault(RaiseBefore(StorageThrottledError("down")), operation, "*1.json") for operation in ("put*", "get")]
    store = FaultyStore(open_store(tmp_path), script(*dead))
    ctx = search_context(store, sleep=lambda _: None)
    with pytest.raises(CommitStateUnknownError, match="version 1"):
        append(open_snapshot(ctx), "a.split")


def test_two_creators_meet_and_one_table_results(tmp_path: Path) -> None:
    outcomes: list[bool] = []
    start = threading.Barrier(4)

    def create(name: str) -> None:
        start.wait()
        outcomes.append(create_search_log(tmp_path, SCHEMA, name=name))

    threads = [threading.Thread(target=create, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, False, False, True]
    assert log_files(tmp_path) == ["0"]


def test_appends_of_many_threads_all_arrive(tmp_path: Path) -> None:
    create_search_log(tmp_path, SCHEMA)

    def work(name: str) -> None:
        for number in range(6):
            append(open_search_log(tmp_path), f"{name}-{number}.split")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    snapshot = open_search_log(tmp_path)
    assert snapshot.version == 24
    assert live(snapshot) == sorted(f"{name}-{number}.split" for name in "abcd" for number in range(6))
    assert snapshot.verify() == []


def test_on_s3_every_version_is_a_conditional_put_and_412_means_the_next_version() -> None:
    """Spec: "S3 Conditional Writes"."""
    with scripted_s3_server() as server:
        options = {
            "aws_endpoint": f"http://127.0.0.1:{server.port}",
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }
        table = "s3://bucket/logs"
        assert create_search_log(table, SCHEMA, storage_options=options)
        first = append(open_search_log(table, storage_options=options), "a.split")
        append(first, "b.split")
        ours = append(first, "c.split")  # it does not know of version 2 yet
        puts = [
            (path, headers.get("if-none-match"))
            for method, path, _, headers in server.requests
            if method == "PUT" and "/_transaction_log/" in path  # a new table claims its place outside of the log
        ]
        assert puts == [(f"/bucket/logs/_transaction_log/{version:020d}.json", "*") for version in (0, 1, 2, 2, 3)]
        assert (ours.version, live(ours)) == (3, ["a.split", "b.split", "c.split"])
        assert live(open_search_log(table, storage_options=options)) == live(ours)


# --- simulated histories -------------------------------------------------------------------------------------


@dataclass
class Note:
    """What a transaction wanted, and what came of it."""

    adds: frozenset[str]
    removes: frozenset[str]
    outcome: str = "died"
    version: int | None = None


@dataclass
class History:
    """One table, its writers and everything that they did."""

    seed: int
    operations: int = 16
    notes: list[Note] = field(default_factory=list)
    written: dict[int, bytes] = field(default_factory=dict)
    """Every version that was ever put, whatever cleanup has deleted since."""
    files: int = 0

    def __post_init__(self) -> None:
        self.odds = WEATHER[self.seed % len(WEATHER)]
        self.world = World(self.seed, self.odds)
        self.chance = self.world.chance
        self.options = {"spark.indextables.checkpoint.interval": str(self.chance.randint(2, 5))}
        if self.chance.random() < 0.5:
            # Longer than any commit takes once it has looked at the log, and shorter than what a sleepy writer sleeps.
            self.options["spark.indextables.logRetention.duration"] = "60000"
            self.options["spark.indextables.checkpointRetention.duration"] = self.chance.choice(["60000", "120000"])
        inner = self.world.store.put_if_absent

        def remembered(key: str, data: bytes) -> None:
            inner(key, data)
            name = key.rpartition("/")[2].removesuffix(".json")
            if name.isdigit():
                assert int(name) not in self.written, f"{key} was written twice"
                self.written[int(name)] = data

        self.world.store.put_if_absent = remembered  # type: ignore[method-assign]

    def context(self, store: Any) -> Any:
        scheduler = self.world.scheduler
        return search_context(
            store,
            self.options,
            clock_ms=lambda: scheduler.now_ms,
            sleep=scheduler.pause,
            new_id=self.world.new_id,
            random=self.chance.random,
        )

    def play(self) -> None:
        self.world.scheduler.run(self.world.processes(3, lambda store: Writer(self, store).live()))

    def state(self, version: int) -> set[str]:
        """The live files of a version, by a replay as the specification spells it out."""
        files: set[str] = set()
        for number in range(version + 1):
            for line in self.written[number].splitlines():
                action = json.loads(line)
                if "add" in action:
                    files.add(action["add"]["path"])
                if "remove" in action:
                    files.discard(action["remove"]["path"])
        return files


class Writer:
    """One process, which works until all operations are done or it dies."""

    def __init__(self, history: History, store: FaultyStore) -> None:
        self.history, self.chance, self.ctx = history, history.chance, history.context(store)
        self.snapshot: Snapshot | None = None

    def live(self) -> bool:
        while self.history.operations > 0:
            self.history.operations -= 1
            try:
                self._operate()
            except (StorageError, CommitStateUnknownError):
                pass
            except CorruptLogError:
                # What a listing hides from everybody cannot be told from what is lost: an error, never a wrong table.
                if not self.history.odds.hidden:
                    raise
                self.snapshot = None
        return False

    def _operate(self) -> None:
        if self.snapshot is None or self.chance.random() < 0.4:
            try:
                self.snapshot = open_snapshot(self.ctx)
            except TableNotFoundError:
                initialise(self.ctx, METADATA)
                return
        elif self.chance.random() < 0.5:
            self.snapshot = self.snapshot.refresh()
        transaction = Transaction(self.ctx, self.snapshot)
        kinds: list[Callable[[Transaction], None]] = [self._append] * 3 + [self._overwrite, self._merge, self._skip]
        self.chance.choice(kinds)(transaction)
        if self.chance.random() < 0.3:
            self.ctx.sleep(self.chance.choice([30.0, 100.0, 300.0]))
        self._commit(transaction)

    def _append(self, transaction: Transaction) -> None:
        transaction.add([split(self._name(), partition_values={"year": "1"}) for _ in range(self.chance.randint(1, 3))])

    def _overwrite(self, transaction: Transaction) -> None:
        assert self.snapshot is not None
        transaction.reads_whole_table()
        transaction.remove([split(path).removed(self.ctx.clock_ms()) for path in live(self.snapshot)])
        self._append(transaction)

    def _merge(self, transaction: Transaction) -> None:
        assert self.snapshot is not None
        old = live(self.snapshot)[:2]
        if len(old) < 2:
            self._append(transaction)
            return
        transaction.reads_paths(old)
        transaction.remove([split(path).removed(self.ctx.clock_ms(), data_change=False) for path in old])
        transaction.add([split(self._name(), data_change=False)])

    def _skip(self, transaction: Transaction) -> None:
        transaction.skip_merge([MergeSkip("sick.split", self.ctx.clock_ms(), "sick", "merge")])

    def _name(self) -> str:
        self.history.files += 1
        return f"{self.history.files:03}.split"

    def _commit(self, transaction: Transaction) -> None:
        draft = transaction.draft
        note = Note(frozenset(a.path for a in draft.adds), frozenset(r.path for r in draft.removes))
        self.history.notes.append(note)
        try:
            committed = transaction.commit(Operation("WRITE"))
        except DeltaConcurrentModificationException:
            note.outcome = "conflict"
        except CommitStateUnknownError:
            note.outcome = "unknown"
        except StorageError:
            note.outcome = "failed"
        else:
            note.outcome, note.version = "committed", committed.version
            self.snapshot = committed.snapshot


def check(history: History) -> None:
    """What must be true of every history."""
    versions = sorted(history.written)
    assert versions == list(range(len(versions)))
    adds_of = {
        number: frozenset(json.loads(line)["add"]["path"] for line in data.splitlines() if line.startswith(b'{"add"'))
        for number, data in history.written.items()
    }
    for note in history.notes:
        if note.outcome == "committed":
            assert note.version is not None
            assert adds_of[note.version] == note.adds
        elif note.outcome in ("conflict", "failed") and note.adds:
            assert note.adds not in adds_of.values()
        if note.outcome == "committed" and note.removes:
            assert note.version is not None
            assert note.removes <= history.state(note.version - 1), "it removed what another had removed already"
    if not versions:
        return
    ctx = history.context(history.world.store)
    newest = open_snapshot(ctx)
    assert newest.version == versions[-1]
    assert newest.verify() == []
    for version in versions:
        try:
            snapshot = open_snapshot(ctx, version=version)
        except VersionNotFoundError:
            assert version < newest.version
            assert "spark.indextables.logRetention.duration" in history.options
            continue
        assert set(live(snapshot)) == history.state(version)
    assert ctx.store.get("_transaction_log/" + "0" * 20 + ".json") == history.written[0]


@pytest.mark.parametrize("batch", range(8))
def test_whatever_fails_or_dies_the_log_explains_what_is_there(batch: int) -> None:
    for seed in range(FIRST_SEED + batch, FIRST_SEED + HISTORIES, 8):
        history = History(seed)
        try:
            history.play()
            check(history)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", [700416])
def test_a_history_that_failed_once(seed: int) -> None:
    """A checkpoint whose read got no answer was called corrupt, once the version files before it were cleaned up."""
    history = History(seed)
    history.play()
    check(history)


def test_the_simulated_histories_are_about_something() -> None:
    seen: set[str] = set()
    for seed in range(1, 16):
        history = History(seed)
        history.play()
        seen.update(note.outcome for note in history.notes)
    assert seen >= {"committed", "conflict"}
