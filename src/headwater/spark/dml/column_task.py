"""What one task does to give rows new values where they are: it takes packs of rows, and writes files."""

from __future__ import annotations

from functools import reduce
from itertools import groupby
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.spark.column_files import ColumnWriter, OldFile
from headwater.spark.dml.row_packs import ABOUT_FILES, NEW_ROWS, READ_ROWS, Sum
from headwater.spark.task_writer import RESULT_SCHEMA, TaskWriter, result_batch, task_number
from headwater.spark.workers import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headwater.log.schema import MappingMode
    from headwater.spark.arrow_rows import ReaderSettings
    from headwater.spark.column_files import ChangedFile
    from headwater.spark.file_plan import FilePlan
    from headwater.spark.task_writer import WrittenFile

COLUMN_RESULT_SCHEMA = (
    f"file int, num_updated long, num_copied long, columns array<string>, num_read long, check long, {RESULT_SCHEMA}"
)
"""One row for each file that has rows with new values (without a key, if nothing changes by them), one for each file
with new rows, and one that says what was read."""

_NOTES = pa.schema(
    [
        ("file", pa.int32()),
        ("num_updated", pa.int64()),
        ("num_copied", pa.int64()),
        ("columns", pa.list_(pa.string())),
        ("num_read", pa.int64()),
        ("check", pa.int64()),
    ]
)


class ColumnTask:
    """Writes what one task gets.

    Args:
        plan: how files with all columns are.
        plans: the columns that may get other values (`headwater.spark.column_files.plans_of_columns`).
        mode: how the table maps its columns.
        settings: of the session that reads.
    """

    def __init__(self, plan: FilePlan, plans: Sequence[FilePlan], mode: MappingMode, settings: ReaderSettings) -> None:
        self._columns = ColumnWriter(plan, plans, mode, task_number(), settings)
        self._rows = TaskWriter(plan, task_number())
        self._known: dict[int, OldFile] = {}
        self._changed: dict[int, tuple[int, ChangedFile | None]] = {}
        self._read = Sum()

    def results(self, packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files; rows of `COLUMN_RESULT_SCHEMA`. Made for `mapInArrow`.

        Args:
            packs: rows of `PACKS_SCHEMA`, those of a file together, after what describes it.
        """
        values = (
            (number, value.as_buffer())
            for batch in packs
            for number, value in zip(batch.column("file").to_pylist(), batch.column("rows"), strict=True)
        )
        try:
            for number, own in groupby(values, itemgetter(0)):
                self._take(number, (unpacked(data) for _, data in own))
            new = self._rows.finish()
        except BaseException:
            self._columns.abandon()
            self._rows.abandon()
            raise
        yield self._batch(new)

    def _take(self, number: int, tables: Iterable[pa.Table]) -> None:
        if number == NEW_ROWS:
            for batch in (batch for table in tables for batch in table.to_batches()):
                self._rows.write(batch)
            return
        table = pa.concat_tables(tables)
        if number == READ_ROWS:
            self._read = reduce(add, (Sum(**row) for row in table.to_pylist()), self._read)
            return
        if number == ABOUT_FILES:
            found = table.to_pylist(maps_as_pydicts="strict")
            self._known |= {r["file"]: OldFile(r["uri"], r["size"], r["partitionValues"] or {}) for r in found}
            return
        rows = table.column(0).to_numpy()
        if np.any(rows[1:] < rows[:-1]):
            order = np.argsort(rows)
            rows, table = rows[order], table.take(pa.array(order))
        [values] = table.remove_column(0).combine_chunks().to_batches()
        self._changed[number] = len(rows), self._columns.write(self._known[number], rows, values)

    def _batch(self, new: list[WrittenFile]) -> pa.RecordBatch:
        noted: list[tuple[WrittenFile | None, dict[str, Any]]] = []
        for number, (count, changed) in self._changed.items():
            note = {"file": number, "num_updated": count}
            if changed is None:
                noted.append((None, note))
            else:
                columns, copied = changed.columns, changed.num_rows - count
                noted.append((changed.file, {**note, "num_copied": copied, "columns": columns}))
        noted += [(file, {"file": NEW_ROWS}) for file in new]
        noted.append((None, {"file": READ_ROWS, "num_read": self._read.count, "check": self._read.check}))
        written = [file for file, _ in noted if file is not None]
        places = iter(range(len(written)))
        order = [None if file is None else next(places) for file, _ in noted]
        files = result_batch(written).take(pa.array(order, pa.int64()))
        notes = pa.RecordBatch.from_pylist([note for _, note in noted], schema=_NOTES)
        names = [*notes.schema.names, *files.schema.names]
        return pa.RecordBatch.from_arrays([*notes.columns, *files.columns], names=names)
