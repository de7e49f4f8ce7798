"""Search on Delta tables by Spark: arguments, plans, versions, and what happens when something is missing."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater import DeltaTable
from headwater.errors import (
    CorruptSplitError,
    SearchConfigError,
    SearchIndexNotFoundError,
    SearchQueryError,
    StorageError,
)
from support.search.delta_search_cases import COLUMNS, SCHEMA, found_ids

pytestmark = pytest.mark.spark

ROWS = [
    (1, "web-1", "connection refused by upstream", 10),
    (2, "web-2", "Upstream is back: connection established", 20),
    (3, "db-1", "Disk almost full", 30),
    (4, None, None, None),
]
LATER = (5, "web-3", "connection reset, connection lost", 40)


@pytest.fixture(scope="module")
def path(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two files that are indexed, one that is not, and a row that a deletion vector hides.

    Version 0 has four rows, version 1 an index, version 2 one row more, version 3 none that is called 3.
    """
    path = str(tmp_path_factory.mktemp("delta-search") / "a table")
    frame = spark.createDataFrame(ROWS, SCHEMA).repartition(2)
    hw.write(frame, path, properties={"delta.enableDeletionVectors": "true"})
    hw.search_index(path, columns=COLUMNS, spark=spark)
    hw.write(spark.createDataFrame([LATER], SCHEMA), path, mode="append")
    DeltaTable.forPath(spark, path).delete("id = 3")
    return path


@pytest.fixture
def table(spark: Any, path: str) -> DeltaTable:
    return DeltaTable.forPath(spark, path)


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


def copied(path: str, target: Path) -> str:
    shutil.copytree(path, target)
    return str(target)


# --- what is found ------------------------------------------------------------------------------------


def test_rows_of_indexed_and_other_files_are_found_and_deleted_ones_are_not(table: DeltaTable) -> None:
    found = table.search("connection OR disk")

    assert sorted(found.collect()) == sorted([ROWS[0], ROWS[1], LATER])
    assert found.count() == 3
    assert found.columns == ["id", "host", "message", "took"]


def test_a_search_without_a_query_finds_all_rows(table: DeltaTable) -> None:
    assert ids(table.search()) == [1, 2, 4, 5]


def test_columns_come_as_they_are_asked_for(table: DeltaTable) -> None:
    found = table.search("established", columns=["TOOK", "id"])

    assert found.columns == ["took", "id"]
    assert found.collect() == [(20, 2)]


def test_a_filter_counts_before_the_limit(table: DeltaTable) -> None:
    assert ids(table.search("connection", filter="took > 15 AND host LIKE '%2'", limit=1)) == [2]
    assert ids(table.search("connection", filter="length(host) = 5 AND took <> 10")) == [2, 5]
    assert table.search("connection", limit=2).count() == 2
    assert table.search("connection", limit=0).count() == 0


def test_queries_on_the_result_are_spark_queries(table: DeltaTable) -> None:
    found = table.search("connection")

    assert ids(found.where("took >= 20").select("id")) == [2, 5]
    assert ids(found.where("took IS NULL")) == []
    assert found.groupBy().agg({"took": "sum"}).collect() == [(70,)]
    assert [tuple(row) for row in found.groupBy("host").count().orderBy("host").collect()] == [
        ("web-1", 1),
        ("web-2", 1),
        ("web-3", 1),
    ]


def test_the_best_rows_come_first_whether_indexed_or_not(table: DeltaTable) -> None:
    found = table.search("connection", with_score=True, columns=["id"]).collect()

    assert [row.id for row in found] == [5, 1, 2]  # twice in a short line; a short line; a longer line
    assert [row._score for row in found] == sorted((row._score for row in found), reverse=True)
    assert [row.id for row in table.search("connection", with_score=True, limit=1).collect()] == [5]


def test_scores_do_not_depend_on_what_is_indexed(spark: Any, path: str, tmp_path: Path) -> None:
    half = DeltaTable.forPath(spark, copied(path, tmp_path / "half"))
    before = half.search("connection OR upstream", with_score=True).collect()

    hw.search_index(half)

    after = half.search("connection OR upstream", with_score=True).collect()
    assert [row.id for row in after] == [row.id for row in before]
    assert [row._score for row in after] == pytest.approx([row._score for row in before], rel=1e-5)


def test_fragments_show_what_was_found(table: DeltaTable) -> None:
    found = table.search("upstream", columns=["id"], snippets=["message"])

    assert found.columns == ["id", "message_snippet"]
    assert sorted(found.collect()) == [
        (1, "connection refused by <b>upstream</b>"),
        (2, "<b>Upstream</b> is back: connection established"),
    ]


def test_words_without_a_field_are_looked_for_where_the_caller_says(table: DeltaTable) -> None:
    assert ids(table.search('"web-1"', default_fields=["host"])) == [1]


# --- versions and coverage ----------------------------------------------------------------------------


