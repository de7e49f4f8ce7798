"""Chunks of deletion vectors have exactly the bits of the rows that are deleted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from headwater.spark.scan.deletion_vectors import chunk_table

_CHUNK = 65_536
_ROWS = st.sets(
    st.integers(0, 5 * _CHUNK) | st.integers(2**31 - 2, 2**31 + 2) | st.sampled_from([_CHUNK - 1, _CHUNK, 63, 64])
)


def rows_of(bitmaps: list[set[int]]) -> list[set[int]]:
    """The rows that the chunks say are deleted, as the anti-join looks at them."""
    found: list[set[int]] = [set() for _ in bitmaps]
    table = chunk_table([BitMap64(rows).serialize() for rows in bitmaps])
    for key, words in zip(*(column.to_pylist() for column in table.columns), strict=True):
        assert any(words)
        for position, word in enumerate(words):
            bits = [bit for bit in range(64) if word >> bit & 1]
            found[key >> 32] |= {(key & 0xFFFFFFFF) * _CHUNK + position * 64 + bit for bit in bits}
    return found


@settings(deadline=None, max_examples=40)
@given(st.lists(_ROWS, max_size=3))
def test_the_bits_are_those_of_the_bitmaps(bitmaps: list[set[int]]) -> None:
    assert rows_of(bitmaps) == bitmaps


def test_words_behind_the_last_deleted_row_are_left_out() -> None:
    table = chunk_table([BitMap64([3, 70]).serialize()])
    assert table.column(1).to_pylist() == [[1 << 3, 1 << 6]]
