"""Cells: every row has one file, files are even, and a point condition meets as few of them as a layout allows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.maintenance.layout import grow, shared_out

if TYPE_CHECKING:
    from headwater.spark.maintenance.layout import CellTree

Rows = list[tuple[int, ...]]


def grown(rows: Rows, files: int, cells: int = 1) -> CellTree:
    return grow([pa.array(column, pa.int32()) for column in zip(*rows, strict=True)], files, cells)


def by_file(tree: CellTree, rows: Rows) -> dict[int, Rows]:
    found: dict[int, Rows] = {}
    for row in rows:
        found.setdefault(tree.file[tree.find(row)], []).append(row)
    return found


def skipped(files: dict[int, Rows], column: int, values: list[int]) -> float:
    """The part of files that bounds rule out, on average over point conditions."""
    bounds = [(min(row[column] for row in rows), max(row[column] for row in rows)) for rows in files.values()]
    met = sum(low <= value <= high for low, high in bounds for value in values)
    return 1 - met / len(values) / len(files)


def test_point_conditions_on_four_columns_skip_two_thirds_of_100_files() -> None:
    chance = random.Random(1)
    rows = [tuple(chance.randrange(2**30) for _ in range(4)) for _ in range(20_000)]
    files = by_file(grown(rows, 100), rows)
    assert len(files) == 100
    assert {len(rows) for rows in files.values()} == {200}
    skipping = [skipped(files, column, [row[column] for row in rows[:300]]) for column in range(4)]
    # The paper's Z-order: 67, 60, 47 and 44 %. The best possible for all columns alike: 1 - 100 ** -0.25 = 68 %.
    assert min(skipping) > 0.62
    assert sum(skipping) / 4 > 0.66


def test_one_column_is_sorted() -> None:
    rows = [(value,) for value in random.Random(2).sample(range(10_000), 1_000)]
    files = by_file(grown(rows, 7), rows)
    ordered = [sorted(files[number]) for number in sorted(files)]
    assert [row for part in ordered for row in part] == sorted(rows)
    assert {len(part) for part in ordered} <= {142, 143}


def test_the_first_column_comes_first_when_there_are_few_files() -> None:
    rows = [(i, i * 7 % 1_000, i * 11 % 1_000) for i in range(1_000)]
    files = by_file(grown(rows, 2), rows)
    assert sorted(max(part)[0] for part in files.values()) == [499, 999]


def test_rows_that_no_column_tells_apart_share_files() -> None:
    tree = grown([(1, 1)] * 10, 3)
    assert (tree.file, tree.files, tree.num_files) == ([0], [3], 3)


def test_a_frequent_value_gets_files_of_its_own() -> None:
    rows = [(5,)] * 800 + [(i,) for i in range(10, 210)]
    tree = grown(rows, 10)
    assert tree.files[tree.find((5,))] == 8
    assert len({tree.find(row) for row in rows[800:]}) == 2


def test_nulls_are_less_than_everything() -> None:
    rows = [(-1,)] * 50 + [(i,) for i in range(50)]
    tree = grown(rows, 2)
    assert tree.file[tree.find((-1,))] == 0
    assert tree.file[tree.find((0,))] == 1


def test_parts_of_a_file_are_next_to_each_other() -> None:
    rows = [(i % 100, i // 100) for i in range(10_000)]
    tree = grown(rows, 4, 8)
    leaves = sorted({tree.find(row) for row in rows}, key=lambda leaf: tree.place[leaf])
    assert len(leaves) == 32
    assert [tree.file[leaf] for leaf in leaves] == [number for number in range(4) for _ in range(8)]


@given(
    st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 40), st.integers(0, 3)), min_size=1, max_size=200),
    st.integers(1, 30),
    st.integers(1, 3),
)
def test_every_file_has_its_place_and_no_other_is_named(rows: Rows, files: int, cells: int) -> None:
    tree = grown(rows, files, cells)
    leaves = [node for node, column in enumerate(tree.column) if column is None]
    named = {tree.file[leaf] + i for leaf in leaves for i in range(tree.files[leaf])}
    assert named == set(range(files))
    assert sorted(tree.place[leaf] for leaf in leaves) == list(range(len(leaves)))
    assert all(tree.find(row) in leaves for row in rows)


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=30), st.integers(0, 500))
def test_shares_add_up_and_follow_the_weights(weights: list[int], extra: int) -> None:
    number = len(weights) + extra
    shares = shared_out(weights, number)
    assert sum(shares) == number
    assert min(shares) >= 1
    total = sum(weights)
    assert all(share <= max(1, number * weight / total + 1) for share, weight in zip(shares, weights, strict=True))


@pytest.mark.parametrize(
    ("weights", "number", "expected"), [([1], 5, [5]), ([9, 1], 2, [1, 1]), ([90, 10], 10, [9, 1])]
)
def test_shares(weights: list[int], number: int, expected: list[int]) -> None:
    assert shared_out(weights, number) == expected
