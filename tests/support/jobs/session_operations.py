"""Operations for the tests of sessions, which import this by name in a child process."""

from __future__ import annotations

import os
import sys
from itertools import count
from typing import Any

from benchmarks.harness import Operation

_CALLS, _SECONDS = count(1), count(0)


def cpu_time_s() -> float:
    return float(next(_SECONDS))


def _count(_state: Any) -> dict[str, int]:
    return {"calls": next(_CALLS), "process": os.getpid()}


def _noise(_state: Any) -> dict[str, bool]:
    print("{}")
    os.write(1, b"not JSON\n")
    return {"heard": True}


def _fail(_state: Any) -> None:
    raise RuntimeError("broken\nwith details")


def _die(_state: Any) -> None:
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    os._exit(3)


def _operation(run: Any) -> Operation:
    return Operation((), run, dict)


OPERATIONS = {
    name: dict.fromkeys("abc", _operation(run))
    for name, run in {"count": _count, "noise": _noise, "fail": _fail, "die": _die}.items()
}
