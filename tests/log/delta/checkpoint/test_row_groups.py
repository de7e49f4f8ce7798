"""Row groups put together from batches in another order: nothing is lost, everything is in its place."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.delta.checkpoint.rows import RowGroupAssembler, in_order
from support.log_settings import examined


@given(st.data())
@examined
def test_every_live_row_comes_out_once_in_its_row_group_and_in_order(data: st.DataObject) -> None:
    total = data.draw(st.integers(1, 40))
    group_rows = data.draw(st.integers(1, 9))
    window = group_rows * data.draw(st.integers(1, 5))
    order = data.draw(st.permutations(range(total)))
    live = data.draw(st.lists(st.booleans(), min_size=total, max_size=total))
    cuts = sorted(data.draw(st.sets(st.integers(0, total), max_size=6)) | {0, total})
    found: list[list[int]] = []
    for first in range(0, total, window):
        assembler = RowGroupAssembler(first, min(first + window, total), group_rows)
        for start, end in pairwise(cuts):
            # Every other row is not of this kind, and has no place.
            rows = [value for place in order[start:end] for value in (place, -1)]
            of_rows = [value for one in live[start:end] for value in (one, False)]
            numbers = pa.array(range(0, len(rows), 2), pa.uint64())
            batch = pa.record_batch({"x": pa.array(rows, pa.int64())})
            places = pa.array(order[start:end], pa.uint64())
            groups = assembler.add(batch, pa.array(of_rows, pa.bool_()), places, numbers)
            found += [group.column("x").to_pylist() for group in groups]
    kept = sorted(place for place, one in zip(order, live, strict=True) if one)
    assert sorted(place for group in found for place in group) == kept
    for group in found:
        assert group == sorted(group)
        assert len({place // group_rows for place in group}) == 1


def test_rows_in_order_are_given_out_at_once_and_not_copied() -> None:
    assembler = RowGroupAssembler(0, 6, 3)
    batch = pa.record_batch({"x": pa.array(range(3), pa.int64())})
    [first] = assembler.add(batch, pa.array([True] * 3), in_order(0, 3))
    assert first.column("x").buffers()[1].address == batch.column("x").buffers()[1].address
    assert list(assembler.add(batch.slice(0, 1), pa.array([True]), in_order(3, 1))) == []
    assert [group.num_rows for group in assembler.add(batch.slice(1), pa.array([True] * 2), in_order(4, 2))] == [3]
