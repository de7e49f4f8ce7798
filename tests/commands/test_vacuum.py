"""VACUUM on a disk and on an object store: what it looks at, what it spares, what it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.commands.vacuum_plan import last_vacuumed_version
from headwater.errors import InvalidCommitError, RetentionError, SchemaError, StorageError, UnsupportedProtocolError
from headwater.log.actions.deletion_vectors import vector_path, z85_encode
from headwater.log.actions.model import Protocol, Remove
from headwater.log.actions.paths import hadoop_root
from headwater.log.context import LogContext
from support.commands import vacuum
from support.stores.faults import Fault, FaultyStore, RaiseBefore, script
from support.stores.storage_servers import Endpoint, moto_server
from support.tables.local_tables import commit, file, keys, later, new_table, put, vector

VECTORS = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
INCOMPLETE = "incomplete-0b5bd8c0-52f0-4ea6-9a5f-3a3f3fa5f0f1"


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        yield endpoint


def deleted(ctx: LogContext, **options: object) -> set[str]:
    """What a VACUUM a month later deletes, as keys."""
    before = keys(ctx)
    found = vacuum(later(ctx), **options)
    told = {path.removeprefix(f"{hadoop_root(ctx.uri)}/") for path in found.paths()}
    gone = before - keys(ctx)
    assert gone <= told
    assert before & told == gone or options.get("dry_run")
    return gone


def test_hidden_names_are_spared_but_for_those_that_belong_to_the_table(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t", partition_by=("_q",))
    put(ctx, "live.parquet", "_q=a/live.parquet", "_delta_index/i", "_change_data/c.parquet", "old.parquet")
    put(ctx, "_hidden.parquet", ".hidden.parquet", "_other/x", ".git/x", "a/_tmp/x", "_manifest/manifest")
    put(ctx, "_q=b/x.parquet", f"{INCOMPLETE}/_temporary/0/.part.crc", f"{INCOMPLETE}/part-0.parquet")
    commit(ctx, add=("live.parquet", "_q=a/live.parquet"))

    gone = deleted(ctx)

    assert gone == {
        *("old.parquet", "_q=b/x.parquet", "_delta_index/i", "_change_data/c.parquet"),
        *(f"{INCOMPLETE}/_temporary/0/.part.crc", f"{INCOMPLETE}/part-0.parquet"),
    }


def test_directories_that_are_left_empty_go_and_others_stay(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t", partition_by=("p",))
    put(ctx, "p=1/a.parquet", "p=1/.a.parquet.crc", "p=2/b.parquet", "p=3/.keep", "deep/er/c.parquet")
    commit(ctx, add=("p=2/b.parquet",))
    (tmp_path / "t" / "p=4").mkdir()

    vacuum(later(ctx))

    assert sorted(os.listdir(tmp_path / "t")) == ["_delta_log", "p=2", "p=3"]
    assert keys(ctx) == {"p=2/b.parquet", "p=3/.keep"}


def test_files_and_directories_younger_than_the_retention_stay(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "young/never-committed.parquet")

    found = vacuum(ctx)

    assert found.num_files == 0
    assert keys(ctx) == {"young/never-committed.parquet"}


def test_files_are_known_however_the_log_spells_them(tmp_path: Path) -> None:
    root = tmp_path / "my table"
    ctx = new_table(root)
    rooted = f"{str(root).replace(' ', '%20')}/rooted.parquet"
    names = ["a b.parquet", "100%.parquet", "p=ä/x.parquet", "rooted.parquet", "uri.parquet", "gone.parquet"]
    put(ctx, *names)
    put(new_table(tmp_path / "source"), "shared.parquet")
    commit(
        ctx,
        add=(
            *(
                "a%20b.parquet",
                "100%25.parquet",
                "p=%C3%A4/x.parquet",
                rooted,
            ),
            f"{ctx.uri}/uri.parquet",
            f"file://{tmp_path}/source/shared.parquet",
        ),
    )

    assert deleted(ctx) == {"gone.parquet"}
    assert (tmp_path / "source" / "shared.parquet").exists()


def test_vectors_of_live_files_and_of_unexpired_tombstones_stay(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t", protocol=VECTORS, configuration={"delta.enableDeletionVectors": "true"})
    live, removed, orphan = (vector(prefix + z85_encode(bytes([n] * 16))) for n, prefix in enumerate(["", "ab", ""]))
    absolute = vector(f"{ctx.uri}/absolute.bin", "p")
    put(ctx, "a", "b", "c", "absolute.bin", *(vector_path(v) for v in (live, removed, orphan)))
    commit(
        ctx,
        add=(file("a", deletion_vector=live), file("b", deletion_vector=removed), file("c", deletion_vector=absolute)),
    )
    commit(ctx, remove=(Remove("b", deletion_timestamp=later(ctx, 27).clock_ms(), deletion_vector=removed),))

    assert deleted(ctx) == {vector_path(orphan)}
    assert deleted(ctx, retention_hours=48, enforce_retention=False) == {"b", vector_path(removed)}


def test_a_retention_below_the_tables_own_is_refused_unless_the_check_is_off(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t", configuration={"delta.deletedFileRetentionDuration": "interval 3 hours"})
    put(ctx, "x.parquet")

    for hours in (2.9, 0, -1, float("nan"), float("inf"), "3", True):
        with pytest.raises(RetentionError):
            vacuum(later(ctx), retention_hours=hours)  # type: ignore[arg-type]
    with pytest.raises(RetentionError, match="negative"):
        vacuum(ctx, retention_hours=-1, enforce_retention=False)
    with pytest.raises(ValueError, match="FULL or LITE"):
        vacuum(ctx, mode="QUICK")  # type: ignore[arg-type]

    assert vacuum(later(ctx), retention_hours=3, dry_run=True).num_files == 1
    assert vacuum(later(ctx, 0.01), retention_hours=0.1, enforce_retention=False, dry_run=True).num_files == 1
    assert keys(ctx) == {"x.parquet"}


def test_a_table_with_features_that_are_not_known_is_not_touched(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "needed-for-what-we-do-not-know.parquet")
    log = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    log.write_text('{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["timeMachine"]}}\n')

    with pytest.raises(UnsupportedProtocolError, match="timeMachine"):
        vacuum(later(ctx))
    assert keys(ctx)


def test_the_history_tells_of_it_and_says_when_it_failed(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "a.parquet", "b.parquet", size_bytes=100)
    broken = FaultyStore(ctx.store, script(Fault(RaiseBefore(StorageError("no")), "delete_many")))

    with pytest.raises(StorageError):
        vacuum(LogContext(broken, ctx.check_readable, ctx.check_writable, clock_ms=later(ctx).clock_ms))
    vacuum(later(ctx), retention_hours=200)

    end, start, failed, _, _ = hw.open_log(tmp_path / "t").history()
    assert (failed.operation, failed.operation_parameters) == ("VACUUM END", {"status": "FAILED"})
    assert (end.operation, end.operation_parameters) == ("VACUUM END", {"status": "COMPLETED"})
    assert end.operation_metrics == {"numDeletedFiles": "2", "numVacuumedDirectories": "1"}
    assert start.operation == "VACUUM START"
    assert start.operation_metrics == {"numFilesToDelete": "2", "sizeOfDataToDelete": "200"}
    assert start.operation_parameters == {
        "retentionCheckEnabled": "true",
        "defaultRetentionMillis": "604800000",
        "specifiedRetentionMillis": "720000000",
    }


def test_lite_takes_removed_files_and_changes_and_not_what_no_commit_names(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "a.parquet", "b.parquet", "never.parquet")
    commit(ctx, add=("a.parquet", "b.parquet"))
    commit(ctx, remove=("a.parquet",))

    assert deleted(ctx, mode="LITE", dry_run=True) == set()
    assert deleted(ctx, mode="LITE") == {"a.parquet"}
    assert last_vacuumed_version(ctx.store) == 2
    assert deleted(ctx, mode="LITE") == set()


def test_lite_is_refused_when_the_log_does_not_reach_back_to_the_last_vacuum(tmp_path: Path) -> None:
    from headwater.log.delta.checkpoint.write import write_checkpoint

    ctx = new_table(tmp_path / "t")
    put(ctx, "a.parquet")
    commit(ctx, add=("a.parquet",))
    commit(ctx, remove=("a.parquet",))
    write_checkpoint(hw.open_log(tmp_path / "t"))
    log = tmp_path / "t" / "_delta_log"
    (log / f"{0:020}.json").unlink()

    with pytest.raises(InvalidCommitError, match="VACUUM LITE cannot delete all eligible files"):
        vacuum(later(ctx), mode="LITE")
    assert deleted(ctx) == {"a.parquet"}
    assert deleted(ctx, mode="LITE") == set()  # the full one has left a note


def test_an_inventory_takes_the_place_of_the_listing(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "live.parquet", "old 100%.parquet", "young.parquet", "not-in-the-inventory.parquet", "_tmp/x")
    commit(ctx, add=("live.parquet",))
    root, now = f"file:{tmp_path}/t", later(ctx).clock_ms()
    rows = [
        *(
            (f"{root}/{name}", 4, False, 1)
            for name in ("live.parquet", "old 100%.parquet", "_tmp/x", "_delta_log/x.json")
        ),
        (f"{root}/young.parquet", 4, False, now),
        (f"{root}/p=1", 0, True, 1),
        (f"file:{tmp_path}/elsewhere.parquet", 4, False, 1),
    ]
    columns = ["path", "length", "isDir", "modificationTime"]
    inventory = pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))

    assert deleted(ctx, inventory=inventory) == {"old 100%.parquet"}
    with pytest.raises(SchemaError, match="modificationTime"):
        vacuum(ctx, inventory=inventory.select(columns[:3]))


def test_an_object_store_is_vacuumed_too(s3: Endpoint, tmp_path: Path) -> None:
    ctx = new_table(f"{s3.root}/{tmp_path.name}/t", partition_by=("p",), storage_options=s3.options)
    put(ctx, "p=1/a.parquet", "p=2/b.parquet", "p=2/deep/c.parquet", "_hidden/x")
    commit(ctx, add=("p=1/a.parquet", f"s3a://{ctx.uri.partition('//')[2]}/p=2/b.parquet"))

    assert deleted(ctx) == {"p=2/deep/c.parquet"}
    assert keys(ctx) == {"p=1/a.parquet", "p=2/b.parquet", "_hidden/x"}
    # delta-spark writes no such commits on S3.
    history = hw.open_log(ctx.uri, storage_options=s3.options).history()
    assert [summary.operation for summary in history] == ["WRITE", "CREATE TABLE"]
