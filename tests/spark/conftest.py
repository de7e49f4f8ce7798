"""One Spark session for all tests of this room: starting a JVM takes longer than most tests."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from connect_server import connect_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

JAVA_OPTIONS = " ".join(
    [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # many plans and few rows: the better compiler takes more time than it saves
        f"-Dlog4j2.configurationFile=file:{files('headwater.spark') / 'log4j2.properties'}",
    ]
)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from headwater.spark.session import spark as start

    session = start(
        "tests",
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.sql.shuffle.partitions": 4,
            "spark.sql.warehouse.dir": "target/does-not-exist",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect_url() -> Iterator[str]:
    with connect_server() as url:
        yield url


@pytest.fixture(scope="session")
def remote(connect_url: str) -> Iterator[SparkSession]:
    """A session of Spark Connect."""
    # Not `pyspark.sql.SparkSession.builder`, which turns the whole process into one of Spark Connect.
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession.builder.remote(connect_url).create()
    yield session
    session.client.close()
