"""Writes the versions that `.venv` has now into constraints.txt, as `name==version` and nothing else."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
NOT_PINNED = {"headwater", "pip"}  # ourselves, and what the machine's Python brings along

HEADER = """\
# Every package that `make setup` may install, pinned. Written by `make pins`; read by scripts/setup_venv.py.
"""


def main() -> None:
    versions = {canonical(found.metadata["Name"]): found.version for found in distributions()}
    lines = [f"{name}=={versions[name]}\n" for name in sorted(versions.keys() - NOT_PINNED)]
    CONSTRAINTS.write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"{len(lines)} packages pinned in {CONSTRAINTS.name}")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
