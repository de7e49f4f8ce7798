"""Measuring in processes that stay: for peers that are only themselves when warm, as Spark is.

A session is one child process, `python -m benchmarks.sessions <module>`, that takes orders as lines of JSON and
answers each with a measurement. Peers may share a session or have one of their own, with another Python; since the
parent gives one order at a time, peers of different sessions take turns like all others.

The module of the operations may have `cpu_time_s()` (the CPU time of all that takes part) and `before_each()`.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from benchmarks.harness import CHILD_TIMEOUT_S, Case, Command, Measurement, MeasurementError, Operation, measure_here
from benchmarks.tables import PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

STOP_TIMEOUT_S = 30


@dataclass(frozen=True)
class SessionSpec:
    """How to start a session."""

    python: str
    environ: dict[str, str] = field(default_factory=dict)
    """Added to the environment."""


class Sessions:
    """The sessions of one run; each starts with the first measurement that needs it. `measure` is a `Measure`."""

    def __init__(self, specs: Mapping[str, SessionSpec], session_of: Mapping[str, str]) -> None:
        """Args: specs by the session's name, and the name of each peer's session."""
        self._specs = specs
        self._session_of = session_of
        self._running: dict[str, _Session] = {}

    def measure(self, module: str, case: Case, peer: str, how: Operation | Command) -> Measurement:
        """Take one measurement in the peer's session."""
        assert isinstance(how, Operation), "a command is a process of its own"
        name = self._session_of[peer]
        session = self._running.get(name)
        if session is None:
            session = self._running[name] = _Session(module, self._specs[name])
        try:
            reply = session.ask({"operation": case.operation, "peer": peer, "subject": case.subject})
        except MeasurementError:
            self._running.pop(name).stop()
            raise
        if "error" in reply:
            raise MeasurementError(reply["error"])
        return Measurement(**reply)

    def __enter__(self) -> Sessions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._running.values():
            session.stop()


class _Session:
    """A running child."""

    def __init__(self, module: str, spec: SessionSpec) -> None:
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._process = subprocess.Popen(
            [spec.python, "-m", "benchmarks.sessions", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=PROJECT,
            env={**os.environ, **spec.environ},
        )

    def ask(self, order: dict[str, str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(CHILD_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            raise MeasurementError(f"the session ended: {self._last_complaint()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _last_complaint(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()  # the end of the orders
            self._process.wait(STOP_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._complaints.close()


# --- the child ----------------------------------------------------------------------------------------


def _serve(module_name: str) -> None:
    # Whatever else prints, Spark above all, must not get between the replies.
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)
        module = importlib.import_module(module_name)
        for line in sys.stdin:
            replies.write(json.dumps(_reply(module, json.loads(line))) + "\n")
            replies.flush()


def _reply(module: Any, order: dict[str, str]) -> dict[str, Any]:
    try:
        getattr(module, "before_each", lambda: None)()
        how = module.OPERATIONS[order["operation"]][order["peer"]]
        return asdict(measure_here(how, order["subject"], getattr(module, "cpu_time_s", time.process_time)))
    except Exception as error:  # the parent reports it, and the session goes on
        text = str(error).strip().splitlines()
        return {"error": f"{type(error).__name__}: {text[0] if text else ''}"}


if __name__ == "__main__":
    _serve(sys.argv[1])
