"""Full-text search in half a minute: log lines indexed on local Spark, searched, merged, and searched in the past.

Run it with `make demo` (after the pipeline), or `.venv/bin/python examples/log_search.py`. Every line after `>>>` and
`$` is really executed. Everything is made in a temporary directory and gone afterwards.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from demo_page import Page, play
from log_search_data import DAYS, LINES_PER_DAY, lines
from rich.table import Table
from rich.text import Text

from headwater.cli.files import bar

NEXT_STEPS = {
    "docs/search.md": "the query language, fields, tokenizers",
    "docs/search_on_delta.md": "the same on a Delta table",
}


def demo(page: Page) -> None:
    """The whole demonstration, in the current directory."""
    os.environ["HEADWATER_SPLIT_CACHE_DIR"] = str(Path("cache").resolve())  # so that nothing is left behind
    page.names.update(lines=lines, DAYS=DAYS)
    page.heading(f"A search table: {len(DAYS)} days of logs, {LINES_PER_DAY:,} lines a day")
    page.do("spark = hw.session('log search')")
    page.do(
        "logs = hw.SearchTable.create(spark, 'logs', 'ts TIMESTAMP, host STRING, level STRING, took INT, "
        "message STRING, day DATE', partition_by='day', types={'message': 'text'})"
    )
    for number in range(len(DAYS)):
        page.do(f"logs.write(lines(spark, DAYS[{number}]))")
    page.command("show", "logs")

    search(page)
    pushdown(page)
    merge(page)

    page.do("spark.stop()")
    page.heading("Your turn")
    page.steps(NEXT_STEPS)


def search(page: Page) -> None:
    """Words, phrases, ranges; how many, which, and the best."""
    page.heading("Search: the index of every split answers, and no row is read for a count")
    page.do("logs.prewarm()")
    page.ask("logs.count(), logs.count('memory'), logs.count('level:ERROR AND NOT \"out of memory\"')")
    page.do("refused = logs.count('\"connection refused\"~3 AND host:web-7')")
    page.ask("refused")
    page.rows("logs.search('declin* AND took:[900 TO *]', columns=['ts', 'host', 'message'], limit=4)")
    page.say("The best matches, with BM25 scores that are the same as if all splits were one index:")
    page.do("best = logs.top('slow query orders', 3, columns=['host', 'took'], snippets=['message'])")
    page.draw(drawn(page.names["best"]))
    page.say("Groups, split by split, on the driver: no Spark job is run for a small answer.")
    page.do("by_host = logs.aggregate('count', 'max(took)', 'avg(took)', query='slow', group_by='host')")
    page.draw(drawn(page.names["by_host"].slice(0, 3)))
    page.do("errors = logs.aggregate(query='level:ERROR', group_by='date_histogram(ts, 6h)')")
    page.draw(histogram(page, page.names["errors"]))


def pushdown(page: Page) -> None:
    """Plain DataFrames: filters reach the index."""
    page.heading("A DataFrame like any other: filters, columns and counts reach the index and the log")
    page.do("frame = logs.toDF()")
    page.ask("frame.where(\"level = 'ERROR' OR took > 1000\").count()")
    page.rows(
        "frame.where(\"level = 'ERROR' AND day = '2024-03-02'\").groupBy('host').count()"
        ".orderBy('count', 'host').limit(3)"
    )


def merge(page: Page) -> None:
    """Small splits become one, and the past stays."""
    page.heading("Merge small splits; the past stays searchable")
    page.ask("logs.merge_splits('1G')")
    page.ask("[logs.count('refused', version=version) for version in range(5)]")
    page.do("dropped = logs.drop_partitions(\"day = '2024-03-01'\")")
    page.ask("logs.count(), logs.count(version=dropped.version - 1)")
    page.command("history", "logs")
    page.command("verify", "logs")


def drawn(rows: pa.Table) -> Table:
    """A small Arrow table."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for field in rows.schema:
        table.add_column(field.name, justify="left" if pa.types.is_string(field.type) else "right", overflow="fold")
    for row in rows.to_pylist():
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def histogram(page: Page, rows: pa.Table) -> Table:
    """Counts over time, as bars."""
    table = Table.grid(padding=(0, 2, 0, 0))
    most = max(rows.column("count").to_pylist())
    for time, count in zip(rows.column("ts").to_pylist(), rows.column("count").to_pylist(), strict=True):
        drawing = bar(count / most, 40, ascii_only=page.console.options.ascii_only)
        table.add_row(f"{time:%Y-%m-%d %H:%M}", Text(drawing, style="green"), str(count))
    return table


if __name__ == "__main__":
    play(demo)
