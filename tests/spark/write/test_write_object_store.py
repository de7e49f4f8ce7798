"""Writing to a store for which Spark has no filesystem: executors write and read through Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from support.stores.storage_servers import moto_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from support.stores.storage_servers import Endpoint

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def s3() -> Iterator[Endpoint]:
    with moto_server() as endpoint:
        yield endpoint


def test_rows_are_written_replaced_and_read(spark: SparkSession, s3: Endpoint, tmp_path: Path) -> None:
    uri, options = f"{s3.root}/{tmp_path.name}/t", s3.options
    frame = spark.sql("SELECT id, id % 2 AS p FROM range(4)").coalesce(1)

    def rows() -> list[tuple[int, int]]:
        return sorted(tuple(row) for row in hw.read(spark, uri, storage_options=options).collect())

    hw.write(frame, uri, partition_by="p", storage_options=options)
    assert rows() == [(0, 0), (1, 1), (2, 0), (3, 1)]
    new = spark.sql("SELECT 9L AS id, 1L AS p")
    hw.write(new, uri, mode="overwrite", partition_overwrite="dynamic", storage_options=options)
    assert rows() == [(0, 0), (2, 0), (9, 1)]
    hw.write(new, uri, mode="overwrite", replace_where="id > 1", storage_options=options)
    assert rows() == [(0, 0), (9, 1)]
    assert [c.operation for c in hw.open_log(uri, storage_options=options).history()][-1] == "CREATE TABLE AS SELECT"
