"""Rows that a transaction deletes without writing their files again, by deletion vectors (spec: "Deletion Vectors").

A change names rows by their position in a data file, so it stays right whatever other writers do to other rows of that
file. On each attempt to commit, the `remove` and `add` actions are made anew from the file as it is then: its vector
and the rows of this transaction together. Bytes that were written are used again unless the file has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.log.actions import Remove
from headwater.log.changed_files import ChangedFile, find_changed
from headwater.log.paths import canonical
from headwater.log.vector_writer import write_vectors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyroaring import BitMap64

    from headwater.log.actions import Add, Metadata, Protocol
    from headwater.log.context import LogContext
    from headwater.log.draft import Draft
    from headwater.log.snapshot import Snapshot

_FEATURE = "deletionVectors"
_SWITCH = "delta.enableDeletionVectors"
_RANDOMIZE = "delta.randomizeFilePrefixes"
_RANDOM_LENGTH = "delta.randomPrefixLength"
_DEFAULT_RANDOM_LENGTH = 2


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
    """Further rows on which the result depends: nobody else may delete them before the commit."""


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
        """What is going to happen."""
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

    def written(self, ctx: LogContext, metadata: Metadata) -> RowChanges:
        """The same changes with all vectors written that are not yet.

        Raises:
            StorageError: the store could not write them.
        """
        todo = {path: file for path, file in self.files.items() if file.needs_vector}
        if not todo:
            return self
        vectors = write_vectors(
            ctx.store,
            [file.gone | file.deleted for file in todo.values()],
            prefix=_random_prefix(ctx, metadata),
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
        """The changes after a commit of another writer that leaves all of these rows alone.

        Vectors of files that it has put other vectors on are to be written anew.

        Args:
            removed: files that it removed and did not add again, by canonical path. No rows of them are deleted here:
                that would have been a conflict.
            again: files that it added again, and the rows of them that are gone.
        """
        files = {path: file for path, file in self.files.items() if path not in removed}
        files |= {path: files[path].as_in(add, gone) for path, (add, gone) in again.items()}
        return RowChanges(files)


def check_enabled(uri: str, protocol: Protocol | None, metadata: Metadata | None) -> None:
    """Raise unless the table allows new deletion vectors.

    Raises:
        InvalidCommitError: it does not.
    """
    switch = "" if metadata is None else metadata.configuration.get(_SWITCH, "")
    if protocol is None or not protocol.supports(_FEATURE) or switch.lower() != "true":
        raise InvalidCommitError(
            f"{uri} does not allow rows to be deleted by deletion vectors: {_SWITCH} is not true, or the protocol does "
            f"not list {_FEATURE}. Enable them, or write the files anew without the rows."
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


def _random_prefix(ctx: LogContext, metadata: Metadata) -> str:
    """The directory for new vector files, where the table wants names that begin with chance."""
    if metadata.configuration.get(_RANDOMIZE, "").lower() != "true":
        return ""
    length = metadata.configuration.get(_RANDOM_LENGTH, "")
    return ctx.new_id().replace("-", "")[: int(length) if length.isdigit() else _DEFAULT_RANDOM_LENGTH]
