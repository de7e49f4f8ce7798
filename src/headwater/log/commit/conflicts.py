"""Conflict detection: can this transaction still commit after another one has?

One function per rule, in the order in which the reference implementation checks them. There are fewer false conflicts:
read predicates are tested against the statistics of added files too, commits that only rearrange rows disturb no
reader, and transactions that delete rows by deletion vectors conflict only if they delete or read the same rows. To
find that out, the vectors of files that both touch are read.

A change of `metaData` is harmless if it leaves files that are already written valid: same schema, same rules.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from headwater.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from headwater.log.actions.decode import file_actions
from headwater.log.actions.model import Add, Remove
from headwater.log.actions.paths import canonical
from headwater.log.commit.row_changes import RowChanges, read_rows
from headwater.log.configuration.properties import (
    CHECKPOINT_INTERVAL,
    CHECKPOINT_POLICY,
    COLUMN_MAPPING_MODE,
    DELETED_FILE_RETENTION,
    ENABLE_DELETION_VECTORS,
    ENABLE_EXPIRED_LOG_CLEANUP,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_ROW_TRACKING,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
    LOG_RETENTION,
    MAX_COLUMN_ID,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    STATS_AS_JSON,
    STATS_AS_STRUCT,
)
from headwater.log.schema.mapping import COLUMN_ID_KEY, PHYSICAL_NAME_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyroaring import BitMap64

    from headwater.log.actions.decode import CommitActions
    from headwater.log.actions.model import DeletionVector, Metadata, Protocol
    from headwater.log.commit.draft import Draft, ReadSet
    from headwater.log.context import LogContext
    from headwater.log.dialect import LogDialect
    from headwater.log.filters.expressions import Expression
    from headwater.log.filters.pruning import TableShape
    from headwater.log.snapshot import Snapshot


IsolationLevel: TypeAlias = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]

ROW_TRACKING_DOMAIN = "delta.rowTracking"
_SHOWN = 3
"""How many files a message names."""


@dataclass(frozen=True)
class Winner:
    """A commit that came first."""

    commit: CommitActions
    before: Snapshot
    """The table that the winner built on."""

    @cached_property
    def _files(self) -> list[Add | Remove]:
        return list(file_actions(self.commit))

    @cached_property
    def adds(self) -> list[Add]:
        return [action for action in self._files if isinstance(action, Add)]

    @cached_property
    def removes(self) -> list[Remove]:
        return [action for action in self._files if isinstance(action, Remove)]

    @cached_property
    def removed_paths(self) -> frozenset[str]:
        return frozenset(canonical(remove.path) for remove in self.removes)

    @cached_property
    def vector_changes(self) -> VectorChanges:
        """The files that it removed and added again with another deletion vector."""
        return VectorChanges(self.adds, self.removes, self.before.ctx)

    @property
    def is_blind_append(self) -> bool:
        """Whether the winner only added files without having read any; only it can know, and must say so."""
        recorded = (self.commit.commit_info or {}).get("isBlindAppend")
        return recorded is True and not self.removes

    def described(self) -> str:
        """For messages: the version and what it did."""
        operation = (self.commit.commit_info or {}).get("operation", "an unnamed operation")
        return f"version {self.commit.version} ({operation})"


@dataclass(frozen=True)
class Challenger:
    """The transaction that lost the race and wants to commit after the winner."""

    draft: Draft
    reads: ReadSet
    isolation: IsolationLevel
    uri: str
    rows: RowChanges = field(default_factory=RowChanges)
    """The rows that it deletes by deletion vectors; their actions are not in the draft."""

    @property
    def is_blind_append(self) -> bool:
        """Nothing was read, and nothing but new rows changes (as the reference has it, if any do)."""
        return self.draft.only_adds and not self.reads.reads_data

    def after(self, winner: Winner) -> Challenger:
        """Return the challenger before the next winner: rows that it read may be in other files by now.

        Files whose rows it deletes may have other deletion vectors.
        """
        after = self._with_newest_files(winner) if self.rows else self
        moved = {canonical(remove.path) for remove in winner.removes if not remove.data_change}
        if self.reads.paths.isdisjoint(moved):
            return after
        now_in = [canonical(add.path) for add in winner.adds if not add.data_change]
        return replace(after, reads=self.reads.and_files(now_in))

    def _with_newest_files(self, winner: Winner) -> Challenger:
        again = {path: add for add in winner.adds if (path := canonical(add.path)) in self.rows.files}
        gone = winner.removed_paths - set(again)
        if not again and gone.isdisjoint(self.rows.files):
            return self
        changes = winner.vector_changes.of(again)
        newest = {
            path: (add, changes[path].after if path in changes else self.rows.files[path].gone)
            for path, add in again.items()
        }
        return replace(self, rows=self.rows.after(gone, newest))


def check(challenger: Challenger, winner: Winner, shape: TableShape) -> None:
    """Raise `DeltaConcurrentModificationException` unless the challenger's actions are still right after the winner's.

    The next winner is held against `challenger.after(winner)`.
    """
    _check_protocol(challenger, winner)
    _check_metadata(challenger, winner)
    _check_domains(challenger, winner)
    _check_transactions(challenger, winner)
    _check_added(challenger, winner, shape)
    _check_removed(challenger, winner, shape)
    _check_same_files(challenger, winner)
    _check_same_rows(challenger, winner)


def _check_protocol(challenger: Challenger, winner: Winner) -> None:
    protocol = winner.commit.table_actions.protocol
    if protocol is None:
        return
    if challenger.draft.protocol is not None:
        raise _lost(ProtocolChangedException, challenger, winner, "changed the protocol, as this transaction does")
    dropped = _features(winner.before.protocol) - _features(protocol)
    if dropped:
        what = f"dropped table features: {', '.join(sorted(dropped))}"
        raise _lost(ProtocolChangedException, challenger, winner, what)
    if _versions(protocol) < _versions(winner.before.protocol):
        raise _lost(ProtocolChangedException, challenger, winner, "lowered the protocol's versions")


def _features(protocol: Protocol) -> set[str]:
    return {*(protocol.reader_features or ()), *(protocol.writer_features or ())}


def _versions(protocol: Protocol) -> tuple[int, int]:
    return protocol.min_writer_version, protocol.min_reader_version


def _check_metadata(challenger: Challenger, winner: Winner) -> None:
    metadata = winner.commit.table_actions.metadata
    if metadata is None:
        return
    if challenger.draft.metadata is not None:
        raise _lost(MetadataChangedException, challenger, winner, "changed the metadata, as this transaction does")
    if not is_harmless(winner.before.metadata, metadata):
        raise _lost(
            MetadataChangedException, challenger, winner, "changed the table's schema, partitioning or properties"
        )


def _check_domains(challenger: Challenger, winner: Winner) -> None:
    ours = challenger.reads.domains | {domain.domain for domain in challenger.draft.domains}
    both = sorted((ours & set(winner.commit.table_actions.domains)) - {ROW_TRACKING_DOMAIN})
    if both:
        raise _lost(
            ConcurrentTransactionException, challenger, winner, f"changed the same metadata domain: {', '.join(both)}"
        )


def _check_transactions(challenger: Challenger, winner: Winner) -> None:
    ours = challenger.reads.app_ids | {txn.app_id for txn in challenger.draft.txns}
    both = sorted(ours & set(winner.commit.table_actions.txns))
    if both:
        raise _lost(
            ConcurrentTransactionException,
            challenger,
            winner,
            f"recorded the progress of the same application: {', '.join(both)}",
        )


def _check_added(challenger: Challenger, winner: Winner, shape: TableShape) -> None:
    reads = challenger.reads
    if challenger.isolation == "SnapshotIsolation" or challenger.is_blind_append or not reads.reads_data:
        return
    if challenger.isolation == "WriteSerializable" and winner.is_blind_append:
        return
    # Rows that were only moved were there when we read.
    added = [add for add in winner.adds if add.data_change]
    if not added:
        return
    matching = added if reads.whole_table else _matching(reads.predicates, added, shape, winner.commit.dialect)
    # A file that was there before with more rows brings none.
    changes = winner.vector_changes.of(canonical(add.path) for add in matching)
    matching = [a for a in matching if (path := canonical(a.path)) not in changes or changes[path].returned]
    if matching:
        what = f"added files that may hold rows this transaction has looked for: {_some([a.path for a in matching])}"
        raise _lost(ConcurrentAppendException, challenger, winner, what)


def _matching(
    predicates: tuple[Expression, ...], files: list[Add], shape: TableShape, dialect: LogDialect
) -> list[Add]:
    """Return the files that may hold a row matching one of the filters, by partition values and statistics."""
    from headwater.log.filters.pruning import ChunkPruner

    if not predicates or not files:
        return []
    pruner = ChunkPruner(dialect.chunk(files), shape)
    found: set[int] = set()
    for predicate in predicates:
        mask = pruner.may_match(predicate).to_pylist()
        found.update(i for i, may_match in enumerate(mask) if may_match)
    return [files[i] for i in sorted(found)]


def _check_removed(challenger: Challenger, winner: Winner, shape: TableShape) -> None:
    if challenger.isolation == "SnapshotIsolation" or not challenger.reads.reads_data:
        return
    known = challenger.rows.files
    by_rows = winner.vector_changes.of(known)
    for path, change in by_rows.items():
        both = change.deleted & known[path].read
        if both:
            what = f"deleted {_counted(both)} that this transaction read, of the file {path}"
            raise _lost(ConcurrentDeleteReadException, challenger, winner, what)
    changed = [
        remove
        for remove in winner.removes
        if remove.data_change and ((path := canonical(remove.path)) not in by_rows or by_rows[path].returned)
    ]
    read = _read_by(challenger.reads, changed, shape, winner.commit.dialect)
    if read:
        what = f"removed files that this transaction read: {_some(read)}"
        raise _lost(ConcurrentDeleteReadException, challenger, winner, what)


def _read_by(reads: ReadSet, removes: list[Remove], shape: TableShape, dialect: LogDialect) -> list[str]:
    """Return the removed files that were read."""
    if reads.whole_table:
        return [remove.path for remove in removes]
    read = [remove.path for remove in removes if canonical(remove.path) in reads.paths]
    if read or not reads.unlisted:
        return read
    # A tombstone may have lost its partition values: then its rows may match.
    vague = [r.path for r in removes if r.partition_values is None and shape.partition_columns]
    known = [_as_add(r, dialect) for r in removes if r.partition_values is not None or not shape.partition_columns]
    return vague + [add.path for add in _matching(reads.unlisted, known, shape, dialect)]


def _as_add(remove: Remove, dialect: LogDialect) -> Add:
    return dialect.add_type(
        remove.path,
        remove.size or 0,
        remove.partition_values or {},
        stats=remove.stats,
        deletion_vector=remove.deletion_vector,
    )


def _check_same_files(challenger: Challenger, winner: Winner) -> None:
    """Whatever was read: two transactions that decide about one data file do not know of each other's decision."""
    removed = winner.removed_paths
    removed_by_us = {canonical(remove.path) for remove in challenger.draft.removes}
    twice = sorted(removed & removed_by_us)
    if twice:
        what = f"removed files that this transaction removes: {_some(twice)}"
        raise _lost(ConcurrentDeleteDeleteException, challenger, winner, what)
    # New files have names of their own, so these are old ones, added again (statistics, row ids, RESTORE).
    added_by_us = {canonical(add.path) for add in challenger.draft.adds}
    back = sorted(removed & added_by_us)
    if back:
        what = f"removed files that this transaction adds again: {_some(back)}"
        raise _lost(ConcurrentDeleteReadException, challenger, winner, what)
    again = sorted(added_by_us & {canonical(add.path) for add in winner.adds})
    if again:
        what = f"added the same files as this transaction: {_some(again)}"
        raise _lost(ConcurrentAppendException, challenger, winner, what)


