"""Skipping in columns that were widened: bounds are texts and columns of the type that a file was written in.

Each file is written before the widening or after it, its bounds stand in JSON or in a checkpoint's columns (made before
or after), and whatever a filter asks for, no file with a matching row is left out.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import operator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.filters.expressions import Compare, CompareOp, In, Literal, column
from support.log.checkpoint_states import STRUCT
from support.log.log_tables import LOG, add, features, metadata, put_commit
from support.stores.log_store import DictStore, open_table

if TYPE_CHECKING:
    from collections.abc import Callable

_FEATURES = ("typeWidening", "timestampNtz")
_OPERATORS: dict[CompareOp, Any] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<>": operator.ne,
}


def as_float(value: float) -> float:
    """The value of 32 bits that is nearest."""
    return float(pa.scalar(value, pa.float32()).as_py())


def shortest(value: float) -> float:
    """A float as delta-spark's JSON has it: the shortest text that names it."""
    return float(pa.array([value], pa.float32()).cast(pa.string())[0].as_py())


@dataclass(frozen=True)
class Widening:
    """A change of type, values of the old type, what they are in the new one, and their bounds as JSON has them."""

    before: str
    after: str
    values: st.SearchStrategy[Any]
    others: st.SearchStrategy[Any]
    """Values of the new type."""
    widened: Callable[[Any], Any] = lambda value: value
    text: Callable[[Any], Any] = lambda value: value


_FLOATS = st.sampled_from([0.1, 0.3, -0.7, 1e-5, 3.4e38, -0.0, 0.0, 2.0**-149]) | st.floats(-9, 9, width=32)
_DECIMALS = st.decimals(-9, 9, places=2)
WIDENINGS = [
    Widening("float", "double", _FLOATS.map(as_float), st.floats(-9, 9), text=shortest),
    Widening("byte", "short", st.integers(-128, 127), st.integers(-300, 300)),
    Widening("short", "integer", st.integers(-300, 300), st.integers(-70_000, 70_000)),
    Widening("integer", "long", st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1)),
    Widening("integer", "double", st.integers(-(2**31), 2**31 - 1), st.floats(-9, 9), float),
    Widening("byte", "decimal(12,2)", st.integers(-9, 9), _DECIMALS, Decimal),
    Widening("long", "decimal(22,2)", st.integers(-(2**62), 2**62), _DECIMALS, Decimal),
    Widening("decimal(5,2)", "decimal(9,4)", _DECIMALS, st.decimals(-9, 9, places=4), text=float),
    Widening(
        "date",
        "timestamp_ntz",
        st.dates(dt.date(2023, 12, 30), dt.date(2024, 1, 3)),
        st.datetimes(dt.datetime(2023, 12, 30), dt.datetime(2024, 1, 3)),
        lambda day: dt.datetime.combine(day, dt.time()),
        lambda day: day.isoformat(),
    ),
]


def schema_of(type_: str, history: list[dict[str, str]]) -> str:
    changes = {"delta.typeChanges": history} if history else {}
    field = {"name": "x", "type": type_, "nullable": True, "metadata": changes}
    return json.dumps({"type": "struct", "fields": [field]})


def new_text(value: Any) -> Any:
    """A bound of the new type, as JSON has it."""
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds")
    return float(value) if isinstance(value, Decimal) else value


def file(name: str, values: list[Any], text: Any) -> dict[str, Any]:
    bounds = {"numRecords": len(values), "nullCount": {"x": 0}}
    low, high = text(min(values)), text(max(values))
    return add(name, stats=json.dumps({**bounds, "minValues": {"x": low}, "maxValues": {"x": high}}))


def table(kind: Widening, old: list[Any], new: list[Any], *, checkpoint: str) -> DictStore:
    """A table with one file of each type; `checkpoint` says when its statistics became columns, if they did."""
    store = DictStore()
    put_commit(
        store,
        0,
        features(*_FEATURES),
        metadata(STRUCT, schemaString=schema_of(kind.before, [])),
        file("old", old, kind.text),
    )
    if checkpoint == "before":
        write_checkpoint(open_table(store))
    history = [{"fromType": kind.before, "toType": kind.after}]
    put_commit(store, 1, metadata(STRUCT, schemaString=schema_of(kind.after, history)), file("new", new, new_text))
    if checkpoint == "after":
        write_checkpoint(open_table(store))
    return store


def assert_found(store: DictStore, filters: list[Any], rows: dict[str, list[Any]]) -> None:
    for expr, holds in filters:
        kept = set(open_table(store).files(expr, ["path"]).column("path").to_pylist())
        for name, values in rows.items():
            assert name in kept or not any(holds(value) for value in values), (str(expr), name, values)


@pytest.mark.parametrize("checkpoint", ["none", "before", "after"])
@pytest.mark.parametrize("kind", [pytest.param(k, id=f"{k.before}-{k.after}") for k in WIDENINGS])
def test_no_file_with_a_matching_row_is_skipped_after_a_widening(kind: Widening, checkpoint: str) -> None:
    @settings(max_examples=8)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        old = data.draw(st.lists(kind.values, min_size=1, max_size=3))
        new = data.draw(st.lists(kind.others, min_size=1, max_size=3))
        widened = [kind.widened(value) for value in old]
        literal = data.draw(st.sampled_from([*widened, *new]))
        filters: list[Any] = [
            (Compare(op, column("x"), Literal(literal)), lambda value, op=op: _OPERATORS[op](value, literal))
            for op in _OPERATORS
        ]
        filters.append((In(column("x"), (Literal(literal),)), lambda value: value == literal))
        assert_found(table(kind, old, new, checkpoint=checkpoint), filters, {"old": widened, "new": new})

    check()


def test_a_float_is_found_by_its_value_as_a_double() -> None:
    """The sample: delta-spark writes 0.1 for the float, whose value as a double is above that."""
    kind = WIDENINGS[0]
    for checkpoint in ("none", "before", "after"):
        store = table(kind, [as_float(0.1)], [5.0], checkpoint=checkpoint)
        found = open_table(store).files(Compare("=", column("x"), Literal(as_float(0.1))), ["path"])
        assert found.column("path").to_pylist() == ["old"], checkpoint


def test_doubles_that_never_were_floats_are_compared_to_the_last_bit() -> None:
    store = DictStore()
    field = json.dumps(
        {"type": "struct", "fields": [{"name": "x", "type": "double", "nullable": True, "metadata": {}}]}
    )
    put_commit(store, 0, features(), metadata(schemaString=field), file("f", [0.1], new_text))
    assert open_table(store).files(Compare("=", column("x"), Literal(as_float(0.1)))).num_rows == 0


def test_a_checkpoint_has_bounds_that_hold_for_readers_who_know_nothing_of_floats() -> None:
    store = table(WIDENINGS[0], [as_float(0.1)], [0.1], checkpoint="after")
    adds = pq.read_table(io.BytesIO(store.objects[f"{LOG}{1:020d}.checkpoint.parquet"])).column("add").combine_chunks()
    stats = {row["path"]: row["stats_parsed"] for row in adds.drop_null().to_pylist()}
    assert stats["old"]["minValues"]["x"] <= as_float(0.1) <= stats["old"]["maxValues"]["x"]
    assert stats["new"]["minValues"]["x"] <= 0.1 <= stats["new"]["maxValues"]["x"]
