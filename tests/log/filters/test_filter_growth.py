"""Pruning with long literals, long lists and deep conditions: work that grows with their size, not with its square.

Nothing here looks at a clock: what is counted is memory, comparisons and calls.
"""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.actions.model import Add
from headwater.log.files.chunks import ADD_COLUMNS, MemoryChunk
from headwater.log.filters.expressions import (
    And,
    Compare,
    Expression,
    In,
    Literal,
    Not,
    Or,
    StartsWith,
    column,
    columns_of,
)
from headwater.log.filters.pruning import ChunkPruner, TableShape, _Evaluation, split_by_partition
from headwater.log.filters.sql import parse_filter
from headwater.log.schema import LONG, STRING, StructField, StructType

SHAPE = TableShape(
    StructType([StructField("s", STRING), StructField("n", LONG), StructField("p", STRING)]), ("p",), "none"
)


def chunk(*bounds: tuple[str, str], partitions: list[str] | None = None) -> MemoryChunk:
    """Files with a smallest and a largest text each."""
    files = []
    for number, (low, high) in enumerate(bounds):
        stats = {"numRecords": 2, "minValues": {"s": low}, "maxValues": {"s": high}, "nullCount": {"s": 0}}
        values = {"p": partitions[number] if partitions else "x"}
        files.append(
            Add(
                path=f"f{number}",
                partition_values=values,
                size=1,
                modification_time=0,
                data_change=True,
                stats=json.dumps(stats),
            )
        )
    return MemoryChunk(files, ADD_COLUMNS)


def kept(files: MemoryChunk, where: Expression) -> list[bool]:
    answer: pa.ChunkedArray = ChunkPruner(files, SHAPE).may_match(where)
    return answer.to_pylist()  # type: ignore[no-any-return]


# --- long texts ---------------------------------------------------------------------------------------


def peak_bytes(length: int) -> int:
    long = "x" * length
    files = chunk(("a", "y"), ("x", "x" * 32), ("x", "x" * 33), ("a", "b"))
    wheres = [Compare(op, column("s"), Literal(long)) for op in ("=", ">", ">=", "<", "<>", "<=>")]
    tracemalloc.start()
    for where in (*wheres, StartsWith(column("s"), long), In(column("s"), (Literal(long), Literal("q")))):
        kept(files, where)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_long_literal_takes_memory_like_its_length() -> None:
    peak_bytes(10)
    assert peak_bytes(80_000) < 10 * 80_000 + 500_000


@pytest.mark.parametrize("length", [31, 32, 33, 40, 5_000])
def test_bounds_that_may_have_been_cut_keep_their_files(length: int) -> None:
    """A writer may cut the largest text at 32 characters or later, so a prefix of the literal may stand for it."""
    literal = "é" * length
    highs = [literal[:n] for n in (1, 31, 32, 33, 40, length)] + ["é" * 32 + "a", "a"]
    files = chunk(*(("a", high) for high in highs))
    for op in ("=", ">=", ">"):
        found = kept(files, Compare(op, column("s"), Literal(literal)))  # type: ignore[arg-type]
        for high, is_kept in zip(highs, found, strict=True):
            may_be_cut = len(high) >= 32 and literal.startswith(high)
            reaches = high >= literal if op != ">" else high > literal
            assert is_kept == (may_be_cut or reaches), (op, high)


# --- long lists ---------------------------------------------------------------------------------------


def test_a_long_list_of_partition_values_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files = chunk(*[("a", "b")] * 4, partitions=["1", "2", "zz", "99999"])
    values = tuple(Literal(str(n)) for n in range(100_000))
    calls: list[object] = []
    compare = _Evaluation._compare
    monkeypatch.setattr(_Evaluation, "_compare", lambda *args: (calls.append(args), compare(*args))[1])

    assert kept(files, In(column("p"), values)) == [True, True, False, True]
    assert kept(files, Not(In(column("p"), values))) == [False, False, True, False]
    assert kept(files, Not(In(column("p"), (*values, Literal(5))))) == [False, False, True, False]
    assert kept(files, Not(In(column("p"), (*values, Literal(None))))) == [False] * 4
    assert len(calls) < 300


def test_many_conditions_are_told_apart_without_comparing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [Compare("=", column("p" if n % 2 else "n"), Literal(n)) for n in range(4_000)]
    compared: list[object] = []
    equal = Compare.__eq__
    monkeypatch.setattr(Compare, "__eq__", lambda self, other: (compared.append(self), equal(self, other))[1])

    by_partition, others = split_by_partition(And(tuple(parts)), SHAPE)

    assert (len(by_partition), len(others)) == (2_000, 2_000)
    assert not compared


# --- deep conditions ----------------------------------------------------------------------------------


@pytest.fixture
def nested() -> Any:
    """A condition that is nested more deeply than Python may call; it is taken down from its top, or Python is."""
    condition: Expression = Compare("=", column("s"), Literal("b"))
    leaf = condition
    for level in range(20_000):
        condition = (Or, And)[level % 2]((condition, leaf))
    yield condition
    while not isinstance(condition, Compare):
        condition = condition.operands[0]  # type: ignore[union-attr]


def test_a_condition_that_is_nested_too_deeply_keeps_every_file(nested: Expression) -> None:
    assert kept(chunk(("a", "c"), ("x", "y")), nested) == [True, True]
    assert columns_of(nested) == {column("s")}
    assert len(split_by_partition(nested, SHAPE)[1]) == 2


def test_a_chain_is_no_nest() -> None:
    chain: Expression = Compare("=", column("s"), Literal("b"))
    for _ in range(20_000):
        chain = And((chain, Compare("=", column("n"), Literal(1))))
    assert len(split_by_partition(chain, SHAPE)[1]) == 20_001
    while isinstance(chain, And):
        chain = chain.operands[0]


# --- texts of filters ---------------------------------------------------------------------------------


def test_strings_of_many_pieces_and_long_patterns_are_read() -> None:
    assert parse_filter("s = '" + "''" * 20_000 + "'") == Compare("=", column("s"), Literal("'" * 20_000))
    assert parse_filter("s = " + "'x' " * 20_000) == Compare("=", column("s"), Literal("x" * 20_000))
    assert parse_filter("s = 'a' 'b''c' r'd' \"e\"\"f\"") == Compare("=", column("s"), Literal("ab'cde\"f"))
    assert parse_filter("s LIKE '" + "x" * 50_000 + "%'") == StartsWith(column("s"), "x" * 50_000)
