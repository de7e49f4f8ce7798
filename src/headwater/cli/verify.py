"""`headwater verify`: does the log agree with itself, and with the checksum that its writer left beside it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from headwater.cli import formats, output
from headwater.log.checksum import Discrepancy, read_checksum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from headwater.log.snapshot import Snapshot

ChecksumState = Literal["found", "missing", "damaged", "not applicable"]

_LONGEST = 300
"""Characters of a value that are shown; JSON has all of them."""


def checksum_state(snapshot: Snapshot) -> ChecksumState:
    """Whether the version has a checksum file, in a log that has such files at all."""
    if not snapshot.ctx.format.has_checksums:
        return "not applicable"
    checksum = read_checksum(snapshot.ctx.store, snapshot.version)
    if checksum is None:
        return "missing"
    return "damaged" if isinstance(checksum, Discrepancy) else "found"


def show_verification(snapshot: Snapshot, *, as_json: bool) -> bool:
    """Compare the log with its checksum, and write what was found.

    Returns:
        Whether all is fine.
    """
    with output.waiting("Comparing the log with its checksum"):
        discrepancies = snapshot.verify()
        checksum = checksum_state(snapshot)
    if as_json:
        _write_json(snapshot, checksum, discrepancies)
    else:
        _write_text(snapshot, checksum, discrepancies)
    return not discrepancies


def _write_json(snapshot: Snapshot, checksum: ChecksumState, discrepancies: list[Discrepancy]) -> None:
    output.write_json(
        {
            "uri": snapshot.uri,
            "version": snapshot.version,
            "checksum": checksum,
            "ok": not discrepancies,
            "discrepancies": discrepancies,
        }
    )


def _write_text(snapshot: Snapshot, checksum: ChecksumState, discrepancies: list[Discrepancy]) -> None:
    from rich.text import Text

    out = output.console()
    version = f"Version {snapshot.version}"
    if discrepancies:
        found = formats.count(len(discrepancies), "discrepancy", "discrepancies")
        heading = Text.assemble((f"{version} of {snapshot.uri} has {found}:", "bold red"), "\n")
        output.show(out, heading, _table(discrepancies))
    elif checksum == "not applicable":
        files, size = formats.count(snapshot.num_files, "file"), formats.size(snapshot.size_bytes)
        text = f"{version} is sound: its versions and checkpoints agree on {files} and {size}."
        output.show(out, Text(text, style="green"))
    elif checksum == "missing":
        text = f"{version} has no checksum to compare with. Its commits by themselves are sound."
        output.show(out, Text(text, style="yellow"))
    else:
        files, size = formats.count(snapshot.num_files, "file"), formats.size(snapshot.size_bytes)
        text = f"{version} is sound: the log and its checksum agree on {files} and {size}."
        output.show(out, Text(text, style="green"))


def _table(discrepancies: list[Discrepancy]) -> Table:
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
        cells = (formats.clean(source), formats.clean(each.field), expected, actual)
        table.add_row(*(Text(formats.cut(cell, _LONGEST)) for cell in cells))
    return table


def contrast(expected: Any, actual: Any) -> tuple[str, str]:
    """Both values as text; of two objects or two lists only what differs.

    >>> contrast({"id": "a", "name": "x"}, {"id": "b", "name": "x"})
    ('{"id":"a"}', '{"id":"b"}')
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        return formats.plain(_lacking(expected, actual)), formats.plain(_lacking(actual, expected))
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) > 3:
        return _only(expected, actual), _only(actual, expected)
    return formats.plain(expected), formats.plain(actual)


def _lacking(these: Mapping[str, Any], those: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that the other one does not have."""
    return {key: value for key, value in these.items() if key not in those or those[key] != value}


def _only(these: list[Any], those: list[Any]) -> str:
    if len(these) == len(those):  # position by position, as in a histogram
        return ", ".join(
            f"[{i}] {formats.plain(a)}" for i, (a, b) in enumerate(zip(these, those, strict=True)) if a != b
        )
    others = set(map(repr, those))
    extra = [value for value in these if repr(value) not in others]
    return f"{formats.count(len(these), 'item')}" + (f", only here: {formats.plain(extra)}" if extra else "")
