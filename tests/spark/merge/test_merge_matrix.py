"""MERGE against a plain model, over clauses, conditions and the ways in which a table can be kept."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from support.oracles import merge_model as m
from support.oracles.merge_cases import Case, builder, pairwise, write_target
from support.tables.dml_tables import actions, column_rewrite, metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.oracles.delta_spark_oracle import DeltaSparkOracle

pytestmark = pytest.mark.spark

CASES = pairwise()
_COLUMNS = "id", "p", "v", "x", "u"


@pytest.fixture(scope="module")
def merged_table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    """The table of a case after the merge; as it was before under the same name with `-before`."""
    root = tmp_path_factory.mktemp("merge")

    def make(case: Case) -> Path:
        path = root / str(case.number)
        if not path.exists():
            write_target(spark, str(path), case)
            shutil.copytree(path, f"{path}-before")
            [result] = builder(spark, str(path), case).execute().collect()
            expected = m.merged(*case.data, case.condition, case.clauses)
            assert result.asDict() == {
                "num_affected_rows": expected.updated + expected.deleted + expected.inserted,
                "num_updated_rows": expected.updated,
                "num_deleted_rows": expected.deleted,
                "num_inserted_rows": expected.inserted,
            }
        return path

    return make


def rows_of(frame: DataFrame) -> Counter[m.T]:
    return Counter(m.T(*row) for row in frame.select(*_COLUMNS).collect())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_changes_and_ids_are_those_of_the_model(
    spark: SparkSession, merged_table: Callable[[Case], Path], case: Case
) -> None:
    expected = m.merged(*case.data, case.condition, case.clauses)

    path = str(merged_table(case))

    assert rows_of(hw.read(spark, path)) == expected.table
    version = hw.open_log(path).version
    if case.tracked:
        before = hw.read(spark, f"{path}-before", row_tracking=True).collect()
        origins = {row["_row_id"]: row["u"] for row in before}
        after = hw.read(spark, path, row_tracking=True).select(*_COLUMNS, "_row_id", "_row_commit_version").collect()
        assert Counter((origins.get(row[5]), m.T(*row[:5])) for row in after) == expected.rows
        changed = Counter(m.T(*row[:5]) for row in after if row[6] == version)
        new = [row for (kind, row) in expected.feed.elements() if kind in ("update_postimage", "insert")]
        assert changed == Counter(new)
    if case.recorded:
        feed = hw.read_changes(spark, path, version, version).select("_change_type", *_COLUMNS).collect()
        assert Counter((row[0], m.T(*row[1:])) for row in feed) == expected.feed
        # Where files are only added, removed, or get vectors, the log itself tells the changes.
        is_needed = expected.updated > 0 or "numTargetRowsCopied" in metrics(path)
        assert bool(actions(path, "cdc")) == is_needed


def test_delta_spark_does_the_same_and_reads_the_same(
    delta_spark: DeltaSparkOracle, merged_table: Callable[[Case], Path]
) -> None:
    cases = sorted(CASES, key=lambda case: len(case.clauses))[-5:]
    paths = [merged_table(case) for case in cases]

    statements = [m.sql(f"{p}-before", c.data[1], c.condition, c.clauses) for p, c in zip(paths, cases, strict=True)]
    done = delta_spark.all([{"script": [text]} for text in statements])
    assert [answer for answer in done if "error" in answer] == []
    theirs = delta_spark.all([{"read": f"{path}-before"} for path in paths])
    ours = delta_spark.all([{"read": str(path)} for path in paths])

    assert [answer["rows"] for answer in ours] == [answer["rows"] for answer in theirs]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_deltalake_agrees_with_the_model(tmp_path: Path, case: Case) -> None:
    deltalake: Any = pytest.importorskip("deltalake")
    target, source = case.data
    deltalake.write_deltalake(str(tmp_path), _arrow(target, m.TARGET_SCHEMA))
    found = deltalake.DeltaTable(str(tmp_path)).merge(
        _arrow(source, m.SOURCE_SCHEMA), case.condition, source_alias="s", target_alias="t"
    )
    for clause in case.clauses:
        found = _with_clause(found, clause)

    found.execute()

    rows = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().select(_COLUMNS).to_pylist()
    expected = m.merged(target, source, case.condition, case.clauses)
    assert Counter(m.T(**row) for row in rows) == expected.table


def test_metrics_have_the_names_and_counts_that_users_know(
    spark: SparkSession, merged_table: Callable[[Case], Path]
) -> None:
    by_source = next(c.by_source for c in CASES if m.SOURCE_UPDATE_IF in c.by_source)
    given = next(c for c in CASES if c.vectors == "none" and m.UPDATE_IF in c.matched and c.recorded)
    case = replace(given, number=10_000, not_matched=(m.INSERT_ALL,), by_source=by_source)
    expected = m.merged(*case.data, case.condition, case.clauses)

    path = merged_table(case)

    found = metrics(path)
    assert found["numSourceRows"] == len(case.data[1])
    assert found["numTargetRowsUpdated"] == expected.updated
    assert found.get("numTargetRowsDeleted", 0) == expected.deleted
    assert found.get("numTargetRowsInserted", 0) == expected.inserted
    assert found["numTargetFilesRemoved"] == len(actions(path, "remove"))
    assert found["numTargetFilesAdded"] == len(actions(path, "add"))
    assert found.get("numTargetChangeFilesAdded", 0) == len(actions(path, "cdc"))
    [last] = hw.DeltaTable.forPath(spark, str(path)).history(1).collect()
    assert last.operation == "MERGE"
    assert last.operationParameters["predicate"] == f'["{case.condition}"]'
    assert last.operationParameters["matchedPredicates"].startswith('[{"predicate":"s.x > t.x","actionType":"update"}')


UPSERT = m.Spec("matched", "update", None, new=lambda _t, s: s.row)
IN_PLACE = [
    Case(number, matched, inserts, by_source, list(m.CONDITIONS)[condition], "none", partitioned, False, mapping, False)
    for number, (matched, inserts, by_source, condition, partitioned, mapping) in enumerate(
        [
            ((UPSERT,), (m.INSERT_ALL,), (), 0, False, "none"),
            ((UPSERT,), (m.INSERT_ALL,), (), 1, True, "name"),
            ((m.UPDATE_IF,), (m.INSERT_IF, m.INSERT_ALL_IF), (), 0, False, "id"),
            ((m.UPDATE_ALL_IF,), (), (), 1, True, "none"),
            ((m.UPDATE,), (m.INSERT_ALL,), (), 2, True, "id"),
            ((m.UPDATE_IF,), (), (m.SOURCE_UPDATE_IF,), 1, False, "name"),
        ],
        start=20_001,
    )
]


@pytest.mark.parametrize("case", IN_PLACE, ids=str)
def test_a_rewrite_of_columns_and_a_full_rewrite_give_the_same_rows(
    spark: SparkSession, tmp_path: Path, case: Case
) -> None:
    target, source = case.data
    target += [m.T(1_000 + n, "ab"[n % 2], "v", 1, 500 + n) for n in range(60)]  # few rows of each file change
    expected = m.merged(target, source, case.condition, case.clauses)
    rows = spark.createDataFrame(target, m.TARGET_SCHEMA).repartition(3)
    hw.write(rows, tmp_path / "true", partition_by="p" if case.partitioned else None, properties=case.properties)
    shutil.copytree(tmp_path / "true", tmp_path / "false")

    counts = {}
    for enabled in ("true", "false"):
        with column_rewrite(spark, enabled) as jobs:
            [result] = builder(spark, str(tmp_path / enabled), case).execute().collect()
        assert bool(jobs) == (enabled == "true")
        counts[enabled] = result.asDict()
        assert rows_of(hw.read(spark, str(tmp_path / enabled))) == expected.table
        assert not hw.open_log(str(tmp_path / enabled)).verify()

    assert counts["true"] == counts["false"]
    assert counts["true"]["num_updated_rows"] == expected.updated > 0


def _arrow(rows: list[Any], schema: str) -> pa.Table:
    types = {"long": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
    fields = [pa.field(name, types[type_]) for name, type_ in (part.split() for part in schema.split(", "))]
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(fields)]
    return pa.table(columns, schema=pa.schema(fields))


def _with_clause(found: Any, clause: m.Spec) -> Any:
    names = {name: f"s.{name}" for name in _COLUMNS}
    values = names if clause.values is None else {k.removeprefix("t."): v for k, v in clause.values.items()}
    match clause.when, clause.action:
        case "matched", "delete":
            return found.when_matched_delete(clause.condition)
        case "matched", "update":
            return found.when_matched_update(values, clause.condition)
        case "not matched", "insert":
            return found.when_not_matched_insert(values, clause.condition)
        case "not matched by source", "delete":
            return found.when_not_matched_by_source_delete(clause.condition)
        case _:
            return found.when_not_matched_by_source_update(values, clause.condition)
