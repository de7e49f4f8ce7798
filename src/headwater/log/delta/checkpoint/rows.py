"""The rows of a new checkpoint, as batches that become row groups (spec: "Checkpoints").

The older checkpoint's rows are copied as columns, a few thousand at a time, without those that later commits replaced;
the adds and tombstones of the commits after it are few and come first.

`add` actions are in the order of their partition values, then of the first column whose statistics are columns too, so
that readers can skip row groups. A row group is complete as soon as all its rows have been seen; the caller bounds the
memory for rows that arrive early by assembling only some row groups in one pass.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.actions.model import Add, Remove
from headwater.log.configuration.properties import DELETED_FILE_RETENTION, TRANSACTION_RETENTION
from headwater.log.files import arrow as build
from headwater.log.files.arrow import child_of
from headwater.log.files.chunks import (
    ADD_COLUMNS,
    DELETION_VECTOR,
    REMOVE_COLUMNS,
    MemoryChunk,
    ParquetChunk,
    as_deletion_vectors,
)
from headwater.log.files.live import ReplacedFiles
from headwater.log.files.parquet import BATCH_ROWS, ahead
from headwater.log.schema import physical_path
from headwater.log.stats.columns import ChunkStatistics
from headwater.log.stats.values import partition_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headwater.log.actions.model import DomainMetadata, Txn
    from headwater.log.delta.checkpoint.columns import AddColumns
    from headwater.log.files.chunks import FileChunk
    from headwater.log.filters.pruning import TableShape
    from headwater.log.snapshot import Snapshot
    from headwater.log.stats.decode import Leaf


_OPTIONAL = ("tags", "deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
"""Columns that most tables do not use: where no action has a value, none is carried along."""
_WINDOW_BYTES = 512 << 20
"""Adds that are not in order wait for their row group; this much of them, at a guess, is read in one pass."""
_GROUP_BYTES = 256 << 20
"""A row group of adds with very long statistics is smaller: Arrow's text ends at 2 GB, and memory earlier."""


def live_txns(snapshot: Snapshot) -> list[Txn]:
    """Return the applications' progress, without what `delta.setTransactionRetentionDuration` lets expire.

    A `txn` that does not say when it was made does not expire.
    """
    txns = list(snapshot._table_state.txns.values())
    kept_ms = snapshot.configuration[TRANSACTION_RETENTION]
    if kept_ms is None:
        return txns
    oldest = snapshot.ctx.clock_ms() - kept_ms
    return [txn for txn in txns if txn.last_updated is None or txn.last_updated > oldest]


def live_domains(snapshot: Snapshot) -> list[DomainMetadata]:
    """Return the metadata domains. Removed ones would suppress older actions, of which a checkpoint has none."""
    return [domain for domain in snapshot._table_state.domains.values() if not domain.removed]


def removes(snapshot: Snapshot) -> Iterator[pa.StructArray]:
    """Return the tombstones that have not expired."""
    oldest = snapshot.ctx.clock_ms() - snapshot.configuration[DELETED_FILE_RETENTION]
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
    """Return the live files, in order, a row group at a time."""
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
    """Return the batches of chunks, each with the number of its first action."""
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
    """Tell whether any of these places is in a range."""
    low, high = (value.as_py() for value in pc.min_max(order).values())
    return bool(len(order)) and low < last and high >= first


def _live(replaced: ReplacedFiles, batch: ActionBatch) -> pa.Array:
    """Which rows are actions that later commits have not replaced."""

    def vectors(rows: pa.Array) -> pa.ChunkedArray:
        if "deletionVector" in batch.rows.schema.names:
            return batch.picked("deletionVector", rows)
        return pa.chunked_array([pa.nulls(len(rows), DELETION_VECTOR)])

    return replaced.mask_of(batch.column("path"), vectors)


_MAX_KEYS = 2**62


def places(chunks: Sequence[FileChunk], shape: TableShape, first_leaf: Leaf | None, *, typed: bool) -> pa.Array | None:
    """For each action of the chunks, its place (`uint64`) in the order; None when they are in order already.

    Args:
        chunks: the `add` actions, older ones first.
        shape: the table.
        first_leaf: the column whose lower bounds decide within a partition, if any.
        typed: whether partition values are in the order of their type, or of their text.
    """
    keys: pa.ChunkedArray | None = None
    distinct = 1
    for column in _columns(chunks, shape, first_leaf, typed=typed):
        codes, count = _codes(column)
        if distinct * count > _MAX_KEYS and keys is not None:
            keys = pa.chunked_array([pc.rank(keys, tiebreaker="dense").cast(pa.int64())])
            distinct = len(keys) + 1
        keys = codes if keys is None else pc.add(pc.multiply(keys, build.int64s([count])[0]), codes)
        distinct *= count
    if keys is None or len(keys) < 2 or pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        return None
    return pc.subtract(pc.rank(keys, tiebreaker="first"), build.ONE.cast(pa.uint64()))


def _columns(
    chunks: Sequence[FileChunk], shape: TableShape, first_leaf: Leaf | None, *, typed: bool
) -> Iterator[pa.ChunkedArray]:
    for name in shape.partition_columns:
        field = shape.schema.field(name)
        [physical] = physical_path(shape.schema, [name], shape.mapping_mode)
        found = [partition_column(chunk, field, physical) if typed else None for chunk in chunks]
        parts = [
            chunk.map_values("partitionValues", physical) if values is None else values
            for chunk, values in zip(chunks, found, strict=True)
        ]
        yield _joined(parts)
    if first_leaf is not None:
        bounds = [ChunkStatistics(chunk).leaf(first_leaf).lower for chunk in chunks]
        yield _joined(
            [
                pa.chunked_array([pa.nulls(chunk.num_rows)]) if lower is None else lower
                for chunk, lower in zip(chunks, bounds, strict=True)
            ]
        )


