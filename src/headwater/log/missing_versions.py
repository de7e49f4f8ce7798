"""What to say about a log that is not there, or not all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, MissingCommitError, TableNotFoundError, VersionNotFoundError
from headwater.log.log_format import DELTA

if TYPE_CHECKING:
    from headwater.log.context import LogContext
    from headwater.log.segment import CheckpointFiles, LogListing


def table_not_found(ctx: LogContext) -> TableNotFoundError:
    """The error for a location without a log."""
    directory = ctx.format.directory
    lead = "" if ctx.format is DELTA else "No transaction log found: "
    return TableNotFoundError(
        f"{lead}{ctx.uri} is not a {ctx.format.title}: there is no commit and no checkpoint in {directory}. "
        f"Check the path; a table is the folder that contains {directory.rstrip('/')}."
    )


def first_version_lost(ctx: LogContext, problem: str) -> CorruptLogError:
    """The error for a table whose version 0 is not what it must be (spec 002: "Corrupted Version 0")."""
    return CorruptLogError(
        f"No transaction log found: version 0 of {ctx.uri} ({ctx.format.commit_key(0)}) {problem}. It holds the "
        "table's protocol and metaData, and without it the table cannot be read. Restore it from a backup, or create "
        "the table again with the same schema."
    )


def gap(
    ctx: LogContext, listing: LogListing, wanted: int, checkpoint: CheckpointFiles | None, missing: int
) -> CorruptLogError | VersionNotFoundError:
    """The error for a version that a missing commit stands before."""
    if ctx.format.needs_first_version:
        newest = max(listing.checkpoints, default=0)
        if missing == 0:
            return first_version_lost(ctx, "is missing")
        if wanted < newest:
            return VersionNotFoundError(
                f"{ctx.uri} has no version {wanted} any more: its log files have been cleaned up. "
                f"The versions from {newest} on are available."
            )
    later = min((v for v in listing.commits if missing < v <= wanted), default=None)
    start = "has no complete checkpoint" if checkpoint is None else f"has a checkpoint at {checkpoint.version}"
    key = ctx.format.commit_key(missing)
    return MissingCommitError(
        f"{ctx.uri} cannot be opened at version {wanted}: commit {missing} ({key}) is missing"
        + ("" if later is None else f", the next one is {later}")
        + f". The log {start} and must be contiguous after that."
    )


def version_not_found(ctx: LogContext, wanted: int, available: tuple[int, int]) -> VersionNotFoundError:
    """The error for a version outside the log, naming what is available: the first and the last version."""
    span = (
        f"versions {available[0]} to {available[1]} are"
        if available[0] < available[1]
        else f"only version {available[0]} is"
    )
    reason = "it does not exist yet" if wanted > available[1] else "its log files have been cleaned up"
    if wanted < 0:
        reason = "versions start at 0"
    return VersionNotFoundError(f"{ctx.uri} has no version {wanted}: {reason}; {span} available.")
