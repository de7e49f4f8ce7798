"""Bin packing: all files, each once, in the order of their times, in bins that are full."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.maintenance.plan import pack

FILES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 120), st.integers(0, 50)), min_size=0, max_size=60
)


def packed(files: list[tuple[str, int, int]], max_bytes: int | None) -> list[list[int]]:
    groups = pa.array([group for group, _, _ in files], pa.string())
    table = pa.table(
        {
            "size": pa.array([size for _, size, _ in files], pa.int64()),
            "modificationTime": pa.array([time for _, _, time in files], pa.int64()),
            "path": pa.array([f"f{i:03}" for i in range(len(files))], pa.string()),
        }
    )
    return [numbers.to_pylist() for numbers in pack(groups, table, max_bytes)]


def test_small_files_of_a_partition_share_bins_in_the_order_they_came() -> None:
    files = [("a", 60, 3), ("a", 30, 1), ("b", 10, 1), ("a", 60, 2), ("a", 100, 4)]
    assert packed(files, 100) == [[1, 3], [0], [4], [2]]


def test_without_a_limit_a_partition_is_one_bin() -> None:
    assert packed([("b", 10, 1), ("a", 500, 2), ("b", 700, 3)], None) == [[1], [0, 2]]


@given(FILES, st.integers(1, 150))
def test_bins_hold_every_file_once_and_two_neighbours_never_fit_into_one(
    files: list[tuple[str, int, int]], max_bytes: int
) -> None:
    bins = packed(files, max_bytes)
    assert sorted(number for one in bins for number in one) == list(range(len(files)))
    sizes = [sum(files[number][1] for number in one) for one in bins]
    groups = [{files[number][0] for number in one} for one in bins]
    assert all(len(group) == 1 for group in groups)
    assert all(size <= max_bytes or len(one) == 1 for size, one in zip(sizes, bins, strict=True))
    for (one, other), (here, there) in zip(pairwise(sizes), pairwise(groups), strict=True):
        assert here != there or one + other > max_bytes
