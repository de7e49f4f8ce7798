"""Columns may have any name that the protocol allows, whoever else uses it: no row is lost or mistaken for another."""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import HeadwaterError, InvalidCommitError, SchemaError, SearchQueryError
from support.tables.named_columns import COLLIDING, FEED, MAPPED, ODD, SPELLINGS, NamedTable, distinct, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
HIDDEN = "\ufdd0row"


def properties(mode: str, *, vectors: bool = False, feed: bool = False, tracked: bool = False) -> dict[str, str]:
    on = {"enableDeletionVectors": vectors, "enableChangeDataFeed": feed, "enableRowTracking": tracked}
    return {"columnMapping.mode": mode, **{name: str(value).lower() for name, value in on.items()}}


def history(table: NamedTable) -> None:
    """Everything that writes rows, with looks at the table between."""
    table.append(range(8))
    table.append(range(8, 12))
    table.check()
    changed(table)


def changed(table: NamedTable) -> None:
    """Everything that rewrites rows."""
    table.delete("id IN (1, 9)", lambda row: row["id"] in (1, 9))
    table.check()
    table.update([2, 10])
    table.upsert([3, 10, 20], 2)
    table.check()
    table.merge([4, 11, 21], 5, 3)
    table.check()
    table.replace("id >= 20", lambda row: row["id"] >= 20, [30, 31])
    if table.partitions:
        name = table.partitions[0]
        table.delete(f"{quoted(name)} = 1", lambda row: row[name] == 1)
    table.table.optimize().executeCompaction()
    table.check()
    table.table.optimize().executeZOrderBy("id", quoted((*table.texts, *table.numbers)[0]))
    table.check()
    if table.properties["enableChangeDataFeed"] == "true":
        table.check_changes()
    assert not hw.open_log(table.path).verify()


@st.composite
def named(draw: st.DrawFn) -> dict[str, Any]:
    """The columns of a table, and how it is kept."""
    mode = draw(st.sampled_from(["none", "name", "id"]))
    feed = draw(st.booleans())
    pool = [*COLLIDING, *ODD, *(MAPPED if mode != "none" else ())]
    spelled = st.builds(lambda name, spell: spell(name), st.sampled_from(pool), st.sampled_from(SPELLINGS))
    drawn = distinct(draw(st.lists(spelled, min_size=16, max_size=20)), ("id", *(FEED if feed else ())))
    texts, numbers, structs, partitions = drawn[:3], drawn[3:8], drawn[8:9], drawn[9 : 9 + draw(st.integers(0, 2))]
    return {
        "texts": texts,
        "numbers": numbers,
        "structs": structs,
        "inner": distinct(draw(st.lists(spelled, min_size=3, max_size=4)), ()),
        "partitions": partitions,
        "properties": properties(mode, vectors=draw(st.booleans()), feed=feed, tracked=draw(st.booleans())),
    }


