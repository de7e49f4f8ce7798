"""Round trips: every kind of table, written by us or by others and continued by us, as every reader sees it.

All tables are made first, for delta-spark is slow: it works on many at a time, and while we work on ours. Readers that
lack a feature are listed with what they say; that they still say it is tested, so that the lists stay true.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import write_deltalake

import headwater as hw
from headwater import DeltaTable, IdentityGenerator
from support.oracles.delta_spark_oracle import available
from support.oracles.round_trip_kinds import (
    APPENDED,
    CHECKPOINT_INTERVAL,
    FIRST,
    KINDS,
    LAST,
    REPLACE_WHERE,
    REPLACING,
    Kind,
)
from support.oracles.round_trip_readers import (
    JSON_OPTIONS,
    Seen,
    by_delta_spark,
    by_deltalake,
    by_duckdb,
    by_headwater,
    by_spark,
    delta_spark_history,
    deltalake_history,
    duckdb_with_delta,
    headwater_history,
    spark_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.oracles.delta_spark_oracle import DeltaSparkOracle

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# What readers say to kinds that they lack (deltalake 1.6.6, DuckDB 1.5.5, delta-spark 4.4).
REFUSES: dict[str, dict[str, str]] = {
    "deltalake": {
        "type widened": r"Unsupported table features required: \[TypeWidening\]",
        "vacuum protocol check": r"Unsupported table features required: \[VacuumProtocolCheck\]",
    },
    "DuckDB": {},
    "delta-spark": {},
}
# Columns that a reader shows otherwise than all others do.
DISTORTS: dict[tuple[str, str], set[str]] = {
    ("DuckDB", "mapped and partitioned"): {"p"},  # null: it looks for partition values by the logical name
    ("DuckDB", "Iceberg compatible V2"): {"p"},
    ("deltalake", "variant"): {"v"},  # the two binaries that a variant is made of
}
# What deltalake says where it cannot make a table.
DELTALAKE_CANNOT_MAKE = {
    "row-tracked": "Error parsing property 'delta.enableRowTracking'",
    "in-commit timestamps": "Error parsing property 'delta.enableInCommitTimestamps'",
    "Iceberg compatible V2": "Error parsing property 'delta.enableIcebergCompatV2'",
    "vacuum protocol check": "Error parsing property 'delta.feature.vacuumProtocolCheck'",
}


def deltalake_can_declare(kind: Kind) -> bool:
    """It has no way to say clustering, nor columns that are computed or altered, and Arrow has no variants."""
    plain = all(c.is_given and not c.old_name and not c.old_type and c.type != "VARIANT" for c in kind.columns)
    return plain and not kind.cluster_by


MAKERS: dict[str, list[str]] = {
    "headwater": list(KINDS),
    "delta-spark": list(KINDS),
    "deltalake": [n for n, kind in KINDS.items() if deltalake_can_declare(kind) and n not in DELTALAKE_CANNOT_MAKE],
}
FEWER: dict[str, set[str]] = {
    "delta-spark": {"partitioned", "mapped by id", "identity", "row-tracked", "deletion vectors", "many features"},
    "deltalake": {"plain", "partitioned", "nested", "deletion vectors", "change data feed"},
}
"""What is made by others, unless `HEADWATER_ROUND_TRIPS=all`: the whole matrix takes five minutes."""
if os.environ.get("HEADWATER_ROUND_TRIPS") != "all":
    MAKERS |= {maker: [kind for kind in MAKERS[maker] if kind in fewer] for maker, fewer in FEWER.items()}
TABLES = [(maker, kind) for maker, kinds in MAKERS.items() for kind in kinds]
SACRIFICED = 99
"""A row that delta-spark deletes again, so that a file gets a deletion vector."""


# --- the tables --------------------------------------------------------------------------------------------


def create(spark: SparkSession, kind: Kind, path: Path) -> None:
    """The table with its first rows."""
    rows = spark.sql(kind.rows(*FIRST, altered=False))
    if not kind.needs_declaration:
        layout = {"partition_by": kind.partition_by or None, "cluster_by": kind.cluster_by or None}
        hw.write(rows, path, properties=kind.all_properties, user_metadata="first", **layout)
        return
    builder = DeltaTable.create(spark).location(path)
    for column in kind.columns:
        generated = IdentityGenerator() if column.is_identity else column.generated
        builder.addColumn(column.name, column.type, column.nullable, generatedAlwaysAs=generated)
    if kind.partition_by:
        builder.partitionedBy(*kind.partition_by)
    for key, value in kind.all_properties.items():
        builder.property(key, value)
    table = builder.execute()
    for column in kind.columns:
        if column.default:
            table.setDefault(column.name, column.default)
    if kind.check:
        table.addConstraint("checked", kind.check)
    hw.write(rows, path, mode="append", user_metadata="first")


def alter(spark: SparkSession, kind: Kind, path: Path) -> None:
    table = DeltaTable.forPath(spark, str(path))
    for column in kind.columns:
        if column.old_name:
            table.renameColumn(column.old_name, column.name)
        if column.old_type:
            table.setColumnType(column.name, column.type)


def go_on(spark: SparkSession, kind: Kind, path: Path) -> None:
    """Append to a table of anybody's, and replace a row of the first ones."""
    hw.write(spark.sql(kind.rows(*APPENDED)), path, mode="append", user_metadata="appended")
    if not kind.is_append_only:
        rows = spark.sql(kind.rows(REPLACING))
        hw.write(rows, path, mode="overwrite", replace_where=REPLACE_WHERE, user_metadata="replaced")


