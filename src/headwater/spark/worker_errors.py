"""Errors of ours that were raised in a Python worker of Spark, which hands them on as the text of a traceback."""

from __future__ import annotations

import re
from importlib import import_module

from headwater.errors import HeadwaterError

_MISSING_PACKAGE = re.compile(
    r"^ModuleNotFoundError: No module named '(headwater|pyarrow|obstore|msgspec|pyroaring)", re.M
)
_LAST_LINE = re.compile(r"^(headwater(?:\.\w+)+)\.(\w+): (.*)$", re.MULTILINE)


class ExecutorSetupError(HeadwaterError):
    """The Python on the executors lacks what reading there needs."""


def from_traceback(text: str) -> HeadwaterError | None:
    """The error of ours that ends a traceback; None if there is none.

    >>> from_traceback("Traceback ...\\nheadwater.errors.StorageError: no such bucket")
    StorageError('no such bucket')
    """
    missing = _MISSING_PACKAGE.search(text)
    if missing is not None:
        return ExecutorSetupError(
            f"Spark's Python workers do not have the package {missing[1]}, and they must read or write the files of "
            "this table, for Spark has no filesystem for its store. Install headwater where the workers run, and let "
            "PYSPARK_PYTHON (in the environment, before the session starts) name a Python that has it."
        )
    found = _LAST_LINE.findall(text)
    if not found:
        return None
    module, name, message = found[-1]
    kind = getattr(import_module(module), name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, HeadwaterError) else None
