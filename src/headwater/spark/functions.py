"""Spark's column functions for the kind of session at hand: classic, or Spark Connect.

PySpark decides by the process which of the two `pyspark.sql.functions` means. A process may hold sessions of both
kinds, so code that builds columns for either asks here, and a scan says which kind it builds for.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_FOR_CONNECT: ContextVar[bool] = ContextVar("headwater_functions_for_connect", default=False)


def is_connect(thing: object) -> bool:
    """Whether a session or DataFrame is one of Spark Connect; imports nothing.

    >>> is_connect(object())
    False
    """
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(thing).__mro__)


def functions() -> Any:
    """The module of column functions to use here."""
    if _FOR_CONNECT.get():
        from pyspark.sql.connect import functions as connect_functions

        return connect_functions
    from pyspark.sql import functions as classic_functions

    return classic_functions


@contextmanager
def functions_for_connect() -> Iterator[Any]:
    """Within this context, in this thread, `functions` gives those of Spark Connect."""
    token = _FOR_CONNECT.set(True)
    try:
        yield functions()
    finally:
        _FOR_CONNECT.reset(token)


def functions_for(thing: object) -> AbstractContextManager[Any]:
    """Within this context `functions` gives those for the kind of session that a session or DataFrame is of."""
    return functions_for_connect() if is_connect(thing) else nullcontext()


def observation(thing: object) -> Any:
    """A new observation, of the kind that a session or DataFrame needs: aggregates that a job finds in passing."""
    if is_connect(thing):
        from pyspark.sql.connect.observation import Observation as ConnectObservation

        return ConnectObservation()
    from pyspark.sql import Observation

    return Observation()
