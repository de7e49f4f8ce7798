"""Skipping may keep too much, but never drops a file with a matching row: random files, filters and statistics.

The oracle is brute force over the rows with SQL's three-valued logic, in plain Python. Statistics are made the way
real writers make them, with every habit that makes bounds treacherous: cut strings, timestamps cut to milliseconds,
NaN in or out of the maximum, missing columns, missing statistics.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.actions.model import Add
from headwater.log.files.chunks import ADD_COLUMNS, MemoryChunk
from headwater.log.filters.expressions import (
    And,
    Column,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Unknown,
    has_unknown,
    is_unknown,
)
from headwater.log.filters.pruning import ChunkPruner, TableShape
from headwater.log.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
)

Row = dict[str, Any]

_TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs", "So")), max_size=3)
_LONG_TEXT = st.builds(lambda head, tail: head * 31 + tail, st.sampled_from(["a", "z", "é"]), _TEXT)
_INSTANTS = st.datetimes(datetime(1999, 12, 31), datetime(2000, 1, 2)).map(lambda d: d.replace(tzinfo=UTC))
_WALL_CLOCKS = st.datetimes(datetime(1999, 12, 31), datetime(2000, 1, 2))
_FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.5, -1.5, 0.1, math.nan, math.inf, -math.inf]), st.floats(-3, 3, width=32)
)

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BYTE: st.integers(-3, 3),
    INTEGER: st.integers(-5, 5),
    LONG: st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1])),
    FLOAT: _FLOATS.map(lambda v: pa.scalar(v, pa.float32()).as_py()),
    DOUBLE: _FLOATS,
    DecimalType(5, 2): st.decimals(-9, 9, places=2),
    DecimalType(38, 10): st.decimals(-(10**27), 10**27, places=10, allow_nan=False),
    STRING: st.one_of(_TEXT, _LONG_TEXT),
    BOOLEAN: st.booleans(),
    DATE: st.dates(date(1999, 12, 30), date(2000, 1, 3)),
    TIMESTAMP: _INSTANTS,
    TIMESTAMP_NTZ: _WALL_CLOCKS,
}
COLUMNS = [StructField(f"c{i}", type_) for i, type_ in enumerate(VALUES)]
NESTED = StructField("s", StructType([StructField("x.y", LONG), StructField("t", STRING)]))
SCHEMA = StructType([*COLUMNS, NESTED])
LEAVES: dict[tuple[str, ...], DataType] = {(f.name,): f.type for f in COLUMNS} | {
    ("s", "x.y"): LONG,
    ("s", "t"): STRING,
}


# --- rows, files and their statistics -------------------------------------------------------------------


_NO_VALUES: Row = {f.name: None for f in COLUMNS} | {"s": None}


def rows(leaves: list[tuple[str, ...]]) -> st.SearchStrategy[Row]:
    """Rows with values in some leaves; the other columns are null."""
    flat = {path[0]: st.none() | VALUES[LEAVES[path]] for path in leaves if len(path) == 1}
    below = {name: st.none() for name in ("x.y", "t")} | {
        path[1]: st.none() | VALUES[LEAVES[path]] for path in leaves if len(path) == 2
    }
    nested = st.none() | st.fixed_dictionaries(below)
    return st.fixed_dictionaries(flat | {"s": nested}).map(lambda row: _NO_VALUES | row)


def value_of(row: Row, path: tuple[str, ...]) -> Any:
    value: Any = row
    for part in path:
        value = None if value is None else value[part]
    return value


class Habits(dict[str, Any]):
    """How one writer makes its statistics."""


habits = st.fixed_dictionaries(
    {
        "cut": st.sampled_from([32, 40, None]),
        "tie_breaker": st.booleans(),
        "nan_is_largest": st.booleans(),
        "decimals_through_double": st.booleans(),
        "left_out": st.sets(st.sampled_from(sorted(LEAVES)), max_size=4),
        "null_counts": st.booleans(),
        "none_at_all": st.sampled_from([False, False, False, True]),
    }
).map(Habits)


def bound_text(value: Any, type_: DataType, habit: Habits, *, upper: bool) -> Any:
    """A bound as JSON has it."""
    if isinstance(type_, DecimalType):
        return float(value) if habit["decimals_through_double"] else RawNumber(str(value))
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        # Writers print a 32-bit float in its shortest form.
        return RawNumber(str(pa.scalar(value, pa.float32()).cast(pa.string()))) if type_ == FLOAT else value
    if isinstance(value, datetime):
        cut = value - timedelta(microseconds=value.microsecond % 1000)
        return cut.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if habit["cut"] is not None and len(value) > habit["cut"]:
        return value[: habit["cut"]] + ("\U0010ffff" if upper and habit["tie_breaker"] else "")
    return value


class RawNumber(float):
    """A number that JSON must show exactly as written."""

    def __new__(cls, text: str) -> RawNumber:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


def order(value: Any) -> Any:
    """Spark's order: NaN above every number."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def statistics(file_rows: list[Row], habit: Habits) -> str | None:
    if habit["none_at_all"]:
        return None
    lows: Row = {}
    highs: Row = {}
    nulls: Row = {}
    for path, type_ in LEAVES.items():
        if path in habit["left_out"]:
            continue
        values = [v for row in file_rows if (v := value_of(row, path)) is not None]
        if habit["null_counts"]:
            _put(nulls, path, len(file_rows) - len(values))
        if not habit["nan_is_largest"]:
            values = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
        if values:
            _put(lows, path, bound_text(min(values, key=order), type_, habit, upper=False))
            _put(highs, path, bound_text(max(values, key=order), type_, habit, upper=True))
    stats: Row = {"numRecords": len(file_rows), "minValues": lows, "maxValues": highs, "nullCount": nulls}
    return _dump(stats)


