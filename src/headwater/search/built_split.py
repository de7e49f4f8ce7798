"""A finished split on the local disk: putting its parts together, and what the log's `add` says of it.

Spec 002, "AddAction": the extended fields are all known here, at the moment the split is written.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.log.split_actions import SplitAdd
from headwater.search.index_files import index_files
from headwater.search.split_bundle import BundleFooter, write_bundle
from headwater.search.split_metadata import SplitMetadata
from headwater.search.split_rows import BATCH_ROWS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headwater.log.schema import StructType
    from headwater.search.column_bounds import ColumnBounds
    from headwater.search.fields import IndexConfig
    from headwater.search.split_rows import RowsWriter

ROWS_PART: Final = "rows.arrow"
INDEX_DIRECTORY: Final = "index"


@dataclass(frozen=True, slots=True)
class BuiltSplit:
    """A split on the local disk, and what the log's `add` says of it.

    Attributes:
        path: the local file.
        size_bytes: of the file.
        num_records: rows.
        footer: the checked footer: offsets, parts, and the digest of the content.
        min_values: the smallest value of each column that has bounds, as the spec's text.
        max_values: the largest.
        time_range: first and last instant of the first timestamp column.
        uncompressed_size_bytes: of the rows, in memory.
        doc_mapping: the index configuration, as JSON.
        num_merge_ops: how often its rows were merged.
    """

    path: str
    size_bytes: int
    num_records: int
    footer: BundleFooter
    min_values: Mapping[str, str]
    max_values: Mapping[str, str]
    time_range: tuple[str, str] | None
    uncompressed_size_bytes: int
    doc_mapping: str
    num_merge_ops: int = 0

    def to_add(
        self,
        path: str,
        partition_values: Mapping[str, str | None] | None = None,
        *,
        modified_ms: int | None = None,
        data_change: bool = True,
        tags: Mapping[str, str | None] | None = None,
        split_tags: tuple[str, ...] | None = None,
    ) -> SplitAdd:
        """The `add` of this split, once it is at `path` in the table (spec 002, "AddAction")."""
        start, end = self.time_range or (None, None)
        return SplitAdd(
            path,
            self.size_bytes,
            partition_values=dict(partition_values or {}),
            modification_time=modified_ms if modified_ms is not None else time.time_ns() // 1_000_000,
            data_change=data_change,
            tags=dict(tags) if tags is not None else None,
            min_values=dict(self.min_values),
            max_values=dict(self.max_values),
            num_records=self.num_records,
            footer_start_offset=self.footer.footer_start,
            footer_end_offset=self.footer.footer_end,
            hotcache_start_offset=self.footer.hotcache_start,
            hotcache_length=self.footer.hotcache_length,
            has_footer_offsets=True,
            time_range_start=start,
            time_range_end=end,
            split_tags=split_tags,
            delete_opstamp=0,
            num_merge_ops=self.num_merge_ops,
            doc_mapping_json=self.doc_mapping,
            uncompressed_size_bytes=self.uncompressed_size_bytes,
        )


def assemble(
    work: str,
    target: str,
    *,
    config: IndexConfig,
    schema: StructType,
    rows: RowsWriter,
    bounds: ColumnBounds,
    row_ids: tuple[tuple[int, int], ...],
    partial_fields: Collection[str],
    null_counts: Mapping[str, int],
    num_merge_ops: int = 0,
) -> BuiltSplit:
    """Bundle the closed rows file and the committed index in the directory `work`; the split appears at `target`."""
    doc_mapping = config.to_json()
    least, greatest = bounds.texts()
    metadata = SplitMetadata(
        doc_mapping=msgspec.json.decode(doc_mapping),
        schema=schema.to_dict(),
        num_records=rows.num_rows,
        row_ids=row_ids,
        row_batch_rows=BATCH_ROWS,
        partial_fields=tuple(sorted(partial_fields)),
        null_counts=dict(null_counts),
        min_values=least,
        max_values=greatest,
        num_merge_ops=num_merge_ops,
    )
    parts = [(ROWS_PART, os.path.join(work, ROWS_PART)), *index_files(os.path.join(work, INDEX_DIRECTORY))]
    bundle = os.path.join(work, "bundle")
    footer = write_bundle(bundle, parts, metadata.encode())
    os.rename(bundle, target)
    return BuiltSplit(
        path=target,
        size_bytes=footer.footer_end,
        num_records=rows.num_rows,
        footer=footer,
        min_values=least,
        max_values=greatest,
        time_range=bounds.time_range(),
        uncompressed_size_bytes=rows.uncompressed_bytes,
        doc_mapping=doc_mapping,
        num_merge_ops=num_merge_ops,
    )
