"""The data of `look_inside.py`: a shop's events, written by delta-rs (`deltalake`, of the `dev` extra)."""

from __future__ import annotations

import datetime as dt
import json
import random
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

FIRST_DAY = dt.date(2024, 3, 1)
ROWS_PER_DAY = 4000
COUNTRIES = {"SE": 40, "NO": 25, "DK": 15, "FI": 10, "DE": 5, "NL": 3, "FR": 1, "IT": 1}
"""And how many of a hundred events come from each."""
KINDS = {"view": 70, "click": 25, "buy": 5}
SYSTEMS = {"android": 50, "ios": 40, "linux": 10}

SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.int64(), nullable=False, metadata={"comment": "counts up, day by day"}),
        pa.field("date", pa.date32()),
        pa.field("country", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("kind", pa.string()),
        pa.field("amount", pa.float64(), metadata={"comment": "in euros"}),
        pa.field("device", pa.struct([("os", pa.string()), ("mobile", pa.bool_())])),
    ]
)


def make_events(path: Path) -> None:
    """Write the table: eight days, a DELETE, an UPDATE, a checkpoint, and a ninth day."""
    for day in range(8):
        add_a_day(path, day)
    DeltaTable(path).delete("kind = 'click' AND date = '2024-03-02'")
    DeltaTable(path).update(updates={"amount": "0"}, predicate="country = 'IT' AND date = '2024-03-03'")
    DeltaTable(path).create_checkpoint()
    add_a_day(path, 8)


def add_a_day(path: Path, day: int) -> None:
    """Append the events of one day: one file for each country."""
    write_deltalake(
        path,
        events_of(day),
        mode="append",
        partition_by=["date", "country"],
        name="events",
        description="What visitors of a shop did",
        configuration={"delta.logRetentionDuration": "interval 30 days"},
    )


def events_of(day: int) -> pa.Table:
    """The events of one day: the same ones every time."""
    chance = random.Random(day)
    date = FIRST_DAY + dt.timedelta(days=day)
    midnight = dt.datetime.combine(date, dt.time(), tzinfo=dt.UTC)
    count = ROWS_PER_DAY

    def choices(weights: dict[str, int]) -> list[str]:
        return chance.choices(list(weights), list(weights.values()), k=count)

    kinds = choices(KINDS)
    return pa.table(
        {
            "event_id": [day * count + number for number in range(count)],
            "date": [date] * count,
            "country": choices(COUNTRIES),
            "at": [midnight + dt.timedelta(seconds=number * 86_400 // count) for number in range(count)],
            "kind": kinds,
            "amount": [round(chance.uniform(5, 500), 2) if kind == "buy" else 0.0 for kind in kinds],
            "device": [{"os": system, "mobile": system != "linux"} for system in choices(SYSTEMS)],
        },
        schema=SCHEMA,
    )


def write_checksum(path: Path, extra_files: int = 0) -> None:
    """Write a version checksum from what delta-rs sees in the table, or one that is wrong by some files."""
    table = DeltaTable(path)
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    checksum = {
        "tableSizeBytes": sum(sizes),
        "numFiles": len(sizes) + extra_files,
        "numMetadata": 1,
        "numProtocol": 1,
    }
    (path / "_delta_log" / f"{table.version():020}.crc").write_text(json.dumps(checksum))
