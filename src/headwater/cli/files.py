"""`headwater files`: the live files of a table, or those that a query has to read; and bars for their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headwater.cli import output
from headwater.log.schema import physical_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement
    from rich.table import Table

    from headwater.api.views import Bin
    from headwater.log.snapshot import Snapshot


DEFAULT_LIMIT = 50
"""Files that people see unless they ask for more."""

_BATCH = 4096
_SHOWN = ("path", "partitionValues", "size", "stats", "deletionVector", "numRecords")


_MAPS = ("tags", "minValues", "maxValues")


class _RowCount(msgspec.Struct, rename="camel"):
    num_records: int | None = None


_ROW_COUNT = msgspec.json.Decoder(_RowCount)


def show_files(snapshot: Snapshot, where: str | None, limit: int | None, *, as_json: bool) -> None:
    """Show at most `limit` files, for people or as a JSON array with one file a line."""
    if as_json:
        with output.waiting("Reading the list of files"):
            found = snapshot.files(where).slice(0, limit)
        output.write_json_array(file_objects(snapshot, found))
        return
    with output.waiting("Reading the list of files"):
        known = snapshot.ctx.dialect.file_columns
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
    """Return the files as plain objects.

    They have the columns of `snapshot.files()` and two more: `partition`, the partition values by logical column names,
    and `rows`, the number of rows to read (None where the statistics do not say).
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
    """Count the rows to read: `numRecords` includes rows that a deletion vector hides."""
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
        f"kept {found.num_rows:,} of {output.count(snapshot.num_files, 'file')} "
        f"({output.size(kept_bytes)} of {output.size(snapshot.size_bytes)})"
    )


def _table(snapshot: Snapshot, shown: pa.Table) -> Table:
    from rich.table import Table
    from rich.text import Text

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
            *([output.clean(partition)] if snapshot.partition_columns else []),
            output.size(row["size"]),
            "?" if row["rows"] is None else f"{row['rows']:,}",
            *(["" if vector is None else f"-{vector['cardinality']:,}"] if has_vectors else []),
        ]
        table.add_row(ShortPath(output.clean(row["path"])), *map(Text, cells))
    return table


_SHORTEST = 24


class ShortPath:
    """A path on one line, cut where it is too long: first its folders, then the middle of its name."""

    def __init__(self, text: str, style: str = "") -> None:
        self._text = text
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(
            shorten(self._text, options.max_width, ascii_only=options.ascii_only), style=self._style, no_wrap=True
        )

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.cells import cell_len

        length = cell_len(self._text)
        from rich.measure import Measurement

        return Measurement(min(length, _SHORTEST), length).with_maximum(options.max_width)


def shorten(path: str, width: int, *, ascii_only: bool = False) -> str:
    """The path in at most `width` cells.

    >>> path = "date=2024-01-31/part-00000-4c1f.snappy.parquet"
    >>> shorten(path, 40), shorten(path, 20)
    ('…/part-00000-4c1f.snappy.parquet', '…/part-000…y.parquet')
    """
    from rich.cells import cell_len, set_cell_size

    mark = "..." if ascii_only else "…"
    if cell_len(path) > width and "/" in path:
        path = f"{mark}/{path.rpartition('/')[2]}"
    if cell_len(path) <= width:
        return path
    room = max(width - len(mark), 0)
    head = set_cell_size(path, room - room // 2).rstrip()
    tail = set_cell_size(path[::-1], room // 2)[::-1].lstrip()
    return head + mark + tail


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bin_label(sizes: Bin) -> str:
    """Return the bounds of a bin, for people."""
    upper = output.size(sizes.to_bytes).replace(".0", "")
    lower = output.size(sizes.from_bytes).replace(".0", "")
    return f"{lower} – {upper}" if sizes.from_bytes else f"< {upper}"


def bar(share: float, width: int, *, ascii_only: bool) -> str:
    """Draw a bar that fills this share of the width; any share above 0 is visible.

    >>> bar(0.5, 4, ascii_only=False), bar(0.5, 4, ascii_only=True), bar(0.001, 4, ascii_only=False)
    ('██', '##', '▏')
    """
    if share <= 0:
        return ""
    eighths = max(1, round(share * width * 8))
    if ascii_only:
        return "#" * max(1, round(eighths / 8))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
