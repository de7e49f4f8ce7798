"""A file has one identity, however a log spells its path: VACUUM never takes a live one, and still takes dead ones."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.commands.table_keys import keys_below
from headwater.errors import MissingFilesError
from headwater.features.context import TableRef
from headwater.log.actions.deletion_vectors import vector_path, z85_encode
from headwater.log.actions.model import DeletionVector, Protocol, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.indextables.actions import SplitAdd, SplitRemove
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructType
from headwater.search.table_log import create_search_log, search_log
from headwater.storage.base import ForwardingStore
from support.commands import restore, vacuum
from support.tables.local_tables import SCHEMA, commit, file, keys, later, new_table, put, vector

VECTORS = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
WITH_VECTORS = {"delta.enableDeletionVectors": "true"}


class Named(ForwardingStore):
    """A store that calls its root by another name."""

    def __init__(self, inner: Any, uri: str) -> None:
        super().__init__(inner)
        self._name = uri

    @property
    def uri(self) -> str:
        return self._name


def deleted(ctx: LogContext, mode: str = "FULL", **named: Any) -> set[str]:
    """What VACUUM with no retention at all deletes, long after everything was written."""
    before = keys(ctx)
    vacuum(later(ctx), mode=mode, retention_hours=0, enforce_retention=False, in_history=False, **named)
    return before - keys(ctx)


# --- spellings of a path in the log -------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["FULL", "LITE"])
@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("./f", "f"),
        ("d//f", "d/f"),
        ("d/../f", "f"),
        ("d/./e/..//f", "d/f"),
        ("%66", "f"),
        ("d%2Ff", "d/f"),
        ("d%2ff", "d/f"),
        ("%2E/d%2F%2e%2E/f", "f"),
        ("a b#c", "a b#c"),
        ("../t/f", "f"),
        ("{root}/./d//f", "d/f"),
        ("{root}/../t/f", "f"),
        ("file:{root}/f", "f"),
        ("file://{root}//f", "f"),
        ("file://localhost{root}/f", "f"),
        ("FILE:///{root}/f", "f"),
        ("f/", "f"),
        ("a%20b", "a%20b"),  # a writer that did not escape
        ("a%2520b", "a b"),  # and one that did it twice
    ],
)
def test_a_live_file_stays_however_its_path_is_spelled(tmp_path: Path, path: str, key: str, mode: str) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, key, "dead")
    commit(ctx, add=("dead",))
    commit(ctx, add=(path.format(root=tmp_path / "t"),), remove=("dead",))
    # Another spelling of the same file was removed, as two writers do it who do not spell alike.
    other = key.replace("%", "%25")
    commit(ctx, remove=(Remove(other if "{root}" in path else f"{ctx.uri}/{other}", size=4),))

    assert deleted(ctx, mode) == {"dead"}


def test_a_file_removed_under_another_spelling_is_gone_for_readers_and_for_vacuum(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "d/f", "g")
    commit(ctx, add=("./d//f", "g"))
    commit(ctx, remove=(Remove("d/x/../f", size=4),))

    assert open_snapshot(ctx).files().column("path").to_pylist() == ["g"]
    assert deleted(ctx, "LITE") == {"d/f"}


ACCOUNT = "lake.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("s3://b/tables/t", "s3a://b/tables/t/d/f"),
        ("s3a://b/tables/t", "s3n://b/tables//t/./d/f"),
        ("s3://b/tables/t", "S3://B/tables/t/d/f"),
        ("s3://b/tables/t", "/tables/t/d/f"),
        ("s3://b/tables/t", "https://b.s3.eu-west-1.amazonaws.com/tables/t/d/f"),
        ("s3://b/tables/t", "https://s3.eu-west-1.amazonaws.com/b/tables/t/d/f"),
        ("s3://b/tables/t", "s3://an-access-point-s3alias/tables/t/d/f"),
        ("s3://b/tables/t", "file:/mnt/b/tables/t/d/f"),
        ("gs://b/t", "gs://b/t/d/f"),
        ("gs://b/t", "https://storage.googleapis.com/b/t/d%2Ff"),
        ("az://c/t", f"abfss://c@{ACCOUNT}/t/d/f"),
        (f"abfss://c@{ACCOUNT}/t", "az://c/t/d/f"),
        (f"abfss://c@{ACCOUNT}/t", f"abfs://c@{ACCOUNT}/t/d/f"),
        (f"abfss://c@{ACCOUNT}/t", "wasbs://c@lake.blob.core.windows.net/t/d/f"),
        (f"abfss://c@{ACCOUNT}/t", f"ABFSS://c@{ACCOUNT.upper()}/t/d/f"),
        (f"abfss://c@{ACCOUNT}/t", "https://lake.blob.core.windows.net/c/t/d/f"),
        ("az://c/t", "https://lake.dfs.core.windows.net/c/t/d/f"),
    ],
)
def test_a_root_on_an_object_store_has_many_spellings(tmp_path: Path, root: str, path: str) -> None:
    plain = new_table(tmp_path / "t")
    put(plain, "d/f", "d/dead", "dead")
    commit(plain, add=(path, "kept"))
    ctx = replace(plain, store=Named(plain.store, root))

    assert deleted(ctx) == {"d/dead", "dead"}


def test_files_that_are_certainly_elsewhere_keep_nothing_here(tmp_path: Path) -> None:
    plain = new_table(tmp_path / "t")
    put(plain, "f")
    commit(plain, add=("s3a://b/other/f",))
    ctx = replace(plain, store=Named(plain.store, "s3://b/t"))
    assert deleted(ctx) == {"f"}

    source = new_table(tmp_path / "source")
    clone = new_table(tmp_path / "clone")
    for one in (source, clone):
        put(one, "f")
    commit(clone, add=(f"{source.uri}/f",))
    assert deleted(clone) == {"f"}


def test_a_root_that_was_mounted_elsewhere_is_known_by_the_ends_of_its_paths(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "d/f", "dead", "d/g")
    commit(ctx, add=("/no/such/mount/t/d/f", "dbfs:/mnt/t/d/g"))

    assert deleted(ctx) == {"dead"}


# --- other names on a disk ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["FULL", "LITE"])
def test_links_are_seen_through(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "t"
    ctx = new_table(root)
    names = ["real/f", "g", "h", "i", "dead", "real/dead"]
    put(ctx, *names)
    (root / "link").symlink_to("real")
    (root / "g2").symlink_to("g")
    (root / "g1").symlink_to("g2")
    (tmp_path / "alias").symlink_to(root)
    (tmp_path / "far").symlink_to(root / "i")
    commit(ctx, add=tuple(names))
    commit(ctx, remove=tuple(names))
    commit(ctx, add=("link/f", "g1", f"{tmp_path}/alias/h", f"file:{tmp_path}/far"))

    assert deleted(ctx, mode) == {"dead", "real/dead"}
    assert (root / "g1").read_bytes() == b"xxxx"


def test_a_table_opened_by_a_link_keeps_what_its_log_names_by_the_other_name(tmp_path: Path) -> None:
    real = new_table(tmp_path / "real")
    put(real, "d/f", "dead")
    commit(real, add=(f"{real.uri}/d/f",))
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert deleted(TableRef(tmp_path / "link").context()) == {"dead"}


def test_names_that_differ_in_case_or_form_are_kept_where_the_live_one_is_not_there(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, "Part-A", "café", "two", "TWO", "dead")
    commit(ctx, add=("PART-a", "cafe%CC%81", "two"))

    # A disk that tells them apart has no such live file: it is not there, and nobody can say whether it is this one.
    assert deleted(ctx) == {"TWO", "dead"}


def test_restore_looks_behind_links_too(tmp_path: Path) -> None:
    ctx = new_table(tmp_path / "t")
    put(ctx, *(f"real/{n}" for n in range(1_100)))
    (tmp_path / "t" / "link").symlink_to("real")
    commit(ctx, add=tuple(f"./link//{n}" for n in range(1_100)))
    commit(ctx, remove=tuple(f"link/{n}" for n in range(1_100)))

    restore(ctx, version=1)

    assert open_snapshot(ctx).num_files == 1_100
    (tmp_path / "t" / "real" / "7").unlink()
    commit(ctx, remove=tuple(f"link/{n}" for n in range(1_100)))
    with pytest.raises(MissingFilesError, match="link/7"):
        restore(ctx, version=1)


# --- vectors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["FULL", "LITE"])
def test_files_of_vectors_stay_however_they_are_spelled(tmp_path: Path, mode: str) -> None:
    ctx = new_table(tmp_path / "t", protocol=VECTORS, configuration=WITH_VECTORS)
    plain = vector("ab" + z85_encode(bytes(16)))
    odd = vector("./ab/" + z85_encode(bytes(16)))
    absolute = vector(f"file:{tmp_path}/t//x/../far%2Ebin", "p")
    put(ctx, "a", "b", "c", vector_path(plain), "far.bin")
    commit(ctx, add=(file("a", deletion_vector=plain), file("b", deletion_vector=vector(f"{ctx.uri}/far.bin", "p"))))
    removed = [Remove("a", size=4, deletion_vector=plain)]
    removed.append(Remove("b", size=4, deletion_vector=vector(f"{ctx.uri}/far.bin", "p")))
    commit(ctx, add=(file("c", deletion_vector=odd), file("d", deletion_vector=absolute)), remove=tuple(removed))

    assert deleted(ctx, mode) == {"a", "b"}


# --- anything goes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spelt:
    """A file on the disk and how the log names it."""

    key: str
    path: str
    is_live: bool
    alias: str | None = None
    """Another spelling, under which it was removed though it is live."""
    vector: DeletionVector | None = None


_NAMES = st.text("ab%é .=+", min_size=1, max_size=4).filter(lambda n: n.strip(".") and n[0] not in "_. ")
_STARTS = (
    *("", "", "./", "zz/../", "../t/", "{root}/", "file:{root}/", "file://{root}//", "file://localhost{root}/"),
    *("{link}/", "file:{link}/./", "/no/such/mount/", "s3://elsewhere/t/"),
)
_DIRECTORIES = st.lists(st.sampled_from(["d", "e f", "p=1", "Ü"]), max_size=2)


@st.composite
def spellings(draw: st.DrawFn, key: str) -> str:
    """One of the many URIs of a key; `{root}` and `{link}` stand for the table's location."""
    parts = key.split("/")
    spelt: list[str] = []
    for part in parts:
        spelt += draw(st.sampled_from([[], [], ["."], [""], ["zz", ".."], ["%2e"], ["zz", "%2E%2E"]])) if spelt else []
        encoded = "".join(
            "".join(f"%{byte:02X}" if draw(st.booleans()) else f"%{byte:02x}" for byte in c.encode())
            if c == "%" or draw(st.integers(0, 3)) == 0
            else c
            for c in part
        )
        spelt.append(encoded)
    relative = draw(st.sampled_from(["/", "/", "%2F", "//"])).join(spelt)
    return draw(st.sampled_from(_STARTS)) + relative


