"""Histories of many writers, each from one number: whatever fails or dies, one serial order explains the outcome.

`HEADWATER_SIMULATIONS=10000 pytest tests/log/test_simulation.py` looks longer, from `HEADWATER_FIRST_SEED` on.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from support.simulation.simulated_deletions import DeletionTable
from support.simulation.simulated_writers import Table
from support.simulation.simulation import Odds, without_shared_locks
from support.simulation.simulation_check import Note, check

HISTORIES = int(os.environ.get("HEADWATER_SIMULATIONS", "200"))
DELETIONS = int(os.environ.get("HEADWATER_SIMULATIONS", "60"))
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


without_shared_locks("headwater.log")


def play(seed: int, kind: type[Table] = Table) -> Table:
    table = kind(seed, WEATHER[seed % len(WEATHER)])
    try:
        table.play()
        check(table.history, table.world.store, table.context(table.world.store))
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return table


@cache
def notes_of(seed: int, kind: type[Table] = Table) -> list[Note]:
    return play(seed, kind).history.notes


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_history_has_a_serial_order(batch: int) -> None:
    for seed in range(FIRST_SEED + batch, FIRST_SEED + HISTORIES, BATCHES):
        notes_of(seed)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_rows_that_many_delete_are_deleted_once_and_stay_deleted(batch: int) -> None:
    for seed in range(FIRST_SEED + batch, FIRST_SEED + DELETIONS, BATCHES):
        notes_of(seed, DeletionTable)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_history_that_failed_once(seed: int) -> None:
    play(seed)


def test_cleanup_relies_on_listings_that_show_what_is_a_day_old() -> None:
    """A listing that hid a checkpoint for days, which no store does, once cost its sidecar."""
    play(3585, DeletionTable)


def test_the_same_seed_gives_the_same_history() -> None:
    for seed, kind in ((4, Table), (10, Table), (4, DeletionTable)):
        one, other = play(seed, kind), play(seed, kind)
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
        wanted -= {note.outcome for note in notes_of(seed)}
        if not wanted:
            break
    assert wanted == set()


def test_deletions_of_other_rows_of_a_file_meet_and_succeed() -> None:
    """The same file gets vectors from several writers, of whom none knew of the others when it began."""
    met = 0
    for seed in range(1, 30):
        placed = {n.version: n for n in notes_of(seed, DeletionTable) if n.outcome == "committed" and n.takes}
        met += sum(
            bool(note.files & between.files)
            for version, note in placed.items()
            for number in range(note.read_version + 1, version or 0)
            if (between := placed.get(number)) is not None
        )
    assert met > 10
