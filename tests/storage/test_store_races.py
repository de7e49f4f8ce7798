"""Many writers, one winner; and writers that are killed in the middle of a write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater
from headwater.storage import LocalStore, open_store
from headwater.storage.durable import RESERVED_PREFIX
from support.jobs import writer_process

if TYPE_CHECKING:
    from support.stores.storage_servers import Endpoint

WRITERS = 8
KEYS = [f"_delta_log/{version:020}.json" for version in range(6)]


def start_writer(order: dict[str, object]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, writer_process.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(next(iter(headwater.__path__))).parent)},
    )
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    return process


def assert_one_winner_each(place: Endpoint, won: dict[str, list[str]]) -> None:
    """Every key was won once, and holds what its winner wrote."""
    assert sorted(key for keys in won.values() for key in keys) == KEYS
    store = open_store(place.root, place.options)
    for name, keys in won.items():
        assert store.get_many(keys) == [name.encode()] * len(keys)


def test_eight_threads_have_one_winner(place: Endpoint) -> None:
    start = threading.Barrier(WRITERS)

    def run(name: str) -> list[str]:
        store = open_store(place.root, place.options)
        start.wait()
        return writer_process.race(store, KEYS, name)

    names = [f"writer {number}" for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        won = dict(zip(names, pool.map(run, names), strict=True))

    assert_one_winner_each(place, won)


@pytest.mark.parametrize("kind", ["local", "s3", "azure"])  # a memory store lives in one process
def test_eight_processes_have_one_winner(place: Endpoint) -> None:
    names = [f"writer {number}" for number in range(WRITERS)]
    order = {"do": "race", "root": place.root, "options": place.options, "keys": KEYS}
    writers = [start_writer({**order, "name": name}) for name in names]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"

    outputs = []
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        outputs.append(json.loads(writer.communicate()[0]))
        assert writer.returncode == 0

    assert_one_winner_each(place, dict(zip(names, outputs, strict=True)))


def test_killed_writer_leaves_no_half_written_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for round_number in range(14):
        written = store.list_from("new/")
        order = {"do": "write", "root": str(tmp_path), "options": {}, "first": len(written)}
        with start_writer(order) as writer:
            assert writer.stdout.readline() == "ready\n"
            writer.stdin.write("go\n")
            writer.stdin.flush()
            # Another moment each time; none of them matters, because every moment has to be safe.
            time.sleep(0.004 * round_number)
            writer.kill()

        found = store.list_from("", recursive=True)
        for meta in found:
            assert RESERVED_PREFIX not in meta.key
            assert store.get(meta.key) == writer_process.content(meta.key)
        assert len(store.list_from("new/")) >= len(written)
    assert found, "no writer lived long enough to write anything"
