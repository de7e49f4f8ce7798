"""Which files a write removes: all of them, or those of the partitions that it writes to (dynamic overwrite).

A removal is an entry in the log, made in the same commit that adds the new files; nothing is deleted from the store.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.expressions import And, Compare, Constant, Expression, In, IsNull, Literal, Or, Unknown, column
from headwater.log.file_actions import REMOVED_COLUMNS, removals
from headwater.log.schema import BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ, is_string
from headwater.log.schema.types import BYTE, INTEGER, LONG, SHORT
from headwater.spark.file_rows import partition_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.actions import Add
    from headwater.log.schema import StructField
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Transaction

__all__ = ["all_files", "files_of_partitions", "partition_texts", "removals"]

_COMPARABLE = (BYTE, SHORT, INTEGER, LONG, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ)
_MANY_PARTITIONS = 500
"""Of more, the read set only remembers the values of each column, not how they go together."""


def all_files(transaction: Transaction) -> pa.Table:
    """All live files; from now on nobody else may add or remove rows."""
    return transaction.read_files(columns=REMOVED_COLUMNS)


def files_of_partitions(transaction: Transaction, adds: Sequence[Add]) -> pa.Table:
    """The live files of the partitions that new files are in."""
    snapshot = transaction.snapshot
    assert snapshot is not None, "a table that does not exist has no partitions"
    written = build.string_maps([add.partition_values for add in adds])
    keys = [(snapshot.schema.field(name), partition_key(snapshot, name)) for name in snapshot.partition_columns]
    new = [partition_values(pa.chunked_array([written]), field, key) for field, key in keys]
    expression = _written_partitions(keys, new)
    files = transaction.read_files(expression, REMOVED_COLUMNS)
    old = [partition_values(files.column("partitionValues"), field, key) for field, key in keys]
    # The expression may keep too much: types that pruning cannot compare. Here values are compared as they are.
    return files.filter(
        pc.is_in(partition_texts(old, files.num_rows), value_set=partition_texts(new, len(adds)).unique())
    )


def partition_key(snapshot: Snapshot, name: str) -> str:
    """The name of a partition column in `partitionValues`."""
    from headwater.log.schema import physical_path

    return physical_path(snapshot.schema, [name], snapshot.mapping_mode)[0]


def partition_texts(columns: list[pa.ChunkedArray], count: int) -> pa.ChunkedArray:
    """One text for each row, the same for the same values: lengths keep neighbours apart, and null from empty."""
    texts = []
    for values in columns:
        text = values.cast(pa.string())
        length = pc.fill_null(pc.utf8_length(text), -1).cast(pa.string())
        texts.append(pc.binary_join_element_wise(length, pc.fill_null(text, ""), ":"))
    if not texts:
        return pa.chunked_array([pa.repeat("", count)])
    return reduce(lambda one, other: pc.binary_join_element_wise(one, other, "|"), texts)


def _written_partitions(keys: list[tuple[StructField, str]], new: list[pa.ChunkedArray]) -> Expression:
    """The rows of the partitions that were written to."""
    if not keys or len(new[0]) == 0:
        return Constant(False)
    table = pa.table([values.combine_chunks() for values in new], names=[str(i) for i in range(len(new))])
    distinct = table.group_by(table.column_names).aggregate([])
    fields = [field for field, _ in keys]
    if len(fields) == 1 or distinct.num_rows > _MANY_PARTITIONS:
        return And(tuple(_any_of(f, distinct.column(str(i)).unique().to_pylist()) for i, f in enumerate(fields)))
    rows = [tuple(row.values()) for row in distinct.to_pylist()]
    return Or(tuple(And(tuple(_any_of(f, [v]) for f, v in zip(fields, row, strict=True))) for row in rows))


def _any_of(field: StructField, values: list[object]) -> Expression:
    if field.type not in _COMPARABLE and not is_string(field.type):
        return Unknown(f"a partition of {field.name}")
    named = column(field.name)
    literals = tuple(Literal(value) for value in values if value is not None)
    parts: list[Expression] = []
    if literals:
        parts.append(Compare("=", named, literals[0]) if len(literals) == 1 else In(named, literals))
    if len(literals) < len(values):
        parts.append(IsNull(named))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))
