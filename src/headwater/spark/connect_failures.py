"""Errors of Spark Connect in our own words, mapped once, where the client turns the server's errors into Python's."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.spark.failures import explain_failure, remember_scan

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_SUCH_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (?P<path>.*?)\. SQLSTATE", re.DOTALL)
_MISSING = "while reading file {path}. File does not exist"
"""How Spark words it when a file vanishes later, while a query runs."""


def remember_connect_scan(root: str, version: int) -> None:
    """Note that a table is being read, so that a missing file of it can be explained."""
    remember_scan(root, version, _install)


@contextmanager
def explained() -> Iterator[None]:
    """Map what the server says when it looks for the files."""
    try:
        yield
    except Exception as error:
        ours = _explain(str(error))
        if ours is None:
            raise
        raise ours from error


def _explain(text: str) -> Exception | None:
    found = _NO_SUCH_PATH.search(text)
    return explain_failure(_MISSING.format(path=_unescaped(found["path"])) if found else text)


def _unescaped(pattern: str) -> str:
    """The path that an escaped pattern stands for."""
    return re.sub(r"\\(.)", r"\1", pattern)


def _install() -> None:
    """Look at the server's errors before the user sees them; those that are not ours stay as they are."""
    from pyspark.sql.connect.client import core

    convert = core.convert_exception

    def convert_or_explain(*arguments: Any, **named: Any) -> Exception:
        error: Exception = convert(*arguments, **named)
        return _explain(str(error)) or error

    core.convert_exception = convert_or_explain
