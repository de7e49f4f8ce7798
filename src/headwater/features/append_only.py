"""Append-only tables (spec: "Append-only Tables")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.activation import is_active

if TYPE_CHECKING:
    from headwater.log.draft import Attempt, Draft


def append_only_rule(draft: Draft, attempt: Attempt) -> Draft:
    """No rows are changed or removed; they may be rearranged.

    The table as it is decides, so nobody can lift the restriction and remove rows in the same commit.
    """
    snapshot = attempt.snapshot
    if snapshot is None or not is_active("appendOnly", snapshot.protocol, snapshot.metadata):
        return draft
    removed = next((remove for remove in draft.removes if remove.data_change), None)
    if removed is not None:
        raise InvalidCommitError(
            f"{snapshot.uri} only allows appends (delta.appendOnly is true), and {draft.operation.name} removes rows, "
            f"such as those of {removed.path!r}. Set delta.appendOnly to false first."
        )
    return draft
