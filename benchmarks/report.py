"""Reports of measurements: a table on the terminal, and a block of markdown for `RESULTS.md`.

Absolute numbers belong to the machine of the run; the ratios are what is claimed. So both are shown together,
with the command line, the versions and the number of cores. Nothing here names a path of the machine.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.harness import HEADWATER, Case, Measurement, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared beside wall time."""

    unit: str
    explanation: str
    value: Callable[[Measurement], float]
    target: Callable[[Case], float | None]
    cell: Callable[[Measurement | None], str]
    wall_cell: Callable[[Measurement | None], str]
    """Wall time, with what the other columns do not show."""


MEMORY = Comparison(
    unit="MB",
    explanation="wall ms / CPU ms; peak resident memory of the process, imports included",
    value=lambda measured: measured.peak_rss_bytes,
    target=lambda case: case.memory_target,
    cell=lambda measured: _memory(measured),
    wall_cell=lambda measured: wall_and_cpu(measured),
)
CPU = Comparison(
    unit="CPU ms",
    explanation="wall time, then CPU time (JVM and Python, all threads)",
    value=lambda measured: measured.cpu_s,
    target=lambda case: case.cpu_target,
    cell=lambda measured: "" if measured is None else _ms(measured.cpu_s).removesuffix(" ms"),
    wall_cell=lambda measured: "" if measured is None else _ms(measured.wall_s).removesuffix(" ms"),
)


def ratio(outcome: Outcome, reference: str) -> float | None:
    """Headwater's wall time by the reference peer's; None if one of them is missing or anything is wrong."""
    return outcome.ratio(reference, lambda measured: measured.wall_s)


def second_ratio(outcome: Outcome, reference: str, second: Comparison) -> float | None:
    """The same of what is compared beside wall time."""
    return outcome.ratio(reference, second.value)


def verdict(found: float | None, target: float | None) -> str:
    """`met`, `missed`, or nothing where there is no target or no ratio.

    >>> verdict(0.04, 0.05), verdict(0.06, 0.05), verdict(0.06, None)
    ('met', 'missed', '')
    """
    if found is None or target is None:
        return ""
    return "met" if found <= target else "missed"


def headings(reference: str, second: Comparison) -> list[str]:
    """What the cells of a line are."""
    wall = ["case", "size", "Headwater, ms", f"{reference}, ms", "ratio", "target", ""]
    return [*wall, f"Headwater, {second.unit}", f"{reference}, {second.unit}", "ratio", "target", ""]


def line(outcome: Outcome, reference: str, second: Comparison = MEMORY) -> list[str]:
    """The cells of one line, as in `headings`."""
    ours, theirs = outcome.best.get(HEADWATER), outcome.best.get(reference)
    case = outcome.case
    found, found_second = ratio(outcome, reference), second_ratio(outcome, reference, second)
    return [
        case.title,
        case.size,
        second.wall_cell(ours),
        second.wall_cell(theirs),
        _ratio(found),
        _target(case.target),
        verdict(found, case.target) if not outcome.errors else "FAILED",
        second.cell(ours),
        second.cell(theirs),
        _ratio(found_second),
        _target(second.target(case)),
        verdict(found_second, second.target(case)),
    ]


def notes(outcome: Outcome, reference: str) -> list[str]:
    """What the columns cannot say: errors, other peers, the ratio to the setup, imports that cost time."""
    case = outcome.case
    found = [f"{_name(case)}: {error}" for error in outcome.errors]
    ours = outcome.best.get(HEADWATER)
    for peer, theirs in outcome.best.items():
        if ours is not None and peer not in (HEADWATER, reference):
            ratios = f"{_ratio(ratio(outcome, peer))} wall and {_ratio(second_ratio(outcome, peer, CPU))} CPU"
            found.append(f"{_name(case)}: {ratios} of {peer} ({wall_and_cpu(theirs)} ms)")
    if ours is not None and case.setup_title and ours.setup_s:
        found.append(f"{_name(case)}: {_ratio(ours.wall_s / ours.setup_s)} of {case.setup_title} ({_ms(ours.setup_s)})")
    for peer, measured in outcome.best.items():
        if measured.late_imports:
            found.append(f"{_name(case)}: the time of {peer} includes imports ({_packages(measured.late_imports)})")
    return found


def _packages(modules: list[str]) -> str:
    """The packages that most of the modules belong to, with how many.

    >>> _packages(["pandas", "pandas.core", "pytz"])
    '2 of pandas, 1 of pytz'
    """
    counted = Counter(module.partition(".")[0] for module in modules).most_common(3)
    return ", ".join(f"{count} of {package}" for package, count in counted)


