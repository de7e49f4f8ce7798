"""Histories of many writers, each from one number: whatever fails or dies, one serial order explains the outcome.

`HEADWATER_SIMULATIONS=10000 pytest tests/log/test_simulation.py` looks longer, from `HEADWATER_FIRST_SEED` on.
"""

from __future__ import annotations

import importlib
import os
from functools import cache

import pytest
from simulated_writers import Table

from simulation import Odds, without_shared_locks
from simulation_check import check

HISTORIES = int(os.environ.get("HEADWATER_SIMULATIONS", "200"))
FIRST_SEED = int(os.environ.get("HEADWATER_FIRST_SEED", "1"))
BATCHES = 20

WEATHER = (
    Odds(),
    Odds(throttled=0.02, lost_answer=0.02),
    Odds(crash=0.02),
    Odds(hidden=0.3),
    Odds(throttled=0.02, lost_answer=0.02, crash=0.01, hidden=0.2, outage=0.01),
    Odds(outage=0.03),
)

REGRESSIONS = {
    19: "cleanup deleted the checkpoint between its listing and its reading, and the table did not open",
    255: "a refresh did not find the table when the listing lagged behind",
    2769: "a version that is left in compacted files only was said to contradict its checksum",
    3772: "an in-commit timestamp was taken from the checkpoint when the listing did not show the commit",
}
"""Seeds that failed once, and why."""


for _room in ("checkpoint", "checkpoint_writer", "live_files", "cleanup", "compaction", "upkeep"):
    importlib.import_module(f"headwater.log.{_room}")
without_shared_locks("headwater.log")


def play(seed: int) -> Table:
    table = Table(seed, WEATHER[seed % len(WEATHER)])
    try:
        table.play()
        check(table.history, table.world.store, table.context(table.world.store))
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return table


@cache
def outcomes_of(seed: int) -> list[str]:
    return [note.outcome for note in play(seed).history.notes]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_history_has_a_serial_order(batch: int) -> None:
    for seed in range(FIRST_SEED + batch, FIRST_SEED + HISTORIES, BATCHES):
        outcomes_of(seed)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_history_that_failed_once(seed: int) -> None:
    play(seed)


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in (4, 10):
        one, other = play(seed), play(seed)
        assert one.world.store.commits == other.world.store.commits
        assert [note.outcome for note in one.history.notes] == [note.outcome for note in other.history.notes]


def test_histories_reach_every_outcome() -> None:
    """Simulations in which nothing ever goes wrong would prove nothing."""
    wanted = {
        "committed",
        "unknown",
        "crashed",
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "MetadataChangedException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
    }
    for seed in range(1, 100):
        wanted -= set(outcomes_of(seed))
        if not wanted:
            break
    assert wanted == set()