def _put(target: Row, path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        target = target.setdefault(part, {})
    target[path[-1]] = value


def _dump(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_dump(v)}" for k, v in value.items()) + "}"
    return value.text if isinstance(value, RawNumber) else json.dumps(value)


# --- filters, and what they mean ------------------------------------------------------------------------


@st.composite
def leaf(draw: st.DrawFn, leaves: list[tuple[str, ...]]) -> Expression:
    path = draw(st.sampled_from(leaves))
    column, type_ = Column(path), LEAVES[path]
    values = VALUES[type_].filter(lambda v: not (isinstance(v, float) and math.isnan(v)))
    kind = draw(st.sampled_from(["compare", "compare", "compare", "columns", "in", "null", "prefix", "constant"]))
    if kind == "compare":
        op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
        return Compare(op, column, Literal(draw(values)))
    if kind == "columns":
        return Compare(draw(st.sampled_from(["=", "<>", "<", ">="])), column, Column(draw(st.sampled_from(leaves))))
    if kind == "in":
        return In(column, tuple(Literal(v) for v in draw(st.lists(st.none() | values, min_size=1, max_size=3))))
    if kind == "prefix" and type_ == STRING:
        return StartsWith(column, draw(_TEXT | _LONG_TEXT))
    if kind == "null" and draw(st.booleans()):
        return IsNull(Column(path[:1]))
    if kind == "constant":
        return draw(st.sampled_from([Constant(True), Constant(False), Constant(None), Unknown("f(x)")]))
    return IsNull(column)


def filters(leaves: list[tuple[str, ...]]) -> st.SearchStrategy[Expression]:
    return st.recursive(
        leaf(leaves),
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=4,
    )


def evaluate(expr: Expression, row: Row) -> bool | None:
    """SQL's meaning of a filter on one row: true, false or unknown. What is unknown to the log is true."""
    match expr:
        case Not(operand=inner) if is_unknown(inner):
            return True
        case Not(operand=inner):
            value = evaluate(inner, row)
            return None if value is None else not value
        case And(operands=parts):
            return _all([evaluate(p, row) for p in parts])
        case Or(operands=parts):
            negated = _all([None if (v := evaluate(p, row)) is None else not v for p in parts])
            return None if negated is None else not negated
        case Constant(value=value):
            return value
        case Unknown() | Compare(right=Column()):
            return True
        case IsNull(column=column):
            return value_of(row, column.parts) is None
        case Compare(op=op, left=column, right=Literal(value=value)):
            return _compare(op, value_of(row, column.parts), value)
        case In(column=column, values=values):
            answers = [_compare("=", value_of(row, column.parts), v.value) for v in values]
            return True if True in answers else (None if None in answers else False)
        case StartsWith(column=column, prefix=prefix):
            text = value_of(row, column.parts)
            return None if text is None else text.startswith(prefix)


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _compare(op: str, left: Any, right: Any) -> bool | None:
    if op == "<=>":
        return order(left) == order(right) if left is not None and right is not None else left is right
    if left is None or right is None:
        return None
    a, b = order(left), order(right)
    return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def has_negated_unknown(expr: Expression, negated: bool = False) -> bool:
    match expr:
        case Not(operand=inner):
            return has_negated_unknown(inner, not negated)
        case And(operands=parts) | Or(operands=parts):
            return any(has_negated_unknown(p, negated) for p in parts)
        case Unknown() | Compare(right=Column()):
            return negated
    return False


# --- the properties -------------------------------------------------------------------------------------


