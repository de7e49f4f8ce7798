"""Make errors of Headwater also exceptions of PySpark, with Delta's conditions and SQLSTATEs.

Scripts for delta-spark catch `AnalysisException` and look at `getCondition()`. Once a session is enabled, every error
is of a class below both trees, made here on first use. Without PySpark errors stay as they are in `headwater.errors`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from headwater import errors
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANALYSIS, _ILLEGAL = "AnalysisException", "IllegalArgumentException"
_UNSUPPORTED, _RUNTIME = "UnsupportedOperationException", "SparkRuntimeException"
_PARSE, _OTHER = "ParseException", "PySparkException"

_KINDS: dict[type[HeadwaterError], str] = {
    errors.StorageError: _OTHER,
    errors.DeltaConcurrentModificationException: _OTHER,
    errors.CommitStateUnknownError: _OTHER,
    errors.CorruptLogError: _OTHER,
    errors.ConstraintViolationError: _RUNTIME,
    errors.ValueConversionError: _RUNTIME,
    errors.MultipleSourceRowsError: _UNSUPPORTED,
    errors.RetentionError: _ILLEGAL,
    errors.ReadOptionError: _ILLEGAL,
    errors.WriteOptionError: _ILLEGAL,
    errors.SqlSyntaxError: _PARSE,
    errors.UnsupportedProtocolError: _UNSUPPORTED,
    HeadwaterError: _ANALYSIS,
}
"""The exception of PySpark for a class of ours, or for the nearest class above it."""

CONDITIONS: Mapping[str, tuple[str, str]] = {
    "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED": ("42000", _ANALYSIS),
    "DELTA_CANNOT_MODIFY_APPEND_ONLY": ("42809", _UNSUPPORTED),
    "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA": ("42703", _ANALYSIS),
    "DELTA_CONCURRENT_APPEND": ("2D521", _OTHER),
    "DELTA_CONCURRENT_DELETE_DELETE": ("2D521", _OTHER),
    "DELTA_CONCURRENT_DELETE_READ": ("2D521", _OTHER),
    "DELTA_CONCURRENT_TRANSACTION": ("2D521", _OTHER),
    "DELTA_CONCURRENT_WRITE": ("2D521", _OTHER),
    "DELTA_METADATA_CHANGED": ("2D521", _OTHER),
    "DELTA_METADATA_MISMATCH": ("42KDG", _ANALYSIS),
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE": ("21506", _UNSUPPORTED),
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": ("23502", _RUNTIME),
    "DELTA_PROTOCOL_CHANGED": ("2D521", _OTHER),
    "DELTA_TABLE_ALREADY_EXISTS": ("42P07", _ANALYSIS),
    "DELTA_TABLE_NOT_FOUND": ("42P01", _ANALYSIS),
    "DELTA_TABLE_ONLY_OPERATION": ("0AKDD", _ANALYSIS),
    "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT": ("22003", _ILLEGAL),
    "DELTA_VERSION_NOT_FOUND": ("22003", _ANALYSIS),
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": ("23001", _RUNTIME),
    "PARSE_SYNTAX_ERROR": ("42601", _PARSE),
}
"""SQLSTATE and kind of exception of the conditions that we raise."""


def install() -> None:
    """Let errors that are raised from now on be exceptions of PySpark too."""
    errors.raise_as_spark_does(_class_for)


def java_kind(error: BaseException) -> str:
    """Return the kind of exception that the JVM throws for an error of Python."""
    return getattr(error, "_spark_kind", "RuntimeException")


def sql_state(condition: str | None) -> str | None:
    """Return the SQLSTATE of a condition, perhaps of one of its subconditions (`A.B`)."""
    found = CONDITIONS.get(condition.partition(".")[0]) if condition is not None else None
    return None if found is None else found[0]


def _class_for(ours: type[HeadwaterError], condition: str | None) -> type[HeadwaterError]:
    if hasattr(ours, "_spark_kind"):
        return ours
    known = CONDITIONS.get(condition.partition(".")[0]) if condition is not None else None
    kind = known[1] if known is not None else next(_KINDS[base] for base in ours.__mro__ if base in _KINDS)
    found: Any = ours  # a class is hashable, whatever mypy thinks of exceptions
    return _combined(found, kind)


@cache
def _combined(ours: Any, kind: str) -> type[HeadwaterError]:
    """Return a class below one of ours and one of PySpark's; it has the name of ours."""
    import pyspark.errors

    theirs = getattr(pyspark.errors, kind)
    members = {**_MEMBERS, "_spark_kind": kind, "_plain": ours, "__module__": ours.__module__, "__doc__": ours.__doc__}
    return type(ours.__name__, (ours, theirs), members)


def _init(self: Any, *arguments: object, **named: Any) -> None:
    self._plain.__init__(self, *arguments, **named)
    self._message = str(arguments[0]) if arguments else ""
    self._errorClass = self.condition
    self._messageParameters = dict(self.parameters)
    self._contexts = []


def _text(self: Any) -> str:
    return f"[{self.condition}] {self._message}" if self.condition is not None else self._message


def _reduce(self: Any) -> tuple[Any, ...]:
    return self._plain, self.args, self.__dict__


_MEMBERS: dict[str, Any] = {
    "__init__": _init,
    "__str__": _text,
    "__reduce__": _reduce,
    "getCondition": lambda self: self.condition,
    "getErrorClass": lambda self: self.condition,
    "getSqlState": lambda self: sql_state(self.condition),
    "getMessage": _text,
    "getBreakingChangeInfo": lambda self: None,  # noqa: ARG005 - as PySpark declares it
}
