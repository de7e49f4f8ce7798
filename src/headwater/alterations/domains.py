"""Metadata domains of users' own (spec: "Domain Metadata"). Those that start with `delta.` belong to the system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.activation import supports
from headwater.features.domain_metadata import FEATURE, check_user_domain
from headwater.features.protocols import with_features
from headwater.log.actions import DomainMetadata
from headwater.log.draft import Operation
from headwater.log.transaction import Transaction

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed


def set_domain(snapshot: Snapshot, domain: str, configuration: str) -> Committed:
    """Store a text under the name of a domain; the table learns the feature `domainMetadata` if it needs to.

    Raises:
        InvalidCommitError: the domain belongs to the system.
    """
    check_user_domain(domain)
    if not isinstance(configuration, str):
        raise InvalidCommitError(f"the configuration of domain {domain} must be a text, not {type(configuration)}.")
    transaction = Transaction(snapshot.ctx, snapshot)
    if not supports(snapshot.protocol, FEATURE):
        transaction.set_protocol(with_features(snapshot.protocol, [FEATURE]))
    transaction.set_domain(DomainMetadata(domain, configuration))
    return transaction.commit(Operation("SET DOMAIN METADATA", {"domain": domain}))


def remove_domain(snapshot: Snapshot, domain: str) -> Committed:
    """Remove a domain.

    Raises:
        InvalidCommitError: there is no such domain, or it belongs to the system.
    """
    check_user_domain(domain)
    before = snapshot.domain_metadata.get(domain)
    if before is None:
        raise InvalidCommitError(f"{snapshot.uri} has no metadata domain {domain}.")
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_domain(DomainMetadata(domain, before, removed=True))
    return transaction.commit(Operation("REMOVE DOMAIN METADATA", {"domain": domain}))
