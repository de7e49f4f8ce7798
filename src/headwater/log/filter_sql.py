"""Filters as SQL text: `parse_filter` turns the text of a WHERE clause into an expression tree.

The text is read as Spark 4 reads it by default (ANSI mode); timestamps without a zone are in UTC. What the
tree cannot say (functions of columns, arithmetic, two columns compared) becomes `Unknown`, for the smallest
part that holds it, so that the rest still prunes. Nothing of the text is ever evaluated.

>>> str(parse_filter("date >= DATE '2024-01-01' AND upper(name) = 'X' AND id IN (1, 2)"))
"(date >= DATE '2024-01-01' AND <UPPER(name) = 'X'> AND id IN (1, 2))"
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headwater.errors import FilterError
from headwater.log.filter_tokens import HINT, syntax_error, tokenize
from headwater.log.filter_translate import Translator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.expressions import Expression

_PLAIN_REASONS = (
    (re.compile(r"Required keyword"), "something is missing here"),
    (re.compile(r"Expecting (\S+)"), r"expected \1 here"),
    (re.compile(r"Invalid expression / Unexpected token"), "did not expect this"),
)

_HINTS = {"&&": "Write AND instead of &&.", "where": "Leave out the word WHERE: a filter is only its condition."}


def parse_filter(text: str) -> Expression:
    """Parse the text of a WHERE clause.

    Args:
        text: a condition in Spark's SQL, such as `date = '2024-01-01' AND id > 5`.

    Raises:
        FilterError: the text is not a condition; the message shows where.

    >>> parse_filter("5 < `my id`")
    Compare(op='>', left=Column(parts=('my id',)), right=Literal(value=5))
    """
    if not isinstance(text, str):
        raise FilterError(f"a filter is SQL text or an expression tree, not {type(text).__name__}")
    with _quiet_sqlglot():
        try:
            return Translator(text).predicate(_parse(text))
        except RecursionError as e:
            raise FilterError(
                "cannot understand the filter: it is nested too deeply. Use IN for lists of values, "
                "and fewer parentheses."
            ) from e


def _parse(text: str) -> Any:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError

    dialect = Dialect.get_or_raise("spark")
    tokens = tokenize(text, dialect)
    if not tokens:
        raise FilterError("the filter is empty: leave it out to select everything")
    try:
        conditions = dialect.parser().parse_into(exp.Condition, tokens, text)
    except ParseError as e:
        raise _parse_error(text, e.errors) from e
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:  # sqlglot slips on odd input
        raise FilterError(f"cannot understand the filter {text!r}. {HINT}") from e
    if len(conditions) != 1 or conditions[0] is None:
        raise FilterError(f"a filter is one condition without semicolons, not {text!r}")
    return conditions[0]


def _parse_error(text: str, errors: list[dict[str, Any]]) -> FilterError:
    if not errors:
        return FilterError(f"cannot understand the filter {text!r}. {HINT}")
    first = errors[0]
    reason = str(first.get("description"))
    for pattern, plain in _PLAIN_REASONS:
        if m := pattern.search(reason):
            reason = m.expand(plain)
    line, column = first.get("line") or 1, first.get("col") or 1
    word = str(first.get("highlight") or " ")
    offset = sum(len(part) + 1 for part in text.split("\n")[: line - 1])
    position = min(max(offset + column - len(word), 0), len(text))
    return syntax_error(text, position, reason, _HINTS.get(word.lower(), HINT))


@contextmanager
def _quiet_sqlglot() -> Iterator[None]:
    """sqlglot logs what it finds odd; the caller gets errors instead. Other threads are not affected."""
    thread = get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger = logging.getLogger("sqlglot")
    logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        logger.removeFilter(is_of_another_thread)