def test_every_version_is_searched_as_it_was(table: DeltaTable) -> None:
    assert ids(table.search("connection OR disk", version=0)) == [1, 2, 3]
    assert ids(table.search("connection OR disk", version=2)) == [1, 2, 3, 5]
    moment = hw.open_log(table._table.ref.location, version=1).timestamp
    assert ids(table.search("connection", timestamp=moment)) == [1, 2]


def test_coverage_is_told_for_a_version_in_plans_and_scans(table: DeltaTable, capsys: Any) -> None:
    assert table.search_coverage(version=0).is_complete  # indexed later, and true for the version all the same
    newest = table.search_coverage()
    assert (newest.version, newest.num_files, newest.num_covered_files) == (3, 3, 2)

    found = table.search("connection")

    (summary,) = hw.scans(found)
    assert summary.reader == "the search index for 2 files, row by row for 1"
    assert (summary.version, summary.files_kept, summary.deletion_vectors) == (3, 3, True)
    found.explain()
    assert "2 of 3 files are indexed" in capsys.readouterr().out


def test_indexing_again_indexes_what_is_new_and_only_that(spark: Any, path: str, tmp_path: Path) -> None:
    mine = copied(path, tmp_path / "mine")

    done = hw.search_index(mine, spark=spark)

    assert (done.num_files, done.num_records) == (1, 1)
    assert done.coverage.is_complete
    assert hw.search_index(mine, spark=spark).num_files == 0
    assert found_ids(spark, mine, "connection") == [1, 2, 5]


def test_several_may_index_at_the_same_time(spark: Any, path: str, tmp_path: Path) -> None:
    mine = copied(path, tmp_path / "mine")
    shutil.rmtree(Path(mine, "_search_index"))

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: hw.search_index(mine, columns=COLUMNS, spark=spark), range(2)))

    assert all(one.coverage.is_complete for one in done)
    assert found_ids(spark, mine, "connection") == [1, 2, 5]


def test_other_columns_start_the_index_anew(spark: Any, path: str, tmp_path: Path) -> None:
    mine = copied(path, tmp_path / "mine")

    columns = {"message": ("text", "string")}
    done = hw.search_index(mine, columns=columns, tokenizers={"message": "en_stem"}, spark=spark)

    assert done.num_files == 3
    assert found_ids(spark, mine, "connections") == [1, 2, 5]  # by their stem
    assert found_ids(spark, mine, 'message.raw:"Disk almost full"', 0) == [3]
    with pytest.raises(SearchQueryError, match="host"):
        found_ids(spark, mine, "host:web")
    assert hw.open_log(mine).history(1)[0].operation == "CREATE SEARCH INDEX"


# --- what goes wrong ----------------------------------------------------------------------------------


def test_a_split_that_is_lost_costs_only_time(spark: Any, path: str, tmp_path: Path) -> None:
    mine = copied(path, tmp_path / "mine")
    planned = DeltaTable.forPath(spark, mine).search("connection OR disk")

    shutil.rmtree(Path(mine, "_search_index"))

    assert ids(planned) == [1, 2, 5]
    assert DeltaTable.forPath(spark, mine).search_coverage().num_covered_files == 0


def test_a_damaged_split_is_an_error_that_names_it(spark: Any, path: str, tmp_path: Path) -> None:
    mine = copied(path, tmp_path / "mine")
    for split in Path(mine, "_search_index").rglob("*.split"):
        content = bytearray(split.read_bytes())
        content[-200:] = bytes(200)
        split.write_bytes(content)

    with pytest.raises(CorruptSplitError, match="_search_index"):
        DeltaTable.forPath(spark, mine).search("connection").count()


def test_what_cannot_be_asked_raises(spark: Any, table: DeltaTable, tmp_path: Path) -> None:
    hw.write(spark.range(1), str(tmp_path / "plain"))
    plain = DeltaTable.forPath(spark, str(tmp_path / "plain"))

    with pytest.raises(SearchIndexNotFoundError, match=r"search_index\(table"):
        plain.search("x")
    with pytest.raises(SearchIndexNotFoundError):
        hw.search_index(plain)
    with pytest.raises(SearchConfigError):
        hw.search_index(plain, columns={"id": "text"})
    with pytest.raises(hw.ColumnNotFoundError):
        hw.search_index(plain, columns={"message": "text"})
    with pytest.raises(hw.VersionNotFoundError):
        table.search("x", version=99)
    with pytest.raises(SearchQueryError):
        table.search("(unbalanced")
    with pytest.raises(SearchQueryError, match="nowhere"):
        table.search("nowhere:x")
    with pytest.raises(hw.ColumnNotFoundError):
        table.search("x", columns=["nowhere"])
    with pytest.raises(SearchQueryError, match="took"):
        table.search("x", snippets=["took"])
    with pytest.raises(hw.HeadwaterError, match="limit"):
        table.search("x", limit=-1)


def test_a_table_in_memory_is_out_of_reach(spark: Any) -> None:
    with pytest.raises((StorageError, hw.TableNotFoundError)):
        hw.search_index("memory://delta-search", columns={"a": "text"}, spark=spark)
