"""A live data file some of whose rows a transaction deletes: what the log says of it, and what is to be said next.

The number of rows in the file stays what it was, statistics become wide bounds, and row ids, tags and everything else
are kept (spec: "Writer Requirement for Deletion Vectors", "Per-file Statistics").
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import CorruptLogError, InvalidCommitError
from headwater.log.deletion_vectors import read_vectors, to_bitmap
from headwater.log.file_actions import additions
from headwater.log.paths import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyroaring import BitMap64

    from headwater.log.actions import Add, DeletionVector
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot

_PARALLEL_READS = 16


class _Count(msgspec.Struct):
    numRecords: int | None = None


_STATS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COUNT = msgspec.json.Decoder(_Count)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A data file of the table, and the rows of it that matter to a transaction."""

    add: Add
    """As it is in the newest version that is known."""
    gone: BitMap64
    """The rows that its vector deletes there."""
    num_records: int
    """All rows of the data file, deleted ones included."""
    deleted: BitMap64
    """The rows that the transaction deletes."""
    read: BitMap64
    """Other rows that its result depends on."""
    vector: DeletionVector | None = None
    """Of both kinds of deleted rows together, once it is written."""

    @property
    def is_emptied(self) -> bool:
        """Whether no rows are left."""
        return len(self.gone) + len(self.deleted) == self.num_records

    @property
    def needs_vector(self) -> bool:
        """Whether a vector must be written before the file can be committed."""
        return self.vector is None and bool(self.deleted) and not self.is_emptied

    def check(self, uri: str) -> None:
        """Raise unless the rows are there.

        Raises:
            InvalidCommitError: the file does not have them, or no longer.
        """
        for what, rows in (("delete", self.deleted), ("read", self.read)):
            if rows and rows.max() >= self.num_records:
                raise InvalidCommitError(
                    f"{uri}: {self.add.path!r} has {self.num_records} rows, so there is no row {rows.max()} to {what}."
                )
            if not rows.isdisjoint(self.gone):
                raise InvalidCommitError(
                    f"{uri}: row {(rows & self.gone).min()} of {self.add.path!r} is deleted already, so there is "
                    f"nothing to {what}. Read the file with its deletion vector."
                )

    def as_in(self, add: Add, gone: BitMap64) -> ChangedFile:
        """The same rows of the file as a later version has it."""
        return replace(self, add=add, gone=gone, vector=self.vector if gone == self.gone else None)

    def replacement(self) -> Add:
        """The `add` action of the file without the rows."""
        assert self.vector is not None, "the vector is written before the commit"
        return msgspec.structs.replace(
            self.add,
            data_change=True,
            deletion_vector=self.vector,
            stats=wide_statistics(self.add.stats, self.num_records),
        )


def wide_statistics(stats: str | None, num_records: int) -> str:
    """Statistics of a file that is losing rows: bounds stay bounds, but no row may be there that has them.

    Values stand as they were written: a number with many digits is not read as a float.

    >>> wide_statistics('{"numRecords":3,"minValues":{"d":1.000000000000000001}}', 3)
    '{"numRecords":3,"minValues":{"d":1.000000000000000001},"tightBounds":false}'
    """
    fields = _STATS.decode(stats) if stats else {}
    count, wide = msgspec.Raw(str(num_records).encode()), msgspec.Raw(b"false")
    return msgspec.json.encode({**fields, "numRecords": count, "tightBounds": wide}).decode()


def find_changed(snapshot: Snapshot, paths: Collection[str]) -> dict[str, ChangedFile]:
    """Files of the table by canonical path, with no changes yet.

    Raises:
        InvalidCommitError: the table does not have a file.
    """
    from pyroaring import BitMap64

    if not paths:
        return {}
    adds: dict[str, Add] = {}
    for add in additions(snapshot.files_named(paths), data_change=True):
        if adds.setdefault(canonical(add.path), add) is not add:
            raise CorruptLogError(
                f"{snapshot.uri} at version {snapshot.version} has the data file {add.path!r} twice, with different "
                "deletion vectors: nobody can say which of its rows are there."
            )
    missing = [path for path in paths if path not in adds]
    if missing:
        raise InvalidCommitError(
            f"{snapshot.uri} at version {snapshot.version} has no data file {missing[0]!r}, so no rows of it can be "
            "deleted."
        )
    rows = read_rows([add.deletion_vector for add in adds.values()], snapshot.ctx)
    counts = _counts(list(adds.values()), snapshot.ctx)
    return {
        path: ChangedFile(add, gone, count, BitMap64(), BitMap64())
        for (path, add), gone, count in zip(adds.items(), rows, counts, strict=True)
    }


def read_rows(vectors: Sequence[DeletionVector | None], ctx: LogContext) -> list[BitMap64]:
    """The rows that vectors delete; none where there is no vector."""
    from pyroaring import BitMap64

    present = [vector for vector in vectors if vector is not None]
    found = iter(read_vectors(present, ctx.store, ctx.open_absolute))
    return [BitMap64() if vector is None else to_bitmap(next(found)) for vector in vectors]


def _counts(adds: list[Add], ctx: LogContext) -> list[int]:
    """The rows in each data file: by its statistics, or by its footer if they do not say."""
    known = [_recorded_count(add, ctx) for add in adds]
    unknown = [add for add, count in zip(adds, known, strict=True) if count is None]
    if unknown:
        with ThreadPoolExecutor(_PARALLEL_READS, thread_name_prefix="headwater-footers") as pool:
            footers = pool.map(lambda add: _count_in_footer(add, ctx), unknown)
            return [next(footers) if count is None else count for count in known]
    return [count for count in known if count is not None]


def _recorded_count(add: Add, ctx: LogContext) -> int | None:
    if not add.stats:
        return None
    try:
        return _COUNT.decode(add.stats).numRecords
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLogError(f"{ctx.uri}: the statistics of {add.path!r} cannot be read: {error}") from error


def _count_in_footer(add: Add, ctx: LogContext) -> int:
    from headwater.log.parquet import ParquetObject

    path = canonical(add.path)
    is_absolute = path.startswith("/") or "://" in add.path
    store, key = ctx.open_absolute(path) if is_absolute else (ctx.store, path)
    return int(ParquetObject(store, store.head(key)).metadata.num_rows)
