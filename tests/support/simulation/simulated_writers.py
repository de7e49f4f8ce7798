"""What simulated writers do: every kind of operation on a small table of numbered rows, through `Transaction`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyroaring import BitMap64

from headwater.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    DeltaConcurrentModificationException,
    StorageError,
    TableNotFoundError,
)
from headwater.features.context import COMMIT_RULES
from headwater.features.registry import check_readable, check_writable
from headwater.log.actions.deletion_vectors import inline_vector
from headwater.log.actions.model import Add, DomainMetadata, Metadata, Protocol, Txn
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.filters.sql import parse_filter
from headwater.log.opening import open_snapshot
from headwater.log.snapshot import Snapshot
from support.log.log_tables import SCHEMA
from support.simulation.simulated_files import add_of, removal_of
from support.simulation.simulation import Odds, World
from support.simulation.simulation_check import History, Matches, Note, Row, Rows
from support.stores.faults import FaultyStore

PARTS = "abc"
DAY_S = 86_400.0


@dataclass
class Table:
    """One simulated history: the world, the kind of table, and what has been done."""

    seed: int
    odds: Odds
    operations: int = 14
    writers: int = 3
    history: History = field(default_factory=History)
    rows: int = 0

    def __post_init__(self) -> None:
        self.world = World(self.seed, self.odds)
        self.chance = self.world.chance
        chance, configuration = self.chance, {"delta.checkpointInterval": str(self.chance.randint(2, 6))}
        writer_features = ["deletionVectors", "domainMetadata", "appendOnly", "invariants"]
        reader_features = ["deletionVectors"]
        configuration["delta.enableDeletionVectors"] = "true"
        self.sleepy = 0.02
        """How often a writer takes days for an operation."""
        if chance.random() < 0.5:
            configuration["delta.logRetentionDuration"] = chance.choice(["interval 1 days", "interval 0 hours"])
            self.sleepy = 0.3
        if chance.random() < 0.3:
            configuration["delta.isolationLevel"] = "WriteSerializable"
        if chance.random() < 0.3:
            reader_features.append("v2Checkpoint")
            configuration["delta.checkpointPolicy"] = "v2"
        if chance.random() < 0.3:
            configuration["delta.enableInCommitTimestamps"] = "true"
            writer_features.append("inCommitTimestamp")
        if chance.random() < 0.3:
            configuration |= {
                "delta.enableRowTracking": "true",
                "delta.rowTracking.materializedRowIdColumnName": "_row-id",
                "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
            }
            writer_features.append("rowTracking")
        features = tuple(dict.fromkeys([*writer_features, *reader_features]))
        self.protocol = Protocol(3, 7, tuple(reader_features), features)
        self.metadata = Metadata("simulated", SCHEMA, partition_columns=("part",), configuration=configuration)
        self.level = configuration.get("delta.isolationLevel", "Serializable")
        self.compaction = chance.choice([None, None, 2])

    def play(self) -> None:
        self.world.scheduler.run(self.world.processes(self.writers, lambda store: Writer(self, store).live()))

    def context(self, store: Any, skew_ms: int = 0) -> LogContext:
        world = self.world
        return LogContext(
            store,
            check_readable,
            check_writable=check_writable,
            commit_rules=COMMIT_RULES,
            clock_ms=lambda: world.scheduler.now_ms + skew_ms,
            sleep=world.scheduler.pause,
            new_id=world.new_id,
            random=self.chance.random,
            compaction_interval=self.compaction,
        )

    def new_rows(self, parts: str, count: int) -> Rows:
        first, self.rows = self.rows, self.rows + count
        return frozenset((self.chance.choice(parts), number) for number in range(first, self.rows))


class Writer:
    """One process. It works on the table until all operations have been done, or it dies."""

    def __init__(self, table: Table, store: FaultyStore) -> None:
        self.table, self.store, self.chance = table, store, table.chance
        self.ctx = table.context(store, self.chance.randint(-100, 100))
        self.snapshot: Snapshot | None = None

    def live(self) -> bool:
        while self.table.operations > 0:
            self.table.operations -= 1
            try:
                self._operate()
            except StorageError:
                pass
            except CorruptLogError:
                # It held on to a version for so long that its checkpoint has been cleaned up.
                if not self._is_cleaned_up():
                    raise
                self.snapshot = None
        return False

    def _is_cleaned_up(self) -> bool:
        checkpoint = None if self.snapshot is None else self.snapshot.segment.checkpoint
        kept = {meta.key for meta in self.table.world.store.list_from("_delta_log/")}
        return checkpoint is not None and checkpoint.files[0].key not in kept

    def _operate(self) -> None:
        how = self.chance.random()
        if self.snapshot is None or how < 0.3:
            try:
                self.snapshot = open_snapshot(self.ctx)
            except TableNotFoundError:
                self._create()
                return
        elif how < 0.6:
            self.snapshot = self.snapshot.refresh()
        transaction = Transaction(self.ctx, self.snapshot)
        note = Note(transaction.id, "", self.snapshot.version, level=self.table.level)
        kind = self.chance.choice(self._kinds())
        note.what = kind.__name__
        kind(transaction, note)
        if self.chance.random() < self.table.sleepy:
            self.ctx.sleep(self.chance.choice([0.1, 0.5, 1, 2]) * DAY_S)
        self._commit(transaction, note)

    def _kinds(self) -> list[Callable[[Transaction, Note], None]]:
        """What may be done next, more often what stands here more often."""
        kinds = [self._append] * 4 + [self._delete] * 3 + [self._update, self._insert_select, self._compact] * 2
        return kinds + [self._count_app, self._count_domain] * 2 + [self._overwrite, self._readd, self._configure]

    def _commit(self, transaction: Transaction, note: Note) -> None:
        self.table.history.notes.append(note)
        try:
            committed = transaction.commit(Operation(note.what))
        except DeltaConcurrentModificationException as error:
            note.outcome, note.winner = type(error).__name__, error.winner
        except CommitStateUnknownError:
            note.outcome = "unknown"
        except StorageError as error:
            note.outcome = type(error).__name__
        else:
            note.outcome, note.version = "committed", committed.version
            self.snapshot = committed.snapshot

    # --- operations --------------------------------------------------------------------------------------

    def _create(self) -> None:
        transaction = Transaction(self.ctx, None)
        transaction.set_protocol(self.table.protocol)
        transaction.set_metadata(self.table.metadata)
        self._commit(transaction, Note(transaction.id, "create", -1))

    def _append(self, transaction: Transaction, note: Note) -> None:
        note.brings = self.table.new_rows(PARTS, self.chance.randint(1, 4))
        transaction.add(self._written(note.brings))

    def _delete(self, transaction: Transaction, note: Note) -> None:
        files = self._read(transaction, note)
        note.takes = note.saw
        self._take(transaction, files, note.takes)

    def _update(self, transaction: Transaction, note: Note) -> None:
        self._delete(transaction, note)
        if note.takes:
            note.brings = self.table.new_rows(self.chance.choice(PARTS), len(note.takes))
            transaction.add(self._written(note.brings))

    def _overwrite(self, transaction: Transaction, note: Note) -> None:
        files = self._read(transaction, note, everything=True)
        note.takes, note.brings = note.saw, self.table.new_rows(PARTS, 3)
        transaction.remove([removal_of(file) for file in files])
        transaction.add(self._written(note.brings))

    def _insert_select(self, transaction: Transaction, note: Note) -> None:
        self._read(transaction, note, listed=self.chance.random() < 0.5)
        note.brings = self.table.new_rows(PARTS, 1 + len(note.saw) % 3)
        transaction.add(self._written(note.brings))

    def _compact(self, transaction: Transaction, note: Note) -> None:
        part = self.chance.choice(PARTS)
        files = self._read(transaction, note, where=f"part = '{part}'")
        note.level = "SnapshotIsolation"
        chosen = [file for file in files if self.chance.random() < 0.7]
        note.files = frozenset(file.path for file in chosen)
        rows = frozenset[Row]().union(*(self._rows(file) for file in chosen))
        transaction.remove([removal_of(file, data_change=False) for file in chosen])
        if rows:
            transaction.add([self._file(part, rows, data_change=False)])

    def _readd(self, transaction: Transaction, note: Note) -> None:
        files = self._read(transaction, note, everything=True)
        note.matches = None
        note.level = "SnapshotIsolation"
        for file in files[:1]:
            transaction.add([msgspec.structs.replace(file, data_change=False, tags={"again": note.id})])

    def _configure(self, transaction: Transaction, note: Note) -> None:
        metadata = transaction.snapshot.metadata
        if self.chance.random() < 0.5:
            note.counted = {"description": int(metadata.description or 0)}
            changed = msgspec.structs.replace(metadata, description=str(note.counted["description"] + 1))
        else:
            note.counted = {"property": int(metadata.configuration.get("n", 0))}
            configuration = {**metadata.configuration, "n": str(note.counted["property"] + 1)}
            changed = msgspec.structs.replace(metadata, configuration=configuration)
        transaction.set_metadata(changed)

    def _count_app(self, transaction: Transaction, note: Note) -> None:
        app = self.chance.choice(["x", "y"])
        note.counted = {f"app {app}": transaction.progress_of(app) or 0}
        transaction.record_progress(Txn(app, note.counted[f"app {app}"] + 1))
        self._append(transaction, note)

    def _count_domain(self, transaction: Transaction, note: Note) -> None:
        note.counted = {"domain": int(transaction.domain_of("d") or 0)}
        transaction.set_domain(DomainMetadata("d", str(note.counted["domain"] + 1)))

    # --- files --------------------------------------------------------------------------------------------

    def _read(
        self,
        transaction: Transaction,
        note: Note,
        *,
        where: str | None = None,
        everything: bool = False,
        listed: bool = True,
    ) -> list[Add]:
        """The files with matching rows; the note says which rows were looked for, and which were found."""
        if everything:
            found, note.matches = transaction.read_files(), every_row
        else:
            text, note.matches = self._filter() if where is None else (where, _in_part(where[-2]))
            if listed:
                found = transaction.read_files(parse_filter(text))
            else:
                transaction.reads_rows_matching(parse_filter(text))
                found = transaction.snapshot.files(parse_filter(text))
        files = [add_of(row) for row in found.to_pylist()]
        note.saw = frozenset(row for file in files for row in self._rows(file) if note.matches(row))
        return files

    def _filter(self) -> tuple[str, Matches]:
        part = self.chance.choice(PARTS)
        low = self.chance.randrange(self.table.rows + 1)
        high = low + self.chance.randrange(12)
        match self.chance.randrange(3):
            case 0:
                return f"part = '{part}'", _in_part(part)
            case 1:
                return f"id >= {low} and id < {high}", lambda row: low <= row[1] < high
            case _:
                return f"part = '{part}' and id >= {low}", lambda row: row[0] == part and row[1] >= low

    def _take(self, transaction: Transaction, files: list[Add], takes: Rows) -> None:
        """Remove rows: whole files, by a deletion vector, or by writing the rest anew."""
        for file in files:
            rows = self._rows(file)
            rest = rows - takes
            if rest == rows:
                continue
            transaction.remove([removal_of(file)])
            if rest and self.chance.random() < 0.5:
                self.ctx.new_id()  # not needed: but the seeds that failed once shall play the same histories
                vector = inline_vector(self._positions(file, lambda row, rest=rest: row not in rest))
                transaction.add([msgspec.structs.replace(file, data_change=True, deletion_vector=vector)])
            elif rest:
                transaction.add([self._file(file.partition_values["part"] or "", rest)])

    def _rows(self, file: Add) -> Rows:
        return self.table.history.held(file.path, file.deletion_vector, self.table.world.store)

    def _positions(self, file: Add, matches: Matches) -> BitMap64:
        """Where rows are in a data file."""
        rows = self.table.history.contents[file.path]
        return BitMap64(number for number, row in enumerate(rows) if matches(row))

    def _written(self, rows: Rows) -> list[Add]:
        parts = sorted({part for part, _ in rows})
        return [self._file(part, frozenset(row for row in rows if row[0] == part)) for part in parts]

    def _file(self, part: str, rows: Rows, *, data_change: bool = True) -> Add:
        """Write a data file; it takes a call to the store, so a process may die here too."""
        path = f"part={part}/{self.ctx.new_id()}.parquet"
        self.store.put(path, b"rows")
        self.table.history.contents[path] = tuple(sorted(rows))
        ids = [number for _, number in rows]
        stats = {
            "numRecords": len(ids),
            "minValues": {"id": min(ids)},
            "maxValues": {"id": max(ids)},
            "nullCount": {"id": 0},
            "tightBounds": True,
        }
        return Add(path, 4, {"part": part}, self.ctx.clock_ms(), data_change, json.dumps(stats))


def every_row(row: Row) -> bool:
    return True


def _in_part(part: str) -> Matches:
    return lambda row: row[0] == part
