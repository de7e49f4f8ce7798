"""`headwater files`: the live files of a table, or those that a query has to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headwater.cli import formats, output
from headwater.log.schema import physical_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from rich.table import Table

    from headwater.log.snapshot import Snapshot

DEFAULT_LIMIT = 50
"""Files that people see unless they ask for more."""

_BATCH = 4096
_SHOWN = ("path", "partitionValues", "size", "stats", "deletionVector", "numRecords")


_MAPS = ("tags", "minValues", "maxValues")


class _RowCount(msgspec.Struct, rename="camel"):
    """What is wanted of a file's statistics."""

    num_records: int | None = None


_ROW_COUNT = msgspec.json.Decoder(_RowCount)


def show_files(snapshot: Snapshot, where: str | None, limit: int | None, *, as_json: bool) -> None:
    """Write the files.

    Args:
        snapshot: of any version.
        where: a filter in SQL.
        limit: how many files at most.
        as_json: write an array with one file a line; all of them, where no limit is given.
    """
    if as_json:
        with output.waiting("Reading the list of files"):
            found = snapshot.files(where).slice(0, limit)
        output.write_json_array(file_objects(snapshot, found))
        return
    with output.waiting("Reading the list of files"):
        known = snapshot.ctx.format.file_columns
        found = snapshot.files(where, columns=[name for name in _SHOWN if name in known])
        summary = _summary(snapshot, found)
    shown = found.slice(0, limit or DEFAULT_LIMIT)
    out = output.console()
    if shown.num_rows:
        output.show(out, _table(snapshot, shown), "")
    output.show(out, summary)
    if found.num_rows > shown.num_rows:
        output.show(out, f"The first {shown.num_rows:,} are shown: --limit N shows more.")


def file_objects(snapshot: Snapshot, found: pa.Table) -> Iterator[dict[str, Any]]:
    """The files as plain objects.

    Those of `snapshot.files()`, and two more keys: `partition`, the partition values by the names that users
    know the columns by, and `rows`, how many rows there are to read (None where the statistics do not say).
    """
    names = [
        (name, physical_path(snapshot.schema, (name,), snapshot.mapping_mode)[0]) for name in snapshot.partition_columns
    ]
    for batch in found.to_batches(max_chunksize=_BATCH):
        for row in batch.to_pylist():
            values = dict(row["partitionValues"] or ())
            row["partitionValues"] = values
            for name in _MAPS:
                if row.get(name) is not None:
                    row[name] = dict(row[name])
            row["partition"] = {name: values.get(physical) for name, physical in names}
            if snapshot.shape.empty_text_is_null:  # spec: "Partition Value Serialization"
                row["partition"] = {name: value or None for name, value in row["partition"].items()}
            row["rows"] = row.get("numRecords")
            if row["rows"] is None:
                row["rows"] = _rows(row["stats"], row.get("deletionVector"))
            yield row


def _rows(stats: str | None, vector: dict[str, Any] | None) -> int | None:
    """Rows to read: `numRecords` counts also those that a deletion vector has taken away."""
    try:
        records = _ROW_COUNT.decode(stats or "{}").num_records
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # statistics are a help, never a reason to fail
        return None
    deleted = vector["cardinality"] if vector is not None else 0
    return None if records is None else records - deleted


def _summary(snapshot: Snapshot, found: pa.Table) -> str:
    import pyarrow.compute as pc

    kept_bytes = pc.sum(found.column("size")).as_py() or 0
    return (
        f"kept {found.num_rows:,} of {formats.count(snapshot.num_files, 'file')} "
        f"({formats.size(kept_bytes)} of {formats.size(snapshot.size_bytes)})"
    )


def _table(snapshot: Snapshot, shown: pa.Table) -> Table:
    from rich.table import Table
    from rich.text import Text

    from headwater.cli.short_path import ShortPath

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("path")
    if snapshot.partition_columns:
        table.add_column("partition", style="cyan", overflow="fold")
    has_vectors = "deletionVector" in shown.column_names
    for name in ("size", "rows", *(["DV"] if has_vectors else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for row in file_objects(snapshot, shown):
        partition = ", ".join(
            f"{name}={'null' if value is None else value}" for name, value in row["partition"].items()
        )
        vector = row.get("deletionVector")
        cells = [
            *([formats.clean(partition)] if snapshot.partition_columns else []),
            formats.size(row["size"]),
            "?" if row["rows"] is None else f"{row['rows']:,}",
            *(["" if vector is None else f"-{vector['cardinality']:,}"] if has_vectors else []),
        ]
        table.add_row(ShortPath(formats.clean(row["path"])), *map(Text, cells))
    return table
