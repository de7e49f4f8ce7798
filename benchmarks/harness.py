"""Measuring Headwater and its peers: the peers in turn, the best of several.

A benchmark has a module with a dictionary `OPERATIONS` (`log_open_operations.py`): for each operation, what
each peer does. Each measurement has a fresh process (`sessions.py` has the other way): the harness starts
`python -m benchmarks.harness <module> <operation> <peer> <subject>`; the child imports what the operation
needs, takes the time of the operation alone, and prints one line of JSON.
Answers are compared with what is known to be true, run by run, before any time is believed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.tables import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

HEADWATER = "headwater"
CHILD_TIMEOUT_S = 900
MAX_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024

Answer: TypeAlias = dict[str, Any]
"""What an operation found out, as JSON: equal answers are equal results."""


def _nothing(_state: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Operation:
    """What one peer does, in phases; only `run` is measured."""

    imports: tuple[str, ...]
    """Modules to import beforehand; a name that ends with `.*` stands for a package and all its modules."""
    run: Callable[[Any], Any]
    """The measured part: gets what `setup` returned."""
    answer: Callable[[Any], Answer]
    """What `run` returned, as an answer to compare."""
    setup: Callable[[str], Any] = str
    """Gets the subject of the case (a path, usually) and prepares; its time is reported, but apart."""
    cleanup: Callable[[Any], None] = _nothing
    """Gets what `setup` returned."""


@dataclass(frozen=True, slots=True)
class Command:
    """A whole process, measured from its start to its end: imports are part of it."""

    argv: Callable[[str], list[str]]
    """The command line for the subject of the case."""
    answer: Callable[[str], Answer] | None
    """The standard output, as an answer to compare; None for a yardstick that answers nothing."""


Peers: TypeAlias = "Mapping[str, Operation | Command]"


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a report: an operation on a subject, with what is true and what is wanted."""

    title: str
    operation: str
    subject: str
    size: str
    """What the subject is, for the report: `1M files`."""
    truth: Answer
    """Every answer must contain these entries."""
    target: float | None = None
    """Headwater's wall time must be at most this times the reference peer's."""
    memory_target: float | None = None
    """The same for the peak of resident memory."""
    cpu_target: float | None = None
    """The same for CPU time."""
    setup_title: str | None = None
    """What the time of the setup means, when it is worth a ratio (`the first filter`)."""
    peer_truths: Mapping[str, Answer] = field(default_factory=dict)
    """For peers that do something else on purpose: what is true of theirs."""
    max_runs: int | None = None
    """For cases that take long: measurements at most."""
    min_runs: int = 0
    """For cases that take little: measurements at least, because their ratios are noisy."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run, or the best of several."""

    wall_s: float
    cpu_s: float
    """User and system time of all threads."""
    setup_s: float
    peak_rss_bytes: int
    """The highest resident memory of the process so far, imports included."""
    imports_rss_bytes: int
    """The same right after the imports."""
    late_imports: list[str] = field(default_factory=list)
    """Modules that were imported while the time was running."""
    answer: Answer | None = None
    """None for a yardstick, whose answer is not compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case: the best measurement of each peer, and what went wrong."""

    case: Case
    best: dict[str, Measurement]
    errors: list[str]
    rounds: dict[str, list[Measurement]] = field(default_factory=dict)
    """Of peers in warm sessions: what each round gave. A round disturbs all peers alike, so its ratio says more than
    that of the best of each."""

    def ratio(self, peer: str, value: Callable[[Measurement], float]) -> float | None:
        """Headwater's value by a peer's; None if one of them is missing or anything is wrong."""
        ours, theirs = self.best.get(HEADWATER), self.best.get(peer)
        if ours is None or theirs is None or self.errors or not value(theirs):
            return None
        if peer not in self.rounds:
            return value(ours) / value(theirs)
        pairs = zip(self.rounds[HEADWATER], self.rounds[peer], strict=True)
        return statistics.median(value(one) / value(other) for one, other in pairs)


class MeasurementError(Exception):
    """A measured process failed, or printed something that is not a measurement."""


Measure: TypeAlias = "Callable[[str, Case, str, Operation | Command], Measurement]"
"""Takes one measurement: gets the module of the operations, the case, the peer, and what the peer does."""


def measure_apart(module: str, case: Case, peer: str, how: Operation | Command) -> Measurement:
    """Measure in a fresh process, with nothing warm but the file cache of the system."""
    if isinstance(how, Command):
        return _measure_command(how, case.subject)
    argv = [sys.executable, "-m", "benchmarks.harness", module, case.operation, peer, case.subject]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S, check=False, cwd=PROJECT)
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"took more than {CHILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise MeasurementError(_last_line(done.stderr) or f"ended with exit code {done.returncode}")
    try:
        return Measurement(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError) as error:
        raise MeasurementError(f"printed no measurement: {done.stdout[-200:]!r}") from error