def _joined(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Columns of all chunks, of which some may know nothing."""
    known = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.string())
    arrays = [array if array.type == known else array.cast(known) for part in parts for array in part.chunks]
    return pa.chunked_array(arrays, type=known)


def _codes(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """Numbers (`int64`) in the order of the values, null last; and a number that is greater than all of them.

    Texts are compared once for each distinct one: there are few partitions and many files.
    """
    if pa.types.is_primitive(column.type):
        ranks = pc.rank(column, tiebreaker="dense").cast(pa.int64())
        return pa.chunked_array([ranks]), len(ranks) + 2
    encoded = column.dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return pa.chunked_array([], type=pa.int64()), 1
    dictionary = encoded.chunk(0).dictionary
    ranks = pc.rank(dictionary, tiebreaker="dense").cast(pa.int64())
    last = build.int64s([len(dictionary) + 1])[0]
    codes = [pc.fill_null(ranks.take(part.indices), last) for part in encoded.chunks]
    return pa.chunked_array(codes, type=pa.int64()), len(dictionary) + 2


GROUP_ROWS = 65_536
_POOL = pa.system_memory_pool()


class RowGroupAssembler:
    """Collects the rows whose places are from `first` to before `last`.

    Args:
        first: a multiple of the size of row groups.
        last: another one, or the number of all rows.
        group_rows: the size of row groups.
    """

    def __init__(self, first: int, last: int, group_rows: int) -> None:
        self._first, self._last, self._group_rows = first, last, group_rows
        self._seen: defaultdict[int, int] = defaultdict(int)
        self._waiting: defaultdict[int, list[tuple[pa.RecordBatch, pa.Array]]] = defaultdict(list)

    def add(
        self, batch: pa.RecordBatch, live: pa.Array, places: pa.Array, numbers: pa.Array | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Take what belongs here out of a batch, and give out the row groups that are complete now.

        Args:
            batch: some rows.
            live: which of them still count (booleans); the others only take their place.
            places: the place of each (`uint64`).
            numbers: the rows that have a place, ascending, if not all of them have.
        """
        ascending = pc.all(pc.less(places[:-1], places[1:])).as_py()
        order = None if ascending else pc.sort_indices(places)
        places = places if order is None else places.take(order)
        sorted_places = _numbers(places)
        start, end = bisect_left(sorted_places, self._first), bisect_left(sorted_places, self._last)
        if start == end:
            return
        rows = _range(start, end) if order is None else order.slice(start, end - start)
        rows = rows if numbers is None else numbers.take(rows)
        kept = live.take(rows)
        if kept.true_count == len(batch) and order is None:
            taken, of_taken = batch, places
        else:
            taken, of_taken = (
                pc.take(batch, rows.filter(kept), memory_pool=_POOL),
                places.slice(start, end - start).filter(kept),
            )
        groups = range(sorted_places[start] // self._group_rows, sorted_places[end - 1] // self._group_rows + 1)
        taken_places = _numbers(of_taken)
        for group in groups:
            low, high = group * self._group_rows, min((group + 1) * self._group_rows, self._last)
            self._seen[group] += bisect_left(sorted_places, high) - bisect_left(sorted_places, low)
            a, b = bisect_left(taken_places, low), bisect_left(taken_places, high)
            if b > a:
                self._waiting[group].append((taken.slice(a, b - a), of_taken.slice(a, b - a)))
            if self._seen[group] == high - low:
                yield from self._complete(group)

    def _complete(self, group: int) -> Iterator[pa.RecordBatch]:
        pieces = self._waiting.pop(group, [])
        del self._seen[group]
        if not pieces:
            return
        if len(pieces) == 1:
            yield pieces[0][0]
            return
        whole = pa.concat_batches([batch for batch, _ in pieces], memory_pool=_POOL)
        places = pa.concat_arrays([of_piece for _, of_piece in pieces])
        if pc.all(pc.less(places[:-1], places[1:])).as_py():
            yield whole
        else:
            yield pc.take(whole, pc.sort_indices(places), memory_pool=_POOL)


def _numbers(values: pa.Array) -> memoryview:
    """Return an array of `uint64` without nulls, for a binary search."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return memoryview(b"").cast("Q")
    return memoryview(data)[values.offset * 8 : (values.offset + len(values)) * 8].cast("Q")


def _range(start: int, end: int) -> pa.Array:
    return pa.Array.from_buffers(pa.uint64(), end - start, [None, pa.py_buffer(array("Q", range(start, end)))])


def in_order(start: int, count: int) -> pa.Array:
    """Return the places of rows that stay where they are."""
    return _range(start, start + count)


STATS_PARSED = "stats_parsed"


@dataclass(frozen=True, slots=True)
class ActionBatch:
    """Some rows, of which those with the given numbers are the actions (all of them if None).

    Rows of other actions are not filtered out here: callers that select rows do it in one step.
    """

    rows: pa.RecordBatch
    numbers: pa.Array | None

    @property
    def num_actions(self) -> int:
        return int(self.rows.num_rows) if self.numbers is None else len(self.numbers)

    def column(self, name: str) -> pa.ChunkedArray:
        return pa.chunked_array([self.rows.column(name)])

    def picked(self, name: str, numbers: pa.Array) -> pa.ChunkedArray:
        return pa.chunked_array([self.rows.column(name).take(numbers)])


def action_batches(
    chunk: FileChunk, types: Mapping[str, pa.DataType], *, with_parsed_statistics: bool = False
) -> Iterator[ActionBatch]:
    """Return the actions of a chunk with the columns of `types`, in their order.

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
    """Tell whether a column of a chunk may have a value: by the footer, where that is."""
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
