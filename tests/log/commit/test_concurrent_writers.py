"""Processes that commit to one table at once, and processes that are killed while they do."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.log.opening import open_snapshot
from headwater.storage import open_store
from headwater.storage.durable import RESERVED_PREFIX
from support.jobs import commit_process
from support.jobs.commit_process import SHARED, context
from support.log.commit_tables import create, writer
from support.stores.storage_servers import Endpoint, moto_server

WRITERS = 8
KILLS = 50


def started(place: Endpoint, name: str, **order: Any) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, commit_process.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(next(iter(headwater.__path__))).parent)},
    )
    assert process.stdin is not None
    settings = {"root": place.root, "options": place.options, "name": name, "first": 0, **order}
    process.stdin.write(json.dumps(settings) + "\n")
    process.stdin.flush()
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()


def transactions(place: Endpoint) -> list[str]:
    """The transaction ids in the log, by version; the versions must be contiguous."""
    store = open_store(place.root, place.options)
    ids = []
    for meta in store.list_from("_delta_log/"):
        name = meta.key.removeprefix("_delta_log/")
        if name.endswith(".json") and name.count(".") == 1:
            assert name == f"{len(ids):020d}.json"
            ids.append(json.loads(store.get(meta.key).split(b"\n")[0])["commitInfo"]["txnId"])
    return ids


def contend(place: Endpoint, commits: int) -> None:
    create(writer(open_store(place.root, place.options), clock_ms=lambda: int(time.time() * 1000)))
    processes = [started(place, f"w{n}", commits=commits, count_every=5) for n in range(WRITERS)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [json.loads(line) for process in processes for line in process.communicate()[0].splitlines()]
    assert {process.returncode for process in processes} == {0}
    assert len(said) == WRITERS * commits

    acknowledged = [s for s in said if "version" in s]
    conflicts = Counter(s["conflict"] for s in said if "conflict" in s)
    ids = transactions(place)
    assert sorted(s["version"] for s in acknowledged) == list(range(1, len(ids)))
    assert all(ids[s["version"]] == s["id"] for s in acknowledged)
    assert len(set(ids)) == len(ids)

    after = open_snapshot(context(open_store(place.root, place.options)))
    counted = sum(s["counts"] for s in acknowledged)
    assert after.version == len(acknowledged)
    assert after.num_files == len(acknowledged) - counted + 1
    [shared] = after.files(f"part = '{SHARED}'").to_pylist()
    assert json.loads(shared["stats"])["maxValues"]["id"] == counted
    assert sum(conflicts.values()) == WRITERS * commits - len(acknowledged)
    assert set(conflicts) <= {
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
    }
    assert after.verify() == []


@pytest.mark.slow
def test_eight_processes_commit_to_one_table_on_a_disk(tmp_path: Path) -> None:
    contend(Endpoint(str(tmp_path / "table"), {}), commits=50)


@pytest.mark.slow
def test_eight_processes_commit_to_one_table_on_s3() -> None:
    with moto_server() as server:
        contend(Endpoint(f"{server.root}/contended-{os.getpid()}", server.options), commits=50)


@pytest.mark.slow
def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    place = Endpoint(str(tmp_path / "table"), {})
    create(writer(open_store(place.root), clock_ms=lambda: int(time.time() * 1000)))
    chance = random.Random(7)
    acknowledged: list[dict[str, Any]] = []
    waiting = [started(place, f"w{number}", commits=None, count_every=0) for number in range(2)]
    for number in range(KILLS):
        process = waiting.pop(0)
        go(process)
        assert process.stdout is not None
        first = process.stdout.readline() if number == 0 else ""  # one of them must have committed
        # Any moment has to be safe, so it does not matter which one this is.
        time.sleep(chance.random() * 0.08)
        process.kill()
        said, _ = process.communicate()
        acknowledged += [json.loads(line) for line in (first + said).splitlines() if line.endswith("}")]
        if number + 2 < KILLS:
            waiting.append(started(place, f"w{number + 2}", commits=None, count_every=0))

        after = open_snapshot(context(open_store(place.root)))
        ids = transactions(place)
        assert after.version == len(ids) - 1
        assert all(ids[s["version"]] == s["id"] for s in acknowledged)
        assert after.verify() == []
    paths = {path.rpartition("/")[2] for path in after.files(columns=["path"])["path"].to_pylist()}
    assert {f"{s['path']}.parquet" for s in acknowledged} <= paths
    assert len(paths) == after.version, "every commit added one file, none is there twice"
    assert acknowledged
    assert not any(RESERVED_PREFIX in meta.key for meta in open_store(place.root).list_from("_delta_log/"))


@pytest.fixture(autouse=True)
def no_cloud_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
