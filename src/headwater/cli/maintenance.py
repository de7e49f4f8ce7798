"""`headwater vacuum`, `headwater restore` and `headwater verify`: keep a table in shape, and check its log.

The commands are imported when they run: `verify` needs no Arrow.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from headwater.api.views import checksum_state
from headwater.cli import output
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from headwater.api.views import ChecksumState
    from headwater.commands.restore import Restored, RestoreRequest
    from headwater.commands.vacuum import Vacuumed, VacuumRequest
    from headwater.commands.vacuum_plan import VacuumMode
    from headwater.log.delta.checksum import Discrepancy
    from headwater.log.snapshot import Snapshot


DEFAULT_LIMIT = 50
"""Files that people see unless they ask for more."""


def show_vacuum(request: VacuumRequest, limit: int | None, *, as_json: bool) -> None:
    """Vacuum a table, and show what was deleted: at most `limit` files, or one JSON object with all paths."""
    from headwater.commands.progress import shown_progress
    from headwater.commands.vacuum import vacuum

    with shown_progress() as progress:
        found = vacuum(request, progress)
    if as_json:
        _write_vacuumed_json(found, request.mode, limit)
    else:
        _write_vacuumed(found, limit or DEFAULT_LIMIT)


def _write_vacuumed_json(found: Vacuumed, mode: VacuumMode, limit: int | None) -> None:
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


def _write_vacuumed(found: Vacuumed, limit: int) -> None:
    from rich.text import Text

    out = output.console()
    count = output.count(found.num_files, "file or directory", "files and directories")
    before = output.moment(found.cutoff_ms)
    if not found.num_files:
        output.show(out, Text(f"Nothing to delete: all files from before {before} are needed.", style="green"))
        return
    if found.is_dry_run:
        from headwater.cli.files import ShortPath

        output.show(out, *(ShortPath(output.clean(path)) for path in islice(found.paths(), limit)), "")
        text = f"{count} ({output.size(found.size_bytes)}) would be deleted: nothing since {before} needs them."
    else:
        text = f"{count} ({output.size(found.size_bytes)}) deleted: nothing since {before} needs them."
    output.show(out, Text(text, style="yellow" if found.is_dry_run else "green"))
    if found.is_dry_run and found.num_files > limit:
        output.show(out, f"The first {limit:,} are shown: --limit N shows more.")


def show_restore(request: RestoreRequest, *, as_json: bool) -> None:
    """Restore a table, and show what has changed: as one JSON object, or as lines for people."""
    from headwater.commands.restore import restore

    with output.waiting("Restoring the table"):
        done = restore(request)
    uri = parse_uri(request.table.location).uri
    if as_json:
        output.write_json({"uri": uri, **asdict(done)})
    else:
        _write_restored(uri, done)


def _write_restored(uri: str, done: Restored) -> None:
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
        table.add_row(Text(what), Text(output.count(count, "file")), Text(output.size(size)))
    told = f"Version {done.version} of {uri} is what version {done.restored_version} was."
    output.show(out, Text(told, style="green"), table)


_LONGEST_VALUE = 300
"""Characters of a value that are shown; JSON has all of them."""


def show_verification(snapshot: Snapshot, *, as_json: bool) -> bool:
    """Compare the log with its checksum, and write what was found.

    Returns:
        Whether all is fine.
    """
    with output.waiting("Comparing the log with its checksum"):
        discrepancies = snapshot.verify()
        checksum = checksum_state(snapshot)
    if as_json:
        _write_verified_json(snapshot, checksum, discrepancies)
    else:
        _write_verified(snapshot, checksum, discrepancies)
    return not discrepancies


def _write_verified_json(snapshot: Snapshot, checksum: ChecksumState, discrepancies: list[Discrepancy]) -> None:
    output.write_json(
        {
            "uri": snapshot.uri,
            "version": snapshot.version,
            "checksum": checksum,
            "ok": not discrepancies,
            "discrepancies": discrepancies,
        }
    )


def _write_verified(snapshot: Snapshot, checksum: ChecksumState, discrepancies: list[Discrepancy]) -> None:
    from rich.text import Text

    out = output.console()
    version = f"Version {snapshot.version}"
    if discrepancies:
        found = output.count(len(discrepancies), "discrepancy", "discrepancies")
        heading = Text.assemble((f"{version} of {snapshot.uri} has {found}:", "bold red"), "\n")
        output.show(out, heading, _discrepancy_table(discrepancies))
    elif checksum == "not applicable":
        files, size = output.count(snapshot.num_files, "file"), output.size(snapshot.size_bytes)
        text = f"{version} is sound: its versions and checkpoints agree on {files} and {size}."
        output.show(out, Text(text, style="green"))
    elif checksum == "missing":
        text = f"{version} has no checksum to compare with. Its commits by themselves are sound."
        output.show(out, Text(text, style="yellow"))
    else:
        files, size = output.count(snapshot.num_files, "file"), output.size(snapshot.size_bytes)
        text = f"{version} is sound: the log and its checksum agree on {files} and {size}."
        output.show(out, Text(text, style="green"))


def _discrepancy_table(discrepancies: list[Discrepancy]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("in", overflow="fold", style="dim")
    table.add_column("field", style="cyan", overflow="fold")
    table.add_column("expected", style="green", overflow="fold")
    table.add_column("found", style="red", overflow="fold")
    for each in discrepancies:
        expected, actual = contrast(each.expected, each.actual)
        source = each.source.rpartition("/")[2]
        cells = (output.clean(source), output.clean(each.field), expected, actual)
        table.add_row(*(Text(output.cut(cell, _LONGEST_VALUE)) for cell in cells))
    return table


def contrast(expected: Any, actual: Any) -> tuple[str, str]:
    """Return both values as text; of two objects or lists only what differs.

    >>> contrast({"id": "a", "name": "x"}, {"id": "b", "name": "x"})
    ('{"id":"a"}', '{"id":"b"}')
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        return output.plain(_lacking(expected, actual)), output.plain(_lacking(actual, expected))
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) > 3:
        return _only(expected, actual), _only(actual, expected)
    return output.plain(expected), output.plain(actual)


def _lacking(these: Mapping[str, Any], those: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in these.items() if key not in those or those[key] != value}


def _only(these: list[Any], those: list[Any]) -> str:
    if len(these) == len(those):  # position by position, as in a histogram
        return ", ".join(
            f"[{i}] {output.plain(a)}" for i, (a, b) in enumerate(zip(these, those, strict=True)) if a != b
        )
    others = set(map(repr, those))
    extra = [value for value in these if repr(value) not in others]
    return f"{output.count(len(these), 'item')}" + (f", only here: {output.plain(extra)}" if extra else "")
