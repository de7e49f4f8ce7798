"""Answer the questions that our Java classes ask Python while Spark analyses, optimizes and runs queries.

A handler is a function registered under the name of its question. Errors go back as values, which Java throws: ours
with Delta's condition, Spark's own unchanged. So classic PySpark and Spark Connect show the same errors.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.spark.jvm import jvm_of_gateway
from headwater.sql.conditions import java_kind, sql_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.jvm import JavaObject, Jvm

Handler = "Callable[..., Any]"

_HANDLERS: dict[str, Callable[..., Any]] = {}
_MODULES = ("tables", "writes", "dml", "ddl", "maintenance")
_MAX_KEPT = 64


def handles(question: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the answer to a question."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert question not in _HANDLERS, question
        _HANDLERS[question] = function
        return function

    return register


class Gateway:
    """The Python end: Java calls `apply(question, arguments)`."""

    class Java:
        implements = ["java.util.function.BiFunction"]

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        for name in _MODULES:
            importlib.import_module(f"{__package__}.{name}")

    def apply(self, question: str, arguments: Any) -> Any:
        try:
            return _HANDLERS[question](*arguments)
        except Exception as error:
            return self._failure(error)

    def _failure(self, error: Exception) -> JavaObject:
        origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        if origin is not None and not isinstance(error, HeadwaterError):
            return origin
        condition = getattr(error, "condition", None)
        kind, state = java_kind(error), sql_state(condition)
        parameters = json.dumps(getattr(error, "parameters", None) or {})
        make = self._jvm.static("headwater.Failure")
        return make(kind, str(error) or type(error).__name__, condition, state, parameters, ERRORS.keep(error))


class _KeptErrors:
    """The newest errors by number, so that PySpark's users get the very object that Python has raised."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = itertools.count(1)
        self._errors: OrderedDict[int, Exception] = OrderedDict()

    def keep(self, error: Exception) -> int:
        with self._lock:
            number = next(self._numbers)
            self._errors[number] = error.with_traceback(None)
            if len(self._errors) > _MAX_KEPT:
                self._errors.popitem(last=False)
            return number

    def get(self, number: int) -> Exception | None:
        with self._lock:
            return self._errors.get(number)


ERRORS = _KeptErrors()


def session_of(java_session: JavaObject) -> SparkSession:
    """Return the PySpark session of a JVM session."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and active._jsparkSession.equals(java_session):
        return active
    from pyspark import SparkContext

    return SparkSession(SparkContext.getOrCreate(), java_session)


def active_session() -> SparkSession:
    """Return the session on whose thread the JVM is calling."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None, "the JVM calls, so Spark is running"
    return session_of(jvm_of_gateway(context._gateway).call("org.apache.spark.sql.SparkSession", "active"))


def frame_of(spark: SparkSession, java_frame: JavaObject) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame

    return DataFrame(java_frame, spark)
