"""CHECK constraints (spec: "CHECK Constraints"; history: `ADD CONSTRAINT`, `DROP CONSTRAINT`).

A constraint holds for every row of the table, so the rows that are there are looked at before it is added, and rows
that come in meanwhile make the commit fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.alterations.commits import commit_metadata, with_configuration
from headwater.errors import InvalidCommitError
from headwater.features.activation import CONSTRAINT_PREFIX
from headwater.features.properties import CONSTRAINT_NAME
from headwater.log.draft import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed


def add_constraint(snapshot: Snapshot, name: str, expression: str, check_rows: Callable[[str, str], None]) -> Committed:
    """Add a condition that every row must fulfil; null does not.

    Args:
        snapshot: the table.
        name: what messages call it.
        expression: the condition in SQL.
        check_rows: looks at the rows of the snapshot, given the name and the condition.

    Raises:
        InvalidCommitError: there is a constraint of that name, or the condition makes no sense.
        ConstraintViolationError: a row does not fulfil it.
        ConcurrentAppendException: rows were added meanwhile.
    """
    if not CONSTRAINT_NAME.fullmatch(name):
        raise InvalidCommitError(f"{name!r} cannot be the name of a constraint: use letters, digits and underscores.")
    existing = _find(snapshot, name)
    if existing is not None:
        raise InvalidCommitError(
            f"{snapshot.uri} has a constraint {name} already: {snapshot.metadata.configuration[existing]}. "
            "Drop it first (dropConstraint)."
        )
    check_rows(name, expression)
    configuration = {**snapshot.metadata.configuration, CONSTRAINT_PREFIX + name.lower(): expression}
    operation = Operation("ADD CONSTRAINT", {"name": name, "expr": expression})
    return commit_metadata(
        snapshot, with_configuration(snapshot.metadata, configuration), operation, reads_all_rows=True
    )


def drop_constraint(snapshot: Snapshot, name: str, *, if_exists: bool = False) -> Committed | None:
    """Drop a constraint.

    Returns:
        None if `if_exists` and there was none.
    """
    key = _find(snapshot, name)
    if key is None:
        if if_exists:
            return None
        properties = sorted(snapshot.metadata.configuration)
        names = [key.removeprefix(CONSTRAINT_PREFIX) for key in properties if key.startswith(CONSTRAINT_PREFIX)]
        has = f"it has {', '.join(names)}" if names else "it has none"
        raise InvalidCommitError(f"{snapshot.uri} has no constraint {name}: {has}.")
    configuration = dict(snapshot.metadata.configuration)
    expression = configuration.pop(key)
    operation = Operation("DROP CONSTRAINT", {"name": name, "expr": expression, "existed": "true"})
    return commit_metadata(snapshot, with_configuration(snapshot.metadata, configuration), operation)


def _find(snapshot: Snapshot, name: str) -> str | None:
    """The property that holds a constraint, whose name counts in any case."""
    wanted = (CONSTRAINT_PREFIX + name).lower()
    return next((key for key in snapshot.metadata.configuration if key.lower() == wanted), None)