def _check_same_rows(challenger: Challenger, winner: Winner) -> None:
    """Both delete rows of one data file: it has to be there still, and the rows have to be others."""
    ours = {path: file.deleted for path, file in challenger.rows.files.items() if file.deleted}
    changes = winner.vector_changes.of(ours)
    for path in sorted(winner.removed_paths & set(ours)):
        change = changes.get(path)
        if change is None or change.returned:
            what = f"removed a file of which this transaction deletes rows: {path}"
            raise _lost(ConcurrentDeleteDeleteException, challenger, winner, what)
        both = change.deleted & ours[path]
        if both:
            what = f"deleted {_counted(both)} that this transaction deletes, of the file {path}"
            raise _lost(ConcurrentDeleteDeleteException, challenger, winner, what)


def _counted(rows: BitMap64) -> str:
    return f"row {rows.min()}" if len(rows) == 1 else f"{len(rows)} rows (such as row {rows.min()})"


def _lost(
    kind: type[DeltaConcurrentModificationException], challenger: Challenger, winner: Winner, what: str
) -> DeltaConcurrentModificationException:
    return kind(
        f"{challenger.uri}: {challenger.draft.operation.name} cannot be committed, because {winner.described()} "
        f"{what}. "
        "Nothing was changed; run the operation again on the newest version.",
        winner=winner.commit.version,
    )


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