@st.composite
def tables(draw: st.DrawFn) -> list[Spelt]:
    directories = draw(st.lists(_DIRECTORIES, min_size=1, max_size=3))
    names = draw(st.lists(_NAMES, min_size=1, max_size=5, unique_by=lambda n: n.lower()))
    found = []
    for number, name in enumerate(names):
        key = "/".join([*directories[number % len(directories)], f"{number}{name}"])
        is_live = draw(st.booleans())
        path = draw(spellings(key)) if is_live else key.replace("%", "%25")
        other = key.replace("%", "%25")
        alias = draw(st.none() | st.just(other if "{root}" in path else f"{{root}}/{other}")) if is_live else None
        descriptor = None
        if draw(st.booleans()):
            text = draw(spellings(f"v{number}.bin")) if is_live else f"{{root}}/v{number}.bin"
            absolute = text if text.startswith(("{", "file:", "/no", "s3:")) else f"{{root}}/{text}"
            descriptor = vector(absolute, "p")
        found.append(Spelt(key, path, is_live, alias, descriptor))
    return found


@contextmanager
def built(files: list[Spelt]) -> Iterator[LogContext]:
    directory = tempfile.mkdtemp(prefix="identity-")
    try:
        root, link = f"{directory}/t", f"{directory}/link"
        ctx = new_table(root, protocol=VECTORS, configuration=WITH_VECTORS)
        os.symlink(root, link)
        names = {"root": root, "link": link}

        def named(path: str) -> str:
            return path.replace("{root}", names["root"]).replace("{link}", names["link"])

        def with_vector(spelt: Spelt) -> DeletionVector | None:
            v = spelt.vector
            return None if v is None else vector(named(v.path_or_inline_dv), "p")

        for number, spelt in enumerate(files):
            put(ctx, spelt.key, *([f"v{number}.bin"] if spelt.vector else []))
        dead = [spelt for spelt in files if not spelt.is_live]
        live = [spelt for spelt in files if spelt.is_live]
        commit(ctx, add=tuple(file(named(s.path), partition_values={}, deletion_vector=with_vector(s)) for s in dead))
        commit(ctx, add=tuple(file(named(s.path), partition_values={}, deletion_vector=with_vector(s)) for s in live))
        removes = [Remove(named(s.path), size=4, deletion_vector=with_vector(s)) for s in dead]
        removes += [Remove(named(s.alias), size=4) for s in live if s.alias]
        commit(ctx, remove=tuple(removes))
        yield ctx
    finally:
        shutil.rmtree(directory)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.sampled_from(["FULL", "LITE", "inventory", "dry run"]))
