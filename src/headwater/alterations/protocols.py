"""The protocol of a table: raise its versions, add features, drop them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.dropping import drop_feature as without_feature
from headwater.features.protocols import add_feature as with_feature
from headwater.features.protocols import upgrade as upgraded
from headwater.features.table_changes import set_table
from headwater.log.draft import Operation
from headwater.log.encoding import protocol_fields
from headwater.log.transaction import Transaction

if TYPE_CHECKING:
    from headwater.log.actions import Protocol
    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed


def upgrade(snapshot: Snapshot, reader_version: int, writer_version: int) -> Committed | None:
    """Raise the versions of the protocol. This cannot be undone, and older clients may be locked out.

    Returns:
        None if the table has these versions already.

    Raises:
        InvalidCommitError: there are no such versions, or they are lower than the table's.
    """
    protocol = upgraded(snapshot.protocol, reader_version, writer_version)
    return _commit(snapshot, protocol, Operation("UPGRADE PROTOCOL", {"newProtocol": protocol_fields(protocol)}))


def add_feature(snapshot: Snapshot, name: str) -> Committed | None:
    """Support a table feature. Whether it is used then is said by properties or the schema.

    Returns:
        None if the table supports it already.

    Raises:
        UnsupportedProtocolError: there is no such feature, or it cannot be written.
    """
    protocol = with_feature(snapshot.protocol, name)
    return _commit(snapshot, protocol, Operation("ADD FEATURE", {"featureName": name}))


def drop_feature(snapshot: Snapshot, name: str, *, truncate_history: bool = False) -> Committed:
    """Stop supporting a table feature that the table does not use any more.

    Args:
        snapshot: the table.
        name: the feature.
        truncate_history: must be False. Only features that readers need as well would have to vanish from the history,
            and those cannot be dropped.

    Raises:
        InvalidCommitError: the table uses the feature, or it cannot be dropped.
        UnsupportedProtocolError: there is no such feature.
    """
    definition = without_feature(snapshot.protocol, snapshot.metadata, name, snapshot.domain_metadata)
    if truncate_history:
        raise InvalidCommitError(
            f"{name} can be dropped without truncating the history, which would only be lost: leave that out."
        )
    transaction = Transaction(snapshot.ctx, snapshot)
    set_table(transaction, definition)
    return transaction.commit(Operation("DROP FEATURE", {"featureName": name, "truncateHistory": "false"}))


def _commit(snapshot: Snapshot, protocol: Protocol, operation: Operation) -> Committed | None:
    if protocol == snapshot.protocol:
        return None
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_protocol(protocol)
    return transaction.commit(operation)
