"""One Spark session for all tests of this room: starting a JVM takes longer than most tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from headwater.spark.session import spark as start

    session = start(
        "tests",
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": 4,
            "spark.sql.warehouse.dir": "target/does-not-exist",
        },
    )
    yield session
    session.stop()