def test_no_spelling_costs_a_live_file_and_dead_ones_go(files: list[Spelt], way: str) -> None:
    with built(files) as ctx:
        live = {name for n, s in enumerate(files) if s.is_live for name in (s.key, *([f"v{n}.bin"] * bool(s.vector)))}
        dead = {name for n, s in enumerate(files) for name in (s.key, *([f"v{n}.bin"] * bool(s.vector)))} - live
        mode = "LITE" if way == "LITE" else "FULL"
        if way == "inventory":
            there = ctx.store.list_from("", recursive=True)
            root = ctx.uri.removeprefix("file://")
            inventory = pa.table(
                {
                    "path": [f"{root}/{meta.key}" for meta in there],
                    "length": [meta.size_bytes for meta in there],
                    "isDir": [False] * len(there),
                    "modificationTime": [meta.modified_ms for meta in there],
                }
            )
            assert deleted(ctx, inventory=inventory) == dead
        elif way == "dry run":
            found = vacuum(later(ctx), retention_hours=0, enforce_retention=False, dry_run=True)
            assert {k.decode() for k in found.plan.objects.column("key").to_pylist()} == dead
        else:
            assert deleted(ctx, mode) == dead
        assert live <= keys(ctx)


def test_many_paths_are_a_matter_of_columns() -> None:
    paths = pa.chunked_array([pa.array([f"file:///data/t/./p={n % 10}//part-{n}.parquet" for n in range(50_000)])])

    found = keys_below(paths, "file:///data/t")

    assert found[0].as_py() == b"p=0/part-0.parquet"
    assert found.null_count == 0


