"""Manifests for engines that know symlinks: what is in them, and that commits keep them up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.commands.create import CreateMode, CreateRequest, create
from headwater.errors import InvalidCommitError
from headwater.features.context import TableRef
from headwater.features.symlink_manifests import MANIFESTS, write_manifests
from headwater.log.actions.model import Add, DeletionVector, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.opening import open_snapshot
from headwater.log.schema import LONG, STRING, StructField, StructType
from support.commands import opened, set_properties

PROPERTY = "delta.compatibility.symlinkFormatManifest.enabled"
SCHEMA = StructType([StructField("id", LONG), StructField("p", STRING)])


def table(root: Path, partitioned: bool = True, **properties: str) -> LogContext:
    ctx = TableRef(root).context()
    partitions = ("p",) if partitioned else ()
    create(CreateRequest(opened(ctx), CreateMode.CREATE, SCHEMA, partitions, properties=properties))
    return ctx


def commit(ctx: LogContext, add: tuple[Add, ...] = (), remove: tuple[Remove, ...] = ()) -> None:
    transaction = Transaction(ctx, open_snapshot(ctx))
    transaction.add(add)
    transaction.remove(remove)
    transaction.commit(Operation("WRITE"))


def file(path: str, p: str | None = None, **fields: object) -> Add:
    return Add(path, 1, {"p": p} if p is not None else {}, 1, stats='{"numRecords":1}', **fields)  # type: ignore[arg-type]


def manifests(ctx: LogContext) -> dict[str, list[str]]:
    found = [meta.key for meta in ctx.store.list_from(MANIFESTS, recursive=True)]
    return {key.removeprefix(MANIFESTS): sorted(ctx.store.get(key).decode().splitlines()) for key in found}


def test_each_partition_has_a_manifest_with_the_locations_of_its_files(tmp_path: Path) -> None:
    ctx = table(tmp_path / "t")
    commit(ctx, (file("p=a/x.parquet", "a"), file("p=a/y%20z.parquet", "a"), file("w", "b/c"), file("/far/v", "b/c")))
    commit(ctx, (file("n1"), file("n2", "")))

    write_manifests(open_snapshot(ctx))

    root = f"file:{tmp_path}/t"
    assert manifests(ctx) == {
        "p=a/manifest": [f"{root}/p=a/x.parquet", f"{root}/p=a/y z.parquet"],
        "p=b%2Fc/manifest": ["file:/far/v", f"{root}/w"],
        "p=__HIVE_DEFAULT_PARTITION__/manifest": [f"{root}/n1", f"{root}/n2"],
    }


def test_a_table_without_partitions_has_one_manifest_even_without_files(tmp_path: Path) -> None:
    ctx = table(tmp_path / "t", partitioned=False)
    write_manifests(open_snapshot(ctx))
    assert manifests(ctx) == {"manifest": []}


def test_commits_keep_the_manifests_of_touched_partitions_up_to_date(tmp_path: Path) -> None:
    ctx = table(tmp_path / "t")
    commit(ctx, (file("a1", "a"), file("b1", "b")))
    set_properties(open_snapshot(ctx), {PROPERTY: "true"})
    root = f"file:{tmp_path}/t"
    assert manifests(ctx) == {"p=a/manifest": [f"{root}/a1"], "p=b/manifest": [f"{root}/b1"]}
    ctx.store.put(f"{MANIFESTS}p=b/manifest", b"not touched by the next commit\n")

    commit(ctx, (file("a2", "a"), file("c1", "c")), (Remove("a1", partition_values={"p": "a"}),))

    assert manifests(ctx) == {
        "p=a/manifest": [f"{root}/a2"],
        "p=b/manifest": ["not touched by the next commit"],
        "p=c/manifest": [f"{root}/c1"],
    }
    commit(ctx, remove=(Remove("b1", partition_values={"p": "b"}), Remove("c1", partition_values={"p": "c"})))
    assert manifests(ctx) == {"p=a/manifest": [f"{root}/a2"]}
    commit(ctx, remove=(Remove("a2"),))  # a tombstone that does not say which partition it is about
    assert manifests(ctx) == {}


def test_tables_that_readers_of_manifests_would_misread_are_refused(tmp_path: Path) -> None:
    vectors = table(tmp_path / "v", **{"delta.enableDeletionVectors": "true"})
    with pytest.raises(InvalidCommitError, match="enableDeletionVectors"):
        set_properties(open_snapshot(vectors), {PROPERTY: "true"})
    vector = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 1)
    commit(vectors, (file("x", "a", deletion_vector=vector),))
    with pytest.raises(InvalidCommitError, match="deletion vector"):
        write_manifests(open_snapshot(vectors))
    set_properties(open_snapshot(vectors), {"delta.enableDeletionVectors": "false"})
    with pytest.raises(InvalidCommitError, match="executePurge"):
        set_properties(open_snapshot(vectors), {PROPERTY: "true"})

    mapped = table(tmp_path / "m", **{"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidCommitError, match="column mapping"):
        set_properties(open_snapshot(mapped), {PROPERTY: "true"})
    with pytest.raises(InvalidCommitError, match="column mapping"):
        write_manifests(open_snapshot(mapped))
