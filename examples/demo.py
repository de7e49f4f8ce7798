"""Headwater in a minute and a half: a pipeline on local Spark, from raw JSON to a table that is a pleasure to query.

Run it with `make demo`, or `.venv/bin/python examples/demo.py`. Every line after `>>>` and `$` is really executed.
Everything is made in a temporary directory and gone afterwards. A look into the log of a table, without Spark:
`look_inside.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from demo_data import DAYS, write_corrections, write_raw_events
from demo_page import Page, play
from rich.table import Table
from rich.text import Text

import headwater as hw
from headwater.cli.files import bar

SCHEMA = "event_id long, date date, at timestamp, customer int, country string, kind string, price decimal(8,2)"
FILTERS = ("customer = 4711", "customer BETWEEN 100 AND 120", "price > 495", "customer < 500 AND price > 400")
NEXT_STEPS = {
    "python examples/look_inside.py": "a table's log, without Spark",
    "python examples/log_search.py": "full-text search",
    "headwater show /path/to/table": "yours; or s3://, az://, gs://",
    "headwater --help": "everything the command can do",
    "make test": "the proof",
}


def demo(page: Page) -> None:
    """The whole demonstration, in the current directory."""
    page.heading("Raw events: JSON, a file for each day")
    write_raw_events(Path("raw"))
    write_corrections(Path("corrections.json"))
    page.do("spark = hw.session('demo')")
    page.do(f"raw = spark.read.schema({SCHEMA!r}).json('raw')")
    page.ask("raw.count()")

    load(page)
    correct(page)
    travel(page)
    optimize(page)
    clean_up(page)

    page.do("spark.stop()")
    page.heading("Your turn")
    page.steps(NEXT_STEPS)
    page.say("The command is in .venv/bin, the documentation in docs/index.md.")


def load(page: Page) -> None:
    """Append the days one by one."""
    page.heading("Append: one commit a day, never twice")
    page.do(
        "properties = {'delta.enableDeletionVectors': 'true', 'delta.enableChangeDataFeed': 'true', "
        "'delta.targetFileSize': '96kb'}"
    )
    for number, day in enumerate(DAYS):
        more = "" if number else ", properties=properties"
        page.do(f"hw.write(raw.where(\"date = '{day}'\"), 'events', 'append', txn=('load', {number}){more})")
    page.ask("hw.write(raw.limit(1), 'events', 'append', txn=('load', 3))")
    page.say("None: the application 'load' has already written its number 3, so a job that runs again adds nothing.")
    page.command("show", "events")


def correct(page: Page) -> None:
    """Upserts, a deletion, and what they changed."""
    page.heading("MERGE: corrections and late events")
    page.do(f"corrections = spark.read.schema({SCHEMA!r}).json('corrections.json')")
    page.do("events = hw.DeltaTable.forPath(spark, 'events')")
    page.do("merge = events.alias('e').merge(corrections.alias('c'), 'e.event_id = c.event_id')")
    page.rows("merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()")
    page.do("events.delete('customer = 13')")
    page.say("Rows are marked as deleted in deletion vectors; no data file was rewritten.")

    page.heading("The change data feed: what did they change?")
    page.rows(
        "hw.read_changes(spark, 'events', starting_version=4)"
        ".groupBy('_commit_version', '_change_type').count().orderBy('_commit_version', '_change_type')"
    )


def travel(page: Page) -> None:
    """The table as it was."""
    page.heading("Time travel")
    page.ask("[hw.read(spark, 'events', version=v).count() for v in range(6)]")
    page.ask("hw.read(spark, 'events@v3').where('customer = 13').count(), events.toDF().where('customer = 13').count()")


def optimize(page: Page) -> None:
    """Z-order, and how many files queries have to read before and after."""
    page.heading("OPTIMIZE: rows that are asked for together lie together")
    before = [kept(page, condition) for condition in FILTERS]
    page.do("optimized = events.optimize().executeZOrderBy('customer', 'price')")
    page.rows("optimized.select('metrics.numFilesRemoved', 'metrics.numFilesAdded')")
    page.say("How many files does a query read? Statistics in the log decide that, before any file is opened:")
    page.draw(skipping(page, before))


def clean_up(page: Page) -> None:
    """What VACUUM would delete, and what has happened."""
    page.heading("VACUUM: what nobody needs any more")
    page.command("vacuum", "events", "--dry-run")
    page.say("Nothing yet: files of old versions stay for a week, so that time travel works and readers are safe.")
    page.heading("Everything is in the history")
    page.command("history", "events")
    page.command("verify", "events")


def kept(page: Page, condition: str) -> tuple[int, int]:
    """Files that Spark reads for the condition, of all."""
    frame: Any = page.names["events"].toDF().where(condition)
    frame.count()
    scan = hw.scans(frame)[0]
    return scan.files_kept, scan.files_total


def skipping(page: Page, before: list[tuple[int, int]]) -> Table:
    """For each filter: the files that are read, before and after."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("events.toDF().where(...)", style="cyan", overflow="fold")
    table.add_column("before", no_wrap=True, justify="right")
    table.add_column("after", no_wrap=True, justify="right")
    table.add_column("", no_wrap=True, style="green")
    for condition, (read, total) in zip(FILTERS, before, strict=True):
        now, total_now = kept(page, condition)
        drawn = bar(now / total_now, 16, ascii_only=page.console.options.ascii_only)
        track = "." * (16 - len(drawn))
        cells = (f"{read} of {total}", f"{now} of {total_now}", Text.assemble(drawn, (track, "dim")))
        table.add_row(Text(condition), *cells)
    return table


if __name__ == "__main__":
    play(demo)
