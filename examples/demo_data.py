"""The data of the demonstration: what visitors of a shop did, as raw JSON, and corrections that come late."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DAYS = ("2024-03-01", "2024-03-02", "2024-03-03", "2024-03-04")
EVENTS_PER_DAY = 30_000
CORRECTED_PER_DAY = 400
LATE = 300
"""Events of the last day that come with the corrections."""
COUNTRIES = {"SE": 40, "NO": 25, "DK": 15, "FI": 10, "DE": 5, "NL": 3, "FR": 1, "IT": 1}
"""And how many of a hundred events come from each."""
KINDS = {"view": 70, "click": 25, "buy": 5}
CUSTOMERS = 5_000


def write_raw_events(directory: Path) -> None:
    """One file of JSON lines for each day."""
    for day, date in enumerate(DAYS):
        first = day * EVENTS_PER_DAY
        _write(directory / f"{date}.json", [event(number, date) for number in range(first, first + EVENTS_PER_DAY)])


def write_corrections(file: Path) -> None:
    """Events that were wrong, with what they should have been, and some that were late."""
    rows = []
    for day, date in enumerate(DAYS):
        chosen = random.Random(f"corrected {day}").sample(range(EVENTS_PER_DAY), CORRECTED_PER_DAY)
        rows += [{**event(day * EVENTS_PER_DAY + number, date), "price": 0.0} for number in chosen]
    first = len(DAYS) * EVENTS_PER_DAY
    rows += [event(number, DAYS[-1]) for number in range(first, first + LATE)]
    _write(file, rows)


def event(number: int, date: str) -> dict[str, object]:
    """The event of that number: the same one every time."""
    chance = random.Random(number)
    seconds = number % EVENTS_PER_DAY * 86_400 // EVENTS_PER_DAY
    return {
        "event_id": number,
        "date": date,
        "at": f"{date} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}",
        "customer": chance.randrange(CUSTOMERS),
        "country": chance.choices(list(COUNTRIES), list(COUNTRIES.values()))[0],
        "kind": chance.choices(list(KINDS), list(KINDS.values()))[0],
        "price": round(chance.uniform(5, 500), 2),
    }


def _write(file: Path, rows: list[dict[str, object]]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
