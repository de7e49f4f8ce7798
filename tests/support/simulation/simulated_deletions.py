"""Simulated writers that delete rows by deletion vectors, several of them in the same files, while others compact."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

from headwater.log.commit import row_changes
from headwater.log.commit.row_changes import RowChange
from headwater.log.commit.transaction import Transaction
from headwater.log.filters.expressions import Constant
from headwater.log.filters.sql import parse_filter
from support.log.deletions import write_small_inline
from support.simulation.simulated_files import add_of, removal_of
from support.simulation.simulated_writers import PARTS, Table, Writer, every_row
from support.simulation.simulation_check import Matches, Note, Row

MANY = 30
"""So many rows are there before the first is deleted."""


class DeletionTable(Table):
    """A table of few files with many rows, of which rows are deleted one by one."""

    def play(self) -> None:
        self.operations, self.writers = 22, self.chance.randint(2, 5)
        # Other writers put small vectors into the log; in files there is more that can go wrong.
        largest_bytes = self.chance.choice([0, 0, 36, 256])
        with mock.patch.object(row_changes, "write_vectors", write_small_inline(largest_bytes)):
            self.world.scheduler.run(
                self.world.processes(self.writers, lambda store: DeletionWriter(self, store).live())
            )


class DeletionWriter(Writer):
    """A process that mostly deletes."""

    def _kinds(self) -> list[Callable[[Transaction, Note], None]]:
        if self.table.rows < MANY:
            return [self._append_many]
        kinds = [self._delete_rows] * 8 + [self._update_rows, self._delete_some] * 4 + [self._compact_some] * 3
        return [*kinds, self._append_many, self._delete, self._insert_select, self._readd]

    def _append_many(self, transaction: Transaction, note: Note) -> None:
        note.brings = self.table.new_rows(self.chance.choice(PARTS), self.chance.randint(12, 24))
        transaction.add(self._written(note.brings))

    def _delete_rows(self, transaction: Transaction, note: Note) -> None:
        self._change_rows(transaction, note, every_row)

    def _update_rows(self, transaction: Transaction, note: Note) -> None:
        self._delete_rows(transaction, note)
        if note.takes:
            note.brings = self.table.new_rows(self.chance.choice(PARTS), len(note.takes))
            transaction.add(self._written(note.brings))

    def _delete_some(self, transaction: Transaction, note: Note) -> None:
        """Of the rows that it found it deletes some; which ones depends on all of them."""
        self._change_rows(transaction, note, lambda row: row[1] % 4 == 0)

    def _change_rows(self, transaction: Transaction, note: Note, takes: Matches) -> None:
        where, note.matches = self._narrow_filter()
        # As commands do: files in which nothing was found do not matter.
        transaction.looks_for(parse_filter(where) if self.chance.random() < 0.8 else Constant(True))
        found: dict[str, list[Row]] = {}
        changes: list[RowChange] = []
        for file in map(add_of, transaction.snapshot.files(where).to_pylist()):
            rows = sorted(row for row in self._rows(file) if note.matches(row))
            if rows:
                found[file.path] = rows
                deleted = self._positions(file, lambda row, rows=rows: row in rows and takes(row))
                read = self._positions(file, lambda row, rows=rows: row in rows and not takes(row))
                changes.append(RowChange(file.path, deleted, read if read else None))
        transaction.delete_rows(changes)
        note.files = frozenset(found)
        note.saw = frozenset(row for rows in found.values() for row in rows)
        note.takes = frozenset(row for row in note.saw if takes(row))

    def _narrow_filter(self) -> tuple[str, Matches]:
        """A few rows, so that writers often mean different rows of one file."""
        low = self.chance.randrange(self.table.rows + 1)
        high = low + self.chance.randint(1, 4)
        return f"id >= {low} and id < {high}", lambda row: low <= row[1] < high

    def _compact_some(self, transaction: Transaction, note: Note) -> None:
        """Two files into one; never all, so that deletions elsewhere go on at the same time."""
        part = self.chance.choice(PARTS)
        files = self._read(transaction, note, where=f"part = '{part}'")
        chosen = self.chance.sample(files, min(2, len(files)))
        if not chosen:
            return
        note.level = "SnapshotIsolation"
        note.files = frozenset(file.path for file in chosen)
        rows = frozenset[Row]().union(*(self._rows(file) for file in chosen))
        transaction.remove([removal_of(file, data_change=False) for file in chosen])
        if rows:
            transaction.add([self._file(part, rows, data_change=False)])
