"""Finding our scans in plans that have no file index of ours: those of Spark Connect, and those that read in Python.

A plan of Spark Connect is a tree of Python objects, so the summary of a scan hangs on its node. In a plan of classic
PySpark the name of the function that reads the files says which scan it is.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from headwater.spark.explain import ScanSummary
    from headwater.spark.jvm import JavaObject

_MARK = "_headwater_scan"
_NUMBERS = itertools.count(1)
_MAX_NAMES = 1_000
_BY_NAME: dict[str, ScanSummary] = {}
"""The newest scans in Python, by the name of the function that reads the files: the JVM keeps only that."""


def mark(frame: DataFrame, summary: ScanSummary) -> None:
    """Let a scan be found in every query that is built on this DataFrame of Spark Connect."""
    setattr(frame._plan, _MARK, summary)


def name_after(function: Callable[..., Any], summary: ScanSummary) -> None:
    """Name the function that reads the files, so that Spark's own plans show the scan too."""
    function.__name__ = f"Headwater#{next(_NUMBERS)}({summary})"
    remember(function.__name__, summary)


def remember(name: str, summary: ScanSummary) -> None:
    """Let a scan be found in plans of classic PySpark, which show it under this name."""
    _BY_NAME[name] = summary
    while len(_BY_NAME) > _MAX_NAMES:
        _BY_NAME.pop(next(iter(_BY_NAME)), None)


def connect_scans(frame: DataFrame) -> list[ScanSummary]:
    """The scans in a query of Spark Connect."""
    return [getattr(node, _MARK) for node in _nodes(frame._plan, set()) if hasattr(node, _MARK)]


def python_scans(plan: JavaObject) -> list[ScanSummary]:
    """The scans in a physical plan of classic PySpark that read in Python."""
    if not _BY_NAME:
        return []
    text: str = plan.toString()
    found = [(text.find(name), summary) for name, summary in list(_BY_NAME.items())]
    return [summary for position, summary in sorted(found, key=lambda item: item[0]) if position >= 0]


def _nodes(plan: Any, seen: set[int]) -> Iterator[Any]:
    """All nodes of a plan of Spark Connect, children after their parents."""
    from pyspark.sql.connect.plan import LogicalPlan

    if id(plan) in seen:
        return
    seen.add(id(plan))
    yield plan
    for value in vars(plan).values():
        for child in value if isinstance(value, list | tuple) else (value,):
            if isinstance(child, LogicalPlan):
                yield from _nodes(child, seen)