_IDENTITY_MARK = "delta.identity.highWaterMark"
_SWITCHES = (ENABLE_ROW_TRACKING, ENABLE_DELETION_VECTORS, ENABLE_IN_COMMIT_TIMESTAMPS)
"""Properties that may be switched on beside us. Switched off, they forbid what we may have written."""

_HARMLESS = frozenset(
    each.name
    for each in (
        ROW_ID_COLUMN,
        ROW_COMMIT_VERSION_COLUMN,
        CHECKPOINT_POLICY,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
        CHECKPOINT_INTERVAL,
        STATS_AS_JSON,
        STATS_AS_STRUCT,
        LOG_RETENTION,
        DELETED_FILE_RETENTION,
        ENABLE_EXPIRED_LOG_CLEANUP,
    )
)
"""Properties that say nothing about the files that are being written."""


def is_harmless(before: Metadata, after: Metadata) -> bool:
    """Tell whether files written under one `metaData` are right under the other."""
    same = msgspec.structs.replace(
        after,
        schema_string=before.schema_string,
        configuration=before.configuration,
        created_time=before.created_time,
        description=before.description,
        name=before.name,
    )
    if same != before:
        return False
    mapped = [COLUMN_MAPPING_MODE.read(each.configuration) for each in (before, after)] == ["none", "name"]
    changed = {name for name, _ in before.configuration.items() ^ after.configuration.items()}
    changed -= _HARMLESS
    changed -= {switch.name for switch in _SWITCHES if switch.read(after.configuration)}
    if mapped:
        changed -= {COLUMN_MAPPING_MODE.name, MAX_COLUMN_ID.name}
    if changed:
        return False
    simplified = _without_own_names if mapped else _without_marks
    return bool(_parsed(before.schema_string, _without_marks) == _parsed(after.schema_string, simplified))


