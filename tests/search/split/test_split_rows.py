"""The rows of a split: every type of Spark comes back as it went in, any rows in any order, any columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ColumnNotFoundError, SchemaMismatchError
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from headwater.search.choices import index_config
from headwater.search.split.build import SplitWriter, merge_splits
from headwater.search.types import row_schema
from support.search.built_splits import build, opened, rows_with, schema_of, split_of

INNER = StructType([StructField("x", TIMESTAMP), StructField("y", ArrayType(DecimalType(38, 18)))])
EVERYTHING = schema_of(
    byte=BYTE,
    short=SHORT,
    integer=INTEGER,
    long=LONG,
    float=FLOAT,
    double=DOUBLE,
    boolean=BOOLEAN,
    string=STRING,
    char=PrimitiveType("varchar(5)"),
    binary=BINARY,
    date=DATE,
    timestamp=TIMESTAMP,
    ntz=TIMESTAMP_NTZ,
    small=DecimalType(18, 4),
    large=DecimalType(38, 38),
    interval=PrimitiveType("interval day to second"),
    time=PrimitiveType("time(6)"),
    void=VOID,
    variant=VARIANT,
    array=ArrayType(ArrayType(INNER)),
    map=MapType(STRING, MapType(INTEGER, INNER)),
    struct=StructType([StructField("inner", INNER), StructField("n", LONG)]),
)
INNERS = st.none() | st.fixed_dictionaries(
    {
        "x": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
        "y": st.none() | st.lists(st.none() | st.decimals(-10, 10, places=18), max_size=2),
    }
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "char": st.text("ab", max_size=5),
    "binary": st.binary(max_size=10),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "ntz": st.datetimes(),
    "small": st.decimals(-(10**13), 10**13, places=4),
    "large": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-38")),
    "interval": st.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000)),
    "time": st.times(),
    "void": st.none(),
    "variant": st.fixed_dictionaries({"value": st.binary(max_size=5), "metadata": st.binary(max_size=5)}),
    "array": st.lists(st.none() | st.lists(INNERS, max_size=2), max_size=2),
    "map": st.dictionaries(
        st.text("k.\"'\\", max_size=3),
        st.none() | st.dictionaries(st.integers(0, 3), INNERS, max_size=2).map(lambda d: list(d.items())),
        max_size=2,
    ).map(lambda d: list(d.items())),
    "struct": st.fixed_dictionaries({"inner": INNERS, "n": st.none() | st.integers(-9, 9)}),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=4)


def test_the_strategies_cover_every_column() -> None:
    assert tuple(VALUES) == EVERYTHING.names


@settings(max_examples=15, deadline=None)
@given(rows=ROWS)
def test_every_type_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    directory = tmp_path_factory.mktemp("split")
    given_batch = pa.RecordBatch.from_pylist(rows, row_schema(EVERYTHING))

    split = split_of(directory, EVERYTHING, rows)

    read = split.rows()
    assert split.schema == EVERYTHING
    assert read.schema.equals(row_schema(EVERYTHING))
    # as IPC bytes, because NaN and -0.0 must come back as they were, which `==` cannot tell
    assert _bits(read) == _bits(pa.Table.from_batches([given_batch]))
    assert split.searcher.num_docs == split.num_records == len(rows)


def _bits(table: pa.Table) -> list[list[Any]]:
    return [repr(column) for column in table.to_pylist()]  # type: ignore[misc]


NUMBERED = schema_of(n=LONG, s=STRING)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows = [{"n": n, "s": f"row {n}"} for n in range(1500)]
    return split_of(tmp_path_factory.mktemp("numbered"), NUMBERED, rows)


@given(numbers=st.lists(st.integers(0, 1499)), columns=st.sampled_from([None, ["n"], ["s", "n"], ["s"]]))
def test_any_rows_are_read_in_any_order(numbered: Any, numbers: list[int], columns: list[str] | None) -> None:
    table = numbered.rows(pa.array(numbers, pa.uint64()), columns)

    assert table.column_names == (columns or ["n", "s"])
    expected = [{"n": n, "s": f"row {n}"} for n in numbers]
    assert table.to_pylist() == [{name: row[name] for name in table.column_names} for row in expected]


def test_all_rows_come_in_batches_of_any_size(numbered: Any) -> None:
    for max_rows in (1, 512, 1000, 1024, 10_000):
        batches = list(numbered.iter_rows(["n"], max_rows))
        assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(range(1500))
        assert max(batch.num_rows for batch in batches) <= max(512, max_rows)


def test_no_columns_are_still_rows(numbered: Any) -> None:
    assert numbered.rows(columns=[]).num_rows == 1500
    assert numbered.rows(pa.array([5, 7]), columns=[]).num_rows == 2
    assert sum(batch.num_rows for batch in numbered.iter_rows([])) == 1500


def test_a_column_that_is_not_there_is_named(numbered: Any) -> None:
    with pytest.raises(ColumnNotFoundError, match="'nope'"):
        numbered.rows(columns=["nope"])


def test_columns_that_are_only_indexed_are_found_and_not_read(tmp_path: Path) -> None:
    schema = schema_of(id=LONG, secret=STRING)
    split = split_of(tmp_path, schema, [{"id": 1, "secret": "a"}], indexed_only=["secret"])

    assert split.rows().to_pylist() == [{"id": 1}]
    assert (split.schema.names, split.stored_schema.names) == (("id", "secret"), ("id",))
    with pytest.raises(ColumnNotFoundError, match="only indexed"):
        split.rows(columns=["secret"])


def test_a_split_of_no_rows_is_one(tmp_path: Path) -> None:
    split = split_of(tmp_path, EVERYTHING, [])

    assert split.rows().num_rows == 0
    assert split.rows(pa.array([], pa.uint64()), ["long"]).schema.names == ["long"]
    assert list(split.iter_rows()) == []


def test_batches_of_any_size_and_form_make_the_same_rows(tmp_path: Path) -> None:
    schema = schema_of(n=LONG, s=STRING, t=TIMESTAMP, v=VARIANT, m=MapType(STRING, LONG), a=ArrayType(STRING))
    instant = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    forms = pa.schema(
        [
            pa.field("a", pa.large_list(pa.field("item", pa.large_string()))),
            pa.field("s", pa.dictionary(pa.int32(), pa.large_string())),
            pa.field("n", pa.int64(), nullable=False),
            pa.field("t", pa.timestamp("us", "America/New_York")),
            pa.field("v", pa.struct([("metadata", pa.binary()), ("value", pa.large_binary())])),
            pa.field("m", pa.map_(pa.large_string(), pa.int64())),
        ]
    )
    rows = [
        {"n": n, "s": "x", "t": instant, "v": {"value": b"1", "metadata": b"2"}, "m": [("k", n)], "a": [str(n), None]}
        for n in range(700)
    ]
    rows[600] = {"n": 600, "s": None, "t": None, "v": None, "m": None, "a": None}
    whole = pa.RecordBatch.from_pylist(rows, forms)

    with SplitWriter(index_config(schema), schema, str(tmp_path)) as writer:
        for start, length in ((0, 1), (1, 0), (1, 510), (511, 1), (512, 188)):
            writer.add(whole.slice(start, length))
        split = opened(writer.finish())

    assert split.rows().select(["n", "s", "t", "v", "m", "a"]).to_pylist() == [
        {name: row[name] for name in ("n", "s", "t", "v", "m", "a")} for row in rows
    ]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.record_batch({"n": [1]}), "missing 's'"),
        (pa.record_batch({"n": [1], "s": ["a"], "x": [1]}), "unknown 'x'"),
        (pa.record_batch({"n": ["one"], "s": ["a"]}), "column n"),
        (pa.record_batch({"n": [1.5], "s": ["a"]}), "column n"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, batch: pa.RecordBatch, message: str) -> None:
    with (
        SplitWriter(index_config(NUMBERED), NUMBERED, str(tmp_path)) as writer,
        pytest.raises(SchemaMismatchError, match=message),
    ):
        writer.add(batch)
    assert list(tmp_path.iterdir()) == []


def test_wall_clocks_are_no_instants(tmp_path: Path) -> None:
    schema = schema_of(t=TIMESTAMP)
    batch = pa.record_batch({"t": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))})

    with SplitWriter(index_config(schema), schema, str(tmp_path)) as writer, pytest.raises(SchemaMismatchError):
        writer.add(batch)


def test_nothing_is_left_behind_but_the_split(tmp_path: Path) -> None:
    built = build(tmp_path, NUMBERED, [{"n": 1, "s": "a"}])

    assert [str(path) for path in tmp_path.iterdir()] == [built.path]


def test_a_split_may_keep_no_column_at_all(tmp_path: Path) -> None:
    rows = [{"n": n, "s": f"row {n}"} for n in range(1100)]
    split = split_of(tmp_path, NUMBERED, rows, indexed_only=["n", "s"])

    assert rows_with(split, "s", "row 1099") == [1099]
    assert (split.num_records, split.rows().num_rows, split.rows().column_names) == (1100, 1100, [])
    assert split.rows(pa.array([3, 1])).num_rows == 2
    assert sum(batch.num_rows for batch in split.iter_rows()) == 1100
    merged = opened(merge_splits([split], str(tmp_path)))
    assert rows_with(merged, "n", 7) == [7]
