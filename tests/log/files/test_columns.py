"""Arrays built from buffers are the arrays that Arrow itself would build."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.files import arrow as build
from headwater.log.files.parquet import ahead

_TEXT = st.text().map(lambda t: t.encode("utf-8", "ignore").decode())


@given(st.lists(st.none() | _TEXT))
def test_strings(values: list[str | None]) -> None:
    array = build.strings(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.string()))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers(values: list[int | None]) -> None:
    array = build.int64s(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.int64()))


@given(st.lists(st.none() | st.floats(allow_nan=False)))
def test_doubles(values: list[float | None]) -> None:
    assert build.float64s(values).equals(pa.array(values, pa.float64()))


@given(st.lists(st.none() | st.booleans()))
def test_booleans(values: list[bool | None]) -> None:
    array = build.bools(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.bool_()))


@given(st.lists(st.none() | st.dictionaries(_TEXT, st.none() | _TEXT, max_size=3)))
def test_maps(values: list[dict[str, str | None] | None]) -> None:
    array = build.string_maps(values)
    array.validate(full=True)
    assert array.equals(pa.array([None if v is None else list(v.items()) for v in values], array.type))


def test_structs_with_nulls() -> None:
    array = build.structs({"a": build.int64s([1, None, 3])}, valid=[True, False, True])
    array.validate(full=True)
    assert array.to_pylist() == [{"a": 1}, None, {"a": 3}]


@given(st.lists(st.lists(_TEXT, max_size=4), min_size=1, max_size=4), st.data())
def test_taking_ascending_rows_of_chunks(chunks: list[list[str]], data: st.DataObject) -> None:
    column = pa.chunked_array([build.strings(chunk) for chunk in chunks], type=pa.string())
    rows = sorted(data.draw(st.sets(st.integers(0, max(len(column) - 1, 0)), max_size=len(column))))
    taken = build.take_ascending(column, pa.array(rows, pa.uint64()))
    assert taken.to_pylist() == [column[row].as_py() for row in rows]


@given(st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(0, 40))
def test_ascending_numbers_between_two_others(numbers: set[int], one: int, other: int) -> None:
    start, end = sorted((one, other))
    ascending = pa.array(sorted(numbers), pa.uint64())
    first = sum(number < start for number in numbers)
    some, position = build.numbers_between(ascending, first, start, end)
    assert some.to_pylist() == [number - start for number in sorted(numbers) if start <= number < end]
    assert position == first + len(some)


@given(st.lists(st.none() | st.integers(0, 9)))
def test_spreading_values_over_the_valid_rows(values: list[int | None]) -> None:
    dense = build.int64s([v for v in values if v is not None])
    valid = build.bools([v is not None for v in values]).cast(pa.bool_())
    assert build.spread(dense, valid).to_pylist() == values


def test_no_builder_imports_pandas() -> None:
    """The first `pa.array(list)` of a process would."""
    script = (
        "import sys; from headwater.log.files import arrow as b; b.strings(['a', None]); b.int64s([1]);"
        "b.bools([True]); b.string_maps([{'a': 'b'}]); b.structs({'a': b.int64s([1])});"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_reading_ahead_keeps_order_and_errors() -> None:
    def items() -> object:
        yield 1
        yield 2
        raise ValueError("broken")

    seen = []
    with pytest.raises(ValueError, match="broken"):
        seen.extend(ahead(items()))  # type: ignore[arg-type]
    assert list(ahead(range(100))) == list(range(100))
    assert list(ahead([])) == []


def test_an_abandoned_read_ahead_ends() -> None:
    iterator = ahead(iter(range(1_000)))
    assert next(iterator) == 0
    iterator.close()  # type: ignore[attr-defined]
