"""How many files a layout lets a reader skip: the test of the Delta Lake paper (VLDB 2020, section 4.4).

    python -m benchmarks.skipping --quick
    python -m benchmarks.skipping --results

A table of about 100 files with four independent columns, and point conditions on each of them. What counts is the part
of the files that the log's statistics rule out, which depends on no clock and no machine: the same rows give the same
percentages. The paper has 67, 60, 47 and 44 % for Z-order (54 % on average), and 25 % on average for sorted files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.runner import REPORT_WIDTH, RESULTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("c0", "c1", "c2", "c3")
TARGET = 60.0
PAPER = (67.0, 60.0, 47.0, 44.0)
FILES = 100
POINTS = 200
MAX_SIZE = "spark.databricks.delta.optimize.maxFileSize"


@dataclass(frozen=True)
class Skipping:
    """What one layout lets readers skip."""

    layout: str
    files: int | None
    percent: tuple[float, ...]
    """For each column."""

    @property
    def average(self) -> float:
        """Over all columns."""
        return sum(self.percent) / len(self.percent)


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Independent columns of random numbers: the same ones every time."""
    return spark.range(0, count, 1, 8).selectExpr(*(f"xxhash64(id, {i}) AS {name}" for i, name in enumerate(COLUMNS)))


def measured(layout: str, path: str, points: list[tuple[int, ...]]) -> Skipping:
    """Ask the log which files may hold each point, column by column."""
    import headwater as hw

    snapshot = hw.open_log(path)
    percent = []
    for number, name in enumerate(COLUMNS):
        met = sum(snapshot.files(f"{name} = {point[number]}", ["path"]).num_rows for point in points)
        percent.append(100 * (1 - met / len(points) / snapshot.num_files))
    return Skipping(layout, snapshot.num_files, tuple(percent))


def layouts(spark: SparkSession, directory: str, count: int) -> list[Skipping]:
    """All layouts of the same rows."""
    from deltalake import DeltaTable as RustTable

    import headwater as hw
    from headwater import DeltaTable

    data = rows(spark, count)
    points = [tuple(row) for row in rows(spark, POINTS).collect()]
    sorted_path, ordered, clustered, rust = (f"{directory}/{name}" for name in ("sorted", "zorder", "cluster", "rust"))
    hw.write(data.repartitionByRange(FILES, COLUMNS[0]), sorted_path)
    hw.write(data, ordered)
    hw.write(data, clustered, cluster_by=COLUMNS)
    hw.write(data, rust)
    size = hw.open_log(ordered).size_bytes // FILES
    spark.conf.set(MAX_SIZE, str(size))
    DeltaTable.forPath(spark, ordered).optimize().executeZOrderBy(*COLUMNS)
    DeltaTable.forPath(spark, clustered).optimize().executeCompaction()
    RustTable(rust).optimize.z_order(list(COLUMNS), target_size=size)
    return [
        Skipping("Z-order, as in the paper", FILES, PAPER),
        measured("sorted by the first column", sorted_path, points),
        measured("Z-order by deltalake", rust, points),
        measured("Z-order by Headwater", ordered, points),
        measured("clustering by Headwater", clustered, points),
    ]


def markdown(found: list[Skipping], command: str, count: int) -> str:
    """The block for `RESULTS.md`."""
    lines = [
        "### Files skipped by point conditions on each of four columns",
        "",
        f"`{command}`",
        "",
        f"- {count:,} rows, {POINTS} points for each column; no clock takes part, so every run gives the same numbers",
        f"- target: {TARGET:g} % on average; the best for all columns alike is 1 - {FILES}^(-1/4), which is 68.4 %",
        "",
        f"| layout | files | {' | '.join(COLUMNS)} | average | target |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in found:
        percent = " | ".join(f"{value:.1f} %" for value in one.percent)
        lines.append(f"| {one.layout} | {one.files} | {percent} | {one.average:.1f} % | {verdict(one)} |")
    return "\n".join(lines) + "\n"


def verdict(one: Skipping) -> str:
    """Whether Headwater has reached its target."""
    if not one.layout.endswith("Headwater"):
        return ""
    return "met" if one.average >= TARGET else "missed"


def main() -> int:
    """Measure and report; the exit code says whether the target was met."""
    parser = argparse.ArgumentParser(description="Files skipped by layout")
    parser.add_argument("--quick", action="store_true", help="few rows")
    parser.add_argument("--results", action="store_true", help=f"write the report into {RESULTS.name}")
    given = parser.parse_args()
    count = 50_000 if given.quick else 1_000_000
    import headwater as hw

    spark = hw.session("skipping")
    try:
        with tempfile.TemporaryDirectory() as directory:
            found = layouts(spark, directory, count)
    finally:
        spark.stop()
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    shown = Table(title="Files skipped by point conditions")
    for name in ("layout", "files", *COLUMNS, "average", "target"):
        shown.add_column(name)
    for one in found:
        shown.add_row(
            one.layout, str(one.files), *(f"{v:.1f} %" for v in one.percent), f"{one.average:.1f} %", verdict(one)
        )
    console.print(shown)
    if given.results:
        arguments = " ".join(sys.argv[1:])
        text = markdown(found, f"python -m benchmarks.skipping {arguments}", count)
        report.replace_block(RESULTS, "skipping", text)
        console.print(f"Wrote the block skipping of {RESULTS.name}.")
    return 1 if any(verdict(one) == "missed" for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
