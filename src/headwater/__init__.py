"""Headwater: Delta Lake and search tables for PySpark, in Python, with no JARs.

>>> import headwater as hw
>>> hw.__version__
'0.1.0'

Everything public is here; modules below this one may move.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater import errors
from headwater._version import __version__ as __version__
from headwater.errors import *  # noqa: F403

if TYPE_CHECKING:
    from headwater.api.builders import DeltaMergeBuilder as DeltaMergeBuilder
    from headwater.api.builders import DeltaOptimizeBuilder as DeltaOptimizeBuilder
    from headwater.api.delta_table import DeltaTable as DeltaTable
    from headwater.api.open import open_log as open_log
    from headwater.api.search_table import SearchTable as SearchTable
    from headwater.api.search_table import search_index as search_index
    from headwater.api.table_builder import DeltaTableBuilder as DeltaTableBuilder
    from headwater.api.table_builder import IdentityGenerator as IdentityGenerator
    from headwater.log.snapshot import Snapshot as Snapshot
    from headwater.search.delta_index import SearchCoverage as SearchCoverage
    from headwater.search.delta_index import SearchIndexed as SearchIndexed
    from headwater.spark.scan.explain import scans as scans
    from headwater.spark.scan.read import read as read
    from headwater.spark.scan.read import read_changes as read_changes
    from headwater.spark.search.sql_functions import register_search_functions as register_search_functions
    from headwater.spark.write.write import Written as Written
    from headwater.spark.write.write import write as write
    from headwater.sql.enable import enable as enable
    from headwater.sql.enable import session as session
    from headwater.sql.install import builder as builder
    from headwater.sql.install import install as install

_HOMES = {
    "DeltaMergeBuilder": "headwater.api.builders",
    "DeltaOptimizeBuilder": "headwater.api.builders",
    "DeltaTable": "headwater.api.delta_table",
    "DeltaTableBuilder": "headwater.api.table_builder",
    "IdentityGenerator": "headwater.api.table_builder",
    "SearchCoverage": "headwater.search.delta_index",
    "SearchIndexed": "headwater.search.delta_index",
    "SearchTable": "headwater.api.search_table",
    "Snapshot": "headwater.log.snapshot",
    "Written": "headwater.spark.write.write",
    "builder": "headwater.sql.install",
    "enable": "headwater.sql.enable",
    "install": "headwater.sql.install",
    "open_log": "headwater.api.open",
    "read": "headwater.spark.scan.read",
    "read_changes": "headwater.spark.scan.read",
    "register_search_functions": "headwater.spark.search.sql_functions",
    "scans": "headwater.spark.scan.explain",
    "search_index": "headwater.api.search_table",
    "session": "headwater.sql.enable",
    "write": "headwater.spark.write.write",
}
"""Where the public names are that are imported on first use: `import headwater` must not wait for Spark or Arrow."""

_ERRORS = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]

__all__ = sorted([*_ERRORS, *_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(_: Any) -> None:
    """Enable the Spark session of a notebook, and those that it starts later: `%load_ext headwater`."""
    from headwater.sql.install import install as install_now

    install_now()