def summary(outcome: Outcome, reference: str) -> str:
    """One short line, for progress while the run goes on."""
    times = [f"{peer} {_ms(best.wall_s)}" for peer, best in outcome.best.items()]
    found = ratio(outcome, reference)
    return "; ".join([_name(outcome.case), *times, *([_ratio(found)] if found else []), *outcome.errors])


def print_report(
    title: str, outcomes: list[Outcome], reference: str, console: Console, second: Comparison = MEMORY
) -> None:
    """The report on the terminal."""
    colours = {"met": "green", "missed": "red", "FAILED": "bold red"}
    table = Table(title=f"{title} ({second.explanation})")
    for position, name in enumerate(headings(reference, second)):
        table.add_column(name, justify="left" if position < 2 else "right", overflow="fold")
    for outcome in outcomes:
        table.add_row(*(f"[{colours[c]}]{c}[/]" if c in colours else c for c in line(outcome, reference, second)))
    console.print(table)
    for outcome in outcomes:
        for note in notes(outcome, reference):
            console.print(f"- {note}", markup=False, highlight=False)


def markdown(
    title: str,
    outcomes: list[Outcome],
    reference: str,
    command: str,
    remarks: list[str],
    second: Comparison = MEMORY,
    libraries: tuple[str, ...] | None = None,
) -> str:
    """The report as markdown, with everything that is needed to read it later.

    Args:
        title: of the report.
        outcomes: what was measured.
        reference: the peer that ratios are taken against.
        command: what was run.
        remarks: what else a reader must know.
        second: what is compared beside wall time.
        libraries: the distributions whose versions matter; Headwater's, the reference's and pyarrow's by default.
    """
    facts = _facts(libraries or (HEADWATER, reference, "pyarrow"), second)
    lines = [f"### {title}", "", f"`{command}`", "", *(f"- {fact}" for fact in facts), ""]
    alignments = ["---", "---", *["---:"] * 4, "---", *["---:"] * 4, "---"]
    lines += [_row(headings(reference, second)), _row(alignments)]
    lines += [_row(line(outcome, reference, second)) for outcome in outcomes]
    said = [f"- {note}" for outcome in outcomes for note in notes(outcome, reference)]
    lines += ["", *(f"- {remark}" for remark in remarks), *said]
    return "\n".join(lines) + "\n"


def replace_block(path: Path, name: str, text: str) -> None:
    """Put `text` between the markers `<!-- name:begin -->` and `<!-- name:end -->` of the file."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    content = path.read_text()
    if content.count(begin) != 1 or content.count(end) != 1:
        raise ValueError(f"{path.name} must have the markers {begin} and {end} once each")
    before, rest = content.split(begin)
    path.write_text(f"{before}{begin}\n{text}{end}{rest.split(end)[1]}")


def load_warning() -> str | None:
    """A warning when other work is running on the machine; None when it is quiet."""
    cores, load = _cores(), os.getloadavg()[0]
    if load <= 0.3 * cores:
        return None
    return f"the load was {load:.1f} on {cores} cores when the run started: other work may have disturbed it"


def _facts(libraries: tuple[str, ...], second: Comparison) -> list[str]:
    versions = [_version(name) for name in libraries]
    return [
        f"{', '.join(versions)}, Python {platform.python_version()}",
        f"{_cores()} cores, {platform.system()} {platform.machine()}, final load {os.getloadavg()[0]:.1f}",
        second.explanation,
    ]


def _version(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"{distribution} (not installed)"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(case: Case) -> str:
    return f"{case.title}, {case.size}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ms(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.2f} ms" if milliseconds < 10 else f"{milliseconds:,.0f} ms"


def wall_and_cpu(measured: Measurement | None) -> str:
    """Wall time and CPU time in milliseconds, as a cell."""
    if measured is None:
        return ""
    return f"{_ms(measured.wall_s)} / {_ms(measured.cpu_s)}".replace(" ms", "")


def _memory(measured: Measurement | None) -> str:
    return "" if measured is None or not measured.peak_rss_bytes else f"{measured.peak_rss_bytes / 1e6:,.0f}"


def _ratio(found: float | None) -> str:
    if found is None:
        return ""
    return f"{found:.3f}x" if found >= 0.0095 else f"{found:.4f}x" if found >= 0.001 else "< 0.001x"


def _target(target: float | None) -> str:
    return "" if target is None else f"<= {target:g}x"
