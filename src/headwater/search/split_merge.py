"""Merging splits to one: the segments of their indexes are put into one index, and the rows one after the other.

Nothing is analysed again, so a merge costs about half of indexing anew. Splits with different index configurations (or
the one in four billion pairs that have the same row ids) are indexed anew from their rows.
"""

from __future__ import annotations

import os
import shutil
import uuid
from typing import TYPE_CHECKING

from headwater.errors import SearchConfigError
from headwater.search.built_split import INDEX_DIRECTORY, ROWS_PART, BuiltSplit, assemble
from headwater.search.column_bounds import ColumnBounds
from headwater.search.index_files import join_indexes
from headwater.search.index_schema import open_index
from headwater.search.row_types import row_schema
from headwater.search.split_rows import RowsWriter
from headwater.search.split_writer import DEFAULT_HEAP_BYTES, SplitWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.search.fields import IndexConfig
    from headwater.search.split import Split


def merge_splits(
    splits: Sequence[Split], directory: str, *, config: IndexConfig | None = None, heap_bytes: int = DEFAULT_HEAP_BYTES
) -> BuiltSplit:
    """Merge splits of one table to one.

    The rows of the result are those of the splits, in the given order.

    Args:
        splits: at least one.
        directory: an existing local directory, for the work and the result.
        config: the index configuration of the result; the last split's if not given.
        heap_bytes: what the index may hold in memory.

    Raises:
        CorruptSplitError: one of the splits is damaged; its `path` says which.
        SearchConfigError: the splits have different columns, or different configurations and columns that are only
            indexed, so that they cannot be indexed anew.
    """
    if not splits:
        raise SearchConfigError("there are no splits to merge")
    schema = splits[-1].schema
    for split in splits:
        if split.schema != schema:
            raise SearchConfigError(f"the splits {split.path} and {splits[-1].path} have different columns")
        split.prewarm()  # a damaged split is found before anything is written
    wanted = config or splits[-1].config
    first_ids = [first for split in splits for first, _ in split.metadata.row_ids]
    work = os.path.join(directory, f"{uuid.uuid4()}.split.tmp")
    try:
        same = all(split.config == wanted for split in splits) and len(set(first_ids)) == len(first_ids)
        if same and _join(splits, work):
            return _merged(splits, wanted, work, heap_bytes)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return _indexed_anew(splits, wanted, directory, heap_bytes)


def _join(splits: Sequence[Split], work: str) -> bool:
    """Put the indexes together in the work directory; False if their schemas differ after all."""
    sources = [os.path.join(work, f"source-{number}") for number in range(len(splits))]
    os.makedirs(os.path.join(work, INDEX_DIRECTORY))
    for split, source in zip(splits, sources, strict=True):
        split.link_index(source)
    return join_indexes(sources, os.path.join(work, INDEX_DIRECTORY))


def _merged(splits: Sequence[Split], config: IndexConfig, work: str, heap_bytes: int) -> BuiltSplit:
    writer = open_index(os.path.join(work, INDEX_DIRECTORY)).writer(heap_bytes, 1)
    writer.commit()  # this is when tantivy looks for segments to merge
    writer.wait_merging_threads()
    schema = splits[0].schema
    stored = config.stored_schema(schema)
    rows = RowsWriter(os.path.join(work, ROWS_PART), row_schema(stored))
    bounds = ColumnBounds(stored, config)  # the values of columns that are only indexed are gone, and so their bounds
    null_counts = dict.fromkeys(schema.names, 0)
    for split in splits:
        for name, count in split.metadata.null_counts.items():
            null_counts[name] += count
        for batch in split.iter_rows():
            rows.write(batch)
            bounds.add(batch)
    rows.close()
    return assemble(
        work,
        work.removesuffix(".tmp"),
        config=config,
        schema=schema,
        rows=rows,
        bounds=bounds,
        row_ids=tuple(pair for split in splits for pair in split.metadata.row_ids),
        partial_fields=frozenset().union(*(split.partial_fields for split in splits)),
        null_counts=null_counts,
        num_merge_ops=1 + max(split.metadata.num_merge_ops for split in splits),
    )


def _indexed_anew(splits: Sequence[Split], config: IndexConfig, directory: str, heap_bytes: int) -> BuiltSplit:
    lost = sorted(set().union(*(split.config.index_only_columns for split in splits)))
    if lost:
        raise SearchConfigError(
            f"the splits {splits[0].path} and others have different index configurations, and column {lost[0]!r} is "
            f"only indexed: its values are not kept, so the splits cannot be indexed anew"
        )
    merges = 1 + max(split.metadata.num_merge_ops for split in splits)
    with SplitWriter(config, splits[0].schema, directory, heap_bytes=heap_bytes, num_merge_ops=merges) as writer:
        for split in splits:
            for batch in split.iter_rows():
                writer.add(batch)
        return writer.finish()