def write_all(spark: SparkSession, kind: Kind, path: Path) -> None:
    create(spark, kind, path)
    if kind.is_overwritten:
        rows = spark.sql(kind.rows(*FIRST, altered=False))
        hw.write(rows, path, mode="overwrite", user_metadata="overwritten")
    alter(spark, kind, path)
    go_on(spark, kind, path)
    hw.write(spark.sql(kind.rows(*LAST)), path, mode="append", user_metadata="last")


def delta_spark_script(kind: Kind, path: Path) -> list[str]:
    """The beginning of a table of delta-spark's."""
    has_vectors = "delta.enableDeletionVectors" in kind.properties
    rows = (*FIRST, SACRIFICED) if has_vectors else FIRST
    return [
        *kind.creation_sql(str(path)),
        kind.insert_sql(str(path), *rows, altered=False),
        *kind.alteration_sql(str(path)),
        *([f"DELETE FROM delta.`{path}` WHERE id = {SACRIFICED}"] if has_vectors else ()),
    ]


def make_with_deltalake(spark: SparkSession, kind: Kind, path: Path) -> None:
    rows = arrow(spark, kind, *FIRST)
    write_deltalake(path, rows, partition_by=list(kind.partition_by) or None, configuration=kind.all_properties)
    if kind.check:
        RustTable(path).alter.add_constraint({"checked": kind.check})


def end_with_deltalake(spark: SparkSession, kind: Kind, path: Path) -> None:
    write_deltalake(path, arrow(spark, kind, *LAST), mode="append")


def arrow(spark: SparkSession, kind: Kind, *ids: int) -> pa.Table:
    rows = spark.sql(kind.rows(*ids)).toArrow()
    nullable = {column.name: column.nullable for column in kind.columns}
    return rows.cast(pa.schema([f.with_nullable(nullable[f.name]) for f in rows.schema]))


@dataclass
class Tables:
    """All tables that were made, and what delta-spark says of them."""

    root: Path
    wanted: dict[str, list[str]]
    """The kinds by maker: those that tests were chosen for."""
    failures: dict[tuple[str, str], Exception] = field(default_factory=dict)
    answers: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    ours: dict[tuple[str, str], Seen] = field(default_factory=dict)

    def path(self, maker: str, kind: str) -> Path:
        return self.root / maker / kind.replace(" ", "-")

    def attempt(
        self, maker: str, kind: str, step: Callable[[SparkSession, Kind, Path], None], spark: SparkSession
    ) -> None:
        """A step of making a table; if it fails, so do all tests of this table, and no others."""
        if (maker, kind) not in self.failures:
            try:
                step(spark, KINDS[kind], self.path(maker, kind))
            except Exception as error:
                self.failures[maker, kind] = error

    def made(self, maker: str, kind: str) -> Path:
        if (maker, kind) in self.failures:
            raise self.failures[maker, kind]
        if maker == "delta-spark" and available():
            pytest.skip(available())
        return self.path(maker, kind)

    def seen_by_us(self, spark: SparkSession, maker: str, kind: str) -> Seen:
        path = self.made(maker, kind)
        if (maker, kind) not in self.ours:
            self.ours[maker, kind] = by_headwater(spark, path)
        return self.ours[maker, kind]

    def answer(self, maker: str, kind: str, question: str) -> dict[str, Any]:
        """What delta-spark says."""
        if available():
            pytest.skip(available())
        found = self.answers[maker, kind, question]
        if "error" in found:
            raise ValueError(found["error"])
        return found


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Tables:
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    pairs = {(params["maker"], params["kind"]) for params in chosen if "maker" in params}
    wanted = {maker: [kind for kind in kinds if (maker, kind) in pairs] for maker, kinds in MAKERS.items()}
    found = Tables(tmp_path_factory.mktemp("round-trips"), wanted)
    oracle: DeltaSparkOracle | None = None if available() else request.getfixturevalue("delta_spark")
    with ThreadPoolExecutor(1) as background:
        begun = background.submit(_begin_with_delta_spark, found, oracle)
        for name in wanted["headwater"]:
            found.attempt("headwater", name, write_all, spark)
        for name in wanted["deltalake"]:
            found.attempt("deltalake", name, make_with_deltalake, spark)
            found.attempt("deltalake", name, go_on, spark)
            found.attempt("deltalake", name, end_with_deltalake, spark)
        begun.result()
    if oracle is not None:
        for name in wanted["delta-spark"]:
            found.attempt("delta-spark", name, go_on, spark)
        _end_with_delta_spark(found, oracle)
    return found


