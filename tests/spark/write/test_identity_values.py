"""Counting: which value an identity column gives out next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SchemaError
from headwater.log.schema import LONG, StructField
from headwater.spark.write.values import Identity, identity_of

LONGS = st.integers(-(2**40), 2**40)
STEPS = st.integers(-1000, 1000).filter(bool)


@given(start=LONGS, step=STEPS, mark=st.none() | LONGS)
def test_the_next_value_is_in_the_series_and_beyond_the_mark(start: int, step: int, mark: int | None) -> None:
    value = Identity(start, step, mark, allows_explicit=False).next_value
    assert (value - start) % step == 0
    assert (value - start) // step >= 0
    if mark is not None:
        assert value > mark if step > 0 else value < mark
        before = value - step
        assert value == start or (before <= mark if step > 0 else before >= mark)


def test_a_column_without_the_metadata_does_not_count() -> None:
    assert identity_of(StructField("id", LONG)) is None


def test_a_step_of_nothing_is_refused() -> None:
    field = StructField("id", LONG, metadata={"delta.identity.start": 1, "delta.identity.step": 0})
    with pytest.raises(SchemaError, match="step"):
        identity_of(field)
