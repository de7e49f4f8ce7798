"""DELETE and UPDATE against a plain model, over the ways in which a table can be kept."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from support.oracles.reader_votes import by_deltalake, by_duckdb
from support.tables.dml_tables import (
    Row,
    actions,
    changes_of,
    column_rewrite,
    deleted,
    metrics,
    rows_of,
    updated,
    write_table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.tables.dml_tables import Model

pytestmark = pytest.mark.spark

MAPPINGS = ("none", "name", "id")
KINDS = [
    (vectors, partitioned, recorded, MAPPINGS[number % 3])
    for number, (vectors, partitioned, recorded) in enumerate(product((False, True), repeat=3))
]


def random_rows(chance: random.Random, ids: range) -> Model:
    return [
        Row(
            i,
            chance.choice(["a", "b", None]),
            chance.choice(["x", "y", None]),
            chance.randrange(5),
            chance.randrange(9),
        )
        for i in ids
    ]


def expected_changes(version: int, before: Model, after: Model, *, update: bool) -> Counter[tuple[int, str, Row]]:
    gone, new = Counter(before) - Counter(after), Counter(after) - Counter(before)
    old_kind, new_kind = ("update_preimage", "update_postimage") if update else ("delete", "insert")
    found = Counter({(version, old_kind, row): count for row, count in gone.items()})
    found.update({(version, new_kind, row): count for row, count in new.items()})
    return found


@pytest.mark.parametrize(("vectors", "partitioned", "recorded", "mapping"), KINDS)
def test_rows_are_deleted_and_updated_as_a_plain_model_says(
    spark: SparkSession, tmp_path: Path, vectors: bool, partitioned: bool, recorded: bool, mapping: str
) -> None:
    path = str(tmp_path / "t")
    chance = random.Random(f"{vectors} {partitioned} {recorded} {mapping}")
    parts = random_rows(chance, range(12)), random_rows(chance, range(12, 20))
    write_table(
        spark,
        path,
        *parts,
        partitioned=partitioned,
        enableDeletionVectors=str(vectors).lower(),
        enableChangeDataFeed=str(recorded).lower(),
        enableRowTracking="true",
        columnMapping_mode=mapping,
    )
    ids = {row.id: row._row_id for row in hw.read(spark, path, row_tracking=True).collect()}
    table = hw.DeltaTable.forPath(spark, path)
    before = [*parts[0], *parts[1]]
    low, high = chance.randrange(5), chance.randrange(12, 20)

    table.delete(f"v = 'x' AND id BETWEEN {low} AND {high}")
    after_delete = deleted(before, lambda row: row.v is not None and row.v == "x" and low <= row.id <= high)
    limit = chance.randrange(6)
    table.alias("t").update(f"t.s.b.c >= {limit}", {"t.s.a": "t.s.a + t.id", "v": "concat(v, p)", "p": "'new'"})
    after_update = updated(
        after_delete,
        lambda row: row.c is not None and row.c >= limit,
        {
            "a": lambda row: (row.a or 0) + row.id,
            "v": lambda row: None if row.v is None or row.p is None else row.v + row.p,
            "p": lambda _: "new",
        },
    )

    assert rows_of(table.toDF()) == sorted(after_update, key=str)
    changed = {row.id for row in set(after_update) - set(after_delete)}
    assert changed
    assert len(after_delete) < len(before)
    for row in hw.read(spark, path, row_tracking=True).collect():
        assert row._row_id == ids[row.id]
        assert (row._row_commit_version == 3) == (row.id in changed)
    assert hw.open_log(path).history(1)[0].commit_info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert not hw.open_log(path).verify()
    if recorded:
        feed = changes_of(hw.read_changes(spark, path, starting_version=2))
        expected = expected_changes(2, before, after_delete, update=False)
        assert feed == expected + expected_changes(3, after_delete, after_update, update=True)
    assert metrics(path)["numUpdatedRows"] == len(changed)
    assert bool(actions(path, "cdc")) == recorded

    def without_unreadable(model: Model) -> Model:
        """DuckDB shows null for partition columns that have another name in files, whoever wrote the table."""
        is_shown = not partitioned or mapping == "none"
        return sorted((row if is_shown else row._replace(p=None) for row in model), key=str)

    by_others = [by_duckdb(path)]
    if not vectors and mapping == "none":  # what deltalake reads by itself
        by_others.append(by_deltalake(path))
    for rows in by_others:
        found = [Row(*row[:3], row[3]["a"], row[3]["b"]["c"]) for row in rows]
        assert without_unreadable(found) == without_unreadable(after_update)


@pytest.mark.parametrize(("partitioned", "mapping"), [*product((False, True), MAPPINGS)])
def test_a_rewrite_of_columns_and_a_full_rewrite_give_the_same_rows(
    spark: SparkSession, tmp_path: Path, partitioned: bool, mapping: str
) -> None:
    chance = random.Random(f"{partitioned} {mapping}")
    before = random_rows(chance, range(30))
    expected = updated(
        deleted(before, lambda row: row.id in (3, 17)),
        lambda row: row.c is not None and row.c >= 6,
        {"a": lambda row: (row.a or 0) + row.id, "v": lambda _: "new"},
    )
    counts = {}
    for enabled in ("true", "false"):
        path = str(tmp_path / enabled)
        write_table(spark, path, before[:20], before[20:], partitioned=partitioned, columnMapping_mode=mapping)
        table = hw.DeltaTable.forPath(spark, path)

        with column_rewrite(spark, enabled) as jobs:
            table.delete("id IN (3, 17)")
            table.update("s.b.c >= 6", {"s.a": "s.a + id", "v": "'new'"})

        assert bool(jobs) == (enabled == "true")
        assert rows_of(table.toDF()) == sorted(expected, key=str)
        assert not hw.open_log(path).verify()
        counts[enabled] = metrics(path)["numUpdatedRows"]
    assert counts["true"] == counts["false"] > 0
