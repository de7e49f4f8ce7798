"""Running a benchmark from the command line: options, progress, report, and the block in `RESULTS.md`.

What all benchmarks share is here; a benchmark brings its name, its operations and its cases (`log_open.py`).
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks import report
from benchmarks.harness import measure_apart, measure_cases
from benchmarks.tables import CACHE_VARIABLE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from benchmarks.harness import Case, Measure, Outcome

RESULTS = Path(__file__).with_name("RESULTS.md")
REPORT_WIDTH = 190
"""Columns of the report when it does not go to a terminal."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: `python -m benchmarks.<name>`."""

    name: str
    """Also the name of its block in `RESULTS.md`."""
    title: str
    operations: str
    """The module that has `OPERATIONS`."""
    reference: str
    """The peer that ratios are taken against."""
    remarks: tuple[str, ...]
    """What a reader of the results must know."""
    second: report.Comparison = report.MEMORY
    """What is compared beside wall time."""
    libraries: tuple[str, ...] | None = None
    """The distributions whose versions belong into the results; None for Headwater, the reference and pyarrow."""
    findings: Callable[[Outcome], list[str]] = lambda _outcome: []
    """What else a reader should know of an outcome."""


def add_options(parser: argparse.ArgumentParser, *, runs: int) -> None:
    """The options that every benchmark has."""
    parser.add_argument("--runs", type=int, default=runs, help="measurements per case and peer; the best counts")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases with this text in the title")
    parser.add_argument("--without", action="append", default=[], metavar="PEER", help="leave a peer out")
    parser.add_argument("--cache", help=f"directory of the tables (default: ${CACHE_VARIABLE}, else temporary)")
    parser.add_argument("--results", action="store_true", help=f"write the report into {RESULTS.name}")


def run(
    benchmark: Benchmark,
    cases: Iterable[Case],
    given: argparse.Namespace,
    measure: Measure = measure_apart,
    warmups: int = 0,
) -> int:
    """Measure and report; the exit code is 1 when an answer was wrong or a peer failed."""
    if given.runs < 1:
        raise SystemExit("--runs must be at least 1")
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    disturbed = report.load_warning()
    if disturbed:
        console.print(f"Warning: {disturbed}.", style="yellow")
    operations = importlib.import_module(benchmark.operations).OPERATIONS
    chosen = (case for case in cases if given.only in case.title)
    outcomes: list[Outcome] = []
    for outcome in measure_cases(
        benchmark.operations,
        operations,
        chosen,
        runs=given.runs,
        without=frozenset(given.without),
        measure=measure,
        warmups=warmups,
    ):
        outcomes.append(outcome)
        console.print(report.summary(outcome, benchmark.reference), markup=False, highlight=False)
    if not outcomes:
        raise SystemExit(f"no case has {given.only!r} in its title")
    report.print_report(benchmark.title, outcomes, benchmark.reference, console, benchmark.second)
    findings = [text for outcome in outcomes for text in benchmark.findings(outcome)]
    for text in findings:
        console.print(f"- {text}", markup=False, highlight=False)
    failed = any(outcome.errors for outcome in outcomes)
    if given.results and failed:
        console.print(f"{RESULTS.name} is unchanged: a peer failed or gave a wrong answer.", style="red")
    elif given.results:
        remarks = [*benchmark.remarks, *findings, *([disturbed] if disturbed else [])]
        command = f"python -m benchmarks.{benchmark.name} {' '.join(_public_arguments(sys.argv[1:]))}".strip()
        text = report.markdown(
            benchmark.title,
            outcomes,
            benchmark.reference,
            command,
            remarks,
            benchmark.second,
            benchmark.libraries,
        )
        report.replace_block(RESULTS, benchmark.name, text)
        console.print(f"Wrote the block {benchmark.name} of {RESULTS.name}.")
    return 1 if failed else 0


def _public_arguments(arguments: list[str]) -> list[str]:
    """The arguments without `--cache`, whose value is a path of the machine."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith("--cache"):
            skip = argument == "--cache"
            continue
        kept.append(argument)
    return kept
