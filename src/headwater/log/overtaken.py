"""Noticing that the log has gone on and was cleaned up, before a commit is put where one has been.

Put-if-absent finds out that somebody else has a version only as long as its commit is there. A transaction that began
long ago, on a version whose successors are gone, would otherwise write a commit that no reader ever sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ConcurrentWriteException, HeadwaterError, ObjectNotFoundError
from headwater.log.commit import CommitActions
from headwater.log.retention import log_retention_ms
from headwater.log.segment import list_log

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot

_RECENT_MS = 3_600_000
"""So old may the newest known commit be, as clocks may differ by less, unless commits are kept for a shorter time."""


def check_not_overtaken(ctx: LogContext, base: Snapshot | None) -> CommitActions | None:
    """Raise if the version after `base` has been there and was cleaned up; for None, if there is a table.

    Only needs a look at the log when the newest commit that is known is old. To be called right before the commit is
    put, which nothing should delay.

    Returns:
        The commit that has this version. None if there is none, or if nobody needed to look: put-if-absent will tell.

    Raises:
        ConcurrentWriteException: nobody can tell any more whether a commit would conflict.
    """
    if base is not None and _is_recent(ctx, base):
        return None
    listing = list_log(ctx, 0 if base is None else base.version)
    latest = listing.latest
    if latest is None:
        return None
    if base is None:
        raise created_by_another(ctx)
    if latest <= base.version:
        return None
    version = base.version + 1
    try:
        if version in listing.commits:
            # It may be cleaned up any moment, and then its place would look free.
            return CommitActions.of(version, ctx.store.get(ctx.format.commit_key(version)), ctx.format)
    except ObjectNotFoundError:
        pass
    raise ConcurrentWriteException(
        f"{ctx.uri}: this transaction has read version {base.version}, the table is at version {latest}, and the "
        "log in between has been cleaned up, so nobody can say whether they conflict. "
        "Nothing was changed; run the operation again on the newest version."
    )


def created_by_another(ctx: LogContext) -> ConcurrentWriteException:
    """The error of a transaction that wanted to create a table which is there now."""
    return ConcurrentWriteException(
        f"{ctx.uri} cannot be created, because another writer just has. "
        "Run the operation again on the table that is there now.",
        winner=0,
    )


def _is_recent(ctx: LogContext, base: Snapshot) -> bool:
    """Whether the newest commit of a table is so young that nothing after it can have been cleaned up yet."""
    if base.commits:
        made_ms = (base.commits[-1].commit_info or {}).get("timestamp")
    else:
        assert base.segment.checkpoint is not None, "a version has a commit or a checkpoint"
        made_ms = base.segment.checkpoint.files[0].modified_ms
    try:
        kept_ms = log_retention_ms(base.metadata.configuration)
        if ctx.format.json_checkpoints:
            kept_ms = ctx.options.over(base.metadata.configuration).log_retention_ms
    except HeadwaterError:  # the property makes no sense: nobody knows what was cleaned up
        return False
    return isinstance(made_ms, int) and abs(ctx.clock_ms() - made_ms) < min(_RECENT_MS, kept_ms)
