"""Flips single bits in the footer of a Parquet file of a log, each read by a process that may die of it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run(layout: str, key: str, bits: Sequence[int]) -> dict[int, str]:
    """What becomes of each flip: `right`, `error` (a typed one), `pyarrow aborts`, or the story of something worse."""
    outcomes: dict[int, str] = {}
    while pending := [bit for bit in bits if bit not in outcomes]:
        done = _child("read", layout, key, pending)
        outcomes |= dict(zip(pending, done.stdout.split("\n")[:-1], strict=False))
        if done.returncode < 0:  # it died of the next one
            culprit = pending[done.stdout.count("\n")]
            alone = _child("pyarrow", layout, key, [culprit])
            outcomes[culprit] = "pyarrow aborts" if alone.returncode < 0 else f"died with {done.returncode}"
        elif done.returncode > 0:
            raise AssertionError(done.stderr)
    return outcomes


def _child(mode: str, layout: str, key: str, bits: Sequence[int]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__)), mode, layout, key, *map(str, bits)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def _main(mode: str, layout: str, key: str, *bits: str) -> None:
    import test_fuzz
    from pyarrow import parquet

    for bit in map(int, bits):
        objects = test_fuzz.log(layout)
        damaged = bytearray(objects[key])
        damaged[bit // 8] ^= 1 << (bit % 8)
        objects[key] = bytes(damaged)
        if mode == "pyarrow":
            parquet.ParquetFile(io.BytesIO(objects[key])).metadata.to_dict()
            continue
        try:
            errors = test_fuzz.check(objects, layout)
            outcome = "error" if len(errors) > 1 else "right"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}".replace("\n", " ")
        print(outcome, flush=True)


if __name__ == "__main__":
    tests = Path(__file__).parents[2]
    sys.path[:0] = [str(tests), str(tests / "log")]
    _main(*sys.argv[1:])