class StructChunk(MemoryChunk):
    """The same files with statistics as a struct, as a checkpoint has them in `stats_parsed`."""

    def __init__(self, files: list[tuple[list[Row], Habits]]) -> None:
        super().__init__([Add(path=f"f{i}", size=1) for i in range(len(files))], ADD_COLUMNS)
        types = SCHEMA.to_arrow()
        stats = [_struct_statistics(file_rows, habit) for file_rows, habit in files]
        bounds = pa.struct(list(types))
        counts = pa.struct(
            [*((f.name, pa.int64()) for f in COLUMNS), ("s", pa.struct({"x.y": pa.int64(), "t": pa.int64()}))]
        )
        type_ = pa.struct({"numRecords": pa.int64(), "minValues": bounds, "maxValues": bounds, "nullCount": counts})
        self._parsed = pa.chunked_array([pa.array(stats, type_)])

    def parsed(self, path: tuple[str, ...]) -> pa.ChunkedArray | None:
        if path[0] != "stats_parsed":
            return None
        array = self._parsed
        for part in path[1:]:
            index = array.type.get_field_index(part)
            if index < 0:
                return None
            array = pa.compute.struct_field(array, [index])
        return array


def _struct_statistics(file_rows: list[Row], habit: Habits) -> Row | None:
    if habit["none_at_all"]:
        return None
    lows: Row = {}
    highs: Row = {}
    nulls: Row = {}
    for path in LEAVES.keys() - habit["left_out"]:
        values = [v for row in file_rows if (v := value_of(row, path)) is not None]
        _put(nulls, path, len(file_rows) - len(values) if habit["null_counts"] else None)
        values = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
        if values:
            for target, value in ((lows, min(values)), (highs, max(values))):
                cut = isinstance(value, datetime)
                _put(target, path, value - timedelta(microseconds=value.microsecond % 1000) if cut else value)
    return {"numRecords": len(file_rows), "minValues": lows, "maxValues": highs, "nullCount": nulls}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[list[Row], Habits]], Expression]:
    """Some files with rows, and a filter on the columns that have values."""
    leaves = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=2, unique=True))
    one = rows(leaves)
    files = draw(st.lists(st.tuples(st.lists(one, min_size=1, max_size=3), habits), min_size=1, max_size=3))
    return files, draw(filters(leaves).filter(lambda expr: not has_negated_unknown(expr)))


@st.composite
def partition_cases(draw: st.DrawFn) -> tuple[list[Row], Expression]:
    """Partition values of some files, and a filter on them."""
    leaves = draw(
        st.lists(st.sampled_from([p for p in sorted(LEAVES) if len(p) == 1]), min_size=1, max_size=2, unique=True)
    )
    values = draw(st.lists(rows(leaves), min_size=1, max_size=4))
    return values, draw(filters(leaves).filter(lambda expr: not has_unknown(expr)))


SHAPE = TableShape(SCHEMA, (), "none")


def assert_no_match_is_lost(pruner: ChunkPruner, expr: Expression, files: list[tuple[list[Row], Habits]]) -> None:
    kept = pruner.may_match(expr).to_pylist()
    for keep, (file_rows, _) in zip(kept, files, strict=True):
        matching = [row for row in file_rows if evaluate(expr, row)]
        assert keep or not matching, f"{expr} drops a file with {matching}"


@settings(max_examples=300, deadline=None)
@given(cases())
def test_a_file_with_a_matching_row_survives_json_statistics(
    case: tuple[list[tuple[list[Row], Habits]], Expression],
) -> None:
    files, expr = case
    adds = [Add(path=f"f{i}", size=1, stats=statistics(file_rows, habit)) for i, (file_rows, habit) in enumerate(files)]
    assert_no_match_is_lost(ChunkPruner(MemoryChunk(adds, ADD_COLUMNS), SHAPE), expr, files)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_a_file_with_a_matching_row_survives_struct_statistics(
    case: tuple[list[tuple[list[Row], Habits]], Expression],
) -> None:
    files, expr = case
    assert_no_match_is_lost(ChunkPruner(StructChunk(files), SHAPE), expr, files)


def partition_text(value: Any) -> str | None:
    """A partition value as the spec serialises it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep="T").replace("+00:00", "Z") if value.tzinfo else value.isoformat(sep=" ")
    return (
        {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, str(value))
        if isinstance(value, float)
        else str(value)
    )


@settings(max_examples=300, deadline=None)
@given(partition_cases())
def test_partition_filters_are_exact(case: tuple[list[Row], Expression]) -> None:
    """All columns are partition columns: a file is kept if and only if its one row of values matches."""
    values, expr = case
    schema = StructType(COLUMNS)
    shape = TableShape(schema, schema.names, "none")
    adds = [
        Add(path=f"f{i}", size=1, partition_values={name: partition_text(row[name]) for name in schema.names})
        for i, row in enumerate(values)
    ]
    # An empty text is null for every type (spec: "Partition Value Serialization").
    rows_read = [{k: None if v == "" else v for k, v in row.items()} for row in values]
    kept = ChunkPruner(MemoryChunk(adds, ADD_COLUMNS), shape).may_match(expr).to_pylist()
    assert kept == [evaluate(expr, row) is True for row in rows_read]
