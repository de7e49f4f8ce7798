"""Table properties: set and unset (history: `SET TBLPROPERTIES`, `UNSET TBLPROPERTIES`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.alterations.commits import commit_metadata, with_configuration
from headwater.alterations.row_tracking import backfill
from headwater.errors import InvalidTablePropertyError
from headwater.features.activation import is_active
from headwater.features.properties import INTERNAL, check_no_constraint, checked_property, proper_name
from headwater.log.draft import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed

COMMENT = "comment"
"""Not a property, but the table's description under the name that SQL gives it."""
_ROW_TRACKING = "delta.enableRowTracking"


def set_properties(snapshot: Snapshot, properties: Mapping[str, str]) -> Committed:
    """Set properties; those that enable a feature upgrade the protocol as far as needed.

    `comment` is the table's description. `delta.enableRowTracking = true` first gives row ids to all files, in commits
    of their own.

    Raises:
        InvalidTablePropertyError: a property does not exist, cannot have the value, or has its own command.
    """
    if not properties:
        raise InvalidTablePropertyError("there are no properties to set: give at least one.")
    for name in properties:
        check_no_constraint(name, "add it with addConstraint")
    wanted = dict(checked_property(name, value) for name, value in properties.items() if name != COMMENT)
    if wanted.get(_ROW_TRACKING) == "true" and not is_active("rowTracking", snapshot.protocol, snapshot.metadata):
        snapshot = backfill(snapshot)
    metadata = with_configuration(snapshot.metadata, {**snapshot.metadata.configuration, **wanted})
    if COMMENT in properties:
        metadata = msgspec.structs.replace(metadata, description=properties[COMMENT])
    return commit_metadata(snapshot, metadata, Operation("SET TBLPROPERTIES", {"properties": dict(properties)}))


def unset_properties(snapshot: Snapshot, names: Iterable[str], *, if_exists: bool = False) -> Committed:
    """Remove properties, so that their defaults hold again.

    Raises:
        InvalidTablePropertyError: a property is not set (unless `if_exists`), or may not be removed.
    """
    given = [names] if isinstance(names, str) else list(names)
    if not given:
        raise InvalidTablePropertyError("there are no properties to unset: give at least one.")
    configuration = dict(snapshot.metadata.configuration)
    metadata = snapshot.metadata
    missing: list[str] = []
    for name in given:
        check_no_constraint(name, "drop it with dropConstraint")
        key = name if name in configuration else proper_name(name)
        if key in INTERNAL:
            raise InvalidTablePropertyError(
                f"the table property {key} is kept by Headwater itself: it cannot be unset."
            )
        if name == COMMENT and metadata.description is not None:
            metadata = msgspec.structs.replace(metadata, description=None)
        elif configuration.pop(key, None) is None:
            missing.append(name)
    if missing and not if_exists:
        raise InvalidTablePropertyError(
            f"{snapshot.uri} has no table property {', '.join(missing)}: nothing was changed. "
            "Give if_exists=True to unset those that are there."
        )
    operation = Operation("UNSET TBLPROPERTIES", {"properties": given, "ifExists": if_exists})
    return commit_metadata(snapshot, with_configuration(metadata, configuration), operation)
