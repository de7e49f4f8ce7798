"""`headwater history`: the commits of a table, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cli import output

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

DEFAULT_LIMIT = 20
"""Commits that people see unless they ask for more."""


def show_history(snapshot: Snapshot, limit: int | None, *, as_json: bool) -> None:
    """Write the history.

    Args:
        snapshot: the newest one.
        limit: how many commits at most.
        as_json: write an array with one commit a line; all of them, where no limit is given.
    """
    with output.waiting("Reading commits"):
        commits = snapshot.history(limit if limit is not None or as_json else DEFAULT_LIMIT)
    if as_json:
        output.write_json_array(commits)
        return
    from headwater.cli.commits import commit_table

    out = output.console()
    output.show(out, commit_table(commits, longest=out.width, authors=not output.is_narrow(out)))
    if not commits:
        output.show(out, "No commits: log cleanup has left only checkpoints.")
    elif limit is None and len(commits) == DEFAULT_LIMIT and commits[-1].version > 0:
        output.show(out, f"\nThese are the newest {len(commits)} commits: --limit N shows more.")
