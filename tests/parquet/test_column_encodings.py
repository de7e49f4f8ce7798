"""Which columns of the files that we write get a dictionary."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.log.schema import StructType
from headwater.parquet.write import columns_with_dictionary

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 50_000
RANDOM = np.random.default_rng(5)


def gets_dictionary(values: Any) -> bool:
    table = pa.table({"c": values})
    return bool(columns_with_dictionary(StructType.from_arrow(table.schema), table))


@pytest.mark.parametrize("distinct", [2, 100, ROWS // 10])
def test_values_that_repeat_get_a_dictionary(distinct: int) -> None:
    assert gets_dictionary(RANDOM.integers(0, distinct, ROWS))


@pytest.mark.parametrize("distinct", [2 * ROWS, 10**9])
def test_values_that_hardly_repeat_get_none(distinct: int) -> None:
    assert not gets_dictionary(RANDOM.integers(0, distinct, ROWS))


@pytest.mark.parametrize(("every", "expected"), [(10, False), (3, False), (1, True)])
def test_one_value_that_many_rows_have_says_nothing_of_the_others(every: int, expected: bool) -> None:
    values = RANDOM.integers(10, 10**9, ROWS)
    values[::every] = 7
    assert gets_dictionary(values) == expected


def test_two_thirds_of_the_rows_with_few_values_are_worth_a_dictionary() -> None:
    values = RANDOM.integers(10, 10**9, ROWS)
    values[np.arange(ROWS) % 3 > 0] = 7
    assert gets_dictionary(values)


def test_neighbours_that_are_equal_do_not_make_values_repeat() -> None:
    values = RANDOM.integers(10, 10**9, ROWS)
    values[::10] = values[1::10]
    assert not gets_dictionary(values)


@pytest.mark.parametrize("run", [5, 24, 25, 26, 1_000])
def test_values_that_come_in_runs_repeat(run: int) -> None:
    assert gets_dictionary(np.arange(ROWS) // run)


def test_the_first_rows_are_not_all_rows() -> None:
    values = np.arange(ROWS)
    values[:2_000] = 1
    assert not gets_dictionary(values)
    values[2_000:] = np.arange(ROWS - 2_000) % 50
    values[:2_000] = np.arange(2_000)
    assert gets_dictionary(values)


def test_nulls_do_not_count() -> None:
    values = pa.array(RANDOM.integers(0, 10**9, ROWS), mask=np.arange(ROWS) % 4 > 0)
    assert not gets_dictionary(values)
    assert gets_dictionary(pa.nulls(10, pa.int64()))


@pytest.mark.parametrize(
    "value",
    [
        lambda n: n,
        float,
        str,
        lambda n: str(n).encode(),
        lambda n: Decimal(n).scaleb(-2),
        lambda n: datetime.fromtimestamp(n, UTC),
        lambda n: datetime.fromtimestamp(n, UTC).replace(tzinfo=None),
        lambda n: datetime.fromtimestamp(86_400 * n, UTC).date(),
    ],
    ids=["long", "double", "string", "binary", "decimal", "timestamp", "timestamp_ntz", "date"],
)
def test_values_of_every_plain_type_are_counted(value: Callable[[int], Any]) -> None:
    assert not gets_dictionary(pa.array([value(n) for n in range(3_000)]))
    assert gets_dictionary(pa.array([value(n % 30) for n in range(3_000)]))
