"""Tables and sources for the benchmark `dml`, and what is true of them after each change, worked out with Arrow.

The rows are those of `scan_tables.py`. With deletion vectors or without is a property of the table; the data files
are the same. Everything is kept in the cache.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.scan_tables import ScanSpec, ScanTable, scan_table_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

NEW_CENTS = 7
INSERTED_PERCENT = 10
"""Of the rows of a source: the others are updates."""
DAY_S = 86_400


def with_vectors(table: ScanTable) -> Path:
    """The same table, with the property that makes writers use deletion vectors."""

    def make(path: Path) -> None:
        shutil.copytree(table.path, path, copy_function=os.link)
        log = path / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        features = ["deletionVectors"]
        versions = {"minReaderVersion": 3, "minWriterVersion": 7}
        actions[0] = {"protocol": {**versions, "readerFeatures": features, "writerFeatures": features}}
        actions[1]["metaData"]["configuration"] = {"delta.enableDeletionVectors": "true"}
        log.unlink()  # it is a name of the other table's log
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))

    return _made(table.path.with_name(f"dml-vectors-{table.path.name}"), make)


def upserts(table: ScanTable, percent: int, *, changes_all: bool = False) -> Path:
    """Make the rows of a MERGE: a percentage of the table, spread over all of it, a tenth of them new.

    Rows that are there have another value in one column, or in all but the key.
    """

    def make(path: Path) -> None:
        import numpy as np
        import pyarrow.parquet as pq

        rows = pq.read_table(table.path / "data")
        count = rows.num_rows * percent // 100
        inserts = count * INSERTED_PERCENT // 100
        positions = np.arange(count) * (100 // percent)
        chosen = rows.take(positions)
        new_ids = positions + np.where(np.arange(count) < inserts, table.spec.num_rows, 0)
        columns = {"id": [new_ids], "cents": [np.full(count, NEW_CENTS)]}
        if changes_all:
            # The values of other rows: types and distributions stay.
            others = rows.take((positions + 1) % rows.num_rows)
            chosen = others.set_column(others.schema.get_field_index("id"), "id", chosen["id"])
        for name, values in columns.items():
            chosen = chosen.set_column(chosen.schema.get_field_index(name), name, values)
        path.mkdir()
        pq.write_table(chosen, path / "part-0.parquet")

    kind = "all-columns-" if changes_all else ""
    return _made(table.path.with_name(f"dml-upserts-{kind}{percent}-{table.path.name}"), make)


def after_merge(table: ScanTable, source: Path) -> dict[str, Any]:
    """What the table has after the MERGE."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = pq.read_table(table.path / "data", columns=["id", "cents"])
    new = pq.read_table(source, columns=["id", "cents"])
    kept = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=new["id"])))
    return {
        "rows": kept.num_rows + new.num_rows,
        "cents": pc.sum(kept["cents"]).as_py() + pc.sum(new["cents"]).as_py(),
        "ids": pc.sum(kept["id"]).as_py() + pc.sum(new["id"]).as_py(),
    }


def after_delete(table: ScanTable, matches: Callable[[pa.Table], Any]) -> dict[str, Any]:
    """What the table has after the DELETE of rows that match."""
    import pyarrow.compute as pc

    rows = _read(table)
    kept = rows.filter(pc.invert(matches(rows)))
    return {"rows": kept.num_rows, "cents": pc.sum(kept["cents"]).as_py(), "ids": pc.sum(kept["id"]).as_py()}


def after_update(table: ScanTable, matches: Callable[[pa.Table], Any]) -> dict[str, Any]:
    """What the table has after the UPDATE, which adds one cent to the rows that match."""
    import pyarrow.compute as pc

    rows = _read(table)
    updated = pc.sum(matches(rows)).as_py()
    cents = pc.sum(rows["cents"]).as_py() + updated
    return {"rows": rows.num_rows, "cents": cents, "ids": pc.sum(rows["id"]).as_py()}


def unchanged(table: ScanTable) -> dict[str, Any]:
    """What the table has now."""
    import pyarrow.compute as pc

    return after_update(table, lambda rows: pc.less(rows["quantity"], 0))


def _read(table: ScanTable) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(table.path / "data", columns=["id", "cents", "quantity"])


def small_files(num_rows: int, num_files: int, cache: Path) -> ScanTable:
    """A table that wants to be compacted."""
    return scan_table_apart(ScanSpec(num_rows, num_files), cache)


def littered(num_files: int, cache: Path) -> Path:
    """Make a table of whose files the log names every second; all are a month old."""

    def make(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (path / "_delta_log").mkdir(parents=True)
        rows = pa.table({"id": pa.array([1], pa.int64())})
        data = pa.BufferOutputStream()
        pq.write_table(rows, data)
        content = data.getvalue().to_pybytes()
        old_s = time.time() - 30 * DAY_S
        adds = []
        for number in range(num_files):
            name = f"p={number % 500}/part-{number:06}.parquet"
            file = path / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
            os.utime(file, (old_s, old_s))
            if number % 2:
                entry = {"path": name, "size": len(content), "partitionValues": {"p": str(number % 500)}}
                adds.append({"add": {**entry, "modificationTime": int(old_s * 1000), "dataChange": True}})
        fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in ("id", "p")]
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["p"],
            "configuration": {},
        }
        actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}, *adds]
        log = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
        (path / "_delta_log" / f"{0:020}.json").write_text(log)

    return _made(cache / f"dml-littered-{num_files}", make)


def _made(path: Path, make: Callable[[Path], None]) -> Path:
    """The directory, made now unless the cache has it; whole or not at all."""
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as making:
            make(Path(making) / path.name)
            (Path(making) / path.name).rename(path)
    return path
