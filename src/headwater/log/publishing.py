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
    ObjectNotFoundError,
    StorageError,
    StorageRefusedError,
    WriteNotDurableError,
)
from headwater.log.commit import CommitActions

if TYPE_CHECKING:
    from headwater.log.context import LogContext

_WAITS_S = (0.05, 0.1, 0.2, 0.4)
"""Between the tries. The store itself has repeated each of them already, where that makes sense."""
_REFUSALS = (StorageRefusedError, InvalidUriError, ObjectNotFoundError)
"""The store did not even try (no such bucket, say, or no space). After any other failure the object may be there."""


def publish(ctx: LogContext, version: int, data: bytes, transaction_id: str) -> CommitActions | None:
    """Write a commit.

    Returns:
        None when the commit is in the log; the commit of another writer when that one has this version.

    Raises:
        CommitStateUnknownError: the store failed so often that nobody can say whether the commit is there, or whether
            it will be there after a power failure.
        StorageError: the store refuses; nothing was written.
    """
    key = ctx.format.commit_key(version)
    unsure: StorageError | None = None
    for wait_s in (*_WAITS_S, None):
        try:
            ctx.store.put_if_absent(key, data)
        except ObjectAlreadyExistsError as error:
            return _unless_ours(ctx, version, data, transaction_id, unsure or error)
        except WriteNotDurableError as error:
            # It is ours, and looking would only find it in memory: a disk that failed to flush has often forgotten
            # about it at the next try.
            raise CommitStateUnknownError(
                f"{ctx.uri}: version {version} (transaction {transaction_id}) is written, and readers see it, but the "
                f"disk did not confirm that it will stay: {error}. Look after the disk, and at the table's history "
                "before you run the operation again."
            ) from error
        except StorageError as error:
            if unsure is None and isinstance(error, _REFUSALS):
                raise
            unsure = error
        else:
            return None
        if wait_s is not None:
            ctx.sleep(wait_s)
    assert unsure is not None, "every try has failed"
    return _unless_ours(ctx, version, data, transaction_id, unsure)


def _unless_ours(
    ctx: LogContext, version: int, data: bytes, transaction_id: str, unsure: StorageError
) -> CommitActions | None:
    """The commit that is there; None if it is our own, whose answer was lost."""
    problem = unsure
    for wait_s in (*ctx.missing_object_waits_s, None):
        try:
            commit = CommitActions.of(version, ctx.store.get(ctx.format.commit_key(version)), ctx.format)
        except StorageError as error:
            problem = error
        else:
            # A first version that holds nothing but the table's own actions has no id: its whole text tells.
            return None if commit.data == data or _transaction_of(commit) == transaction_id else commit
        if wait_s is not None:
            ctx.sleep(wait_s)
    # That it is not there now does not say that a request that is still on its way will not put it there.
    raise CommitStateUnknownError(
        f"{ctx.uri}: the store did not say whether it wrote version {version} (transaction {transaction_id}): "
        f"{unsure}. Reading it gave no answer either: {problem}. "
        "Look at the table's history before you run the operation again."
    ) from unsure


def _transaction_of(commit: CommitActions) -> object:
    try:
        return (commit.commit_info or {}).get("txnId")
    except CorruptLogError:
        return None  # not what we wrote; whoever replays it will say what is wrong with it
