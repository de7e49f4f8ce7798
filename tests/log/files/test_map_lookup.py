"""The values of one key in columns of maps, against looking into each map."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.files.chunks import only_values, values_of_key

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAPS = pa.map_(pa.string(), pa.string())
_KEYS = st.sampled_from(["date", "region", "über"])
_ANY_MAP = st.dictionaries(_KEYS, st.none() | st.text(max_size=3), max_size=3)
_LIKE_ONE_ANOTHER = st.lists(_KEYS, min_size=1, max_size=3, unique=True).flatmap(
    lambda keys: st.lists(
        st.none()
        | st.tuples(*[st.none() | st.text(max_size=3)] * len(keys)).map(lambda v: dict(zip(keys, v, strict=True))),
        min_size=1,
    )
)


@given(st.one_of(st.lists(st.none() | _ANY_MAP, min_size=1), _LIKE_ONE_ANOTHER), _KEYS)
def test_the_value_is_the_one_in_the_map(maps: Sequence[dict[str, str | None] | None], key: str) -> None:
    column = pa.array([None if m is None else list(m.items()) for m in maps], _MAPS)
    expected = [None if m is None else m.get(key) for m in maps]
    assert values_of_key(column, key).to_pylist() == expected
    assert values_of_key(column[1:], key).to_pylist() == expected[1:]


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=3), max_size=2), min_size=1))
def test_values_without_their_keys(maps: list[list[str | None] | None]) -> None:
    """Given only the values of maps whose keys are all the same, rows that are no maps are left out."""
    column = pa.array([None if m is None else [("date", v) for v in m] for m in maps], _MAPS)
    lists = _values_only(column)
    present = [m for m in maps if m is not None]
    valid = column.is_valid() if len(present) < len(maps) else None
    assert only_values(lists, valid).to_pylist() == [m[0] if m else None for m in present]


def test_a_slice_of_values_without_their_keys() -> None:
    column = pa.array([[("date", "a")], [("date", "b")], [("date", "c")]], _MAPS)
    assert only_values(_values_only(column)[1:], None).to_pylist() == ["b", "c"]


def _values_only(maps: pa.MapArray) -> pa.ListArray:
    """As Parquet gives them when the leaf with the keys is not read."""
    file = io.BytesIO()
    pq.write_table(pa.table({"m": maps}), file)
    table = pq.ParquetFile(file).read(columns=["m.key_value.value"])
    if not pa.types.is_list(table.column(0).type):
        pytest.fail(f"Parquet gave {table.column(0).type}")
    return table.column(0).combine_chunks()
