"""Which columns of a Parquet file that pyarrow writes get a dictionary, and which get statistics.

pyarrow would give both to all columns. A dictionary of values that hardly ever repeat makes a file larger and slower to
write; statistics of floating numbers would make Spark lose rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.schema import DOUBLE, FLOAT, VARIANT, ArrayType, MapType, StructType, UserDefinedType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.schema import DataType

_SAMPLE_ROWS = 2_000
_MAX_DISTINCT_SHARE = 0.5


def columns_with_statistics(schema: StructType) -> list[str]:
    """The columns whose statistics Parquet shall keep: not those of floating numbers.

    pyarrow leaves NaN out of the maximum. For Spark NaN is greater than every number, so its Parquet reader would skip
    row groups (and pages) that hold the NaN a query asks for.
    """
    return [path for path, type_ in _columns(schema) if type_ not in (FLOAT, DOUBLE)]


def columns_with_dictionary(schema: StructType, rows: pa.Table) -> list[str]:
    """The columns that get a dictionary: all whose values repeat, as far as a few rows tell.

    Args:
        schema: of the file.
        rows: the first row group.
    """
    plain = {field.name for field in schema.fields if not isinstance(field.type, StructType | ArrayType | MapType)}
    unique = {name for name in plain if _hardly_repeats(rows.column(name))}
    return [path for path, _ in _columns(schema) if path not in unique]


def _hardly_repeats(values: pa.ChunkedArray) -> bool:
    """Whether most values of a column are distinct, by what a sample has once and twice.

    Values that it has more often are few, whatever share of the rows they have. Who has numbers of a dictionary knows.
    """
    if pa.types.is_boolean(values.type) or pa.types.is_struct(values.type) or pa.types.is_dictionary(values.type):
        return False
    sample = _sample(values).drop_null()
    if len(sample) < 2:
        return False
    counts = pc.value_counts(sample).field(1).to_numpy()
    once, twice = int(np.sum(counts == 1)), int(np.sum(counts == 2))
    rare = once + 2 * twice
    # Drawn evenly from so many values, so many rows would have as many repetitions.
    distinct = rare**2 / (2 * twice) if twice else float("inf")
    num_values = len(values) - values.null_count
    return bool(min(distinct, rare / len(sample) * num_values) > _MAX_DISTINCT_SHARE * num_values)


def _sample(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values from all over a column, at random: neighbours have more in common than others."""
    return values if len(values) <= _SAMPLE_ROWS else values.take(_sample_places(len(values)))


@lru_cache(maxsize=16)
def _sample_places(num_rows: int) -> pa.Array:
    """Always the same for so many rows: the same rows make the same file."""
    return pa.array(np.unique(np.random.default_rng(0).integers(0, num_rows, _SAMPLE_ROWS)))


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    """The columns of a file by their Parquet paths."""
    return [found for field in schema.fields for found in _below(field.name, field.type)]


def _below(path: str, type_: DataType) -> Iterator[tuple[str, DataType]]:
    match type_:
        case StructType(fields=fields):
            for field in fields:
                yield from _below(f"{path}.{field.name}", field.type)
        case ArrayType(element_type=element):
            yield from _below(f"{path}.list.element", element)
        case MapType(key_type=key, value_type=value):
            yield from _below(f"{path}.key_value.key", key)
            yield from _below(f"{path}.key_value.value", value)
        case UserDefinedType(sql_type=stored):
            yield from _below(path, stored)
        case _ if type_ == VARIANT:
            yield from ((f"{path}.{part}", type_) for part in ("metadata", "value"))
        case _:
            yield path, type_
