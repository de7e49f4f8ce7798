"""Statistics as text, made from structs: what JSON readers get for a checkpoint with struct statistics only."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.stats.encode import json_text


@given(st.lists(st.none() | st.text(), min_size=1, max_size=5))
def test_strings_are_escaped_as_json_demands(values: list[str | None]) -> None:
    values = [v if v is None else v.encode("utf-8", "ignore").decode() for v in values]
    texts = json_text(pa.array(values, pa.string()))
    assert texts is not None
    assert [None if t is None else json.loads(t) for t in texts.to_pylist()] == values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_doubles_round_trip(values: list[float]) -> None:
    texts = json_text(pa.array(values, pa.float64()))
    assert texts is not None
    assert [float(json.loads(t)) for t in texts.to_pylist()] == values


def test_values_take_the_form_that_the_spec_shows() -> None:
    row = {
        "numRecords": 3,
        "minValues": {
            "date": date(2024, 2, 29),
            "ts": datetime(2024, 1, 1, 12, 30, 0, 1000),
            "price": Decimal("1.20"),
            "nan": math.nan,
            "flag": True,
            "blob": b"x",
            "nothing": None,
        },
        "empty": {},
    }
    type_ = pa.struct(
        {
            "numRecords": pa.int64(),
            "minValues": pa.struct(
                {
                    "date": pa.date32(),
                    "ts": pa.timestamp("us", "UTC"),
                    "price": pa.decimal128(5, 2),
                    "nan": pa.float64(),
                    "flag": pa.bool_(),
                    "blob": pa.binary(),
                    "nothing": pa.int32(),
                }
            ),
            "empty": pa.struct({}),
        }
    )
    texts = json_text(pa.array([row, None], type_))
    assert texts is not None
    assert texts.to_pylist() == [
        (
            '{"numRecords":3,"minValues":{"date":"2024-02-29","ts":"2024-01-01T12:30:00.001000Z","price":1.20,'
            '"nan":"NaN","flag":true},"empty":{}}'
        ),
        None,
    ]
