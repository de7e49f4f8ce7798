"""The definition of a table's search index: a commit that sets or removes a metadata domain, and nothing else.

Splits are no part of it: they are built afterwards, one for each data file, and each is complete or not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import DeltaConcurrentModificationException
from headwater.features.activation import supports
from headwater.features.domain_metadata import FEATURE
from headwater.features.protocols import with_features
from headwater.log.actions import DomainMetadata
from headwater.log.draft import Operation
from headwater.log.opening import open_snapshot
from headwater.log.transaction import Transaction
from headwater.search.delta_definition import DOMAIN, definition_of

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.search.delta_definition import SearchDefinition

_ATTEMPTS = 10


def set_search_index(snapshot: Snapshot, definition: SearchDefinition) -> Snapshot:
    """Let a table have this definition; the table learns the feature `domainMetadata` if it needs to.

    Returns:
        A version of the table that has it: a new one only if it had none, or another.

    Raises:
        DeltaConcurrentModificationException: others keep changing the table's definition.
    """
    return _settle(snapshot, definition)


def drop_search_index(snapshot: Snapshot) -> Snapshot:
    """Let a table have no search index any more; VACUUM deletes the splits once they are old enough."""
    return _settle(snapshot, None)


def _settle(snapshot: Snapshot, definition: SearchDefinition | None) -> Snapshot:
    for attempts_left in reversed(range(_ATTEMPTS)):
        if definition_of(snapshot) == definition:
            return snapshot
        try:
            return _commit(snapshot.ctx, snapshot, definition)
        except DeltaConcurrentModificationException:
            if not attempts_left:
                raise
            snapshot = open_snapshot(snapshot.ctx)
    raise AssertionError("the last attempt returns or raises")


def _commit(ctx: LogContext, snapshot: Snapshot, definition: SearchDefinition | None) -> Snapshot:
    transaction = Transaction(ctx, snapshot)
    if definition is None:
        transaction.set_domain(DomainMetadata(DOMAIN, snapshot.domain_metadata[DOMAIN], removed=True))
        return transaction.commit(Operation("DROP SEARCH INDEX")).snapshot
    if not supports(snapshot.protocol, FEATURE):
        transaction.set_protocol(with_features(snapshot.protocol, [FEATURE]))
    transaction.set_domain(DomainMetadata(DOMAIN, definition.to_json()))
    columns = ",".join(column.field.name for column in definition.columns)
    return transaction.commit(Operation("CREATE SEARCH INDEX", {"columns": columns})).snapshot
