"""What killed writers leave behind goes after a day; a snapshot whose log was cleaned up says that it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater
from headwater.errors import CorruptLogError, VersionCleanedUpError, VersionNotFoundError
from headwater.features.context import TableRef
from headwater.log.actions.model import Metadata, Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.delta.checkpoint.read import Checkpoint
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.delta.cleanup import clean_up
from headwater.log.opening import open_snapshot
from headwater.search.table_log import clean_up as clean_up_search_log
from headwater.search.table_log import create_search_log, open_search_log
from headwater.storage import LocalStore
from support.commands import vacuum
from support.log.checkpoint_states import V2
from support.log.commit_tables import writer
from support.log.log_tables import LOG, add, commit_info, domain, features, metadata, put_commit, remove, txn
from support.stores.log_store import NOW_MS, DictStore

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot

DAY_S = 86_400
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
KILLED_WRITER = """
import os, signal, sys
from headwater.storage import LocalStore
link = os.link
os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
LocalStore(sys.argv[1]).put_if_absent(sys.argv[2], b"data")
"""


def new_table(path: Path, **configuration: str) -> LogContext:
    ctx = TableRef(path).context()
    transaction = Transaction(ctx, None)
    transaction.set_protocol(Protocol(1, 2))
    transaction.set_metadata(Metadata("1", SCHEMA, configuration=configuration))
    transaction.commit(Operation("CREATE TABLE"))
    return ctx


def killed(table: Path, key: str) -> Path:
    """The file that a writer leaves that is killed right before it publishes an object."""
    before = set((table / key).parent.glob(".headwater-*"))
    source = str(Path(headwater.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, str(table), key], env={**os.environ, "PYTHONPATH": source}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    (left,) = set((table / key).parent.glob(".headwater-*")) - before
    return left


def age(file: Path, days: float) -> Path:
    then_s = time.time() - days * DAY_S
    os.utime(file, (then_s, then_s))
    return file


def named(directory: Path, name: str, days: float) -> Path:
    file = directory / name
    file.write_bytes(b"half of it")
    return age(file, days)


# --- temporary files ------------------------------------------------------------------------------------


def test_a_killed_writer_leaves_a_file_that_the_log_cleanup_deletes_after_a_day(tmp_path: Path) -> None:
    ctx = new_table(tmp_path)
    left = killed(tmp_path, f"{LOG}{1:020d}.json")
    clean_up(open_snapshot(ctx))
    assert left.exists(), "it is young: its writer may still be at it"
    age(left, 1.1)
    assert clean_up(open_snapshot(ctx)) == [f"{LOG}{left.name}"]
    assert not left.exists()


def test_names_that_are_not_quite_ours_stay_however_old_they_are(tmp_path: Path) -> None:
    ctx = new_table(tmp_path)
    log = tmp_path / LOG
    hexadecimal = "0123456789abcdef01234567"
    stay = [
        named(log, name, 1_000)
        for name in (
            ".headwater-lock",
            f".headwater-{hexadecimal}",
            f".headwater-{hexadecimal}.tmp.txt",
            f".headwater-{hexadecimal[1:]}.tmp",
            f".headwater-{hexadecimal.upper()}.tmp",
            f"headwater-{hexadecimal}.tmp",
            "notes.tmp",
            "_commit_3f9b1b0e-0000-4000-8000-000000000000.json.tmp",
            ".s3-optimization-0",
        )
    ]
    clean_up(open_snapshot(ctx))
    vacuum(ctx)
    assert [file for file in stay if not file.exists()] == []


def test_sidecars_in_the_making_are_cleaned_up_too(tmp_path: Path) -> None:
    ctx = new_table(tmp_path)
    (tmp_path / LOG / "_sidecars").mkdir()
    old = named(tmp_path / LOG / "_sidecars", f".headwater-{'a' * 24}.tmp", 2)
    young = named(tmp_path / LOG / "_sidecars", f".headwater-{'b' * 24}.tmp", 0.5)
    clean_up(open_snapshot(ctx))
    assert (old.exists(), young.exists()) == (False, True)


def test_a_table_that_keeps_its_whole_log_keeps_them_too(tmp_path: Path) -> None:
    ctx = new_table(tmp_path, **{"delta.enableExpiredLogCleanup": "false"})
    left = named(tmp_path / LOG, f".headwater-{'a' * 24}.tmp", 100)
    assert clean_up(open_snapshot(ctx)) == []
    assert left.exists()


def test_the_log_of_a_search_table_is_cleaned_up_likewise(tmp_path: Path) -> None:
    from headwater.log.schema import LONG, StructField, StructType

    create_search_log(tmp_path, StructType([StructField("id", LONG)]))
    log = tmp_path / "_transaction_log"
    old, young = (
        named(log, f".headwater-{'a' * 24}.tmp", 2),
        named(log, f".headwater-{'b' * 24}.tmp", 0.5),
    )
    assert clean_up_search_log(open_search_log(tmp_path)).deleted == (f"_transaction_log/{old.name}",)
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("retention_hours", [None, 0])
def test_vacuum_deletes_those_beside_the_data_but_never_young_ones(
    tmp_path: Path, retention_hours: float | None
) -> None:
    ctx = new_table(tmp_path)
    (tmp_path / "p=1").mkdir()
    old = [named(place, f".headwater-{'a' * 24}.tmp", 9) for place in (tmp_path, tmp_path / "p=1")]
    young = named(tmp_path, f".headwater-{'b' * 24}.tmp", 0.5)
    found = vacuum(ctx, retention_hours=retention_hours, enforce_retention=False)
    assert [file for file in old if file.exists()] == []
    assert young.exists()
    assert found.plan.objects.num_rows == 0, "they were never files of the table"


def test_a_dry_run_deletes_nothing(tmp_path: Path) -> None:
    ctx = new_table(tmp_path)
    old = named(tmp_path, f".headwater-{'a' * 24}.tmp", 9)
    vacuum(ctx, dry_run=True)
    assert old.exists()


def test_a_writer_that_slept_for_days_finds_its_file_gone_and_writes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = new_table(tmp_path)
    real, slept = os.link, []

    def sleepy(source: str, target: str) -> None:
        if not slept:
            slept.append(source)
            age(Path(source), 3)
            clean_up(open_snapshot(TableRef(tmp_path).context()))
            assert not Path(source).exists()
        real(source, target)

    monkeypatch.setattr(os, "link", sleepy)
    assert Transaction(ctx, open_snapshot(ctx)).commit(Operation("WRITE")).version == 1
    assert open_snapshot(TableRef(tmp_path).context()).version == 1


def test_what_spark_left_before_it_could_rename_it_goes_with_the_commits_of_its_time() -> None:
    store = aged_table()
    unique = uuid.uuid4()
    gone = [
        f"{LOG}.{3:020d}.json.{unique}.tmp",
        f"{LOG}.{3:020d}.checkpoint.parquet.{unique}.tmp",
        f"{LOG}._last_checkpoint.{unique}.tmp",
        f"{LOG}..{3:020d}.json.{unique}.tmp.crc",
    ]
    stay = [f"{LOG}.{3:020d}.json.tmp", f"{LOG}{3:020d}.json.{unique}.tmp", f"{LOG}.{3:020d}.json.{unique}.temp"]
    young = f"{LOG}.{59:020d}.json.{unique}.tmp"
    for key in (*gone, *stay):
        store.objects[key], store.modified_ms[key] = b"", day_ms(3)
    store.objects[young], store.modified_ms[young] = b"", day_ms(59)
    clean_up(opened(store))
    assert not set(gone) & set(store.objects)
    assert {*stay, young} <= set(store.objects)


# --- snapshots of cleaned-up versions ---------------------------------------------------------------------


def day_ms(version: int) -> int:
    return NOW_MS - (60 - version) * DAY_S * 1_000


def opened(store: Any, version: int | None = None) -> Snapshot:
    return open_snapshot(writer(store, new_id=lambda: str(uuid.uuid4())), version=version)


def aged_table(configuration: dict[str, str] | None = None) -> DictStore:
    """A commit a day for 60 days, and a checkpoint every ten versions."""
    store = DictStore()
    for version in range(60):
        own = [features("v2Checkpoint", "domainMetadata"), metadata(configuration)] if version == 0 else [commit_info()]
        more = [txn("app", 1), domain("d"), remove("gone", deletionTimestamp=NOW_MS)] if version == 5 else []
        put_commit(store, version, *own, add(f"f{version}"), *more)
        known = set(store.objects)
        if version and version % 10 == 0:
            write_checkpoint(opened(store))
        for key in {*(set(store.objects) - known), f"{LOG}{version:020d}.json"}:
            store.modified_ms[key] = day_ms(version)
    return store


ASKED = {
    "files": lambda snapshot: snapshot.files(),
    "number of files": lambda snapshot: snapshot.num_files,
    "transactions": lambda snapshot: snapshot.app_transactions,
    "domains": lambda snapshot: snapshot.domain_metadata,
    "tombstones": lambda snapshot: snapshot.tombstones(),
    "named files": lambda snapshot: snapshot.files_named({"f1"}),
    "verification": lambda snapshot: snapshot.verify() or snapshot.num_files,
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("configuration", [None, V2], ids=["classic", "v2"])
def test_a_snapshot_whose_log_was_cleaned_up_says_so(asked: str, configuration: dict[str, str] | None) -> None:
    store = aged_table(configuration)
    snapshot = opened(store, 14)
    assert clean_up(opened(store))
    with pytest.raises(VersionCleanedUpError, match=r"checkpoint of version 10.*cleaned up.*before 20.*open") as caught:
        ASKED[asked](snapshot)
    assert isinstance(caught.value, VersionNotFoundError)
    assert not isinstance(caught.value, CorruptLogError)
    assert snapshot.refresh().num_files == 60


def test_opening_the_version_again_says_which_versions_there_are() -> None:
    store = aged_table()
    clean_up(opened(store))
    with pytest.raises(VersionNotFoundError, match="versions 20 to 59"):
        opened(store, 14)


def test_what_was_read_before_the_cleanup_stays_known() -> None:
    store = aged_table()
    snapshot = opened(store, 14)
    assert snapshot.num_files == 15
    clean_up(opened(store))
    assert snapshot.num_files == 15


def test_a_checkpoint_that_is_lost_without_a_newer_one_is_damage() -> None:
    store = aged_table()
    snapshot = opened(store)
    (lost,) = [key for key in store.objects if f"{50:020d}.checkpoint" in key]
    del store.objects[lost]
    with pytest.raises(CorruptLogError, match="does not exist"):
        snapshot.files()


def test_a_sidecar_that_is_lost_while_its_checkpoint_is_there_is_damage() -> None:
    store = aged_table(V2)
    snapshot = opened(store, 14)
    checkpoint = opened(store, 14).base.checkpoint
    assert isinstance(checkpoint, Checkpoint)
    (sidecar,) = checkpoint.sidecar_keys
    del store.objects[sidecar]
    with pytest.raises(CorruptLogError, match="does not exist"):
        snapshot.files()


def test_listings_never_show_temporary_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("d/x", b"")
    named(tmp_path / "d", f".headwater-{'a' * 24}.tmp", 9)
    assert [meta.key for meta in store.list_from("d/")] == ["d/x"]
    assert [meta.key for meta in store.list_directory("d/").objects] == ["d/x"]
    assert [meta.key for meta in store.temporary_files("d/")] == [f"d/.headwater-{'a' * 24}.tmp"]
