"""Who depends on a column: CHECK constraints, generated columns and invariants are SQL texts that name columns.

A text that cannot be parsed here counts as naming every column whose name stands in it as a word: better to refuse a
change than to leave a rule behind that no writer can evaluate any more.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.activation import CONSTRAINT_PREFIX, GENERATION_KEY, INVARIANTS_KEY
from headwater.features.schema_walk import fields_by_path
from headwater.log.schema.lookup import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.actions import Metadata
    from headwater.log.schema import StructType

_INNER = frozenset({"element", "key", "value"})


def check_independent(metadata: Metadata, schema: StructType, path: Sequence[str], what: str) -> None:
    """Raise if a rule of the table names the column at a path, or something inside it.

    Args:
        metadata: the table's.
        schema: the table's.
        path: the column's exact names.
        what: what is to be done to it, for the message: `dropped`, `renamed`, ...

    Raises:
        InvalidCommitError: a constraint, a generated column or an invariant depends on the column.
    """
    blocking = [
        f"{rule} ({expression})"
        for owner, rule, expression in _rules(metadata, schema)
        if owner[: len(path)] != tuple(path) and names_column(expression, path)
    ]
    if blocking:
        raise InvalidCommitError(
            f"column {dotted(path)} cannot be {what}, because these depend on it: {'; '.join(blocking)}. "
            "Drop them first, and add them again afterwards."
        )


def _rules(metadata: Metadata, schema: StructType) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Every rule of a table: the column that it goes away with, what to call it, and its SQL."""
    for key, expression in metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            yield (), f"the constraint {key[len(CONSTRAINT_PREFIX) :]}", expression
    for path, field in fields_by_path(schema):
        if GENERATION_KEY in field.metadata:
            yield path, f"the generated column {dotted(path)}", str(field.metadata[GENERATION_KEY])
        if INVARIANTS_KEY in field.metadata:
            yield path, f"the invariant of {dotted(path)}", invariant_expression(str(field.metadata[INVARIANTS_KEY]))


def invariant_expression(text: str) -> str:
    """The SQL of `delta.invariants`: JSON with the text at `expression.expression`; the text itself if it is not."""
    try:
        return str(json.loads(text)["expression"]["expression"])
    except (ValueError, KeyError, TypeError):
        return text


def names_column(expression: str, path: Sequence[str]) -> bool:
    """Whether a SQL expression names a column, something inside it, or a column around it.

    >>> names_column("upper(address.city) = 'X'", ["address", "city"])
    True
    >>> names_column("upper(address.city) = 'X'", ["address", "street"])
    False
    """
    # What follows an array or a map is reached by index or by lambda: take the whole column.
    wanted = [part.lower() for part in path]
    cut = next((i for i, part in enumerate(wanted) if i > 0 and part in _INNER), len(wanted))
    wanted = wanted[:cut]
    named = _named_columns(expression)
    if named is None:
        return re.search(rf"(?<!\w){re.escape(wanted[-1])}(?!\w)", expression.lower()) is not None
    return any(all(a == b for a, b in zip(parts, wanted, strict=False)) for parts in named)


def _named_columns(expression: str) -> list[list[str]] | None:
    """The columns that an expression names, each with the fields that follow it; None if it cannot be parsed."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(expression, dialect="spark")
    except (SqlglotError, RecursionError, AttributeError, TypeError, ValueError):
        return None
    found: list[list[str]] = []
    for column in tree.find_all(exp.Column):
        parts = [part.name.lower() for part in column.parts]
        around = column.parent
        while isinstance(around, exp.Dot):
            parts.append(around.expression.name.lower())
            around = around.parent
        found.append(parts)
    return found
