"""Spark does the data work: sessions, scans and the commands on DataFrames.

This room has the name of a function: `hw.spark(...)` makes a session. So the module can be called, and means the same
whether or not something has imported a module of the room before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Room(ModuleType):
    """The module, callable."""

    def __call__(self, app_name: str = "headwater", **conf: object) -> SparkSession:
        """Make a session; see `headwater.spark.session.spark`."""
        from headwater.spark.session import spark

        return spark(app_name, **conf)


sys.modules[__name__].__class__ = _Room