def _begin_with_delta_spark(found: Tables, oracle: DeltaSparkOracle | None) -> None:
    if oracle is not None:
        paths = {name: found.path("delta-spark", name) for name in found.wanted["delta-spark"]}
        _run(found, oracle, {name: delta_spark_script(KINDS[name], path) for name, path in paths.items()})


def _run(found: Tables, oracle: DeltaSparkOracle, scripts: dict[str, list[str]]) -> None:
    answers = oracle.all([{"script": script} for script in scripts.values()])
    for name, answer in zip(scripts, answers, strict=True):
        if "error" in answer:
            found.failures.setdefault(("delta-spark", name), ValueError(answer["error"]))


def _end_with_delta_spark(found: Tables, oracle: DeltaSparkOracle) -> None:
    """Its last rows for its own tables, and then all that the tests ask it."""
    paths = {name: found.path("delta-spark", name) for name in found.wanted["delta-spark"]}
    _run(found, oracle, {name: [KINDS[name].insert_sql(str(path), *LAST)] for name, path in paths.items()})
    questions: dict[tuple[str, str, str], dict[str, Any]] = {}
    for maker, name in [(maker, name) for maker, names in found.wanted.items() for name in names]:
        path, properties = found.path(maker, name), KINDS[name].properties
        questions[maker, name, "rows"] = {"read": str(path), "json_options": JSON_OPTIONS}
        questions[maker, name, "history"] = {"sql": f"DESCRIBE HISTORY delta.`{path}`", "json_options": JSON_OPTIONS}
        if "delta.enableRowTracking" in properties:
            columns = "id, _metadata.row_id AS _row_id, _metadata.row_commit_version AS _row_commit_version"
            questions[maker, name, "row ids"] = {"sql": f"SELECT {columns} FROM delta.`{path}`", "json_options": {}}
        if "delta.enableChangeDataFeed" in properties:
            options = {"readChangeFeed": "true", "startingVersion": str(_first_feed_version(path))}
            questions[maker, name, "changes"] = {"read": str(path), "options": options, "json_options": JSON_OPTIONS}
    found.answers.update(zip(questions, oracle.all(list(questions.values())), strict=True))


def _first_feed_version(path: Path) -> int:
    """Readers do not follow a feed across a change of columns: start after the last one."""
    changed = [c.version for c in headwater_history(path) if c.operation == "RENAME COLUMN"] if path.exists() else []
    return max(changed, default=0)


# --- readers -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def readers(tables: Tables) -> Iterator[dict[str, Callable[[str, str], Seen]]]:
    with duckdb_with_delta() as connection:
        yield {
            "delta-spark": lambda maker, kind: by_delta_spark(tables.answer(maker, kind, "rows")),
            "deltalake": lambda maker, kind: by_deltalake(tables.made(maker, kind)),
            "DuckDB": lambda maker, kind: by_duckdb(connection, tables.made(maker, kind)),
        }


@pytest.mark.parametrize(("maker", "kind"), TABLES)
def test_we_see_the_rows_that_were_written(spark: SparkSession, tables: Tables, maker: str, kind: str) -> None:
    path = tables.made(maker, kind)
    seen, expected = tables.seen_by_us(spark, maker, kind), by_spark(spark.sql(KINDS[kind].expected()))
    counted = {column.name for column in KINDS[kind].columns if column.is_identity}
    assert seen.without(counted) == expected.rows
    for name in counted:
        assert len({row[name] for row in seen.rows}) == len(seen.rows)
    if not counted:
        assert seen.schema == expected.schema
    snapshot = hw.open_log(path)
    assert snapshot.verify() == []
    if snapshot.version > CHECKPOINT_INTERVAL:
        assert snapshot.segment.checkpoint is not None
        assert snapshot.segment.checkpoint.version >= CHECKPOINT_INTERVAL


