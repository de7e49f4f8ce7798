"""What a split says about itself: the JSON in the hotcache part of its bundle.

It is enough to plan with a split, and to rebuild the `add` and the `metaData` of a lost log from the splits alone.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.errors import CorruptSplitError

FORMAT_VERSION = 1


class SplitMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """The metadata of one split.

    Attributes:
        format_version: 1; readers refuse a higher one.
        doc_mapping: the index configuration (`docMappingJson`, as an object).
        schema: the Spark schema of the rows that the split was made from, as an object.
        num_records: rows.
        row_ids: pairs of the first row id and the number of rows that count on from it, in the order of the
            rows. A split that was merged from others has one pair for each.
        row_batch_rows: rows in each record batch of the rows part, but the last.
        partial_fields: index fields that lack the value of some row.
        null_counts: for each column how many rows have none.
        min_values: as in the `add`.
        max_values: as in the `add`.
        num_merge_ops: how often rows in this split were merged.
    """

    doc_mapping: dict[str, Any]
    schema: dict[str, Any]
    num_records: int
    row_ids: tuple[tuple[int, int], ...]
    row_batch_rows: int
    partial_fields: tuple[str, ...] = ()
    null_counts: dict[str, int] = {}
    min_values: dict[str, str] = {}
    max_values: dict[str, str] = {}
    num_merge_ops: int = 0
    format_version: int = FORMAT_VERSION

    def encode(self) -> bytes:
        """The JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes, path: str) -> SplitMetadata:
        """Read the JSON of the split at `path`.

        Raises:
            CorruptSplitError: it is none, or of a newer version.
        """
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CorruptSplitError(f"the metadata of the split {path} cannot be read: {error}", path) from error
        if found.format_version > FORMAT_VERSION:
            raise CorruptSplitError(
                f"the split {path} has format version {found.format_version}; this Headwater reads up to "
                f"{FORMAT_VERSION}: use a newer one",
                path,
            )
        return found
