"""How the protocol of a table may change (spec: "Supported Features")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, InvalidCommitError, UnsupportedProtocolError
from headwater.features.activation import supported_features
from headwater.features.gate import check_writable

if TYPE_CHECKING:
    from headwater.log.draft import Attempt, Draft

DROP_FEATURE = "DROP FEATURE"
"""The one operation that may take a feature away, after it has taken its traces away."""


def protocol_rule(draft: Draft, attempt: Attempt) -> Draft:
    """A new protocol is valid, can be written by us, and takes nothing away."""
    after = draft.protocol
    if after is None:
        return draft
    try:
        check_writable(after, attempt.metadata)
    except CorruptLogError as error:
        raise InvalidCommitError(str(error)) from error
    except UnsupportedProtocolError as error:
        raise InvalidCommitError(f"the protocol cannot be set: {error}") from error
    before = None if attempt.snapshot is None else attempt.snapshot.protocol
    if before is None or draft.operation.name == DROP_FEATURE:
        return draft
    gone = supported_features(before) - supported_features(after)
    if gone:
        raise InvalidCommitError(
            f"{draft.operation.name} would take {', '.join(sorted(gone))} from the protocol. Features stay until they "
            "are dropped explicitly."
        )
    if after.min_reader_version < before.min_reader_version or after.min_writer_version < before.min_writer_version:
        raise InvalidCommitError(
            f"the protocol cannot go down from ({before.min_reader_version}, {before.min_writer_version}) to "
            f"({after.min_reader_version}, {after.min_writer_version})."
        )
    return draft