@pytest.mark.parametrize("reader", REFUSES)
@pytest.mark.parametrize(("maker", "kind"), TABLES)
def test_others_see_what_we_see(
    spark: SparkSession, tables: Tables, readers: dict[str, Any], maker: str, kind: str, reader: str
) -> None:
    tables.made(maker, kind)
    if kind in REFUSES[reader]:
        with pytest.raises(Exception, match=REFUSES[reader][kind]):
            readers[reader](maker, kind)
        return
    seen, ours = readers[reader](maker, kind), tables.seen_by_us(spark, maker, kind)
    distorted = DISTORTS.get((reader, kind), set())
    assert seen.without(distorted) == ours.without(distorted)
    assert (seen.rows == ours.rows) == (not distorted)
    assert seen.schema == ours.schema


@pytest.mark.parametrize(("maker", "kind"), TABLES)
def test_others_see_the_same_history(tables: Tables, maker: str, kind: str) -> None:
    ours = headwater_history(tables.made(maker, kind))
    assert [commit.version for commit in ours] == list(range(len(ours)))
    notes = [commit.user_metadata for commit in ours if commit.user_metadata]
    only_appended = ["appended"] if KINDS[kind].is_append_only else ["appended", "replaced"]
    if maker == "headwater":
        again = ["overwritten"] if KINDS[kind].is_overwritten else []
        assert notes == ["first", *again, *only_appended, "last"]
    else:
        assert notes == only_appended
    # deltalake says when a commit was prepared, the others when it happened.
    assert [replace(c, timestamp_ms=0) for c in deltalake_history(tables.path(maker, kind))] == [
        replace(c, timestamp_ms=0) for c in ours
    ]
    assert delta_spark_history(tables.answer(maker, kind, "history")) == ours


# --- what single features promise --------------------------------------------------------------------------------


def tables_with(setting: str) -> list[tuple[str, str]]:
    return [(maker, kind) for maker, kind in TABLES if f"delta.{setting}" in KINDS[kind].properties]


@pytest.mark.parametrize(("maker", "kind"), tables_with("enableRowTracking"))
def test_rows_have_the_same_ids_for_delta_spark(spark: SparkSession, tables: Tables, maker: str, kind: str) -> None:
    path = tables.made(maker, kind)
    ours = hw.read(spark, path, row_tracking=True).select("id", "_row_id", "_row_commit_version")
    assert by_spark(ours).rows == spark_rows(tables.answer(maker, kind, "row ids")["rows"])


@pytest.mark.parametrize(("maker", "kind"), tables_with("enableChangeDataFeed"))
def test_changes_are_the_same_for_delta_spark(spark: SparkSession, tables: Tables, maker: str, kind: str) -> None:
    path = tables.made(maker, kind)
    ours = by_spark(hw.read_changes(spark, path, starting_version=_first_feed_version(path)))
    theirs = by_delta_spark(tables.answer(maker, kind, "changes"))
    assert ours.rows == theirs.rows
    replaced = [(row["id"], row["_change_type"]) for row in ours.rows if row["id"] in (2, REPLACING)]
    assert {(2, "delete"), (REPLACING, "insert")} <= set(replaced)


# deltalake sets the property of V2 checkpoints, and not the feature.
@pytest.mark.parametrize(("maker", "kind"), [t for t in tables_with("checkpointPolicy") if t[0] != "deltalake"])
def test_checkpoints_have_sidecars(tables: Tables, maker: str, kind: str) -> None:
    assert list((tables.made(maker, kind) / "_delta_log" / "_sidecars").iterdir())


def test_tables_of_delta_spark_had_deletion_vectors_when_we_went_on(tables: Tables) -> None:
    path = tables.made("delta-spark", "deletion vectors")
    [deletion] = [c.version for c in headwater_history(path) if c.operation == "DELETE"]
    vectors = hw.open_log(path, version=deletion).files(columns=["deletionVector"])["deletionVector"].to_pylist()
    assert [vector["cardinality"] for vector in vectors if vector] == [1]


def test_what_deltalake_cannot_make_is_said_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    for name, message in DELTALAKE_CANNOT_MAKE.items():
        with pytest.raises(Exception, match=message):
            make_with_deltalake(spark, KINDS[name], tmp_path / name)
