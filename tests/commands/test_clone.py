"""CLONE on the log and the store: shallow and deep, once and again, with vectors, properties and other stores."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

import headwater as hw
from headwater.commands.clone import Cloned, Copy, Sources, copy_here
from headwater.errors import InvalidCommitError, InvalidTablePropertyError, StorageError, TableAlreadyExistsError
from headwater.features.context import TableRef
from headwater.log.actions.deletion_vectors import vector_path, z85_encode
from headwater.log.actions.model import DeletionVector, Protocol, Remove
from headwater.log.actions.paths import canonical
from headwater.log.context import LogContext
from headwater.log.opening import open_snapshot
from headwater.log.snapshot import Snapshot
from support.commands import clone, restore
from support.stores.storage_servers import Endpoint, moto_server
from support.tables.local_tables import commit, file, keys, new_table, put, vector

VECTORS = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
WITH_VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        yield endpoint


class Cloner:
    """Clones, and remembers what was copied."""

    def __init__(self, source: LogContext, target: LogContext, source_options: dict[str, str] | None = None) -> None:
        self.source, self.target, self.options = source, target, source_options
        self.copied: list[Copy] = []

    def __call__(self, *, deep: bool = True, replace: bool = False, **named: Any) -> Cloned:
        source = open_snapshot(self.source)
        return clone(source, self.target, is_shallow=not deep, replace=replace, copy=self._copy, **named)

    def _copy(self, copies: list[Copy]) -> None:
        self.copied = copies
        copy_here(Sources(TableRef(self.source.uri, self.options)), self.target.store, copies)


def live(snapshot: Snapshot) -> dict[str, DeletionVector | None]:
    rows = snapshot.files(columns=["path", "deletionVector"]).to_pylist()
    return {row["path"]: row["deletionVector"] for row in rows}


def fill(ctx: LogContext, *names: str) -> None:
    """Files whose first bytes say what they are called."""
    for name in names:
        ctx.store.put(name, name.encode()[:4].ljust(4))


def contents(snapshot: Snapshot) -> set[str]:
    """What the live files were called when they were written; they are in the table's own directory."""
    names = {"stay": "stays", "come": "comes", "chan": "changes"}
    found = {snapshot.ctx.store.get(canonical(path)).decode().strip() for path in live(snapshot)}
    return {names.get(name, name) for name in found}


