"""Metadata domains (spec: "Writer Requirements for Domain Metadata").

Domains whose names start with `delta.` belong to table features; only those whose meaning is known are ever written,
and never because a user says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features import clustering, row_tracking
from headwater.features.activation import supports

if TYPE_CHECKING:
    from headwater.log.draft import Attempt, Draft

FEATURE = "domainMetadata"
SYSTEM_PREFIX = "delta."
_OWNERS = {clustering.DOMAIN: clustering.FEATURE, row_tracking.DOMAIN: row_tracking.FEATURE}


def check_user_domain(domain: str) -> None:
    """Raise unless users may set this domain.

    Raises:
        InvalidCommitError: the name is empty, or belongs to the table's features.
    """
    if not domain:
        raise InvalidCommitError("a metadata domain needs a name.")
    if domain.startswith(SYSTEM_PREFIX):
        raise InvalidCommitError(
            f"the metadata domain {domain!r} cannot be set: names with {SYSTEM_PREFIX!r} belong to table features. "
            "Choose another name, such as 'com.example.something'."
        )


def domain_metadata_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Domains only where the table supports them; those of features only where the feature is supported."""
    if not draft.domains:
        return draft
    if not supports(attempt.protocol, FEATURE):
        raise InvalidCommitError(
            f"the metadata domain {draft.domains[0].domain!r} cannot be set: the table does not support the feature "
            f"{FEATURE}. Add it first (delta.feature.{FEATURE} = supported)."
        )
    for domain in draft.domains:
        if not domain.domain.startswith(SYSTEM_PREFIX):
            continue
        owner = _OWNERS.get(domain.domain)
        if owner is None:
            raise InvalidCommitError(
                f"the metadata domain {domain.domain!r} cannot be set: it belongs to a feature that is not known here."
            )
        if domain.domain == row_tracking.DOMAIN:
            raise InvalidCommitError(f"the metadata domain {domain.domain!r} is set by the commit itself.")
        if not supports(attempt.protocol, owner) and not domain.removed:
            raise InvalidCommitError(
                f"the metadata domain {domain.domain!r} cannot be set: the table does not support {owner}."
            )
    return draft