def _parsed(schema: str, simplified: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    try:
        return json.loads(schema, object_hook=simplified)
    except (ValueError, RecursionError):  # no schema at all: then it is compared as it stands there
        return schema


def _without_marks(value: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema without the high-water marks of identity columns and without comments."""
    return {name: inner for name, inner in value.items() if name not in (_IDENTITY_MARK, "comment")}


def _without_own_names(value: dict[str, Any]) -> dict[str, Any]:
    """Return the same, and without column mapping where it changes nothing: the physical name is the name."""
    value = _without_marks(value)
    metadata = value.get("metadata")
    if (
        isinstance(metadata, dict)
        and PHYSICAL_NAME_KEY in metadata
        and metadata[PHYSICAL_NAME_KEY] == value.get("name")
    ):
        plain = {name: inner for name, inner in metadata.items() if name not in (PHYSICAL_NAME_KEY, COLUMN_ID_KEY)}
        return {**value, "metadata": plain}
    return value


@dataclass(frozen=True, slots=True)
class VectorChange:
    """The deleted rows of one data file before and after a commit."""

    before: BitMap64
    after: BitMap64

    @property
    def deleted(self) -> BitMap64:
        return self.after - self.before

    @property
    def returned(self) -> BitMap64:
        return self.before - self.after


class VectorChanges:
    """The files of one commit with another vector than before; vectors are read when they are first asked for."""

    def __init__(self, adds: Sequence[Add], removes: Sequence[Remove], ctx: LogContext) -> None:
        removed = {canonical(remove.path): remove.deletion_vector for remove in removes}
        self._vectors: dict[str, tuple[DeletionVector | None, DeletionVector | None]] = {
            path: (removed[path], add.deletion_vector) for add in adds if (path := canonical(add.path)) in removed
        }
        self._ctx = ctx
        self._known: dict[str, VectorChange] = {}

    def of(self, paths: Iterable[str]) -> dict[str, VectorChange]:
        """Return those of some files (by canonical path) that have another vector now.

        Raises:
            StorageError: a vector cannot be read.
            CorruptLogError: a vector is damaged.
        """
        wanted = [path for path in paths if path in self._vectors]
        new = [path for path in wanted if path not in self._known]
        if new:
            rows = read_rows([vector for path in new for vector in self._vectors[path]], self._ctx)
            for number, path in enumerate(new):
                self._known[path] = VectorChange(rows[2 * number], rows[2 * number + 1])
        return {path: self._known[path] for path in wanted}
