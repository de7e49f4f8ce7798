"""The actions of a search table's log, as typed values (spec 002: "Action Types").

`protocol` and `metaData` are those of Delta. An `add` names a split, with its extended fields; `mergeskip` records a
split that a merge could not take. Each `add` keeps its own text, so that what a newer writer says in fields that are
not known here goes into the next checkpoint as it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.errors import CorruptLogError
from headwater.log.actions import Add, FileActionLine, Int, Long, Remove, TableActionLine

if TYPE_CHECKING:
    from collections.abc import Sequence


def _wire_name(name: str) -> str:
    """The name of a field in JSON; fields that only Delta has get one that nobody writes."""
    if name in _OF_DELTA:
        return f"(delta) {name}"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_OF_DELTA = frozenset(
    {"deletion_vector", "base_row_id", "default_row_commit_version", "clustering_provider", "txn", "domain_metadata"}
    | {"raw"}
)
_NO_VALUES: dict[str, str | None] = {}


class SplitAdd(Add, frozen=True, rename=_wire_name):
    """A split that is part of the table from this version on.

    `min_values` and `max_values` are text, whatever the type of the column: numbers in decimal, booleans as `true` and
    `false`, dates as `2024-10-01`, timestamps as `2024-10-01T23:59:59.999999Z` (those without a zone without the `Z`).
    A column that is not in both has no bounds.

    >>> SplitAdd("part-0.split", 1_048_576, modification_time=0, num_records=1_000).num_records
    1000
    """

    deletion_vector: None = None
    base_row_id: None = None
    default_row_commit_version: None = None
    clustering_provider: None = None
    min_values: dict[str, str | None] | None = None
    max_values: dict[str, str | None] | None = None
    num_records: Long | None = None
    footer_start_offset: Long | None = None
    footer_end_offset: Long | None = None
    hotcache_start_offset: Long | None = None
    hotcache_length: Long | None = None
    has_footer_offsets: bool = False
    time_range_start: str | None = None
    time_range_end: str | None = None
    split_tags: tuple[str, ...] | None = None
    delete_opstamp: Long | None = None
    num_merge_ops: Int | None = None
    doc_mapping_json: str | None = None
    uncompressed_size_bytes: Long | None = None
    raw: bytes = b""
    """The action as it stands in a version file; empty for one that was not read from there."""

    def removed(self, deletion_timestamp: int, *, data_change: bool = True, **tags: str) -> SplitRemove:
        """The `remove` of this split."""
        return SplitRemove(
            self.path,
            data_change=data_change,
            deletion_timestamp=deletion_timestamp,
            partition_values=self.partition_values,
            size=self.size,
            tags=dict(tags) or None,
        )


class SplitRemove(Remove, frozen=True, rename=_wire_name):
    """The split is no longer part of the table."""

    deletion_vector: None = None
    base_row_id: None = None
    default_row_commit_version: None = None


class MergeSkip(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """A split that an operation skipped (`mergeskip`): not to be tried again before `retry_after`."""

    path: str
    skip_timestamp: Long
    reason: str
    operation: str
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    retry_after: Long | None = None
    """Milliseconds since the epoch; None for at once."""
    skip_count: Int = 1


class SplitActionLine(FileActionLine, frozen=True):
    """One line of a version file, decoded for its file actions only."""

    cdc: None = None


class SplitTableLine(
    TableActionLine,
    frozen=True,
    rename={"txn": "(delta) txn", "domain_metadata": "(delta) domainMetadata"},
):
    """One line of a version file, decoded for everything but file actions."""

    txn: None = None
    domain_metadata: None = None
    mergeskip: MergeSkip | None = None


class _Line(msgspec.Struct, frozen=True, gc=False):
    """A line with the text of its `add`."""

    add: msgspec.Raw = msgspec.Raw()
    remove: SplitRemove | None = None


LINE: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_ADD = msgspec.json.Decoder(SplitAdd)
_NOTHING = (b"", b"null")


def file_lines(lines: Sequence[_Line], key: str) -> list[FileActionLine]:
    """The file actions of decoded lines; each add keeps its text."""
    found: list[FileActionLine] = []
    for number, line in enumerate(lines, 1):
        text = bytes(line.add)
        if line.remove is not None:
            found.append(SplitActionLine(remove=line.remove))
        if text not in _NOTHING:
            found.append(SplitActionLine(add=read_add(text, f"{key}, action {number}")))
    return found


def read_add(text: bytes, where: str) -> SplitAdd:
    """An add from its text. Raises `CorruptLogError`, which says where."""
    try:
        add = _ADD.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptLogError(f"{where}: not a valid action: {error}") from error
    msgspec.structs.force_setattr(add, "raw", text)
    return add
