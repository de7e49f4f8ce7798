"""Search tables on Spark Connect: the same answers, by DataFrame operations alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.api.search_table import SearchTable
from support.search.search_tables import SCHEMA, log_rows, make_table, words_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_everything_works_on_spark_connect(remote: SparkSession, tmp_path: Path) -> None:
    table = make_table(remote, tmp_path / "logs", writes=1, rows=60, partition_by="day")
    rows = log_rows(0, 60)
    disk = [row[0] for row in rows if "disk" in words_of(row[6])]

    assert table.count() == 60
    assert table.count("disk") == len(disk)
    assert sorted(row.id for row in table.search("disk", columns=["id"]).collect()) == disk
    assert sorted(map(repr, table.toDF().collect())) == sorted(
        map(repr, remote.createDataFrame(rows, SCHEMA).collect())
    )
    errors = [row[0] for row in rows if row[3] == "ERROR" and row[4] is not None and row[4] > 100]
    assert sorted(r.id for r in table.search(filter="level = 'ERROR' AND took > 100").collect()) == errors
    best = table.top("disk", 3, columns=["id"], snippets=["message"])
    assert best.column_names == ["id", "_score", "message_snippet"]
    assert len(table.aggregate("count", group_by="host")) == 6
    assert table.merge_splits("1G").num_merged_splits > 0
    assert table.count("disk", filter="id >= 0") == len(disk)
    assert table.prewarm() == table.snapshot.num_files
    assert table.detail().first().numRecords == 60  # type: ignore[union-attr]
    assert [row.operation for row in table.history().collect()] == ["MERGE SPLITS", "WRITE", "CREATE TABLE"]
    assert table.purge(dry_run=True).num_files == 0
    hw.register_search_functions(remote)
    table.toDF().createOrReplaceTempView("remote_logs")
    found = remote.sql("SELECT id FROM remote_logs WHERE textsearch(message, 'disk')").collect()
    assert sorted(row.id for row in found) == disk
    empty = SearchTable.create(remote, tmp_path / "empty", SCHEMA)
    assert empty.toDF().collect() == []
    assert empty.search("host:x").columns == table.toDF().columns
    with pytest.raises(hw.SchemaMismatchError, match="colour"):
        table.write(remote.sql("SELECT 'red' AS colour"))
