"""File actions in passing: all columns of them, a few thousand rows at a time, and nothing is kept.

For whoever copies the state of a table on (a checkpoint of a new version): memory that a batch used serves the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.file_chunks import DELETION_VECTOR, ParquetChunk, as_deletion_vectors, child_of
from headwater.log.parquet import BATCH_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.file_chunks import FileChunk

STATS_PARSED = "stats_parsed"


@dataclass(frozen=True, slots=True)
class ActionBatch:
    """Some rows, of which those with the given numbers are the actions (all of them if None).

    Rows of other actions are not filtered out here: whoever picks rows anyway does it in one go.
    """

    rows: pa.RecordBatch
    numbers: pa.Array | None

    @property
    def num_actions(self) -> int:
        """How many rows are actions."""
        return int(self.rows.num_rows) if self.numbers is None else len(self.numbers)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of all rows."""
        return pa.chunked_array([self.rows.column(name)])

    def picked(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        """Some rows of a column."""
        return pa.chunked_array([self.rows.column(name).take(numbers)])


def action_batches(
    chunk: FileChunk, types: Mapping[str, pa.DataType], *, with_parsed_statistics: bool = False
) -> Iterator[ActionBatch]:
    """The actions of a chunk with the columns of `types`, in their order.

    Args:
        chunk: the actions.
        types: names and types of the columns; what the chunk does not have is null.
        with_parsed_statistics: also the column `stats_parsed`, as it is, where the chunk has it. It comes in any case
            when statistics have no text: then it is all there is.
    """
    if not isinstance(chunk, ParquetChunk):
        whole = pa.table({name: chunk.column(name) for name in types})
        yield from (ActionBatch(batch, None) for batch in whole.to_batches(max_chunksize=BATCH_ROWS))
        return
    source, group, action = chunk.place
    stored = source.schema.field(action).type
    names = [name for name in types if stored.get_field_index(name) >= 0]
    if stored.get_field_index(STATS_PARSED) >= 0 and "stats" in types:
        texts, paths = (source.null_count(group, f"{action}.{name}") for name in ("stats", "path"))
        if with_parsed_statistics or texts is None or texts != paths:
            names.append(STATS_PARSED)
    for batch in source.batches([f"{action}.{name}" for name in names], [group]):
        actions = batch.column(0)
        numbers = pc.indices_nonzero(actions.is_valid()) if actions.null_count else None
        columns = {name: _column(actions, name, type_) for name, type_ in types.items()}
        if STATS_PARSED in names:
            columns[STATS_PARSED] = child_of(actions, STATS_PARSED)
        yield ActionBatch(pa.record_batch(columns), numbers)


def _column(actions: pa.StructArray, name: str, type_: pa.DataType) -> pa.Array:
    if actions.type.get_field_index(name) < 0:
        return pa.nulls(len(actions), type_)
    values = child_of(actions, name)
    if type_ == DELETION_VECTOR:
        return as_deletion_vectors(values)
    return values if values.type == type_ else values.cast(type_)


def has_values(chunk: FileChunk, name: str) -> bool:
    """Whether a column of a chunk may have a value: by the footer, where that is."""
    if isinstance(chunk, ParquetChunk):
        source, group, action = chunk.place
        if not source.has(action, name):
            return False
        # A footer counts what is in maps: it does not tell empty ones from none.
        is_map = pa.types.is_map(source.schema.field(action).type.field(name).type)
        return is_map or group in source.groups_with(f"{action}.{name}")
    column = chunk.column(name)
    return int(column.null_count) < len(column)


def bytes_per_action(chunk: FileChunk) -> float:
    """About how much memory one action takes, by the footer; 0 where that is not known."""
    if not isinstance(chunk, ParquetChunk):
        return 0.0
    source, group, _ = chunk.place
    described = source.metadata.row_group(group)
    return float(described.total_byte_size) / max(int(described.num_rows), 1)
