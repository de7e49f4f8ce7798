"""Commits whose outcome a store leaves open: what is acknowledged stands, and nothing that may stand is called failed.

Delta tables and search tables, on a disk whose flushes fail and on an S3 whose answers get lost.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headwater.errors import (
    CommitStateUnknownError,
    StorageError,
    StoragePermissionError,
    StorageRefusedError,
)
from headwater.features.context import COMMIT_RULES
from headwater.features.registry import check_readable, check_writable
from headwater.log.actions.model import Format, Metadata
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.indextables.actions import SplitAdd
from headwater.log.opening import open_snapshot
from headwater.search.table_log import initialise, search_context
from headwater.storage import LocalStore
from headwater.storage.errors import RetryPolicy
from headwater.storage.remote import RemoteStore, open_backend
from headwater.storage.uri import parse_uri
from support.log.commit_tables import METADATA, PROTOCOL, WRITE, add, create
from support.stores.scripted_s3 import ScriptedS3, Trouble, scripted_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headwater.storage.base import ObjectStore

REFUSALS: list[Trouble] = [
    (403, "AccessDenied"),
    (400, "ExpiredToken"),
    (400, "BadRequest"),
    (404, "NoSuchBucket"),
    (404, "NoSuchKey"),
    (401, ""),
]


@dataclass(frozen=True)
class Kind:
    """One of the two kinds of tables."""

    name: str
    directory: str

    def context(self, store: ObjectStore) -> LogContext:
        if self.name == "search":
            return search_context(store, sleep=lambda _: None)
        return LogContext(store, check_readable, check_writable, COMMIT_RULES, sleep=lambda _: None)

    def create(self, store: ObjectStore) -> None:
        ctx = self.context(store)
        if self.name == "search":
            initialise(ctx, Metadata("1", METADATA.schema_string, Format("indextables", {}), ("part",)))
        else:
            create(ctx, protocol=PROTOCOL)

    def append(self, store: ObjectStore, name: str) -> int:
        ctx = self.context(store)
        transaction = Transaction(ctx, open_snapshot(ctx))
        transaction.add([self._file(name)])
        return transaction.commit(WRITE).version

    def _file(self, name: str) -> Any:
        if self.name == "search":
            return SplitAdd(name, size=1_000, modification_time=0, num_records=10, partition_values={"part": "a"})
        return add(name)

    def files(self, store: ObjectStore) -> list[str]:
        snapshot = open_snapshot(self.context(store))
        found: list[str] = snapshot.files(columns=["path"]).column("path").to_pylist()
        return sorted(found)


KINDS = [Kind("delta", "_delta_log"), Kind("search", "_transaction_log")]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


# --- a disk that does not flush ------------------------------------------------------------------------


class Disk:
    """Counts the flushes of directories, lets some of them fail, and notes what those that succeed have kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushes = 0
        self.failing: frozenset[int] = frozenset()
        self.kept: dict[int, set[str]] = {}
        """By the directory's inode: the names that were in it when it was flushed."""
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self._flush)

    def _flush(self, descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self.flushes += 1
            if self.flushes in self.failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.kept.setdefault(os.fstat(descriptor).st_ino, set()).update(os.listdir(descriptor))
        self._real(descriptor)


def test_a_commit_whose_directory_was_not_flushed_is_not_acknowledged(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    kind.create(store)
    disk = Disk(monkeypatch)
    disk.failing = frozenset({1})
    with pytest.raises(CommitStateUnknownError, match=r"version 1 .* is written.*Input/output error"):
        kind.append(store, "a")
    assert kind.files(store) == ["a"]


def test_whatever_flush_fails_an_acknowledged_commit_is_durable(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory has been flushed since it is there, and so has every new directory above."""
    disk = Disk(monkeypatch)
    outcomes: list[str] = []
    for failing in range(1, 25):
        table = tmp_path / f"parent {failing}" / "table"
        store = LocalStore(table)
        log = table / kind.directory
        disk.flushes, disk.failing, disk.kept = 0, frozenset({failing}), {}
        for version in range(3):
            try:
                if version == 0:
                    kind.create(store)
                else:
                    kind.append(store, f"{version}")
            except StorageError:  # nothing is there: it can be done again
                assert not (log / f"{version:020d}.json").exists()
                outcomes.append("failed")
                break
            except CommitStateUnknownError:
                assert (log / f"{version:020d}.json").exists()
                outcomes.append("unknown")
                break
            assert f"{version:020d}.json" in disk.kept[log.stat().st_ino]
            assert {log.name} <= disk.kept[table.stat().st_ino]
            assert {table.name} <= disk.kept[table.parent.stat().st_ino]
            assert {table.parent.name} <= disk.kept[tmp_path.stat().st_ino]
            outcomes.append("done")
    assert {"done", "unknown"} <= set(outcomes)


def test_a_full_disk_is_said_to_be_full_and_nothing_was_committed(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    kind.create(store)

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StorageRefusedError, match="free some space"):
            kind.append(store, "a")
    assert kind.files(store) == []
    assert kind.append(store, "b") == 1


# --- an S3 whose answers get lost -----------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with scripted_s3_server() as state:
        yield state


def bucket(server: ScriptedS3) -> RemoteStore:
    options = {
        "endpoint": f"http://127.0.0.1:{server.port}",
        "access_key_id": "made-up",
        "secret_access_key": "made-up",
        "allow_http": "true",
        "timeout": "500ms",
    }
    location = parse_uri("s3://bucket/t")
    policy = RetryPolicy(max_attempts=3, sleep=lambda _: None, jitter=lambda: 0.0)
    return RemoteStore(open_backend(location, options), location, policy)


def commits(server: ScriptedS3, kind: Kind) -> list[str]:
    return sorted(key for key in server.objects if key.startswith(f"t/{kind.directory}/0") and key.endswith("0.json"))


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_commit_whose_answer_got_lost_stands_though_the_repetition_is_refused(
    kind: Kind, server: ScriptedS3, refusal: Trouble
) -> None:
    store = bucket(server)
    kind.create(store)
    server.on_put(f"t/{kind.directory}/{1:020d}.json", ["drop after", refusal])
    assert kind.append(store, "a") == 1
    assert kind.files(store) == ["a"]
    assert kind.append(store, "b") == 2
    assert kind.files(store) == ["a", "b"]


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_nobody_knows_when_the_look_is_refused_too(kind: Kind, server: ScriptedS3, refusal: Trouble) -> None:
    store = bucket(server)
    kind.create(store)
    key = f"t/{kind.directory}/{1:020d}.json"
    server.on_put(key, ["drop after", *[refusal] * 50])
    server.on_get(key, [*[refusal] * 50])
    with pytest.raises(CommitStateUnknownError, match=r"version 1 \(transaction"):
        kind.append(store, "a")
    server.by_request.clear()
    assert kind.files(store) == ["a"]


def test_a_put_that_was_never_executed_and_is_refused_later_is_not_called_failed(
    kind: Kind, server: ScriptedS3
) -> None:
    """The first request may still be on its way, so that it is not there now proves nothing."""
    store = bucket(server)
    kind.create(store)
    server.on_put(f"t/{kind.directory}/{1:020d}.json", ["drop before", *[(403, "AccessDenied")] * 50])
    with pytest.raises(CommitStateUnknownError):
        kind.append(store, "a")


def test_a_refusal_of_the_first_request_is_final(kind: Kind, server: ScriptedS3) -> None:
    store = bucket(server)
    kind.create(store)
    server.on_put(f"t/{kind.directory}/{1:020d}.json", [(403, "AccessDenied")])
    with pytest.raises(StoragePermissionError):
        kind.append(store, "a")
    assert kind.files(store) == []


def test_another_writers_commit_is_not_taken_for_ours_after_a_refusal(kind: Kind, server: ScriptedS3) -> None:
    """A put without an answer, then the token expires, and meanwhile somebody else has the version."""
    store, other = bucket(server), bucket(server)
    kind.create(store)

    def rival() -> None:
        server.by_request.clear()
        assert kind.append(other, "theirs") == 1

    server.on_put(f"t/{kind.directory}/{1:020d}.json", ["drop before", (rival, (403, "AccessDenied"))])
    assert kind.append(store, "ours") == 2
    assert kind.files(store) == ["ours", "theirs"]
