"""Files with `dataChange=false`: rows may be moved, but neither appear nor vanish."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headwater.errors import InvalidCommitError
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.opening import open_snapshot
from support.log.commit_tables import add, commit_lines, removal, table, vector
from support.log.log_tables import put_classic


def moving(removed: list[Any], added: list[Any], *live: Any) -> Transaction:
    _, ctx, read = table(*live)
    transaction = Transaction(ctx, read)
    transaction.remove([removal(file, data_change=False) for file in removed])
    transaction.add([msgspec.structs.replace(file, data_change=False) for file in added])
    return transaction


A, B = add("a", rows=10), add("b", rows=5)
A_DELETED = add("a", rows=10, deletion_vector=vector("v", 10))
NO_STATS = add("n", stats=None)


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        ([A, B], [add("ab", rows=15)]),
        ([A, B], [add("ab", stats=None)]),
        ([NO_STATS], [add("n2", rows=3)]),
        ([add("a", rows=10, deletion_vector=vector("v", 4))], [add("a2", rows=6)]),
        ([A_DELETED], []),
        ([], [msgspec.structs.replace(A, base_row_id=0)]),
        ([A], [add("a2", rows=10), msgspec.structs.replace(B, base_row_id=0)]),
    ],
)
def test_rows_may_be_moved(removed: list[Any], added: list[Any]) -> None:
    live = {file.path: file for file in (A, B, NO_STATS, *removed)}.values()
    assert moving(removed, added, *live).commit(Operation("OPTIMIZE")).version == 1


@pytest.mark.parametrize(
    ("removed", "added", "says"),
    [
        ([A, B], [add("ab", rows=14)], "15 rows are removed .* 14 rows are added"),
        ([A], [], "10 rows are removed"),
        ([NO_STATS], [], "an unknown number of rows are removed"),
        ([], [add("new", rows=3)], "'new' is added with dataChange=false"),
        ([A], [msgspec.structs.replace(B, base_row_id=0)], "10 rows are removed .* 0 rows are added"),
    ],
)
def test_rows_may_not_appear_or_vanish_as_if_moved(removed: list[Any], added: list[Any], says: str) -> None:
    with pytest.raises(InvalidCommitError, match=says):
        moving(removed, added, A, B, NO_STATS).commit(Operation("OPTIMIZE"))


def test_files_are_found_in_a_checkpoint_too() -> None:
    store, ctx, _ = table(A, B)
    put_classic(store, 0, [line for line in commit_lines(store, 0) if "commitInfo" not in line])
    read = open_snapshot(ctx)
    assert read.commits == ()
    transaction = Transaction(ctx, read)
    transaction.add([msgspec.structs.replace(A, data_change=False, base_row_id=0)])
    assert transaction.commit(Operation("BACKFILL")).snapshot.num_files == 2
