"""`headwater vacuum`: delete the files that no retained version of a table needs, or show which those are."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from headwater.cli import formats, output
from headwater.maintenance.progress import shown_progress
from headwater.maintenance.vacuum import vacuum

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.maintenance.vacuum import Vacuumed
    from headwater.maintenance.vacuum_plan import VacuumMode

DEFAULT_LIMIT = 50
"""Files that people see unless they ask for more."""


def show_vacuum(
    ctx: LogContext,
    *,
    retention_hours: float | None,
    mode: VacuumMode,
    dry_run: bool,
    enforce_retention: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Vacuum a table, and write what was deleted.

    Args:
        ctx: the table's log.
        retention_hours: by default what the table says.
        mode: `FULL` or `LITE`.
        dry_run: only show it.
        enforce_retention: refuse a shorter retention than the table's.
        limit: how many files are shown at most.
        as_json: write one object, with all paths.
    """
    with shown_progress() as progress:
        found = vacuum(
            ctx,
            retention_hours=retention_hours,
            mode=mode,
            dry_run=dry_run,
            enforce_retention=enforce_retention,
            progress=progress,
        )
    if as_json:
        _write_json(found, mode, limit)
    else:
        _write_text(found, limit or DEFAULT_LIMIT)


def _write_json(found: Vacuumed, mode: VacuumMode, limit: int | None) -> None:
    output.write_json(
        {
            "uri": found.snapshot.uri,
            "version": found.snapshot.version,
            "mode": mode,
            "dry_run": found.is_dry_run,
            "cutoff": found.cutoff_ms,
            "num_files": found.num_files,
            "size_bytes": found.size_bytes,
            "paths": list(islice(found.paths(), limit)),
        }
    )


def _write_text(found: Vacuumed, limit: int) -> None:
    from rich.text import Text

    out = output.console()
    count = formats.count(found.num_files, "file or directory", "files and directories")
    before = formats.moment(found.cutoff_ms)
    if not found.num_files:
        output.show(out, Text(f"Nothing to delete: all files from before {before} are needed.", style="green"))
        return
    if found.is_dry_run:
        from headwater.cli.short_path import ShortPath

        output.show(out, *(ShortPath(formats.clean(path)) for path in islice(found.paths(), limit)), "")
        text = f"{count} ({formats.size(found.size_bytes)}) would be deleted: nothing since {before} needs them."
    else:
        text = f"{count} ({formats.size(found.size_bytes)}) deleted: nothing since {before} needs them."
    output.show(out, Text(text, style="yellow" if found.is_dry_run else "green"))
    if found.is_dry_run and found.num_files > limit:
        output.show(out, f"The first {limit:,} are shown: --limit N shows more.")
