"""`headwater restore`: make a table what it was at an earlier version."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from headwater.cli import formats, output
from headwater.maintenance.restore import restore

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.maintenance.restore import Restored


def show_restore(
    ctx: LogContext,
    version: int | None,
    timestamp: str | int | None,
    *,
    ignore_missing_files: bool,
    as_json: bool,
) -> None:
    """Restore a table, and write what has changed: as one JSON object, or as lines for people."""
    with output.waiting("Restoring the table"):
        done = restore(ctx, version, timestamp, ignore_missing_files=ignore_missing_files)
    if as_json:
        output.write_json({"uri": ctx.uri, **asdict(done)})
    else:
        _write_text(ctx, done)


def _write_text(ctx: LogContext, done: Restored) -> None:
    from rich.table import Table
    from rich.text import Text

    out = output.console()
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    for what, count, size in (
        ("removed", done.num_removed_files, done.removed_files_size),
        ("restored", done.num_restored_files, done.restored_files_size),
        ("in the table now", done.num_of_files_after_restore, done.table_size_after_restore),
    ):
        table.add_row(Text(what), Text(formats.count(count, "file")), Text(formats.size(size)))
    told = f"Version {done.version} of {ctx.uri} is what version {done.restored_version} was."
    output.show(out, Text(told, style="green"), table)
