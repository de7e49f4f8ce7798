"""A look into a table that another implementation wrote, from Python and from the shell: no Spark, no JVM.

Run it with `.venv/bin/python examples/look_inside.py`. Every line after `>>>` and `$` is really executed. The table is
made in a temporary directory by delta-rs (another implementation of Delta) and is gone afterwards. The pipeline on
Spark is in `demo.py`.
"""

from __future__ import annotations

from pathlib import Path

from demo_page import Page, play
from look_inside_data import add_a_day, make_events, write_checksum
from rich.table import Table
from rich.text import Text

import headwater as hw
from headwater.cli.files import bar
from headwater.cli.output import moment, size

EVENTS = Path("events")
FILTERS = (
    "date = '2024-03-05'",
    "date >= '2024-03-07' AND country IN ('SE', 'NO')",
    "event_id BETWEEN 20000 AND 20100",
    "event_id > 1000000 OR device.os = 'zx81'",
)
NEXT_STEPS = {
    "headwater show /path/to/table": "yours; or s3://, az://, gs://",
    "headwater files TABLE --json | jq '.[].path'": "for scripts: docs/cli.md",
    "headwater --help": "everything the command can do",
    "make test": "the proof",
}


def demo(page: Page) -> None:
    """Everything, in the current directory."""
    page.heading("A table of events, written by delta-rs")
    make_events(EVENTS)
    page.say("Nine days of events, with a DELETE, an UPDATE and a checkpoint in between.")
    page.command("show", "events")

    page.heading("The log from Python: no Spark, no JVM")
    page.do("snap = hw.open_log('events')")
    page.ask("snap.version, snap.num_files, snap.size_bytes")
    page.ask("snap.partition_columns, snap.schema.names")

    page.heading("Which files does a query have to read?")
    page.say("Partition values and statistics answer that from the log; no data file is opened.")
    page.draw(kept_files(page))
    page.command("files", "events", "--where", FILTERS[1])

    page.heading("Time travel, by version or by time")
    page.ask("hw.open_log('events', version=2).num_files")
    page.ask("hw.open_log('events', timestamp=snap.history()[3].timestamp).version")
    page.draw(versions(page))

    page.heading("Someone else commits: refresh reads only what is new")
    add_a_day(EVENTS, 9)
    page.do("newer = snap.refresh()")
    page.ask("snap.version, newer.version, newer.num_files - snap.num_files")
    page.command("history", "events", "--limit", "4")

    page.heading("Can the log be trusted?")
    page.say("A writer may leave a checksum beside a version, as delta-spark does. This one is true:")
    write_checksum(EVENTS)
    page.command("verify", "events")
    page.say("And this one claims a file too many (the exit code is 1, for scripts):")
    write_checksum(EVENTS, extra_files=1)
    page.command("verify", "events")

    page.heading("Errors say what happened, and what to do")
    page.command("files", "events", "--where", "cuontry = 'SE'")
    page.command("show", "events", "--version", "99")

    page.heading("Your turn")
    page.steps(NEXT_STEPS)
    page.say("The command is in .venv/bin. The pipeline on Spark: make demo.")


def kept_files(page: Page) -> Table:
    """For each filter: how many files are left of how many, and a bar."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("snap.files(where=...)", style="cyan", overflow="fold")
    table.add_column("kept", no_wrap=True, justify="right")
    table.add_column("", no_wrap=True, style="green")
    snap = page.names["snap"]
    for condition in FILTERS:
        kept = snap.files(where=condition, columns=["size"]).num_rows
        drawn = bar(kept / snap.num_files, 16, ascii_only=page.console.options.ascii_only)
        track = "." * (16 - len(drawn))
        table.add_row(Text(condition), f"{kept} of {snap.num_files}", Text.assemble(drawn, (track, "dim")))
    return table


def versions(page: Page) -> Table:
    """Every version: when, what, and how large the table was."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("version", "committed", "operation", "files", "size"):
        table.add_column(name, justify="right" if name in ("version", "files", "size") else "left")
    for commit in reversed(page.names["snap"].history()):
        then = hw.open_log("events", version=commit.version)
        cells = (str(commit.version), moment(commit.timestamp), commit.operation or "", str(then.num_files))
        table.add_row(*cells, size(then.size_bytes))
    return table


if __name__ == "__main__":
    play(demo)
