"""Delete rows by deletion vectors instead of rewriting their files (spec: "Writer Requirement for Deletion Vectors").

A change names rows by their position in a data file, so it stays right whatever other writers do to other rows. Each
attempt to commit makes the `remove` and `add` actions from the file as it is then, with its vector and the rows of this
transaction together. Vectors that were written are reused unless the file has changed. The file keeps its number of
rows, its row ids and tags; its statistics become wide bounds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import CorruptLogError, InvalidCommitError
from headwater.log.actions.deletion_vectors import read_vectors, to_bitmap, write_vectors
from headwater.log.actions.model import Remove
from headwater.log.actions.paths import canonical
from headwater.log.configuration.properties import (
    ENABLE_DELETION_VECTORS,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
)
from headwater.log.files.live import additions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyroaring import BitMap64

    from headwater.log.actions.model import Add, DeletionVector
    from headwater.log.commit.draft import Draft
    from headwater.log.configuration import TableConfiguration
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
        return len(self.gone) + len(self.deleted) == self.num_records

    @property
    def needs_vector(self) -> bool:
        """Whether a vector must be written before the file can be committed."""
        return self.vector is None and bool(self.deleted) and not self.is_emptied

    def check(self, uri: str) -> None:
        """Raise `InvalidCommitError` unless the rows are there."""
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
        """Return the same rows of the file as a later version has it."""
        return replace(self, add=add, gone=gone, vector=self.vector if gone == self.gone else None)

    def replacement(self) -> Add:
        """Return the `add` action of the file without the rows."""
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
                "deletion vectors: it is unknown which of its rows are there."
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
    """Return the rows that vectors delete; none where there is no vector."""
    from pyroaring import BitMap64

    present = [vector for vector in vectors if vector is not None]
    found = iter(read_vectors(present, ctx.store, ctx.open_absolute))
    return [BitMap64() if vector is None else to_bitmap(next(found)) for vector in vectors]


def _counts(adds: list[Add], ctx: LogContext) -> list[int]:
    """Return the rows in each data file: by its statistics, or by its footer if they do not say."""
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
    from headwater.log.files.parquet import ParquetObject

    path = canonical(add.path)
    is_absolute = path.startswith("/") or "://" in add.path
    store, key = ctx.open_absolute(path) if is_absolute else (ctx.store, path)
    return int(ParquetObject(store, store.head(key)).metadata.num_rows)


_FEATURE = "deletionVectors"


@dataclass(frozen=True, slots=True)
class RowChange:
    """What a transaction does to the rows of one live data file.

    Example:
        >>> from pyroaring import BitMap64
        >>> change = RowChange("part-0.parquet", deleted=BitMap64([3, 4, 7]), read=BitMap64([9]))
    """

    path: str
    """Of the data file, as the log has it."""
    deleted: BitMap64
    """The rows that are deleted: positions in the data file from 0 on, deleted rows counted. May be empty."""
    read: BitMap64 | None = None
    """Further rows on which the result depends: other writers may not delete them before the commit."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What the deletions of a transaction do to files and vectors, counted as the metrics of commits count it."""

    vectors_added: int = 0
    """Files that get a vector, those that had one included (`numDeletionVectorsAdded`)."""
    vectors_updated: int = 0
    """Files whose vector is replaced by a larger one (`numDeletionVectorsUpdated`)."""
    vectors_removed: int = 0
    """Vectors that are no longer in use: of these files, and of files that go (`numDeletionVectorsRemoved`)."""
    files_removed: int = 0
    """Files without any rows left (part of `numRemovedFiles`)."""
    rows_deleted: int = 0
    bytes_removed: int = 0
    """The size of the files that go."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The row changes of one transaction, on the table as far as it is known."""

    files: Mapping[str, ChangedFile] = field(default_factory=dict)
    """By canonical path."""

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def plan(self) -> RowPlan:
        changed = [file for file in self.files.values() if file.deleted]
        partly = [file for file in changed if not file.is_emptied]
        emptied = [file for file in changed if file.is_emptied]
        with_vector = sum(file.add.deletion_vector is not None for file in partly)
        return RowPlan(
            vectors_added=len(partly),
            vectors_updated=with_vector,
            vectors_removed=with_vector + sum(file.add.deletion_vector is not None for file in emptied),
            files_removed=len(emptied),
            rows_deleted=sum(len(file.deleted) for file in changed),
            bytes_removed=sum(file.add.size for file in emptied),
        )

    def and_rows(self, changes: Iterable[RowChange], snapshot: Snapshot) -> RowChanges:
        """Further changes, of files that are live in the snapshot.

        Raises:
            InvalidCommitError: there is no such file in the table, it has no such rows, or they are deleted already.
        """
        from pyroaring import BitMap64

        deleted: dict[str, BitMap64] = {path: file.deleted for path, file in self.files.items()}
        read: dict[str, BitMap64] = {path: file.read for path, file in self.files.items()}
        for change in changes:
            path = canonical(change.path)
            deleted[path] = deleted.get(path, BitMap64()) | change.deleted
            read[path] = read.get(path, BitMap64()) | (change.read or BitMap64())
        found = {**self.files, **find_changed(snapshot, [path for path in deleted if path not in self.files])}
        files = {path: replace(found[path], deleted=deleted[path], read=read[path]) for path in deleted}
        for file in files.values():
            file.check(snapshot.uri)
        return RowChanges(files)

    def written(self, ctx: LogContext, configuration: TableConfiguration) -> RowChanges:
        """Return the same changes with all vectors written that are not yet.

        Raises:
            StorageError: the store could not write them.
        """
        todo = {path: file for path, file in self.files.items() if file.needs_vector}
        if not todo:
            return self
        vectors = write_vectors(
            ctx.store,
            [file.gone | file.deleted for file in todo.values()],
            prefix=_random_prefix(ctx, configuration),
            new_id=ctx.new_id,
        )
        new = {path: replace(file, vector=vector) for (path, file), vector in zip(todo.items(), vectors, strict=True)}
        return RowChanges({**self.files, **new})

    def added_to(self, draft: Draft, now_ms: int) -> Draft:
        """A draft with the actions for these changes, once all vectors are written, and with its metrics of them."""
        if not self.files:
            return draft
        changed = [file for file in self.files.values() if file.deleted]
        removes = (_tombstone(file.add, now_ms) for file in changed)
        adds = (file.replacement() for file in changed if not file.is_emptied)
        operation = draft.operation
        if operation.row_metrics is not None:
            operation = replace(operation, metrics={**operation.metrics, **operation.row_metrics(self.plan)})
        return replace(draft, operation=operation, removes=(*draft.removes, *removes), adds=(*draft.adds, *adds))

    def after(self, removed: Collection[str], again: Mapping[str, tuple[Add, BitMap64]]) -> RowChanges:
        """Return the changes after a commit of another writer that leaves all of these rows alone.

        Vectors of files that it has put other vectors on are written again.

        Args:
            removed: files that it removed and did not add again, by canonical path. No rows of them are deleted here:
                that would have been a conflict.
            again: files that it added again, and the rows of them that are gone.
        """
        files = {path: file for path, file in self.files.items() if path not in removed}
        files |= {path: files[path].as_in(add, gone) for path, (add, gone) in again.items()}
        return RowChanges(files)


def check_enabled(uri: str, configuration: TableConfiguration) -> None:
    """Raise `InvalidCommitError` unless the table allows new deletion vectors."""
    if not configuration.protocol.supports(_FEATURE) or not configuration[ENABLE_DELETION_VECTORS]:
        raise InvalidCommitError(
            f"{uri} does not allow rows to be deleted by deletion vectors: {ENABLE_DELETION_VECTORS.name} is not "
            f"true, or the protocol does not list {_FEATURE}. Enable them, or rewrite the files without the rows."
        )


def _tombstone(add: Add, now_ms: int) -> Remove:
    return Remove(
        path=add.path,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def _random_prefix(ctx: LogContext, configuration: TableConfiguration) -> str:
    """Return the directory for new vector files, where the table wants names that begin with chance."""
    if not configuration[RANDOMIZE_FILE_PREFIXES]:
        return ""
    return ctx.new_id().replace("-", "")[: configuration[RANDOM_PREFIX_LENGTH]]
