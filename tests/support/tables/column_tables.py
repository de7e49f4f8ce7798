"""Tables of which data files get new values in some columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.log.schema import StructType
from headwater.parquet.plan import FilePlan, WriteTarget, plan_files
from headwater.parquet.splice.columns import ColumnWriter, OldFile, RewrittenFile, plans_of_columns
from support.tables.parquet_files import OLD

SCHEMA = StructType.from_arrow(OLD.schema)


class Table:
    """A directory with data files, of which columns are written again."""

    def __init__(self, directory: Path, schema: StructType = SCHEMA, **target: Any) -> None:
        self.directory = directory
        self.mode = target.get("mapping_mode", "none")
        uri = f"file://{directory}"
        self.plan: FilePlan = plan_files(WriteTarget(uri=uri, schema=schema, **target), spark_version="4.0.1")

    def old(self, file: bytes, name: str = "old.parquet", **partition_values: str | None) -> OldFile:
        (self.directory / name).write_bytes(file)
        return OldFile(f"file:{self.directory}/{name}", len(file), partition_values)

    def writer(self, names: Collection[str]) -> ColumnWriter:
        return ColumnWriter(self.plan, plans_of_columns(self.plan, names), self.mode, 0)

    def write(self, file: bytes, positions: Sequence[int], new: dict[str, pa.Array]) -> RewrittenFile | None:
        values = pa.RecordBatch.from_pydict(new)
        return self.writer(list(new)).write(self.old(file), np.array(positions, np.int64), values)

    def read(self, changed: RewrittenFile | None) -> bytes:
        assert changed is not None
        found = (self.directory / changed.file.key).read_bytes()
        assert changed.file.size_bytes == len(found)
        return found

    def files(self) -> set[str]:
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*.parquet")}


def replaced(table: pa.Table, positions: Sequence[int], new: dict[str, pa.Array]) -> list[str]:
    """The rows of a table with new values, put in one by one."""
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    for name, values in new.items():
        for position, value in zip(positions, values.to_pylist(), strict=True):
            columns.setdefault(name, [None] * table.num_rows)[position] = value
    return [str(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
