"""Tables for commands that change rows, and a plain model of what these commands do."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headwater as hw
from headwater.spark.dml.in_place import COLUMN_REWRITE_SETTING, ColumnJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, p string, v string, s struct<a: long, b: struct<c: long>>"


class Row(NamedTuple):
    """A row of `SCHEMA`, with the two numbers of its struct."""

    id: int
    p: str | None
    v: str | None
    a: int | None
    c: int | None


Model = list[Row]


def frame_of(spark: SparkSession, rows: Model, tasks: int) -> DataFrame:
    data = [(r.id, r.p, r.v, (r.a, (r.c,))) for r in rows]
    return spark.createDataFrame(data, SCHEMA).repartitionByRange(tasks, "id")


def write_table(
    spark: SparkSession, path: str, *parts: Model, partitioned: bool = False, tasks: int = 2, **properties: str
) -> None:
    """A table with one commit for each part; `enableX="true"` is the property `delta.enableX`."""
    for number, rows in enumerate(parts):
        named = {f"delta.{key.replace('_', '.')}": value for key, value in properties.items()}
        options: dict[str, Any] = {"partition_by": "p" if partitioned else None, "properties": named}
        hw.write(frame_of(spark, rows, tasks), path, mode="append", **(options if number == 0 else {}))


@contextmanager
def column_rewrite(spark: SparkSession, enabled: str) -> Iterator[list[tuple[str, ...]]]:
    """Switch the rewrite of single columns on or off; note the columns of each job that does it."""
    found: list[tuple[str, ...]] = []
    run = ColumnJob.run

    def noted(self: ColumnJob, packs: DataFrame) -> Any:
        done = run(self, packs)
        if done is not None and self.numbers:
            found.append(tuple(self.columns))
        return done

    spark.conf.set(COLUMN_REWRITE_SETTING, enabled)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ColumnJob, "run", noted)
            yield found
    finally:
        spark.conf.unset(COLUMN_REWRITE_SETTING)


def rows_of(frame: DataFrame) -> Model:
    found = frame.selectExpr("id", "p", "v", "s.a AS a", "s.b.c AS c").collect()
    return sorted((Row(*row) for row in found), key=str)


def changes_of(frame: DataFrame) -> Counter[tuple[int, str, Row]]:
    """The rows of a change feed: version, kind and row, each as often as it is there."""
    found = frame.selectExpr("_commit_version", "_change_type", "id", "p", "v", "s.a AS a", "s.b.c AS c").collect()
    return Counter((row[0], row[1], Row(*row[2:])) for row in found)


def deleted(model: Model, matches: Callable[[Row], bool | None]) -> Model:
    return [row for row in model if matches(row) is not True]


def updated(model: Model, matches: Callable[[Row], bool | None], new: Mapping[str, Callable[[Row], Any]]) -> Model:
    return [
        row._replace(**{name: value(row) for name, value in new.items()}) if matches(row) is True else row
        for row in model
    ]


def actions(path: str | Path, kind: str, version: int | None = None) -> list[dict[str, Any]]:
    """The actions of a kind in the commit of a version; the newest by default."""
    version = hw.open_log(path).version if version is None else version
    lines = Path(path, "_delta_log", f"{version:020d}.json").read_text().splitlines()
    return [action[kind] for line in lines if kind in (action := json.loads(line))]


def metrics(path: str | Path) -> dict[str, int]:
    """Those of the newest commit that are not 0, without times and sizes."""
    found = hw.open_log(path).history(1)[0].operation_metrics or {}
    return {k: int(v) for k, v in found.items() if int(v) and not k.endswith(("Ms", "Bytes"))}