@settings(
    max_examples=200 if LONG else 2,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(columns=named())
def test_a_table_is_what_a_plain_model_says_whatever_its_columns_are_called(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, columns: dict[str, Any]
) -> None:
    history(NamedTable(spark, str(tmp_path_factory.mktemp("named") / "t"), **columns))


@settings(
    max_examples=50 if LONG else 1,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(columns=named())
def test_so_it_is_on_spark_connect(
    remote: SparkSession, tmp_path_factory: pytest.TempPathFactory, columns: dict[str, Any]
) -> None:
    history(NamedTable(remote, str(tmp_path_factory.mktemp("named") / "t"), **columns))


@pytest.mark.parametrize(("mode", "vectors"), [("none", False), ("name", True)])
def test_every_name_can_be_that_of_a_column(spark: SparkSession, tmp_path: Path, mode: str, vectors: bool) -> None:
    # The column of `_tmp_metadata_row_index` has a test of its own: tables with it are never read by Spark's reader.
    pool = [name for name in (*COLLIDING, *ODD, *(MAPPED if mode != "none" else ())) if "_tmp_" not in name]
    chance = Random(mode)
    names = distinct(SPELLINGS[chance.randrange(4) if vectors else 0](name) for name in pool)
    chance.shuffle(names)
    table = NamedTable(
        spark,
        str(tmp_path / "t"),
        texts=names[::3],
        numbers=names[1::3],
        structs=names[2:12:3],
        inner=distinct(names[:20], ()),
        properties=properties(mode, vectors=vectors, tracked=vectors),
    )
    table.append(range(5))
    table.delete("id = 1", lambda row: row["id"] == 1)
    table.check()
    table.update([2])
    table.upsert([3, 7], 2)
    table.check()


@pytest.mark.parametrize("mode", ["none", "id"])
def test_every_name_can_be_that_of_a_partition_column(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    names = distinct([*COLLIDING, *ODD] if mode == "none" else [*ODD, *MAPPED])
    count = -(-len(names) // 50)
    for number in range(count):
        table = NamedTable(
            spark, str(tmp_path / f"{number}"), ["x"], partitions=names[number::count], properties=properties(mode)
        )
        table.append(range(4))
        table.delete("id = 0", lambda row: row["id"] == 0)
        table.upsert([1, 6], 2)
        table.checks = 1
        table.check()


def test_columns_may_be_called_as_files_call_others(spark: SparkSession, tmp_path: Path) -> None:
    """On a table that got column mapping later, two columns can change their names with each other."""
    kept = properties("none")
    old = NamedTable(spark, str(tmp_path / "t"), ["x", "y"], ["a", "b"], ["z"], ["m", "n"], ["p", "q"], kept)
    old.append(range(12))
    old.table.setProperties({"delta.columnMapping.mode": "name"})
    for parent, one, other in (("", "x", "y"), ("", "a", "b"), ("", "p", "q"), ("z.", "m", "n")):
        for before, after in ((one, "t"), (other, one), ("t", other)):
            old.table.renameColumn(parent + before, after)

    new = NamedTable(spark, old.path, ["y", "x"], ["b", "a"], ["z"], ["n", "m"], ["q", "p"], kept)
    new.model = {id_: new.row(id_) for id_ in range(12)}
    new.check()
    changed(new)


def test_a_filter_on_a_files_name_is_not_one_on_a_column_called_so(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = [(1, "x", 1), (2, "y", 2)]
    hw.write(spark.createDataFrame(rows, "id long, file_name string, file_size long").coalesce(1), path)
    frame = hw.read(spark, path)
    name = frame.select("_metadata.file_name").first()
    assert name is not None

    assert frame.where(f"_metadata.file_name = '{name[0]}'").count() == 2
    assert frame.where("_metadata.file_size > 100").count() == 2
    assert [row.id for row in frame.where("_metadata.file_size > 100 AND file_size = 2").collect()] == [2]
    assert [row.id for row in frame.where("file_name = 'y'").collect()] == [2]


@pytest.mark.parametrize("name", ["_tmp_metadata_row_index", "_TMP_Metadata_Row_Index"])
def test_a_column_that_sparks_reader_would_fill_with_positions_keeps_its_values(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = NamedTable(spark, str(tmp_path / "t"), ["x"], [name], properties=properties("none", vectors=True))
    table.append(range(4))
    table.delete(f"{name} = 3", lambda row: row[name] == 3)
    table.check()
    table.update([3])
    table.check()


def test_the_hidden_column_of_spark_is_there_beside_a_column_of_the_table_called_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    data = spark.createDataFrame(
        [(i, {"row_index": 9 - i}) for i in range(5)], "id long, _metadata struct<row_index:int>"
    )
    hw.write(data.coalesce(1), path, properties={"delta.enableDeletionVectors": "true"})

    hw.DeltaTable.forPath(spark, path).delete("_metadata.row_index = 8")

    left = hw.read(spark, path).select("id", "_metadata.row_index").collect()
    assert sorted(map(tuple, left)) == [(0, 9), (2, 7), (3, 6), (4, 5)]


def test_rows_keep_their_ids_in_a_table_with_a_column_called_as_ids_are_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = NamedTable(
        spark,
        str(tmp_path / "t"),
        ["x"],
        ["_Row_ID", "_row_commit_version"],
        properties=properties("name", tracked=True),
    )
    table.append(range(4))
    table.delete("id = 0", lambda row: row["id"] == 0)
    table.update([2])
    table.check()

    with pytest.raises(SchemaError, match="_row_commit_version of its own"):
        hw.read(spark, table.path, row_tracking=True)
    table.table.renameColumn("_Row_ID", "a")
    table.table.renameColumn("_row_commit_version", "b")
    found = hw.read(spark, table.path, row_tracking=True).select("id", "_row_id", "_row_commit_version").collect()
    assert sorted(map(tuple, found)) == [(1, 1, 0), (2, 2, 2), (3, 3, 0)]


@pytest.mark.parametrize("name", [*FEED, "_Change_Type"])
def test_a_table_without_a_feed_may_have_its_columns_and_one_with_a_feed_may_not(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = NamedTable(spark, str(tmp_path / "t"), ["x"], [name], properties=properties("none"))
    table.append(range(3))
    table.update([1])
    table.check()

    with pytest.raises(InvalidCommitError, match=name):
        table.table.setProperties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(InvalidCommitError, match=name):
        NamedTable(spark, str(tmp_path / "u"), ["x"], [name], properties=properties("none", feed=True)).append(range(3))


def test_changes_are_shown_of_a_table_whose_files_call_columns_as_the_feed_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    """After columns were renamed their old names are still those in files."""
    table = NamedTable(
        spark, str(tmp_path / "t"), ["x"], ["_commit_version", "_COMMIT_TIMESTAMP"], properties=properties("none")
    )
    table.append(range(4))
    table.table.setProperties({"delta.columnMapping.mode": "name"})
    table.table.renameColumn("_commit_version", "a")
    table.table.renameColumn("_COMMIT_TIMESTAMP", "b")
    table.table.setProperties({"delta.enableChangeDataFeed": "true"})
    table.table.update("id = 1", {"a": "50"})

    found = hw.read_changes(spark, table.path, starting_version=5).select("id", "a", *FEED[:2]).collect()

    assert sorted(map(tuple, found)) == [(1, 2, "update_preimage", 5), (1, 50, "update_postimage", 5)]


def test_changes_are_not_recorded_in_files_that_call_a_column_as_the_type_of_a_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = NamedTable(spark, str(tmp_path / "t"), ["x"], ["_change_type"], properties=properties("none"))
    table.append(range(4))
    table.table.setProperties({"delta.columnMapping.mode": "name"})
    table.table.renameColumn("_change_type", "a")
    table.table.setProperties({"delta.enableChangeDataFeed": "true"})

    with pytest.raises(SchemaError, match="call its column a _change_type"):
        table.table.update("id = 1", {"a": "50"})
    table.table.delete("id >= 0")  # whole files are their own record
    assert hw.read_changes(spark, table.path, starting_version=4).where("_change_type = 'delete'").count() == 4


def test_a_column_cannot_be_called_as_files_call_the_ids_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = NamedTable(spark, str(tmp_path / "t"), ["x"], ["a"], properties=properties("none", tracked=True))
    table.append(range(3))
    taken = hw.open_log(table.path).properties["delta.rowTracking.materializedRowIdColumnName"]

    with pytest.raises(InvalidCommitError, match="materializedRowIdColumnName"):
        table.table.addColumns({quoted(taken.upper()): "bigint"})
    log = Path(table.path, "_delta_log", f"{0:020}.json")  # another writer may not be so careful
    log.write_text(log.read_text().replace(f'"{taken}"', '"A"'))
    for action in (lambda: hw.read(spark, table.path, row_tracking=True), lambda: table.table.delete("id = 1")):
        with pytest.raises(InvalidCommitError, match="materializedRowIdColumnName"):
            action()


def test_names_of_hidden_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = spark.createDataFrame([(1, 2)], ["id", HIDDEN])
    for mode in ("none", "name"):
        with pytest.raises(SchemaError, match="U\\+FDD0"):
            hw.write(frame, path, properties={"delta.columnMapping.mode": mode})
    hw.write(frame.select("id"), path)
    table = hw.DeltaTable.forPath(spark, path)
    with pytest.raises(SchemaError, match="source of MERGE"):
        table.alias("t").merge(frame.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"id": "5"}).execute()
    with pytest.raises(SchemaError, match="U\\+FDD0"):
        table.addColumns({HIDDEN: "int"})
    for name in ("a\0b", "s struct<`a\0b`: int>"):
        with pytest.raises(SchemaError, match="NUL"):
            hw.write(spark.createDataFrame([], name if " " in name else f"`{name}` int"), path + name[:1])

    log = Path(path, "_delta_log", f"{0:020}.json")  # another writer may not be so careful
    log.write_text(log.read_text().replace('\\"name\\":\\"id\\"', f'\\"name\\":\\"{HIDDEN}\\"'))
    for action in (lambda: hw.read(spark, path), lambda: hw.DeltaTable.forPath(spark, path).delete("true")):
        with pytest.raises(SchemaError, match="U\\+FDD0"):
            action()


@pytest.mark.parametrize("name", MAPPED)
def test_names_that_need_column_mapping_are_refused_without_it(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with pytest.raises(SchemaError, match="columnMapping"):
        hw.write(spark.createDataFrame([(1,)], [name]), str(tmp_path / "t"))


def test_generated_columns_and_constraints_may_have_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    given, doubled, part = "a.`b", 'x, "y"', "p\n= (1)"
    builder = hw.DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("id", "BIGINT")
    builder = builder.addColumn(given, "BIGINT").addColumn(doubled, "BIGINT", generatedAlwaysAs=f"{quoted(given)} * 2")
    builder = builder.addColumn(part, "BIGINT", generatedAlwaysAs=f"{quoted(given)} % 2").partitionedBy(part)
    table = builder.property("delta.columnMapping.mode", "name").execute()
    table.addConstraint("positive", f"{quoted(given)} > 0")
    path = str(tmp_path / "t")
    hw.write(spark.createDataFrame([(1, 10), (2, 21)], ["id", given]), path, mode="append")

    table.update("id = 1", {quoted(given): f"{quoted(given)} + 5"})

    assert sorted(map(tuple, table.toDF().collect())) == [(1, 15, 30, 1), (2, 21, 42, 1)]
    with pytest.raises(HeadwaterError, match="positive"):
        table.update("id = 1", {quoted(given): "-1"})
    new = spark.createDataFrame([(2, 8), (3, 9)], ["id", given])
    table.alias("t").merge(new.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert sorted(map(tuple, table.toDF().collect())) == [(1, 15, 30, 1), (2, 8, 16, 0), (3, 9, 18, 1)]


@pytest.mark.parametrize("kind", ["delta", "search table"])
def test_every_name_can_be_searched(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    names = distinct([*COLLIDING, *ODD, *MAPPED], ("id", "score"))
    table = NamedTable(
        spark,
        str(tmp_path / "t"),
        texts=names[2::2],
        numbers=names[1::2],
        partitions=[names[0]],
        properties=properties("name", vectors=True),
    )
    types = dict.fromkeys(table.texts, "text")
    if kind == "delta":
        table.append(range(4))
        hw.search_index(table.table, columns=types)
        table.append(range(4, 6))
        table.delete("id = 1", lambda row: row["id"] == 1)
        searched: Any = table.table
    else:
        table.model = {id_: table.row(id_) for id_ in (0, 2, 3, 4, 5)}
        searched = hw.SearchTable.create(
            spark, str(tmp_path / "s"), table.schema, partition_by=list(table.partitions), types=types
        )
        searched.write(table.frame(table.model.values()))

    for id_ in (2, 5):
        for name in (table.texts[id_], "_score" if "_score" in table.texts else table.texts[3], "a.b", "a b"):
            if name in table.texts:
                escaped = re.sub(r"([^\w])", r"\\\1", name)
                found = searched.search(f"{escaped}:{table.model[id_][name]}").collect()
                assert [row.id for row in found] == [id_]
                assert dict(zip(found[0].__fields__, found[0], strict=True)) == table.model[id_]
    assert {row.id for row in searched.search(filter=f"{quoted(table.numbers[3])} < 3").collect()} == {
        id_ for id_, row in table.model.items() if row[table.numbers[3]] < 3
    }


def test_a_search_does_not_add_a_column_that_the_table_has(spark: SparkSession, tmp_path: Path) -> None:
    schema = "id long, message string, _SCORE long, message_snippet string"
    table = hw.SearchTable.create(spark, str(tmp_path / "s"), schema, types={"message": "text"})
    table.write(spark.createDataFrame([(1, "disk full", 7, "own")], schema))
    path = str(tmp_path / "d")
    hw.write(spark.createDataFrame([(1, "disk full", 7, "own")], schema), path)
    delta = hw.DeltaTable.forPath(spark, path)
    hw.search_index(delta, columns={"message": "text"})

    for searched in (table, delta):
        with pytest.raises(SearchQueryError, match="_score"):
            searched.search("full", with_score=True)
        with pytest.raises(SearchQueryError, match="message_snippet"):
            searched.search("full", snippets=["message"])
        assert [tuple(row) for row in searched.search("full").collect()] == [(1, "disk full", 7, "own")]
    with pytest.raises(SearchQueryError, match="_score"):
        table.top("full", 1)


def test_hidden_columns_have_names_that_no_table_has() -> None:
    """Whoever adds a helper column beside columns of users names it by `hidden`."""
    texts = {path: path.read_text() for path in Path(next(iter(hw.__path__))).rglob("*.py")}
    assert not [str(path) for path, text in texts.items() if re.search(r'= f?"__headwater_(?!heavy_row)', text)]
    assert not [str(path) for path, text in texts.items() if re.search(r'col\("_metadata', text)]
