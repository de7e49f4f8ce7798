"""Row-level concurrency: who deletes other rows of the same data file is in nobody's way; who means the same rows is.

Two writers begin on the same version. The rules are those of the reference implementation where whole files are
concerned; that disjoint rows of one file do not conflict goes beyond it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from headwater.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
    InvalidCommitError,
    MetadataChangedException,
)
from headwater.features.context import TableRef
from headwater.log.actions.deletion_vectors import inline_vector
from headwater.log.commit import row_changes
from headwater.log.commit.draft import Operation
from headwater.log.commit.row_changes import RowChange, RowPlan
from headwater.log.commit.transaction import Transaction
from headwater.log.filters.expressions import Constant
from headwater.log.filters.sql import parse_filter
from headwater.log.opening import open_snapshot
from support.log.commit_tables import add, commit_lines, removal
from support.log.deletions import (
    DELETE,
    delete,
    deleted_rows,
    deletes,
    vector_table,
    vector_table_in,
    vector_writer_of,
    write_small_inline,
)

Step = Callable[[Transaction], None]

START = BitMap64([0])
"""A row of file b that is deleted from the beginning."""
A = add("a", "a", 0, 9)
B = add("b", "b", 100, 109, deletion_vector=inline_vector(START))
C = add("c", "b", 200, 209)
FILES = {"a": A, "b": B, "c": C}


def rows(path: str, *numbers: int, read: tuple[int, ...] = ()) -> Step:
    return lambda t: t.delete_rows([deletes(path, *numbers, read=read)])


def looks_for(where: str) -> Step:
    return lambda t: t.looks_for(parse_filter(where))


def looks_for_anything(t: Transaction) -> None:
    t.looks_for(Constant(True))


def reads(where: str) -> Step:
    return lambda t: t.read_files(parse_filter(where)) and None


def reads_all(t: Transaction) -> None:
    t.read_files()


def adds(path: str, part: str = "a", low: int = 0, high: int = 9, **fields: Any) -> Step:
    return lambda t: t.add([add(path, part, low, high, **fields)])


def removes(*names: str) -> Step:
    return lambda t: t.remove([removal(FILES[name]) for name in names])


def compacts(*names: str) -> Step:
    def step(t: Transaction) -> None:
        left = sum(10 - (name == "b") for name in names)
        t.remove([removal(FILES[name], data_change=False) for name in names])
        t.add([add("compacted", "b", 100, 209, rows=left, data_change=False)])

    return step


def puts(name: str, *numbers: int) -> Step:
    """Another vector on a file, as RESTORE would write it, for better or worse."""

    def step(t: Transaction) -> None:
        file = FILES[name]
        vector = inline_vector(BitMap64(numbers)) if numbers else None
        t.remove([removal(file)])
        t.add([msgspec.structs.replace(file, deletion_vector=vector)])

    return step


def readds(name: str, **fields: Any) -> Step:
    return lambda t: t.add([msgspec.structs.replace(FILES[name], data_change=False, **fields)])


@dataclass(frozen=True)
class Case:
    name: str
    winner: tuple[Step, ...]
    challenger: tuple[Step, ...]
    outcome: type[DeltaConcurrentModificationException] | dict[str, list[int]]
    """The conflict, or the deleted rows of each file afterwards."""
    level: Any = None


def case(name: str, winner: Any, challenger: Any, outcome: Any, level: str | None = None) -> Case:
    def steps(given: Any) -> tuple[Step, ...]:
        return given if isinstance(given, tuple) else (given,)

    return Case(name, steps(winner), steps(challenger), outcome, level)


NOTHING = {"a": [], "b": [0], "c": []}
CASES = [
    # --- the same file
    case("other rows", rows("a", 1, 2), rows("a", 3), {**NOTHING, "a": [1, 2, 3]}),
    case("other rows of a file that has a vector", rows("b", 1, 2), rows("b", 9), {**NOTHING, "b": [0, 1, 2, 9]}),
    case("the same rows", rows("a", 1, 2), rows("a", 2, 3), ConcurrentDeleteDeleteException),
    case("the same row, snapshot isolation", rows("a", 1), rows("a", 1), ConcurrentDeleteDeleteException,
         "SnapshotIsolation"),
    case("the same row, WriteSerializable", rows("b", 1), rows("b", 1), ConcurrentDeleteDeleteException,
         "WriteSerializable"),
    case("a row that was read", rows("a", 1), rows("a", 3, read=(1,)), ConcurrentDeleteReadException),
    case("a row that was read and not changed", rows("a", 1), (rows("a", read=(1,)), adds("n")),
         ConcurrentDeleteReadException),
    case("a row that was read, snapshot isolation", rows("a", 1), rows("a", 3, read=(1,)), {**NOTHING, "a": [1, 3]},
         "SnapshotIsolation"),
    case("other rows than those that were read", rows("a", 1), rows("a", 3, read=(4,)), {**NOTHING, "a": [1, 3]}),
    case("both empty the file together", rows("a", *range(5)), rows("a", *range(5, 10)), {"b": [0], "c": []}),
    case("the winner emptied the file", rows("a", *range(10)), rows("a", 1), ConcurrentDeleteReadException),
    case("we wanted to empty the file", rows("a", 1), rows("a", *range(10)), ConcurrentDeleteDeleteException),
    case("other rows, and new files of both", (rows("a", 1), adds("w", "b")), (rows("a", 2), adds("n", "b")),
         {**NOTHING, "a": [1, 2], "w": [], "n": []}),
    # --- how the file was found
    case("found by a filter", rows("a", 1), (looks_for("id = 2"), rows("a", 2)), {**NOTHING, "a": [1, 2]}),
    case("found by a filter that was listed", rows("a", 1), (reads("id = 2"), rows("a", 2)), {**NOTHING, "a": [1, 2]}),
    case("found by looking at everything", rows("a", 1), (looks_for_anything, rows("a", 2)), {**NOTHING, "a": [1, 2]}),
    case("found by reading everything", rows("a", 1), (reads_all, rows("a", 2)), {**NOTHING, "a": [1, 2]}),
    case("a file that was read as well", rows("b", 1), (reads_all, rows("a", 2)), ConcurrentDeleteReadException),
    case("a file that was searched in vain", rows("b", 1), (looks_for_anything, rows("a", 2)),
         {**NOTHING, "a": [2], "b": [0, 1]}),
    case("a file that was searched in vain is gone", removes("c"), (looks_for_anything, rows("a", 2)),
         {"a": [2], "b": [0]}),
    case("new rows that match", adds("w", "a", 2, 2), (looks_for("id = 2"), rows("a", 2)), ConcurrentAppendException),
    case("new rows that do not", adds("w", "a", 3, 3), (looks_for("id = 2"), rows("a", 2)),
         {**NOTHING, "a": [2], "w": []}),
    case("updated rows that do not match", (looks_for("id = 3"), rows("a", 3), adds("w", "a", 3, 3)),
         (looks_for("id = 2"), rows("a", 2), adds("n", "a", 2, 2)), {**NOTHING, "a": [2, 3], "w": [], "n": []}),
    case("updated rows that match now", (looks_for("id = 3"), rows("a", 3), adds("w", "a", 2, 2)),
         (looks_for("id = 2"), rows("a", 2)), ConcurrentAppendException),
    # --- whole files
    case("the file was removed", removes("a"), rows("a", 1), ConcurrentDeleteReadException),
    case("the file was removed, snapshot isolation", removes("a"), rows("a", 1), ConcurrentDeleteDeleteException,
         "SnapshotIsolation"),
    case("the file was rewritten", (removes("a"), adds("w", "a")), rows("a", 1), ConcurrentDeleteReadException),
    case("the file was compacted", compacts("b", "c"), rows("b", 1), ConcurrentDeleteDeleteException),
    case("a file was compacted of which rows were read", compacts("b", "c"), (rows("b", read=(1,)), rows("a", 1)),
         {"a": [1], "compacted": []}),
    case("other files were compacted", compacts("b", "c"), (looks_for_anything, rows("a", 1)),
         {"a": [1], "compacted": []}),
    case("compaction of other files", rows("a", 1), (reads_all, compacts("b", "c")), {"a": [1], "compacted": []}),
    case("compaction of the file", rows("b", 1), compacts("b", "c"), ConcurrentDeleteDeleteException),
    case("removal of the file", rows("a", 1), (reads("part = 'a'"), removes("a")), ConcurrentDeleteReadException),
    case("an append", adds("w"), rows("a", 1), {**NOTHING, "a": [1], "w": []}),
    case("for an append", rows("a", 1), adds("n"), {**NOTHING, "a": [1], "n": []}),
    case("an insert that has read the file", rows("a", 1), (reads("part = 'a'"), adds("n")),
         ConcurrentDeleteReadException),
    # --- vectors that are not larger
    case("rows were brought back", puts("b"), (looks_for("part = 'b'"), rows("b", 5)), ConcurrentAppendException),
    case("rows were brought back, and nothing was looked for", puts("b"), rows("b", 5), ConcurrentDeleteReadException),
    case("rows were brought back, snapshot isolation", puts("b"), rows("b", 5), ConcurrentDeleteDeleteException,
         "SnapshotIsolation"),
    case("some came back and others went", puts("b", 7), rows("b", 5), ConcurrentDeleteReadException),
    case("another vector of more rows", puts("b", 0, 7), rows("b", 5), {**NOTHING, "b": [0, 5, 7]}),
    case("the first vector", puts("a", 7), rows("a", 5), {**NOTHING, "a": [5, 7]}),
    # --- rule 7: a file that has lost rows brings none
    case("no new rows for who looked for others", rows("a", 1), (looks_for("part = 'a'"), adds("n")),
         {**NOTHING, "a": [1], "n": []}),
    # --- the same file again, as it was
    case("the file was added again with tags", readds("b", tags={"x": "y"}), rows("b", 5), {**NOTHING, "b": [0, 5]}),
]  # fmt: skip


def run(steps: tuple[Step, ...], transaction: Transaction) -> Transaction:
    for step in steps:
        step(transaction)
    return transaction


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "file"])
@pytest.mark.parametrize("given", CASES, ids=lambda c: c.name)
def test_rule(given: Case, inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_changes, "write_vectors", write_small_inline(256 if inline else 0))
    store, ctx, read = vector_table(A, C)
    t = Transaction(ctx, read)
    t.add([B])
    read = t.commit(Operation("RESTORE")).snapshot
    challenger = run(given.challenger, Transaction(vector_writer_of(store), read))
    won = run(given.winner, Transaction(ctx, read)).commit(Operation("WINNER"))

    if isinstance(given.outcome, dict):
        committed = challenger.commit(Operation("CHALLENGER"), isolation=given.level)
        assert committed.version == won.version + 1
        assert deleted_rows(open_snapshot(ctx)) == given.outcome
        assert open_snapshot(ctx).verify() == []
    else:
        with pytest.raises(given.outcome) as raised:
            challenger.commit(Operation("CHALLENGER"), isolation=given.level)
        assert type(raised.value) is given.outcome
        assert raised.value.winner == won.version
        message = str(raised.value)
        assert "version 2 (WINNER)" in message
        assert store.uri in message
        touched = [path for path in ("a", "b", "w") if f"{path}." in message]
        assert touched, "a file is named"


def test_the_message_names_the_rows() -> None:
    store, ctx, read = vector_table(A)
    challenger = run((rows("a", 1, 2, 3),), Transaction(vector_writer_of(store), read))
    run((rows("a", 2, 3, 4),), Transaction(ctx, read)).commit(DELETE)
    with pytest.raises(ConcurrentDeleteDeleteException, match=r"deleted 2 rows \(such as row 2\) .* of the file a\."):
        challenger.commit(DELETE)


def test_what_a_later_version_says_of_the_file_is_kept() -> None:
    store, ctx, read = vector_table(A)
    challenger = run((rows("a", 1),), Transaction(vector_writer_of(store), read))
    run((readds("a", tags={"x": "y"}),), Transaction(ctx, read)).commit(Operation("OPTIMIZE"))
    [file] = challenger.commit(DELETE).snapshot.files().to_pylist(maps_as_pydicts="strict")
    assert file["tags"] == {"x": "y"}


def test_bytes_are_written_again_only_for_files_that_others_changed() -> None:
    store, ctx, read = vector_table(A, C, add("d"))
    challenger = run((rows("a", 1), rows("c", 1), rows("d", 1)), Transaction(vector_writer_of(store), read))
    last = run((rows("c", 2),), Transaction(ctx, read)).commit(DELETE)
    theirs = {key for key in store.objects if key.endswith(".bin")}
    committed = challenger.commit(DELETE)
    first, second = sorted(
        {key for key in store.objects if key.endswith(".bin")} - theirs, key=list(store.objects).index
    )

    def framed(path: str) -> int:
        vector = {
            line["add"]["path"]: line["add"]["deletionVector"] for line in commit_lines(store, 2) if "add" in line
        }
        return int(vector[path]["sizeInBytes"]) + 8

    assert committed.attempts == 2
    assert len(store.objects[first]) == 1 + 2 * framed("a") + framed("d")
    assert len(store.objects[second]) == 1 + framed("c"), "only the file that somebody else has changed"
    assert committed.rows == RowPlan(vectors_added=3, vectors_updated=1, vectors_removed=1, rows_deleted=3)
    assert last.rows == RowPlan(vectors_added=1, rows_deleted=1)


def test_the_last_of_many_knows_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_changes, "write_vectors", write_small_inline(40))
    store, ctx, read = vector_table(add("f", rows=40))
    writers = [run((rows("f", n, n + 20),), Transaction(vector_writer_of(store), read)) for n in range(19)]
    for each in writers:
        each.commit(DELETE)
    newest = open_snapshot(ctx)
    assert deleted_rows(newest) == {"f": [*range(19), *range(20, 39)]}
    last = run((rows("f", 19, 39),), Transaction(vector_writer_of(store), read)).commit(DELETE)
    assert last.rows.files_removed == 1
    assert deleted_rows(last.snapshot) == {}
    assert last.snapshot.verify() == []


def test_metrics_are_those_of_the_commit_that_happened() -> None:
    store, ctx, read = vector_table(add("f", rows=2))
    challenger = run((rows("f", 1),), Transaction(vector_writer_of(store), read))
    assert challenger.planned_rows == RowPlan(vectors_added=1, rows_deleted=1)
    run((rows("f", 0),), Transaction(ctx, read)).commit(DELETE)
    operation = Operation("DELETE", row_metrics=lambda plan: {"numRemovedFiles": plan.files_removed})
    assert challenger.commit(operation).rows.files_removed == 1
    assert commit_lines(store, 2)[0]["commitInfo"]["operationMetrics"] == {"numRemovedFiles": "1"}


def test_vectors_that_were_disabled_meanwhile_are_not_written() -> None:
    store, ctx, read = vector_table(A)
    challenger = run((rows("a", 1),), Transaction(vector_writer_of(store), read))
    t = Transaction(ctx, read)
    t.set_metadata(msgspec.structs.replace(read.metadata, configuration={"delta.enableDeletionVectors": "false"}))
    t.commit(Operation("SET TBLPROPERTIES"))
    with pytest.raises((InvalidCommitError, MetadataChangedException)):
        challenger.commit(DELETE)


def test_writers_who_share_a_file_on_a_disk_all_succeed(tmp_path: Path) -> None:
    writers, each = 4, 8
    vector_table_in(TableRef(tmp_path).context(), add("f", rows=100))
    start = Barrier(writers)

    def work(number: int) -> int:
        ctx = TableRef(tmp_path).context()
        snapshot = open_snapshot(ctx)
        start.wait()
        attempts = 0
        for row in range(number, writers * each, writers):
            committed = delete(ctx, snapshot, deletes("f", row))
            attempts += committed.attempts
            snapshot = committed.snapshot
        return attempts

    with ThreadPoolExecutor(writers) as pool:
        attempts = sum(pool.map(work, range(writers)))
    newest = open_snapshot(TableRef(tmp_path).context())
    assert newest.version == writers * each
    assert deleted_rows(newest) == {"f": list(range(writers * each))}
    assert newest.verify() == []
    assert attempts >= writers * each


ROW_SETS = st.lists(st.tuples(st.sets(st.integers(0, 11)), st.sets(st.integers(0, 11))), min_size=2, max_size=5)


@given(ROW_SETS)
@settings(max_examples=80)
def test_writers_succeed_if_and_only_if_nobody_took_their_rows(changes: list[tuple[set[int], set[int]]]) -> None:
    """The model: rows that are gone; whoever deletes or has read one of them fails, whoever has not succeeds."""
    store, ctx, read = vector_table(add("f", rows=12), add("other"))
    writers = []
    for deleted, also_read in changes:
        t = Transaction(vector_writer_of(store), read)
        t.delete_rows([RowChange("f", BitMap64(deleted), BitMap64(also_read - deleted))])
        writers.append((t, deleted, also_read))
    gone: set[int] = set()
    for t, deleted, also_read in writers:
        if gone & (deleted | also_read):
            # A file without rows is gone altogether: then it is just a file that was read.
            with pytest.raises((ConcurrentDeleteDeleteException, ConcurrentDeleteReadException)):
                t.commit(DELETE)
        elif len(gone) == 12 and not (deleted or also_read):
            continue
        else:
            t.commit(DELETE)
            gone |= deleted
        expected = {"other": []} if len(gone) == 12 else {"f": sorted(gone), "other": []}
        assert deleted_rows(open_snapshot(ctx)) == expected