def test_a_shallow_clone_names_the_files_of_its_source(tmp_path: Path) -> None:
    own = vector("ab" + z85_encode(bytes(16)))
    source = new_table(tmp_path / "my source", protocol=VECTORS, configuration=WITH_VECTORS)
    put(source, "p=a b/x.parquet", "y.parquet", vector_path(own))
    commit(source, add=(file("p=a%20b/x.parquet", partition_values={}), file("y.parquet", deletion_vector=own)))
    inline = vector("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "i")
    commit(source, add=(file("/elsewhere/z.parquet", deletion_vector=inline),))
    target = TableRef(tmp_path / "target").context()

    done = Cloner(source, target)(deep=False)

    files = live(open_snapshot(target))
    assert set(files) == {
        f"{source.uri}/p=a%20b/x.parquet",
        f"{source.uri}/y.parquet",
        "/elsewhere/z.parquet",
    }
    absolute = files[f"{source.uri}/y.parquet"]
    assert (absolute["storageType"], absolute["pathOrInlineDv"]) == ("p", f"{source.uri}/{vector_path(own)}")
    assert files["/elsewhere/z.parquet"]["storageType"] == "i"
    assert done == Cloned(0, 12, 3, 0, 0, 0, 0)
    assert keys(target) == set()


def test_a_deep_clone_has_copies_of_files_and_vectors(tmp_path: Path) -> None:
    own = vector(z85_encode(bytes(16)))
    other = new_table(tmp_path / "other", protocol=VECTORS)
    put(other, "far.parquet", "far.bin")
    source = new_table(tmp_path / "source", protocol=VECTORS, configuration=WITH_VECTORS)
    put(source, "a b.parquet", "y.parquet", vector_path(own))
    foreign = vector(f"{other.uri}/far.bin", "p")
    commit(
        source,
        add=(
            *("a%20b.parquet", file("y.parquet", deletion_vector=own)),
            file(f"{other.uri}/far.parquet", deletion_vector=foreign),
        ),
    )
    target = TableRef(tmp_path / "target").context()

    done = Cloner(source, target)()

    snapshot = open_snapshot(target)
    assert not keys(target) & {"a b.parquet", "y.parquet", vector_path(own)}, "copies have names of their own"
    assert len(keys(target)) == 5
    assert not any("://" in path for path in live(snapshot))
    assert {vector["storageType"] for vector in live(snapshot).values() if vector} == {"u"}
    assert done == Cloned(0, 12, 3, 0, 3, 0, 12)
    assert hw.open_log(tmp_path / "target").verify() == []


def test_cloning_again_copies_what_is_new_and_removes_what_is_gone_in_one_commit(tmp_path: Path) -> None:
    source = new_table(tmp_path / "source", protocol=VECTORS, configuration=WITH_VECTORS)
    fill(source, "stays", "goes", "comes", "changes")
    changes = file("changes")
    commit(source, add=("stays", "goes", changes))
    target = TableRef(tmp_path / "target").context()
    cloner = Cloner(source, target)
    cloner()
    new = vector(z85_encode(bytes(16)))
    put(source, vector_path(new))
    changed = msgspec.structs.replace(changes, deletion_vector=new)
    commit(source, add=("comes", changed), remove=("goes", Remove("changes", size=4)))

    done = cloner(replace=True)

    assert [copy.source.rpartition("/")[2] for copy in cloner.copied] == ["comes", vector_path(new)]
    assert contents(open_snapshot(target)) == {"stays", "comes", "changes"}
    assert done == Cloned(1, 12, 3, 2, 1, 8, 4)
    assert cloner(replace=True) == Cloned(2, 12, 3, 0, 0, 0, 0), "nothing is new"
    [_, newest, first] = open_snapshot(target).history()
    assert (newest.operation, first.operation) == ("CLONE", "CLONE")
    assert newest.operation_parameters["sourceVersion"] == "2"
    assert contents(open_snapshot(target, version=0)) == {"stays", "goes", "changes"}


def test_a_clone_is_a_table_of_its_own(tmp_path: Path) -> None:
    configuration = {"owner": "me", "delta.appendOnly": "true"}
    source = new_table(tmp_path / "source", configuration=configuration, partition_by=("p",), name="sales")
    put(source, "p=1/x")
    commit(source, add=("p=1/x",))
    target = TableRef(tmp_path / "target").context()

    Cloner(source, target)(properties={"delta.appendOnly": "false", "delta.enableChangeDataFeed": "true"})

    snapshot = open_snapshot(target)
    assert snapshot.metadata.id != open_snapshot(source).metadata.id
    assert snapshot.partition_columns == ["p"]
    assert snapshot.properties == {"owner": "me", "delta.appendOnly": "false", "delta.enableChangeDataFeed": "true"}
    assert snapshot.protocol.min_writer_version == 4
    put(target, "p=1/y")
    commit(target, add=("p=1/y",))
    assert len(live(open_snapshot(source))) == 1


def test_row_tracking_gives_ids_of_the_clones_own(tmp_path: Path) -> None:
    from support.commands import set_properties

    source = new_table(tmp_path / "source")
    put(source, "a", "b")
    commit(source, add=("a",))
    commit(source, add=("b",))
    set_properties(hw.open_log(tmp_path / "source"), {"delta.enableRowTracking": "true"})
    target = TableRef(tmp_path / "target").context()

    Cloner(source, target)()

    before, after = open_snapshot(source), open_snapshot(target)
    name = "delta.rowTracking.materializedRowIdColumnName"
    assert before.properties[name] != after.properties[name]
    rows = after.files(columns=["baseRowId", "defaultRowCommitVersion"]).to_pylist()
    assert sorted(row["baseRowId"] for row in rows) == [0, 10]
    assert {row["defaultRowCommitVersion"] for row in rows} == {0}


def test_what_cannot_be_cloned_is_said_so_and_leaves_no_table(tmp_path: Path) -> None:
    source = new_table(tmp_path / "source")
    put(source, "a", size_bytes=3)
    commit(source, add=("a",))
    target = TableRef(tmp_path / "target").context()
    cloner = Cloner(source, target)

    with pytest.raises(StorageError, match="has 3 bytes, and the log says 4"):
        cloner()
    (tmp_path / "source" / "a").unlink()
    with pytest.raises(StorageError, match="Has VACUUM deleted it"):
        cloner()
    assert not (tmp_path / "target" / "_delta_log").exists()
    with pytest.raises(InvalidCommitError, match="onto itself"):
        Cloner(source, source)()
    with pytest.raises(InvalidTablePropertyError):
        cloner(deep=False, properties={"delta.noSuchThing": "1"})
    cloner(deep=False)
    with pytest.raises(TableAlreadyExistsError, match="replace=True"):
        cloner(deep=False)


def test_a_clone_takes_the_place_of_any_table(tmp_path: Path) -> None:
    source = new_table(tmp_path / "source", partition_by=("p",))
    put(source, "p=1/new.parquet")
    commit(source, add=("p=1/new.parquet",))
    target = new_table(tmp_path / "target", configuration={"owner": "them"})
    put(target, "old")
    commit(target, add=("old",))
    identity = open_snapshot(target).metadata.id

    Cloner(source, target)(replace=True)

    snapshot = open_snapshot(target)
    assert (snapshot.version, snapshot.metadata.id) == (2, identity)
    [path] = live(snapshot)
    assert path.startswith("p=1/part-")
    assert path.endswith(".parquet")
    assert (snapshot.partition_columns, snapshot.properties) == (["p"], {})


@pytest.mark.parametrize("way", ["disk to store", "store to disk", "store to store"])
def test_files_are_copied_between_stores(way: str, s3: Endpoint, tmp_path: Path) -> None:
    places = {"disk": (str(tmp_path / "d"), None), "store": (f"{s3.root}/{tmp_path.name}", s3.options)}
    (from_uri, from_options), (to_uri, to_options) = (places[name] for name in way.split(" to "))
    source = new_table(f"{from_uri}/source", storage_options=from_options)
    put(source, "a b", "c%20d")
    commit(source, add=("a%20b", "c%2520d"))
    target = TableRef(f"{to_uri}/target", to_options).context()

    Cloner(source, target, from_options)()

    assert len(keys(target)) == 2
    assert {target.store.get(key) for key in keys(target)} == {b"xxxx"}


# --- what is in the target stays what it was ----------------------------------------------------------


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("path", ["f.parquet", "./f.parquet", "p=1/f.parquet", "%66.parquet"])
def test_a_deep_clone_never_takes_the_place_of_a_file_of_the_target(tmp_path: Path, path: str, is_live: bool) -> None:
    source = new_table(tmp_path / "source")
    source.store.put(unquote(path).removeprefix("./"), b"new!")
    commit(source, add=(file(path, partition_values={}),))
    target = new_table(tmp_path / "target")
    target.store.put(unquote(path).removeprefix("./"), b"old!")
    version = commit(target, add=(file(path, partition_values={}),))
    if not is_live:
        commit(target, remove=(path,))

    Cloner(source, target)(replace=True)

    assert contents(open_snapshot(target)) == {"new!"}
    assert contents(open_snapshot(target, version=version)) == {"old!"}
    restore(target, version=version)
    assert contents(open_snapshot(target)) == {"old!"}


def test_vectors_of_the_target_stay_what_they_were(tmp_path: Path) -> None:
    same = vector(z85_encode(bytes(16)))
    tables = [new_table(tmp_path / n, protocol=VECTORS, configuration=WITH_VECTORS) for n in ("source", "target")]
    for ctx, content in zip(tables, (b"new!", b"old!"), strict=True):
        ctx.store.put("f", content)
        ctx.store.put(vector_path(same), content)
        commit(ctx, add=(file("f", deletion_vector=same),))
    source, target = tables

    Cloner(source, target)(replace=True)

    [moved] = live(open_snapshot(target)).values()
    key = vector_path(vector(moved["pathOrInlineDv"]))
    assert (target.store.get(key), target.store.get(vector_path(same))) == (b"new!", b"old!")


def test_a_source_that_was_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    target = TableRef(tmp_path / "target").context()
    for number, content in enumerate([b"one!", b"two!"]):
        shutil.rmtree(tmp_path / "source", ignore_errors=True)
        source = new_table(tmp_path / "source")
        source.store.put("f", content)
        commit(source, add=(file("f", modification_time=number),))
        Cloner(source, target)(replace=True)
        assert contents(open_snapshot(target)) == {content.decode()}

    assert contents(open_snapshot(target, version=0)) == {"one!"}


def test_a_clone_that_was_interrupted_has_changed_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    source = new_table(tmp_path / "source")
    fill(source, "a", "b")
    commit(source, add=("a", "b"))
    target = new_table(tmp_path / "target")
    fill(target, "a", "old")
    commit(target, add=("a", "old"))
    cloner = Cloner(source, target)

    def interrupted(copies: list[Copy]) -> None:
        copy_here(Sources(TableRef(source.uri, None)), target.store, copies[:1])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone(open_snapshot(source), target, is_shallow=False, replace=True, copy=interrupted)
    assert contents(open_snapshot(target)) == {"a", "old"}
    cloner(replace=True)
    assert contents(open_snapshot(target)) == {"a", "b"}
    assert contents(open_snapshot(target, version=1)) == {"a", "old"}


def test_a_deep_clone_over_a_shallow_one_has_files_of_its_own(tmp_path: Path) -> None:
    source = new_table(tmp_path / "source")
    fill(source, "a")
    commit(source, add=("a",))
    first = TableRef(tmp_path / "first").context()
    Cloner(source, first)()
    target = TableRef(tmp_path / "target").context()
    Cloner(first, target)(deep=False)

    Cloner(source, target)(replace=True)

    assert contents(open_snapshot(target)) == {"a"}
    assert len(keys(target)) == 1


def test_a_table_is_not_cloned_onto_itself_by_another_name(tmp_path: Path) -> None:
    source = new_table(tmp_path / "source")
    (tmp_path / "link").symlink_to(tmp_path / "source")

    with pytest.raises(InvalidCommitError, match="onto itself"):
        Cloner(source, TableRef(tmp_path / "link").context())(replace=True)


def test_paths_from_the_root_of_a_store_stay_on_that_store(tmp_path: Path) -> None:
    from headwater.commands.clone import absolute_uri

    assert absolute_uri("/data/f", "s3a://b/t", "gs://c/u") == "s3a://b/data/f"
    assert absolute_uri("/f", "abfss://c@a.dfs.core.windows.net/t", "s3://b/u") == "abfss://c@a.dfs.core.windows.net/f"
    assert absolute_uri("/data/f", "file:///t", "s3://b/u") == "file:///data/f"
    assert absolute_uri("a b/f", "file:///t", "file:///u") == "file:///t/a b/f"
