"""Row ids: each leads to its row number, whatever splits were merged; foreign ids are noticed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.search.split.rows import new_first_id, row_numbers

RANGES = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 50)), min_size=1, max_size=6, unique_by=lambda pair: pair[0]
).map(lambda pairs: [(first << 32, count) for first, count in pairs])


@given(ranges=RANGES, data=st.data())
def test_ids_lead_to_the_numbers_of_their_rows(ranges: list[tuple[int, int]], data: st.DataObject) -> None:
    ids = [first + offset for first, count in ranges for offset in range(count)]  # by definition in row order
    wanted = data.draw(st.lists(st.sampled_from(range(len(ids)))))

    numbers = row_numbers([ids[number] for number in wanted], ranges)

    assert numbers is not None
    assert numbers.to_pylist() == wanted


@given(ranges=RANGES, foreign=st.integers(0, 2**64 - 1))
def test_an_id_of_no_row_is_noticed(ranges: list[tuple[int, int]], foreign: int) -> None:
    ids = {first + offset for first, count in ranges for offset in range(count)}

    numbers = row_numbers([*ids, foreign], ranges)

    assert (numbers is not None) == (foreign in ids)


def test_the_ids_just_outside_a_range_are_noticed() -> None:
    first = 7 << 32
    for ranges in ([(first, 3)], [(first, 3), (9 << 32, 3)]):
        assert row_numbers([first + 3], ranges) is None
        assert row_numbers([first - 1], ranges) is None
        assert row_numbers([first + 2], ranges) is not None


def test_new_splits_start_at_different_ids() -> None:
    firsts = {new_first_id() for _ in range(100)}

    assert len(firsts) > 90
    assert all(first % 2**32 == 0 and first < 2**64 for first in firsts)
