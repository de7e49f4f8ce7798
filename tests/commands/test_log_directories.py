"""Nothing but the log code writes or deletes in a log directory, and no table touches what belongs to another one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.commands.clone import Sources, copy_here
from headwater.errors import CorruptLogError, HeadwaterError, StorageError
from headwater.features.context import TableRef
from headwater.log.actions.model import Format, Metadata, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.indextables.actions import SplitAdd
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructType
from headwater.search.table_log import create_search_log, initialise, search_log
from headwater.storage import open_store
from headwater.storage.copying import copy_object, delete_data
from support.commands import clone, vacuum
from support.tables.local_tables import commit, file, keys, later, new_table, put

COMMIT = "_delta_log/00000000000000000000.json"
SCHEMA = StructType.from_json('{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}')


def vacuumed(ctx: LogContext, mode: str = "FULL", **named: Any) -> None:
    vacuum(later(ctx), mode=mode, retention_hours=0, enforce_retention=False, in_history=False, **named)


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


# --- a remove, or an add, that names a file of a log ----------------------------------------------------


HOSTILE = [
    COMMIT,
    COMMIT.upper(),
    COMMIT.replace("_", "%5F"),
    COMMIT.replace("/", "%2f"),
    f"./x/..//{COMMIT}",
    f"../t/{COMMIT}",
    f"{{root}}/{COMMIT}",
    f"file:{{root}}/x/../{COMMIT}",
    f"nested/{COMMIT}",
    "_transaction_log/00000000000000000000.json",
    f"link/{COMMIT.rpartition('/')[2]}",
    "../victim",
    "..%2Fvictim",
    "d/../../victim",
    "{outside}",
    "outward/victim",
    "_hidden/f",
    ".hidden",
]


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("mode", ["FULL", "LITE"])
def test_vacuum_deletes_nothing_of_a_log_nor_outside_the_table(tmp_path: Path, mode: str, path: str) -> None:
    root = tmp_path / "t"
    ctx = new_table(root)
    nested = new_table(root / "nested")
    put(ctx, "_transaction_log/00000000000000000000.json", "_hidden/f", ".hidden", "dead")
    put(nested, "f")
    commit(nested, add=("f",))
    (tmp_path / "victim").write_bytes(b"mine")
    (root / "link").symlink_to("_delta_log")
    (root / "outward").symlink_to(tmp_path)
    if os.path.exists(root / COMMIT.upper()):
        pytest.skip("this disk does not tell upper from lower case")
    put(ctx, COMMIT.upper())
    before = everything(tmp_path)
    path = path.format(root=root, outside=tmp_path / "victim")
    commit(ctx, add=("dead",))
    commit(ctx, remove=("dead", Remove(path, size=4)))

    try:
        vacuumed(ctx, mode)
    except CorruptLogError:
        # The forged search log cannot be read, so nobody can say what it needs. Nothing is deleted then.
        assert (root / "dead").exists()
        (root / "_transaction_log/00000000000000000000.json").unlink()
        before.discard("t/_transaction_log/00000000000000000000.json")
        vacuumed(ctx, mode)

    assert before - everything(tmp_path) == {"t/dead"}


def test_an_inventory_cannot_name_a_log_either(tmp_path: Path) -> None:
    root = tmp_path / "t"
    ctx = new_table(root)
    put(ctx, "dead", "d/young")
    (root / "link").symlink_to("_delta_log")
    (tmp_path / "victim").write_bytes(b"mine")
    rows = [COMMIT, f"link/{COMMIT.rpartition('/')[2]}", "x/../" + COMMIT, "d//young", "../victim", "dead"]
    inventory = pa.table(
        {
            "path": [f"{root}/{row}" for row in rows],
            "length": [1] * len(rows),
            "isDir": [False] * len(rows),
            "modificationTime": [1] * len(rows),
        }
    )
    before = everything(tmp_path)

    vacuumed(ctx, inventory=inventory)

    assert before - everything(tmp_path) == {"t/dead"}


@pytest.mark.parametrize("path", [COMMIT, "_DELTA_LOG/00000000000000000000.json", f"x/../{COMMIT}", "../victim"])
def test_a_deep_clone_writes_nothing_into_a_log_nor_outside_the_target(tmp_path: Path, path: str) -> None:
    source = new_table(tmp_path / "a" / "source")
    commit(source, add=(file(path, size_bytes=(tmp_path / "a" / "source" / COMMIT).stat().st_size),))
    target = new_table(tmp_path / "b" / "target")
    before = {name: (tmp_path / "b" / name).read_bytes() for name in everything(tmp_path / "b")}

    def copy(copies: list[Any]) -> None:
        copy_here(Sources(TableRef(source.uri, None)), target.store, copies)

    with suppress(HeadwaterError):  # a file that is not there, or cannot be read: said so, and nothing has happened
        clone(open_snapshot(source), target, is_shallow=False, replace=True, copy=copy)
    assert {name: (tmp_path / "b" / name).read_bytes() for name in before} == before
    new = everything(tmp_path / "b") - before.keys()
    assert all(name.startswith("target/") for name in new)
    assert len([name for name in new if "_delta_log" in name.lower()]) <= 2  # a commit and its checksum


@pytest.mark.parametrize(
    "key",
    [
        COMMIT,
        "_Delta_Log/x",
        "a/_delta_log/x",
        "a/_transaction_log/b/x",
        "link/x",
        "_delta_log",
        "../x",
        "a/../x",
        "/x",
    ],
)
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_the_one_place_for_data_files_refuses_logs(tmp_path: Path, key: str, kind: str) -> None:
    uri = str(tmp_path / "t") if kind == "disk" else f"memory://{tmp_path.name}/t"
    store = open_store(uri)
    store.put(COMMIT, b"{}")
    if kind == "disk":
        (tmp_path / "t" / "link").symlink_to("_delta_log")
    elif key == "link/x":
        pytest.skip("no links there")
    source = open_store(tmp_path / "source")
    source.put("x", b"x")

    with pytest.raises(StorageError):
        delete_data(store, ["good", key])
    with pytest.raises(StorageError):
        copy_object(source, "x", store, key)
    assert [meta.key for meta in store.list_from("", recursive=True)] == [COMMIT]


def test_only_the_log_code_calls_what_writes_and_deletes_anywhere() -> None:
    """Other rooms write and delete data files, by functions that look where they go."""
    import headwater

    room = Path(next(iter(headwater.__path__)))
    # How far VACUUM has come is a file of the log; manifests have a directory of their own; new data files are put
    # where `check_data_key` lets them.
    allowed = {"commands/vacuum_plan.py", "features/symlink_manifests.py", "parquet/write.py"}
    calls = (".delete_many(", "store.put(", ".put_if_absent(", ".copy_from(", "store.upload(", "store.delete(")
    found = {
        f"{path.relative_to(room)}: {call}"
        for path in room.rglob("*.py")
        if path.relative_to(room).parts[0] not in ("log", "storage") and str(path.relative_to(room)) not in allowed
        for call in calls
        if any(call in line and ">>>" not in line for line in path.read_text().splitlines())
    }

    assert found == set()


# --- tables in one another ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["FULL", "LITE", "inventory"])
def test_vacuum_leaves_tables_below_it_alone(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "t"
    outer = new_table(root, partition_by=("p",))
    inner = new_table(root / "a" / "inner")
    put(inner, "live", "p=1/old", "p=2/never")
    (root / "a/inner/empty").mkdir()
    commit(inner, add=("live",))
    create_search_log(root / "p=1" / "logs", SCHEMA)
    put(search_log(root / "p=1" / "logs"), "x.split")
    put(outer, "p=1/dead", "a/dead")
    named = ("p=1/dead", "a/dead", "a/inner/p=1/old", "p=1/logs/x.split")
    # The outer table's log may name the files of the inner one: by conversion, or by malice.
    commit(outer, add=tuple(file(path, partition_values={"p": "1"}) for path in named))
    commit(outer, remove=tuple(Remove(path, size=4) for path in named))
    before = everything(root)
    inventory = None
    if mode == "inventory":
        rows = sorted(name for name in before if "_delta_log" not in name and "_transaction_log" not in name)
        inventory = pa.table(
            {
                "path": [f"{root}/{row}" for row in rows],
                "length": [4] * len(rows),
                "isDir": [False] * len(rows),
                "modificationTime": [1] * len(rows),
            }
        )

    vacuumed(outer, "LITE" if mode == "LITE" else "FULL", inventory=inventory)

    assert before - everything(root) == {"p=1/dead", "a/dead"}
    assert (root / "a/inner/empty").is_dir()


def test_a_delta_table_and_a_search_table_in_one_place_keep_what_is_theirs(tmp_path: Path) -> None:
    root = tmp_path / "t"
    delta = new_table(root)
    # As it was done before the two were kept apart.
    initialise(search_log(root), Metadata("logs", SCHEMA.to_json(), Format("indextables", {}), created_time=1))
    put(delta, "live.split", "dead.split", "f", "dead")
    search = search_log(root)
    transaction = Transaction(search, open_snapshot(search))
    transaction.add([SplitAdd(f"{delta.uri}/./live.split", 4, modification_time=0, num_records=1)])
    transaction.commit(Operation("WRITE"))
    commit(delta, add=("f",))

    vacuumed(delta)

    left = {key for key in keys(delta) if not key.startswith("_")}
    assert left == {"live.split", "f"}


def test_vacuum_refuses_when_the_other_log_cannot_be_read(tmp_path: Path) -> None:
    delta = new_table(tmp_path / "t")
    put(delta, "dead", "_transaction_log/00000000000000000000.json")

    with pytest.raises(HeadwaterError):
        vacuumed(delta)

    assert "dead" in keys(delta)