def measure_cases(
    module: str,
    operations: Mapping[str, Peers],
    cases: Iterable[Case],
    *,
    runs: int,
    without: frozenset[str] = frozenset(),
    measure: Measure = measure_apart,
    warmups: int = 0,
) -> Iterator[Outcome]:
    """Measure the cases one after the other, `runs` times each, the peers taking turns.

    Args:
        module: the module that has `operations`, for the children to import.
        operations: for each operation, what each peer does.
        cases: what to measure.
        runs: measurements of each case and peer; in warm sessions one more if that is an odd number.
        without: peers to leave out.
        measure: takes one measurement.
        warmups: rounds before the measured ones, whose answers count but not their times.
    """
    for case in cases:
        measured: dict[str, list[Measurement]] = {}
        errors: list[str] = []
        wanted = {peer: how for peer, how in operations[case.operation].items() if peer not in without}
        rounds = max(case.min_runs, min(runs, case.max_runs or runs))
        # Sessions grow faster for many rounds, which favours who comes second: both orders must be equally frequent.
        rounds += rounds % 2 if warmups else 0
        for turn in range(-warmups, rounds):
            for peer, how in list(wanted.items())[:: -1 if warmups and turn % 2 else 1]:
                try:
                    one = measure(module, case, peer, how)
                except MeasurementError as error:
                    errors.append(f"{peer}: {error}")
                    continue
                if one.answer is not None:
                    truth = case.peer_truths.get(peer, case.truth)
                    errors += [f"{peer}: {problem}" for problem in disagreements(truth, one.answer)]
                if turn >= 0:
                    measured.setdefault(peer, []).append(one)
            if errors:
                break
        best = {peer: best_of(measured[peer]) for peer in wanted if peer in measured}
        yield Outcome(case, best, errors, measured if warmups else {})


def disagreements(truth: Answer, answer: Answer) -> list[str]:
    """Where an answer differs from the truth; an answer may hold more than the truth asks for.

    >>> disagreements({"files": 3}, {"files": 2, "version": 1})
    ['files is 2, not 3']
    """
    return [f"{key} is {answer.get(key)!r}, not {value!r}" for key, value in truth.items() if answer.get(key) != value]


def best_of(measurements: list[Measurement]) -> Measurement:
    """The smallest of each number: what the operation costs when nothing else disturbs it."""
    return Measurement(
        wall_s=min(m.wall_s for m in measurements),
        cpu_s=min(m.cpu_s for m in measurements),
        setup_s=min(m.setup_s for m in measurements),
        peak_rss_bytes=min(m.peak_rss_bytes for m in measurements),
        imports_rss_bytes=min(m.imports_rss_bytes for m in measurements),
        late_imports=measurements[-1].late_imports,
        answer=measurements[-1].answer,
    )


def _measure_command(command: Command, subject: str) -> Measurement:
    argv = command.argv(subject)
    # As it is installed: with byte code on the disk, which the first run writes if it may.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaint:
        start_s = time.perf_counter()
        try:
            process = subprocess.Popen(argv, stdout=output, stderr=complaint, env=environ)
        except OSError as error:
            raise MeasurementError(f"cannot start {argv[0].rpartition('/')[2]}: {error.strerror}") from error
        timer = threading.Timer(CHILD_TIMEOUT_S, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)  # unlike Popen.wait, this says what the process has used
        wall_s = time.perf_counter() - start_s
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        complaint.seek(0)
        if process.returncode != 0:
            reason = _last_line(complaint.read().decode(errors="replace"))
            raise MeasurementError(reason or f"ended with exit code {process.returncode}")
        answer = command.answer(output.read().decode()) if command.answer else None
    return Measurement(
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        setup_s=0.0,
        peak_rss_bytes=usage.ru_maxrss * MAX_RSS_UNIT_BYTES,
        imports_rss_bytes=0,
        answer=answer,
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


# --- the child ----------------------------------------------------------------------------------------


def measure_here(
    operation: Operation, subject: str, cpu_time_s: Callable[[], float] = time.process_time
) -> Measurement:
    """Run the operation once in this process.

    Args:
        operation: what to measure.
        subject: what it is about.
        cpu_time_s: the CPU time used so far, of all that takes part.
    """
    for name in operation.imports:
        _import(name)
    imports_rss_bytes = _peak_rss_bytes()
    setup_start_s = time.perf_counter()
    state = operation.setup(subject)
    setup_s = time.perf_counter() - setup_start_s
    try:
        gc.collect()
        modules = set(sys.modules)
        cpu_start_s, start_s = cpu_time_s(), time.perf_counter()
        result = operation.run(state)
        wall_s, cpu_s = time.perf_counter() - start_s, cpu_time_s() - cpu_start_s
        peak_rss_bytes = _peak_rss_bytes()
        late_imports = sorted(set(sys.modules) - modules)
        answer = operation.answer(result)
    finally:
        operation.cleanup(state)
    return Measurement(wall_s, cpu_s, setup_s, peak_rss_bytes, imports_rss_bytes, late_imports, answer)


def _import(name: str) -> None:
    package = importlib.import_module(name.removesuffix(".*"))
    if name.endswith(".*"):
        import pkgutil

        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def _peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAX_RSS_UNIT_BYTES


def _child(module: str, operation: str, peer: str, subject: str) -> None:
    how = importlib.import_module(module).OPERATIONS[operation][peer]
    measurement = measure_here(how, subject)
    sys.stdout.write(json.dumps(asdict(measurement)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # do not release a million strings one by one


if __name__ == "__main__":
    _child(*sys.argv[1:])
