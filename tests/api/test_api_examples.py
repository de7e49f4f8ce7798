"""Every public method of the faces that Delta users know has an example, and the example does what it says."""

from __future__ import annotations

import doctest
import inspect
import os
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

import headwater as hw
from headwater.api.alter import TableAlter
from headwater.api.builders import DeltaReorgBuilder

pytestmark = pytest.mark.spark

FACES = (
    hw.DeltaTable,
    hw.DeltaMergeBuilder,
    hw.DeltaTableBuilder,
    hw.DeltaOptimizeBuilder,
    DeltaReorgBuilder,
    TableAlter,
    hw.IdentityGenerator,
)

JANUARY_30, JANUARY_31, FEBRUARY_1 = date(2024, 1, 30), date(2024, 1, 31), date(2024, 2, 1)
COLUMNS = pa.schema(
    {"id": pa.int64(), "country": pa.string(), "amount": pa.int32(), "message": pa.string(), "day": pa.date32()}
)
VERSIONS = (
    [
        (1, "SE", 10, "paid by card", JANUARY_30),
        (2, "NO", 20, "card refused: expired", JANUARY_30),
        (3, "SE", 30, "paid by invoice", JANUARY_31),
    ],
    [
        (4, "DK", 40, "paid by card", JANUARY_31),
        (5, "SE", 50, "card refused: unknown", JANUARY_31),
        (6, "NO", 60, "paid by invoice", FEBRUARY_1),
    ],
)
NOON_S = 1706702400
"""2024-01-31 12:00 UTC, when version 0 was committed; a day later, version 1 was."""
SOURCE = """
    SELECT * FROM VALUES
        (6L, 'NO', 65, 'paid by invoice', DATE '2024-02-01'),
        (7L, 'SE', 70, 'paid by card', DATE '2024-02-01')
    AS source (id, country, amount, message, day)
"""


def documented() -> Iterator[tuple[str, Any]]:
    """The classes, their public methods (inherited ones too), and the function that makes a search index."""
    yield "search_index", hw.search_index
    for face in FACES:
        yield face.__name__, face
        for name, member in inspect.getmembers(face, inspect.isroutine):
            if not name.startswith("_"):
                yield f"{face.__name__}.{name}", member


DOCUMENTED = dict(documented())


def examples(name: str, names: dict[str, Any]) -> doctest.DocTest:
    """The examples of one docstring; those of a class are not those of its methods."""
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    [found] = finder.find(DOCUMENTED[name], name, globs=names)
    return found


def rows(values: list[tuple[object, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in values], schema=COLUMNS)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every example finds in its directory: tables by another implementation, and Parquet files that are none."""
    directory = tmp_path_factory.mktemp("template")
    for version, values in enumerate(VERSIONS):
        write_deltalake(directory / "events", rows(values), partition_by=["day"], mode="append")
        commit = directory / "events" / "_delta_log" / f"{version:020}.json"
        os.utime(commit, (NOON_S + version * 86400,) * 2)
    customers = {"id": [1], "name": ["Astrid"], "address": [{"street": "Bergsgatan 1", "city": "Stockholm"}]}
    write_deltalake(directory / "customers", pa.table(customers))
    partitions = ds.partitioning(pa.schema([COLUMNS.field("day")]), flavor="hive")
    everything = rows([row for values in VERSIONS for row in values])
    ds.write_dataset(everything, directory / "raw", format="parquet", partitioning=partitions)
    return directory


@pytest.fixture
def names(spark: SparkSession, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that examples may use, in a directory with tables of their own."""
    shutil.copytree(template, tmp_path / "world")
    monkeypatch.chdir(tmp_path / "world")
    return {
        "DeltaTable": hw.DeltaTable,
        "IdentityGenerator": hw.IdentityGenerator,
        "Path": Path,
        "col": col,
        "customers": hw.DeltaTable.forPath(spark, "customers"),
        "hw": hw,
        "lit": lit,
        "source": spark.sql(SOURCE),
        "spark": spark,
        "table": hw.DeltaTable.forPath(spark, "events"),
    }


@pytest.mark.parametrize("name", DOCUMENTED)
def test_an_example_does_what_it_says(name: str, names: dict[str, Any]) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)

    outcome = runner.run(examples(name, names), out=report.append)

    assert outcome.attempted > 0, f"{name} has no example"
    assert outcome.failed == 0, "\n" + "".join(report)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_no_example_is_skipped(name: str) -> None:
    found = examples(name, {}).examples

    assert [example.source for example in found if example.options.get(doctest.SKIP)] == []


def test_class_methods_and_inherited_methods_are_among_them() -> None:
    assert {"DeltaTable.forPath", "DeltaTable.merge", "DeltaTable.vacuum", "DeltaTable.addColumns"} <= DOCUMENTED.keys()
