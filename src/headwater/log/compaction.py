"""Log compaction files: the reconciled actions of some commits in one file (spec: "Log Compaction Files").

They are optional for everybody, and stand beside the commits: whoever knows them reads one file instead of many.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from headwater.errors import ObjectAlreadyExistsError, ObjectNotFoundError, VersionNotFoundError
from headwater.log import names
from headwater.log.commit import CommitActions
from headwater.log.encoding import encode_actions
from headwater.log.replay import TableState, replay_files

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot


def compact_log(snapshot: Snapshot, first: int, last: int) -> str | None:
    """Write a log compaction file for the commits from `first` to `last`, both included.

    What later commits may have to suppress stays in it: tombstones, and domains that were removed. `commitInfo` and
    change data files do not.

    Args:
        snapshot: the table, at version `last` or a later one.
        first: the first version.
        last: the last version.

    Returns:
        The key of the file; None when the commits have no actions that would be in it.

    Raises:
        VersionNotFoundError: some of the commits do not exist (any more).
        StorageError: the store failed.
    """
    if not 0 <= first <= last <= snapshot.version:
        raise VersionNotFoundError(
            f"{snapshot.uri} at version {snapshot.version} has no commits from {first} to {last} to compact."
        )
    commits = _commits(snapshot, first, last)
    data = encode_actions(TableState().then(commits), replay_files(commits).values())
    if not data:
        return None
    key = names.compacted_key(first, last)
    with suppress(ObjectAlreadyExistsError):  # commits never change: whoever wrote it wrote the same
        snapshot.ctx.store.put_if_absent(key, data)
    return key


def _commits(snapshot: Snapshot, first: int, last: int) -> list[CommitActions]:
    """The commits one by one: those at hand, and the others from the store."""
    known = {commit.version: commit for commit in snapshot.commits if commit.version == commit.end_version}
    missing = [version for version in range(first, last + 1) if version not in known]
    try:
        contents = snapshot.ctx.store.get_many([names.commit_key(version) for version in missing])
    except ObjectNotFoundError as error:
        raise VersionNotFoundError(
            f"{snapshot.uri}: the commits from {first} to {last} cannot be compacted, because one is gone: {error}"
        ) from error
    known |= {version: CommitActions.of(version, data) for version, data in zip(missing, contents, strict=True)}
    return [known[version] for version in range(first, last + 1)]