# --- splits of a search table -------------------------------------------------------------------------


def purged(ctx: LogContext) -> set[str]:
    """What a purge with no retention deletes, long after everything was written."""
    from headwater.spark.search.upkeep import CHECK_OPTION, purge

    spark = SimpleNamespace(conf={CHECK_OPTION: "false"})
    table: Any = SimpleNamespace(spark=spark, snapshot=open_snapshot(later(ctx)))
    return set(purge(table, 0, dry_run=False).paths)


def search_table(root: Path, live: list[str], removed: tuple[str, ...] = ()) -> LogContext:
    create_search_log(root, StructType.from_json(SCHEMA))
    ctx = search_log(root)
    for add, remove in (([*live, *removed], ()), ((), removed)):
        transaction = Transaction(ctx, open_snapshot(ctx))
        transaction.add(SplitAdd(path, 4, modification_time=0, num_records=1) for path in add)
        transaction.remove(SplitRemove(path, deletion_timestamp=1, partition_values={}, size=4) for path in remove)
        transaction.commit(Operation("WRITE"))
    return ctx


def test_a_purge_keeps_live_splits_however_they_are_spelled(tmp_path: Path) -> None:
    root = tmp_path / "t"
    (tmp_path / "alias").symlink_to(root)
    names = ["a.split", "d/b.split", "c c.split", "d.split", "e.split", "f.split", "g.split", "real/h.split"]
    ctx = search_table(
        root,
        live=[
            *("./a.split", "d//b.split", f"file:{root}/x/../c%20c.split", f"file://localhost{root}/d.split"),
            *(f"{tmp_path}/alias/e.split", "../t/f.split", "/no/such/mount/g.split", "link/h.split"),
        ],
        removed=("gone.split",),
    )
    put(ctx, *names, "gone.split", "never.split", "d/other.txt")
    (root / "link").symlink_to("real")

    assert purged(ctx) == {"gone.split", "never.split"}


def test_a_purge_leaves_other_tables_alone(tmp_path: Path) -> None:
    root = tmp_path / "t"
    ctx = search_table(root, live=["a.split"])
    inner = search_table(root / "p=1" / "inner", live=["b.split"])
    put(inner, "b.split", "old.split")
    put(ctx, "a.split", "dead.split", "delta.split")
    delta = new_table(root)
    commit(delta, add=("./delta.split",))

    assert purged(ctx) == {"dead.split"}
