"""What a checkpoint of a snapshot holds, in pieces that become row groups (spec: "Checkpoints").

The older checkpoint's rows are copied as columns, a few thousand at a time, without those that later commits replaced;
the adds and tombstones of the commits after it are few and come first, so that nothing has to wait for them.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.action_batches import action_batches, bytes_per_action, has_values
from headwater.log.actions import Add, Remove
from headwater.log.add_order import places
from headwater.log.file_chunks import ADD_COLUMNS, DELETION_VECTOR, REMOVE_COLUMNS, MemoryChunk
from headwater.log.live_files import ReplacedFiles
from headwater.log.prefetch import ahead
from headwater.log.retention import tombstone_retention_ms, transaction_retention_ms
from headwater.log.row_groups import GROUP_ROWS, RowGroupAssembler, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.action_batches import ActionBatch
    from headwater.log.actions import DomainMetadata, Txn
    from headwater.log.file_chunks import FileChunk
    from headwater.log.parsed_columns import AddColumns
    from headwater.log.snapshot import Snapshot

_OPTIONAL = ("tags", "deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
"""Columns that most tables do not use: where no action has a value, none is carried along."""
_WINDOW_BYTES = 512 << 20
"""Adds that are not in order wait for their row group; this much of them, at a guess, is read in one pass."""
_GROUP_BYTES = 256 << 20
"""A row group of adds with very long statistics is smaller: Arrow's text ends at 2 GB, and memory earlier."""


def live_txns(snapshot: Snapshot) -> list[Txn]:
    """The applications' progress, without what `delta.setTransactionRetentionDuration` lets expire.

    A `txn` that does not say when it was made does not expire.
    """
    txns = list(snapshot._table_state.txns.values())
    kept_ms = transaction_retention_ms(snapshot.metadata.configuration)
    if kept_ms is None:
        return txns
    oldest = snapshot.ctx.clock_ms() - kept_ms
    return [txn for txn in txns if txn.last_updated is None or txn.last_updated > oldest]


def live_domains(snapshot: Snapshot) -> list[DomainMetadata]:
    """The metadata domains. Removed ones would suppress older actions, of which a checkpoint has none."""
    return [domain for domain in snapshot._table_state.domains.values() if not domain.removed]


def removes(snapshot: Snapshot) -> Iterator[pa.StructArray]:
    """The tombstones that have not expired."""
    oldest = snapshot.ctx.clock_ms() - tombstone_retention_ms(snapshot.metadata.configuration)
    replaced = ReplacedFiles(list(snapshot._tail))
    later = MemoryChunk([a for a in snapshot._tail.values() if isinstance(a, Remove)], REMOVE_COLUMNS)
    fields = [pa.field(name, type_) for name, type_ in REMOVE_COLUMNS.items()]
    waiting: list[pa.RecordBatch] = []
    for chunk in [later, *snapshot.base.removes]:
        for batch in action_batches(chunk, REMOVE_COLUMNS):
            # A remove without a timestamp counts as removed at the epoch.
            removed_ms = pc.fill_null(batch.rows.column("deletionTimestamp"), build.ZERO)
            kept = pc.greater(removed_ms, build.int64s([oldest])[0])
            kept = pc.and_(kept, batch.rows.column("path").is_valid() if chunk is later else _live(replaced, batch))
            waiting.append(batch.rows.filter(kept))
            if sum(b.num_rows for b in waiting) >= GROUP_ROWS:
                yield _struct(pa.concat_batches(waiting), fields)
                waiting.clear()
    if sum(b.num_rows for b in waiting):
        yield _struct(pa.concat_batches(waiting), fields)


def _struct(batch: pa.RecordBatch, fields: list[pa.Field]) -> pa.StructArray:
    return pa.StructArray.from_arrays(batch.columns, fields=fields)


def adds(snapshot: Snapshot, columns: AddColumns) -> Iterator[pa.StructArray]:
    """The live files, in order, a row group at a time."""
    later = MemoryChunk([a for a in snapshot._tail.values() if isinstance(a, Add)], ADD_COLUMNS)
    chunks: list[FileChunk] = [*snapshot.base.adds, *([later] if later.num_rows else [])]
    order = places(chunks, snapshot.shape, columns.first_bounded_leaf, typed=columns.as_struct)
    replaced = ReplacedFiles(list(snapshot._tail))
    types = {n: t for n, t in ADD_COLUMNS.items() if n not in _OPTIONAL or any(has_values(c, n) for c in chunks)}
    row_bytes = _bytes_per_add(snapshot, chunks)
    group_rows = max(1, min(GROUP_ROWS, int(_GROUP_BYTES / row_bytes)))
    window_rows = max(1, int(_WINDOW_BYTES / row_bytes) // group_rows) * group_rows
    starts = list(accumulate((chunk.num_rows for chunk in chunks), initial=0))
    numbered = list(zip(chunks, starts[:-1], strict=True))
    if order is not None and chunks[-1] is later:
        numbered.insert(0, numbered.pop())
    # What is in order does not wait for anything, so it needs one pass only.
    for first, last in _ranges(starts[-1], starts[-1] if order is None else window_rows):
        assembler = RowGroupAssembler(first, last, group_rows)
        wanted = [
            (chunk, start)
            for chunk, start in numbered
            if order is None or _touches(order.slice(start, chunk.num_rows), first, last)
        ]
        for chunk, start, batch in ahead(_batches(wanted, types, parsed=columns.as_struct)):
            count = batch.num_actions
            live = batch.rows.column("path").is_valid() if chunk is later else _live(replaced, batch)
            of_batch = in_order(start, count) if order is None else order.slice(start, count)
            for group in assembler.add(columns.passing(batch.rows), live, of_batch, batch.numbers):
                yield columns.finished(group)


def _batches(
    numbered: list[tuple[FileChunk, int]], types: Mapping[str, pa.DataType], *, parsed: bool
) -> Iterator[tuple[FileChunk, int, ActionBatch]]:
    """The batches of chunks, each with the number of its first action."""
    for chunk, start in numbered:
        for batch in action_batches(chunk, types, with_parsed_statistics=parsed):
            yield chunk, start, batch
            start += batch.num_actions


def _bytes_per_add(snapshot: Snapshot, chunks: list[FileChunk]) -> float:
    """About how much memory an action takes."""
    in_base = sum(bytes_per_action(chunk) * chunk.num_rows for chunk in chunks)
    in_tail = sum(len(a.path) + len(a.stats or "") for a in snapshot._tail.values() if isinstance(a, Add))
    return max(1.0, (in_base + in_tail) / max(sum(chunk.num_rows for chunk in chunks), 1))


def _ranges(total: int, rows: int) -> list[tuple[int, int]]:
    return [(first, min(first + rows, total)) for first in range(0, total, max(rows, 1))]


def _touches(order: pa.Array, first: int, last: int) -> bool:
    """Whether any of these places is in a range."""
    low, high = (value.as_py() for value in pc.min_max(order).values())
    return bool(len(order)) and low < last and high >= first


def _live(replaced: ReplacedFiles, batch: ActionBatch) -> pa.Array:
    """Which rows are actions that later commits have not replaced."""

    def vectors(rows: pa.Array) -> pa.ChunkedArray:
        if "deletionVector" in batch.rows.schema.names:
            return batch.picked("deletionVector", rows)
        return pa.chunked_array([pa.nulls(len(rows), DELETION_VECTOR)])

    return replaced.mask_of(batch.column("path"), vectors)
