"""Rows that break a rule stop the job that meets them: the text of the error is made in Spark and understood here.

Rules are checked by an expression in the projection that makes the rows, so they need no second pass. Spark reports an
error with a stack trace around it; marks tell our message from the rest, and name the error that it becomes.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.errors import ConstraintViolationError, HeadwaterError, ValueConversionError
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Column

_KINDS: dict[str, type[HeadwaterError]] = {
    "constraint": ConstraintViolationError,
    "conversion": ValueConversionError,
}
_MARKED = re.compile(r"<<headwater:(\w+):(.*?):headwater>>", re.DOTALL)
_SHOWN_CHARACTERS = 100
"""How much of a value a message shows."""


def violation(text: str, shown: Iterable[tuple[str, Column]] = ()) -> Column:
    """An expression that fails with `ConstraintViolationError`; `shown` are values of the row, by name."""
    return _raising("constraint", text, shown)


def conversion_failure(text: str, shown: Iterable[tuple[str, Column]] = ()) -> Column:
    """An expression that fails with `ValueConversionError`."""
    return _raising("conversion", text, shown)


@contextmanager
def explained_violations(uri: str) -> Iterator[None]:
    """Map the error of a job that a rule of ours has stopped."""
    try:
        yield
    except Exception as error:
        found = _MARKED.search(str(error))
        if found is None:
            raise
        # Not chained: the rest is a stack trace of Java around the same message.
        raise _KINDS[found[1]](f"{uri}: {found[2]} Nothing was committed.") from None


def _raising(kind: str, text: str, shown: Iterable[tuple[str, Column]]) -> Column:
    sf = functions()
    parts: list[Any] = [sf.lit(f"<<headwater:{kind}:{text}")]
    for number, (name, value) in enumerate(shown):
        parts += [sf.lit(f"{' The row has ' if number == 0 else ', '}{name} = "), _text(value)]
    parts.append(sf.lit(":headwater>>" if len(parts) == 1 else ".:headwater>>"))
    return sf.raise_error(sf.concat(*parts))


def _text(value: Column) -> Column:
    sf = functions()
    return sf.coalesce(sf.substring(value.cast("string"), 1, _SHOWN_CHARACTERS), sf.lit("NULL"))
