"""Logs with checkpoints of every kind, as other readers see them: deltalake and DuckDB find the same files.

The two share their log replay (delta-kernel-rs), so they are one vote; the naive model is the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import headwater as hw
from support.log.log_tables import (
    add,
    commit_key,
    features,
    metadata,
    put_classic,
    put_commit,
    put_compacted,
    put_hint,
    put_multipart,
    put_v2,
    remove,
)
from support.oracles.log_model import Action, replay
from support.stores.log_store import DictStore

Put = Callable[[DictStore, int, list[Action]], object]
KINDS: dict[str, Put] = {
    "no checkpoint": lambda *_: None,
    "classic": put_classic,
    "row groups": lambda s, v, a: put_classic(s, v, a, row_group_size=2),
    "multi-part": lambda s, v, a: put_multipart(s, v, a, 2),
    "V2": lambda s, v, a: put_v2(s, v, a),
    "V2, sidecars": lambda s, v, a: put_v2(s, v, a, sidecars=2),
    "V2 JSON": lambda s, v, a: put_v2(s, v, a, json_format=True),
    "V2 JSON, sidecars": lambda s, v, a: put_v2(s, v, a, json_format=True, sidecars=2),
    "V2, classic name": lambda s, v, a: put_v2(s, v, a, classic_name=True, sidecars=1),
    "compacted": lambda s, v, a: put_compacted(s, 0, v, *a),
}


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    yield connection
    connection.close()


def history(root: Path) -> list[list[Action]]:
    """Commits that add, remove, replace and bring back files; file `n` holds the one row `n`."""
    names = ["plain", "with space", "ümlaut", "100%", "a+b&c", "p=1/nested"]
    files = []
    for number, name in enumerate(names):
        path = root / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [number], "part": ["x"]}), path)
        encoded = name.replace("%", "%25").replace(" ", "%20")
        files.append(lambda e=encoded, p=path, **fields: add(f"{e}.parquet", p.stat().st_size, **fields))
    removed = [remove(file()["add"]["path"]) for file in files]
    return [
        [features("v2Checkpoint"), metadata(), files[0](), files[1]()],
        [files[2](), removed[0]],
        [files[3](), files[4](), removed[1]],
        [files[0](), removed[3], files[5]()],
        [removed[2], files[1](), files[4](dataChange=False, tags={"again": "yes"})],
    ]


@pytest.mark.parametrize("cleaned_up", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_all_readers_see_the_same_files(
    kind: str, cleaned_up: bool, tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    commits = history(tmp_path)
    store = DictStore()
    for version, actions in enumerate(commits):
        put_commit(store, version, *actions)
    KINDS[kind](store, 2, replay(commits[:3]).actions())
    if kind not in ("no checkpoint", "compacted"):
        put_hint(store, 2, **({"parts": 2} if kind == "multi-part" else {}))
        if cleaned_up:
            store.delete_many([commit_key(0), commit_key(1), commit_key(2)])
    for key, data in store.objects.items():
        target = tmp_path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    for version in (2, 3, 4):
        ours = hw.open_log(tmp_path, version=version).files()
        expected = replay(commits[: version + 1]).adds
        assert sorted(ours.column("path").to_pylist()) == sorted(a["path"] for a in expected)
        theirs = DeltaTable(tmp_path, version=version)
        assert len(theirs.file_uris()) == ours.num_rows
        assert sum(pa.table(theirs.get_add_actions()).column("size_bytes").to_pylist()) == sum(
            ours.column("size").to_pylist()
        )
    rows = sorted(duck.execute(f"SELECT id FROM delta_scan('{tmp_path}')").fetchall())
    live = [pq.read_table(tmp_path / _file_name(a["path"])).column("id")[0].as_py() for a in expected]
    assert rows == sorted((n,) for n in live) == [(0,), (1,), (4,), (5,)]


def _file_name(path: str) -> str:
    return path.replace("%20", " ").replace("%25", "%")
