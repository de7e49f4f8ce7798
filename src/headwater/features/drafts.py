"""Questions that several commit rules ask of a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.commit import file_key
from headwater.log.schema import StructType

if TYPE_CHECKING:
    from headwater.log.draft import Attempt, Draft


BRINGS_BACK = ("RESTORE", "CLONE")
"""Operations that commit files together with the metaData under which they were written."""


def replaces_all_files(draft: Draft, attempt: Attempt) -> bool:
    """Whether no file that is live now stays in the table, so that nothing binds new files to old rules.

    What stays when a table is restored or cloned belonged to the new metaData before: that binds nothing either.
    Every removed file is live when the commit happens (another writer who removed it too would have been a conflict),
    so it is enough to count.
    """
    if attempt.snapshot is None or draft.operation.name in BRINGS_BACK:
        return True
    removed = {file_key(remove) for remove in draft.removes}
    live = attempt.snapshot.num_files
    return len(removed) == live and not {path for path, _ in removed} & {file_key(add)[0] for add in draft.adds}


def schema_before(attempt: Attempt) -> StructType | None:
    """The schema of the table that the commit builds on; None when it creates the table."""
    return None if attempt.snapshot is None else attempt.snapshot.schema


def schema_after(draft: Draft, attempt: Attempt) -> StructType:
    """The schema in force with the commit."""
    if draft.metadata is None and attempt.snapshot is not None:
        return attempt.snapshot.schema  # parsed once, for all commits on the snapshot
    return StructType.from_json((draft.metadata or attempt.metadata).schema_string)
