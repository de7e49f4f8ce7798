"""The conformance corpus: real tables written by other implementations, beside the repository.

People clone the project without it; then `CORPUS` is None and `tables()` is empty.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "conformance"

CORPUS: Path | None = _BESIDE if (_BESIDE / "tables.json").exists() else None
MISSING = "the conformance corpus is not beside the repository (../shared/conformance)"


def tables() -> list[dict[str, Any]]:
    """One entry for each table, as `tables.json` describes it."""
    if CORPUS is None:
        return []
    found: list[dict[str, Any]] = json.loads((CORPUS / "tables.json").read_text())["tables"]
    return found


def table_id(entry: dict[str, Any]) -> str:
    """A readable test id."""
    return f"{entry['source']}/{entry['name']}"
