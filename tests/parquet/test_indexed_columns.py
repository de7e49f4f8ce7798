"""Which columns get statistics: the writer of files and the writer of checkpoints choose the same ones.

What counts as a column was seen with delta-spark 4.4: of `a INT, v VOID, b INT` with two indexed columns `a` has
statistics and `v` is counted, so `b` has none; a void within a struct counts as well.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.filters.pruning import TableShape
from headwater.log.schema import (
    INTEGER,
    STRING,
    VOID,
    ArrayType,
    StructField,
    StructType,
    to_physical,
)
from headwater.log.schema.types import part_in_files
from headwater.log.stats import columns as log_rules
from headwater.parquet.plan import indexed_leaves


def schema(**types: object) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in types.items()])  # type: ignore[arg-type]


def chosen(table: StructType, partitions: tuple[str, ...] = (), **properties: str) -> list[str]:
    """The columns that files get statistics for; those that checkpoints have must be the same."""
    data = StructType([field for field in table.fields if field.name not in partitions])
    in_files = part_in_files(data)
    assert isinstance(in_files, StructType)
    named = {f"delta.dataSkipping{name}": value for name, value in properties.items()}
    found = [leaf.path for leaf in indexed_leaves(table, in_files, "none", named)]
    shape = TableShape(table, partitions, "none", 32)
    assert [leaf.path for leaf in log_rules.indexed_leaves(shape, named)] == found
    return [".".join(path) for path in found]


NESTED = schema(x=INTEGER, v=VOID, y=INTEGER)


@pytest.mark.parametrize(
    ("table", "partitions", "properties", "expected"),
    [
        (schema(a=INTEGER, v=VOID, b=INTEGER), (), {"NumIndexedCols": "2"}, ["a"]),
        (schema(a=INTEGER, v=VOID, b=INTEGER), (), {"NumIndexedCols": "3"}, ["a", "b"]),
        (schema(a=INTEGER, s=NESTED, c=INTEGER), (), {"NumIndexedCols": "2"}, ["a", "s.x"]),
        (schema(a=INTEGER, s=NESTED, c=INTEGER), (), {"NumIndexedCols": "4"}, ["a", "s.x", "s.y"]),
        (schema(v=VOID, p=STRING, a=INTEGER, b=INTEGER), ("p",), {"NumIndexedCols": "2"}, ["a"]),
        (schema(v=VOID, p=STRING, a=INTEGER), ("p",), {"NumIndexedCols": "1"}, []),
        (schema(a=INTEGER, v=VOID, b=INTEGER), (), {"NumIndexedCols": "-1"}, ["a", "b"]),
        (schema(a=INTEGER, b=INTEGER), (), {"NumIndexedCols": "0"}, []),
        (schema(a=INTEGER, b=INTEGER), (), {"NumIndexedCols": "many"}, ["a", "b"]),
        (schema(a=ArrayType(INTEGER), b=INTEGER), (), {"NumIndexedCols": "1"}, ["a"]),
        (schema(a=INTEGER, v=VOID, b=INTEGER), (), {"StatsColumns": "B, v, nothing"}, ["b"]),
        (schema(a=INTEGER, s=NESTED, c=INTEGER), (), {"StatsColumns": "s"}, ["s.x", "s.y"]),
        (schema(a=INTEGER, s=NESTED, c=INTEGER), (), {"StatsColumns": "S.y,c", "NumIndexedCols": "0"}, ["s.y", "c"]),
        (schema(**{"a.b": INTEGER, "a": NESTED}), (), {"StatsColumns": "`a.b`"}, ["a.b"]),
    ],
)  # fmt: skip
def test_columns_with_statistics(
    table: StructType, partitions: tuple[str, ...], properties: dict[str, str], expected: list[str]
) -> None:
    assert chosen(table, partitions, **properties) == expected


def test_the_first_32_leaves_by_default() -> None:
    table = schema(**{f"c{number}": VOID if number == 5 else INTEGER for number in range(40)})
    assert chosen(table) == [f"c{number}" for number in range(32) if number != 5]


TYPES = st.recursive(
    st.sampled_from([INTEGER, STRING, VOID, ArrayType(INTEGER)]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda types: schema(**dict(zip("xyz", types, strict=False)))
    ),
    max_leaves=5,
)


@given(st.lists(TYPES, min_size=1, max_size=6), st.integers(-1, 8), st.integers(0, 3))
def test_files_and_checkpoints_agree_about_any_table(types: list[object], count: int, partitions: int) -> None:
    table = schema(p0=STRING, p1=STRING, p2=STRING, **{f"c{n}": type_ for n, type_ in enumerate(types)})
    if part_in_files(StructType(table.fields[3:])) is None:
        return
    chosen(table, ("p0", "p1", "p2")[:partitions], NumIndexedCols=str(count))


def test_columns_are_found_under_their_physical_names() -> None:
    def mapped(name: str, type_: object) -> StructField:
        metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": f"col-{name}"}
        return StructField(name, type_, metadata=metadata)  # type: ignore[arg-type]

    table = StructType([mapped("p", STRING), mapped("v", VOID), mapped("a", INTEGER), mapped("b", INTEGER)])
    in_files = part_in_files(to_physical(StructType(table.fields[1:]), "name"))
    assert isinstance(in_files, StructType)
    by_number = indexed_leaves(table, in_files, "name", {"delta.dataSkippingNumIndexedCols": "2"})
    assert [leaf.path for leaf in by_number] == [("col-a",)]
    by_name = indexed_leaves(table, in_files, "name", {"delta.dataSkippingStatsColumns": "B"})
    assert [(leaf.path, leaf.column) for leaf in by_name] == [(("col-b",), 1)]
