"""Spark Connect for all tests of this room: one server, started when the first of them needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from connect_server import connect_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


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
