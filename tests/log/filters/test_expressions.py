"""The expression toolkit, and comparisons of two columns: whoever evaluates filters keeps every file for them."""

from __future__ import annotations

import json

import pytest

from headwater.log.actions.model import Add
from headwater.log.files.chunks import ADD_COLUMNS, MemoryChunk
from headwater.log.filters.expressions import (
    FLIPPED,
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
    chain,
    column,
    columns_of,
    has_unknown,
    rename_columns,
    transform,
    walk,
)
from headwater.log.filters.pruning import ChunkPruner, TableShape, operands_of, split_by_partition
from headwater.log.filters.sql import parse_filter
from headwater.log.schema import LONG, STRING, StructField, StructType

A, B, P = column("a"), column("b"), column("p")
ONE = Compare("=", A, Literal(1))
PAIR = Compare("=", A, B)
SHAPE = TableShape(
    StructType([StructField("a", LONG), StructField("b", LONG), StructField("p", STRING), StructField("q", STRING)]),
    ("p", "q"),
    "none",
)
FILES = MemoryChunk(
    [
        Add(
            path=f"f{low}",
            size=1,
            partition_values={"p": str(low), "q": "0"},
            stats=json.dumps(
                {
                    "numRecords": 2,
                    "minValues": {"a": low, "b": 0},
                    "maxValues": {"a": low + 1, "b": 1},
                    "nullCount": {"a": 0, "b": 0},
                }
            ),
        )
        for low in (0, 10)
    ],
    ADD_COLUMNS,
)


def kept(where: Expression) -> list[bool]:
    return ChunkPruner(FILES, SHAPE).may_match(where).to_pylist()  # type: ignore[no-any-return]


def test_a_walk_visits_parents_first_and_from_left_to_right() -> None:
    tree = Or((Not(ONE), And((PAIR, Constant(True)))))
    assert list(walk(tree)) == [tree, Not(ONE), ONE, And((PAIR, Constant(True))), PAIR, Constant(True)]


def test_a_transformation_replaces_leaves_and_keeps_the_rest() -> None:
    tree = Or((Not(ONE), And((PAIR, Unknown("x")))))
    swapped = transform(tree, lambda leaf: Constant(True) if leaf == PAIR else leaf)
    assert swapped == Or((Not(ONE), And((Constant(True), Unknown("x")))))


def test_a_chain_is_flattened_by_its_own_kind_only() -> None:
    mixed = And((ONE, Or((ONE, PAIR)), And((PAIR, ONE))))
    assert chain(mixed, And) == [ONE, Or((ONE, PAIR)), PAIR, ONE]
    assert chain(mixed, Or) == [mixed]


def test_all_columns_are_found_and_renamed() -> None:
    tree = And((PAIR, In(P, (Literal("x"),)), Not(StartsWith(P, "x")), IsNull(column("s", "x")), Unknown("f(z)")))
    assert columns_of(tree) == {A, B, P, column("s", "x")}
    renamed = rename_columns(tree, lambda c: Column(("t", *c.parts)))
    assert str(renamed) == "(t.a = t.b AND t.p IN ('x') AND NOT t.p LIKE 'x%' AND t.s.x IS NULL AND <f(z)>)"


def test_unknown_is_what_the_log_cannot_evaluate() -> None:
    assert has_unknown(Not(Or((ONE, PAIR))))
    assert has_unknown(And((ONE, Unknown("x"))))
    assert not has_unknown(And((ONE, Constant(None), IsNull(B))))


@pytest.mark.parametrize("op", FLIPPED)
def test_columns_of_a_file_may_be_in_any_order(op: str) -> None:
    pair = parse_filter(f"a {op} b")
    assert pair == Compare(op, A, B)  # type: ignore[arg-type]
    assert kept(pair) == kept(Not(pair)) == [True, True]
    assert kept(And((pair, ONE))) == [True, False]
    assert kept(Or((pair, ONE))) == kept(Not(And((pair, ONE)))) == [True, True]
    assert kept(Not(Or((pair, ONE)))) == [True, True]


def test_columns_that_are_compared_with_each_other_need_not_be_the_tables_own() -> None:
    where = parse_filter("a = nowhere AND a = 1")
    assert kept(where) == [True, False]
    assert set(operands_of(where, SHAPE)) == {A}


def test_partition_columns_that_are_compared_with_each_other_keep_every_file() -> None:
    where = parse_filter("p = q AND p = '10' AND (p = '10' OR p = a)")
    assert split_by_partition(where, SHAPE)[1] == [parse_filter("p = q")]
    assert kept(parse_filter("p = q")) == kept(parse_filter("p <> q")) == [True, True]
    assert kept(where) == [False, True]
