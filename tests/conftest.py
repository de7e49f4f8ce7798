"""What holds for every test: nothing is judged by a stopwatch. And oracles that more than one room asks."""

from __future__ import annotations

import os
import tempfile
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from support.oracles.delta_spark_oracle import DeltaSparkOracle

_LONG = (
    "test_round_trips",
    "test_killed_writes",
    "test_check_docs",
    "test_merge_matrix",
    "test_demo",
    "test_cluster",
    "test_api_examples",
)
"""Files that take long."""

settings.register_profile("headwater", deadline=None)
settings.load_profile("headwater")


def pytest_configure(config: pytest.Config) -> None:
    """Splits are unpacked where nothing is left behind; Spark's workers inherit the place."""
    directory = tempfile.TemporaryDirectory(prefix="headwater-test-splits-", ignore_cleanup_errors=True)
    os.environ["HEADWATER_SPLIT_CACHE_DIR"] = directory.name
    config.add_cleanup(directory.cleanup)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: a worker that gets one of them last is alone at the end."""
    rank = {name: number for number, name in enumerate(_LONG)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture(scope="session")
def delta_spark() -> Iterator[DeltaSparkOracle]:
    """The reference implementation, started once."""
    from support.oracles.delta_spark_oracle import DeltaSparkOracle, available

    missing = available()
    if missing:
        pytest.skip(missing)
    oracle = DeltaSparkOracle()
    yield oracle
    oracle.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests: starting a JVM takes longer than most of them."""
    from headwater.spark.session import session as start

    java_options = (
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # many plans and few rows: the better compiler takes more time than it saves
        f"-Dlog4j2.configurationFile=file:{files('headwater.spark') / 'resources' / 'log4j2.properties'}",
    )
    session = start(
        "tests",
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": " ".join(java_options),
            "spark.sql.shuffle.partitions": 4,
            "spark.sql.warehouse.dir": "target/does-not-exist",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect_url() -> Iterator[str]:
    """Start one server of Spark Connect when the first test needs it."""
    from support.jobs.connect_server import connect_server

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
