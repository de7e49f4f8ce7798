"""Row counts and null counts that commit rules require of a file's statistics (spec: "Per-file Statistics")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import CorruptLogError, InvalidCommitError
from headwater.log.actions.paths import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headwater.log.actions.model import Add
    from headwater.log.snapshot import Snapshot
    from headwater.log.stats.decode import Leaf

_FILES_AT_ONCE = 10_000


class _Count(msgspec.Struct, gc=False):
    numRecords: int | None = None


class _Nulls(msgspec.Struct):
    numRecords: int | None = None
    nullCount: dict[str, Any] | None = None


_COUNT = msgspec.json.Decoder(_Count)
_COUNTS = msgspec.json.Decoder(list[_Count])
_NULLS = msgspec.json.Decoder(_Nulls)


def num_records(add: Add) -> int | None:
    """Return the number of rows in the data file, if its statistics have it.

    >>> from headwater.log.actions.model import Add
    >>> num_records(Add("f.parquet", 10, stats='{"numRecords": 3}'))
    3
    """
    if not add.stats:
        return None
    try:
        count = _COUNT.decode(add.stats).numRecords
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidCommitError(f"the statistics of {add.path!r} are not valid: {error}") from error
    return count if count is not None and count >= 0 else None


def row_counts(stats: Sequence[str | None]) -> list[int | None]:
    """Return the numbers of rows in data files, where their statistics have them.

    >>> row_counts(['{"numRecords": 3}', None, '{}'])
    [3, None, None]
    """
    try:
        found = _COUNTS.decode(f"[{','.join(text or '{}' for text in stats)}]")
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLogError(f"the statistics of a live file are not valid: {error}") from error
    return [None if one.numRecords is None or one.numRecords < 0 else one.numRecords for one in found]


def required_num_records(add: Add, feature: str) -> int:
    """Return the number of rows in the data file.

    Raises:
        InvalidCommitError: the statistics do not have it, though a feature of the table needs it.
    """
    count = num_records(add)
    if count is None:
        raise InvalidCommitError(
            f"the add action of {add.path!r} has no numRecords in its statistics, which {feature} needs. "
            "Write the file with statistics."
        )
    return count


def columns_without_statistics(add: Add, columns: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the columns (physical names) that the file's statistics do not cover; an empty file needs none."""
    try:
        stats = _NULLS.decode(add.stats or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidCommitError(f"the statistics of {add.path!r} are not valid: {error}") from error
    if stats.numRecords == 0:
        return []
    return [column for column in columns if not _covers(stats.nullCount, column)]


def _covers(counts: object, column: tuple[str, ...]) -> bool:
    for name in column:
        counts = counts.get(name) if isinstance(counts, dict) else None
    return counts is not None


def live_file_without_statistics(snapshot: Snapshot, leaves: Sequence[Leaf], leaving: Collection[str]) -> str | None:
    """Find a file that stays in the table and has no `numRecords`, or no statistics for one of the columns.

    Args:
        snapshot: the table.
        leaves: columns by physical name, with their types.
        leaving: the canonical paths of files that are removed.
    """
    from headwater.log.stats.decode import StatsDecoder

    decoder = StatsDecoder(leaves, "counts")
    for batch in snapshot.files(columns=["path", "stats"]).to_batches(max_chunksize=_FILES_AT_ONCE):
        rows = decoder.decode(batch.column("stats").fill_null("{}"))
        counts = [decoder.values(rows, "null_count", i) for i in range(len(leaves))]
        for i, row in enumerate(rows):
            known = row.num_records is not None and (row.num_records == 0 or all(c[i] is not None for c in counts))
            if not known and canonical(path := batch.column("path")[i].as_py()) not in leaving:
                return str(path)
    return None
