"""Putting a commit into the log: only if nobody has that version yet, and knowing afterwards whether it is there.

An answer can get lost on its way. A writer finds out by looking: the commit at that version carries its own transaction
id, somebody else's, or is not there at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    InvalidUriError,
    ObjectAlreadyExistsError,
    StorageError,
    StoragePermissionError,
)
from headwater.log import names
from headwater.log.commit import CommitActions

if TYPE_CHECKING:
    from headwater.log.context import LogContext

_TRIES = 5
_REFUSALS = (StoragePermissionError, InvalidUriError)
"""The store did not even try. After any other failure the object may be there."""


def publish(ctx: LogContext, version: int, data: bytes, transaction_id: str) -> bool:
    """Write a commit; False when another writer has this version.

    Raises:
        CommitStateUnknownError: the store failed so often that nobody can say whether the commit is there.
        StorageError: the store refuses; nothing was written.
    """
    key = names.commit_key(version)
    unsure: StorageError | None = None
    for wait_s in (*_waits_s(), None):
        try:
            ctx.store.put_if_absent(key, data)
        except ObjectAlreadyExistsError:
            return _is_ours(ctx, version, transaction_id, unsure)
        except StorageError as error:
            if unsure is None and isinstance(error, _REFUSALS):
                raise
            unsure = error
        else:
            return True
        if wait_s is not None:
            ctx.sleep(wait_s)
    raise CommitStateUnknownError(
        f"{ctx.uri}: the store did not say whether it wrote version {version} (transaction {transaction_id}): "
        f"{unsure}. "
        "Look at the table's history before you run the operation again."
    ) from unsure


def _waits_s() -> tuple[float, ...]:
    return tuple(0.05 * 2**n for n in range(_TRIES - 1))


def _is_ours(ctx: LogContext, version: int, transaction_id: str, unsure: StorageError | None) -> bool:
    """Whether the commit that is there is our own, whose answer was lost."""
    key = names.commit_key(version)
    for wait_s in (*ctx.missing_object_waits_s, None):
        try:
            commit = CommitActions(version, version, key, ctx.store.get(key))
            return (commit.commit_info or {}).get("txnId") == transaction_id
        except StorageError as error:
            if wait_s is None:
                raise CommitStateUnknownError(
                    f"{ctx.uri}: version {version} exists but cannot be read, so nobody can say whether it is the "
                    f"commit of transaction {transaction_id}: {error}"
                ) from (unsure or error)
            ctx.sleep(wait_s)
        except CorruptLogError:
            return False
    raise AssertionError("the last wait ends the loop")
