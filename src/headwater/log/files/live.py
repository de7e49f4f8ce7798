"""The live files of a snapshot: the checkpoint's rows that still count, and the adds after it.

Rows of the checkpoint that a later commit replaced or removed are masked out, and only the rows and columns that a plan
needs are gathered. Everything read here is shared by all snapshots on the same checkpoint.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.actions.model import Add, DeletionVector, Remove
from headwater.log.actions.paths import canonical_array
from headwater.log.files import arrow as build
from headwater.log.files.chunks import (
    ADD_COLUMNS,
    REMOVE_COLUMNS,
    MemoryChunk,
    SubsetChunk,
    deletion_vectors,
    unique_ids,
)
from headwater.log.files.parquet import each, each_in_two_steps
from headwater.log.filters.expressions import and_
from headwater.log.filters.pruning import ChunkPruner, operands_of, split_by_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from headwater.log.actions.decode import FileKey
    from headwater.log.commit.transaction import Transaction
    from headwater.log.dialect import LogDialect
    from headwater.log.files.chunks import FileChunk
    from headwater.log.filters.expressions import Expression
    from headwater.log.filters.pruning import TableShape
    from headwater.log.snapshot import BaseFiles


_SEPARATOR = build.binaries([b"\0"])[0]
_FEW = 4
"""Statistics are decoded for the survivors of the partition filter alone if they are fewer than 1 in this many rows."""


class LiveFiles:
    def __init__(
        self,
        base: BaseFiles,
        tail: dict[FileKey, Add | Remove],
        shape: TableShape,
        dialect: LogDialect,
    ) -> None:
        self._dialect = dialect
        self._base = base
        self._tail = tail
        self._shape = shape
        self._masks: dict[int, pa.Array] = {}

    @cached_property
    def _tail_chunk(self) -> MemoryChunk:
        return self._dialect.chunk([a for a in self._tail.values() if isinstance(a, Add)])

    @cached_property
    def _tail_pruner(self) -> ChunkPruner:
        return ChunkPruner(self._tail_chunk, self._shape)

    @cached_property
    def _replaced(self) -> ReplacedFiles:
        return ReplacedFiles(list(self._tail))

    def table(self, where: Expression | None, columns: Sequence[str]) -> pa.Table:
        """Return columns of all files that may hold a row matching the filter."""
        if where is not None:
            operands_of(where, self._shape)  # raises for a column that the table does not have
        indexes = range(len(self._base.adds))
        if where is None:
            from_base = each(lambda index: self._all_of(index, columns), indexes)
        elif self._decided_by_columns(where):
            from_base = each_in_two_steps(
                lambda index: self._base_candidates(index, where),
                lambda index, rows: self._some_of(index, rows, columns),
                indexes,
            )
        else:
            # Threads that decode JSON only wait for each other; reading ahead already keeps a second core busy.
            candidates = [self._base_candidates(index, where) for index in indexes]
            from_base = each(lambda index: self._some_of(index, candidates[index], columns), indexes)
        parts = [part for part in (*from_base, self._tail_part(where, columns)) if part is not None]
        return pa.concat_tables(parts) if parts else self._no_files(columns)

    def named(self, paths: Collection[str], columns: Sequence[str]) -> pa.Table:
        """Return columns of the files with these canonical paths."""
        wanted = build.binaries([path.encode("utf-8", "surrogateescape") for path in paths])
        indexes = range(len(self._base.adds))
        from_base = each(lambda index: self._some_of(index, _hits(self._base.adds[index], wanted), columns), indexes)
        tail = self._tail_chunk
        parts = [part for part in from_base if part is not None]
        if tail.num_rows:
            parts.append(_gather(tail, _hits(tail, wanted), columns))
        return pa.concat_tables(parts) if parts else self._no_files(columns)

    def _no_files(self, columns: Sequence[str]) -> pa.Table:
        types = self._tail_chunk.types
        return pa.schema([(name, types[name]) for name in columns]).empty_table()

    def _decided_by_columns(self, where: Expression) -> bool:
        """Say whether no statistics have to be decoded from text."""
        by_statistics = split_by_partition(where, self._shape)[1]
        return not by_statistics or all(chunk.has_parsed_statistics for chunk in self._base.adds)

    def _all_of(self, index: int, columns: Sequence[str]) -> pa.Table:
        chunk = self._base.adds[index]
        return _gather(chunk, self._live_mask(index, chunk), columns)

    def _base_candidates(self, index: int, where: Expression) -> pa.Array:
        return self._candidates(self._base.pruner(index, self._shape), self._base.adds[index], where)

    def _some_of(self, index: int, rows: pa.Array, columns: Sequence[str]) -> pa.Table | None:
        """Return the live files among some candidate rows of one chunk of the checkpoint."""
        chunk = self._base.adds[index]
        if not len(rows):
            return None
        if index in self._masks or len(rows) * _FEW >= chunk.num_rows:
            return _gather(chunk, rows.filter(self._live_mask(index, chunk).take(rows)), columns)
        few = SubsetChunk(chunk, rows)
        return _gather(few, self._replaced.mask(few), columns)

    def _tail_part(self, where: Expression | None, columns: Sequence[str]) -> pa.Table | None:
        """Return the files of the commits after the checkpoint."""
        tail = self._tail_chunk
        if not tail.num_rows:
            return None
        rows = None if where is None else self._candidates(self._tail_pruner, tail, where)
        return _gather(tail, rows, columns) if rows is None or len(rows) else None

    def tombstones(self) -> pa.Table:
        """Return the files that were removed, as far as the log still knows them."""
        columns = list(REMOVE_COLUMNS)
        removes = [a for a in self._tail.values() if isinstance(a, Remove)]
        later = _gather(MemoryChunk(removes, REMOVE_COLUMNS), None, columns)
        return pa.concat_tables([later, *(_gather(c, self._replaced.mask(c), columns) for c in self._base.removes)])

    def _candidates(self, pruner: ChunkPruner, chunk: FileChunk, where: Expression) -> pa.Array:
        """Return the rows that survive the filter: by partition values first, by statistics for what they leave."""
        by_partition, by_statistics = split_by_partition(where, self._shape)
        mask = pruner.may_match(and_(*by_partition))
        if not by_statistics:
            return _rows(mask)
        rows = _rows(mask)
        rest = and_(*by_statistics)
        if not len(rows):
            return rows
        if len(rows) * _FEW < chunk.num_rows:
            subset = ChunkPruner(SubsetChunk(chunk, rows), self._shape)
            return rows.filter(subset.may_match(rest).combine_chunks())
        return _rows(pc.and_(mask, pruner.may_match(rest)))

    def _live_mask(self, index: int, chunk: FileChunk) -> pa.Array:
        if index not in self._masks:
            self._masks[index] = self._replaced.mask(chunk)
        return self._masks[index]


class ReplacedFiles:
    """The keys of the tail: rows of a checkpoint under one of them no longer count."""

    def __init__(self, keys: Sequence[FileKey]) -> None:
        encoded = [path.encode("utf-8", "surrogateescape") for path, _ in keys]
        self._paths = build.binaries(encoded)
        self._keys = build.binaries(
            [path + b"\0" + (vector or "").encode() for path, (_, vector) in zip(encoded, keys, strict=True)]
        )

    def mask(self, chunk: FileChunk) -> pa.Array:
        """Return a mask of the file actions that the tail does not replace."""
        return self.mask_of(chunk.column("path"), lambda rows: chunk.rows("deletionVector", rows))

    def mask_of(self, paths: pa.ChunkedArray, vectors_of: Callable[[pa.Array], pa.ChunkedArray]) -> pa.Array:
        """Do the same for a column of paths; `vectors_of` returns the deletion vectors of rows (ascending numbers)."""
        live = paths.is_valid().combine_chunks()
        if not len(self._paths):
            return live
        keys = pa.chunked_array([canonical_array(c).cast(pa.binary()) for c in paths.chunks], type=pa.binary())
        hits = pc.is_in(keys, value_set=self._paths).combine_chunks()
        rows = pc.indices_nonzero(hits)
        if not len(rows):
            return live
        # The path is known to the tail; whether the logical file is depends on its deletion vector too.
        vectors = unique_ids(vectors_of(rows)).cast(pa.binary())
        full = pc.binary_join_element_wise(build.take_ascending(keys, rows), vectors, _SEPARATOR)
        replaced = pc.is_in(full, value_set=self._keys)
        return pc.replace_with_mask(live, hits, pc.invert(replaced).combine_chunks())


def _hits(chunk: FileChunk, wanted: pa.Array) -> pa.Array:
    """Return the numbers of the rows whose canonical path is wanted."""
    paths = chunk.column("path").chunks
    keys = pa.chunked_array([canonical_array(part).cast(pa.binary()) for part in paths], type=pa.binary())
    return pc.indices_nonzero(pc.is_in(keys, value_set=wanted).combine_chunks())


def _rows(mask: pa.ChunkedArray) -> pa.Array:
    return pc.indices_nonzero(mask.combine_chunks())


def _gather(chunk: FileChunk, selection: pa.Array | None, columns: Sequence[str]) -> pa.Table:
    """Return columns of the rows that a mask, or their ascending numbers, select."""
    if selection is not None and not pa.types.is_boolean(selection.type):
        return pa.table({name: chunk.rows(name, selection) for name in columns})
    return pa.table({name: _masked(chunk.column(name), selection) for name in columns})


def _masked(column: pa.ChunkedArray, mask: pa.Array | None) -> pa.ChunkedArray:
    if mask is None:
        return column
    # Chunk by chunk: one pass for all would gather large strings in one piece, which costs several times more.
    parts, start = [], 0
    for part in column.chunks:
        some = mask.slice(start, len(part))
        parts.append(part if some.true_count == len(part) else part.filter(some))
        start += len(part)
    return pa.chunked_array(parts, type=column.type)


REMOVED_COLUMNS = [
    "path",
    "partitionValues",
    "size",
    "stats",
    "tags",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
]
"""The columns of `Snapshot.files` that a tombstone keeps."""


def file_table(adds: Sequence[Add]) -> pa.Table:
    """Return files of a Delta table as `Snapshot.files` lists them, with all columns."""
    return _gather(MemoryChunk(adds, ADD_COLUMNS), None, list(ADD_COLUMNS))


def with_vectors(files: pa.Table, vectors: Mapping[str, DeletionVector]) -> pa.Table:
    """Return the same files, some of them with other deletion vectors, by path."""
    if not vectors:
        return files
    logged = map(_vector, files.column("deletionVector").to_pylist())
    paths = files.column("path").to_pylist()
    found = deletion_vectors([vectors.get(path, own) for path, own in zip(paths, logged, strict=True)])
    return files.set_column(files.schema.get_field_index("deletionVector"), "deletionVector", found)


def additions(files: pa.Table, *, data_change: bool) -> list[Add]:
    """Return the `add` actions for files, as the log lists them (with all columns)."""
    rows = files.drop_columns(["dataChange"]).to_pylist(maps_as_pydicts="strict")
    return [msgspec.convert({**row, "dataChange": data_change}, Add) for row in rows]


def removals(files: pa.Table, deleted_ms: int, *, data_change: bool) -> list[Remove]:
    """Return the `remove` actions for live files, given with the columns `REMOVED_COLUMNS`.

    `data_change` says whether rows vanish with them; it is False when rows only move.
    """
    rows = files.select(REMOVED_COLUMNS).to_pylist(maps_as_pydicts="strict")
    return [
        Remove(
            path=row["path"],
            data_change=data_change,
            deletion_timestamp=deleted_ms,
            extended_file_metadata=True,
            partition_values=row["partitionValues"] or {},
            size=row["size"],
            # Rows that are moved are counted: as many must come as go.
            stats=None if data_change else row["stats"],
            tags=row["tags"],
            deletion_vector=_vector(row["deletionVector"]),
            base_row_id=row["baseRowId"],
            default_row_commit_version=row["defaultRowCommitVersion"],
        )
        for row in rows
    ]


def _vector(fields: dict[str, object] | None) -> DeletionVector | None:
    return None if fields is None else msgspec.convert(fields, DeletionVector)


def all_files(transaction: Transaction) -> pa.Table:
    """Return all live files; other writers may not add or remove rows until the commit."""
    return transaction.read_files(columns=REMOVED_COLUMNS)
