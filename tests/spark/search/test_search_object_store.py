"""Search tables in an object store: executors build, search and merge splits there; the driver never has them near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headwater.api.search_table import SearchTable
from support.search.search_tables import SCHEMA, log_rows, make_table, words_of
from support.stores.storage_servers import moto_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.stores.storage_servers import Endpoint

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        yield endpoint


def test_a_table_in_an_object_store_is_written_searched_merged_and_purged(
    spark: SparkSession, s3: Endpoint, tmp_path: Path
) -> None:
    uri, options = f"{s3.root}/{tmp_path.name}/logs", s3.options
    table = make_table(spark, uri, writes=1, rows=60, storage_options=options, partition_by="day")
    disk = sorted(row[0] for row in log_rows(0, 60) if "disk" in words_of(row[6]))

    assert table.snapshot.files(columns=["path"]).column("path")[0].as_py().startswith(s3.root)
    assert table.count() == 60
    assert table.count("disk") == len(disk)
    assert sorted(row.id for row in table.search("disk", columns=["id"]).collect()) == disk
    assert table.top("disk", 2, columns=["id"]).num_rows == 2
    assert table.toDF().where("took > 500").count() == sum((row[4] or 0) > 500 for row in log_rows(0, 60))
    assert table.merge_splits("1G").num_merged_splits > 0
    assert table.snapshot.num_files == 4  # three days, and rows without one
    again = SearchTable.forPath(spark, uri, storage_options=options)
    assert again.count("disk") == len(disk)
    assert again.toDF().schema == spark.createDataFrame([], SCHEMA).schema
    assert again.purge(dry_run=True).num_files == 0
