"""Headwater: Delta Lake for PySpark, in Python, with no JARs.

>>> import headwater as hw
>>> hw.__version__
'0.1.0'

Everything public is here; modules below this one may move.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater._version import __version__

if TYPE_CHECKING:
    from headwater.delta_table import DeltaTable
    from headwater.errors import (
        ColumnNotFoundError,
        CorruptLogError,
        FilterError,
        HeadwaterError,
        MissingCommitError,
        SchemaError,
        StorageError,
        TableNotFoundError,
        UnsupportedProtocolError,
        VersionNotFoundError,
    )
    from headwater.log.snapshot import Snapshot
    from headwater.spark.changes import read_changes
    from headwater.spark.explain import scans
    from headwater.spark.scan import read
    from headwater.spark.session import spark
    from headwater.tables import open_log

_HOMES = {
    "ColumnNotFoundError": "headwater.errors",
    "CorruptLogError": "headwater.errors",
    "DeltaTable": "headwater.delta_table",
    "FilterError": "headwater.errors",
    "HeadwaterError": "headwater.errors",
    "MissingCommitError": "headwater.errors",
    "SchemaError": "headwater.errors",
    "Snapshot": "headwater.log.snapshot",
    "StorageError": "headwater.errors",
    "TableNotFoundError": "headwater.errors",
    "UnsupportedProtocolError": "headwater.errors",
    "VersionNotFoundError": "headwater.errors",
    "open_log": "headwater.tables",
    "read": "headwater.spark.scan",
    "read_changes": "headwater.spark.changes",
    "scans": "headwater.spark.explain",
    "spark": "headwater.spark",
}

__all__ = [
    "ColumnNotFoundError",
    "CorruptLogError",
    "DeltaTable",
    "FilterError",
    "HeadwaterError",
    "MissingCommitError",
    "SchemaError",
    "Snapshot",
    "StorageError",
    "TableNotFoundError",
    "UnsupportedProtocolError",
    "VersionNotFoundError",
    "__version__",
    "open_log",
    "read",
    "read_changes",
    "scans",
    "spark",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use: a command line tool must not wait for Spark, Arrow or sqlglot."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    if name == "spark":  # the room and the function are one: see headwater/spark/__init__.py
        return import_module("headwater.spark")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
