"""What holds for every test: nothing is judged by a stopwatch. And oracles that more than one room asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_spark_oracle import DeltaSparkOracle

settings.register_profile("headwater", deadline=None)
settings.load_profile("headwater")


@pytest.fixture(scope="session")
def delta_spark() -> Iterator[DeltaSparkOracle]:
    """The reference implementation, started once."""
    from delta_spark_oracle import DeltaSparkOracle, available

    missing = available()
    if missing:
        pytest.skip(missing)
    oracle = DeltaSparkOracle()
    yield oracle
    oracle.stop()
