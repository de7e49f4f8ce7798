"""Which log files make up a version: log segment discovery (spec: "Checkpoints", "Log Compaction Files").

`_last_checkpoint` is a hint for where to start listing. The newest complete checkpoint that is not newer than
the wanted version, and contiguous commits after it, are the segment; compacted files stand in for the commits
they cover. A gap is waited for (an object store's listing may lag), then it is an error that names the commit.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.errors import ObjectNotFoundError
from headwater.log.last_checkpoint import hinted_version
from headwater.log.log_format import DELTA
from headwater.log.missing_versions import gap, table_not_found, version_not_found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.context import LogContext
    from headwater.log.log_format import LogFormat
    from headwater.log.names import Kind
    from headwater.storage.base import ObjectMeta

NOT_ASKED_MS = -1
"""The modification time of a commit that is known by its content: the store was not asked for it."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of one complete checkpoint: one file, or all parts in order."""

    version: int
    kind: Kind
    files: tuple[ObjectMeta, ...]


@dataclass(frozen=True, slots=True)
class CommitFile:
    """A commit, or a compacted file that stands for the commits `version` to `end_version`."""

    version: int
    end_version: int
    meta: ObjectMeta
    instead_of: tuple[ObjectMeta, ...] = ()
    """For a compacted file: the commits that it stands for, where they all still exist."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files from which a version is reconstructed: a checkpoint, and what follows it in ascending order."""

    version: int
    checkpoint: CheckpointFiles | None
    commits: tuple[CommitFile, ...]
    commit_meta: ObjectMeta | None
    """The commit file of `version` itself; None when log cleanup left only the checkpoint."""
    unreachable: tuple[int, ...] = ()
    """Commits behind a gap, which do not count (in a dialect that stops at gaps)."""


@dataclass
class LogListing:
    """The log directory, sorted out by kind."""

    commits: dict[int, ObjectMeta] = field(default_factory=dict)
    compacted: dict[int, list[CommitFile]] = field(default_factory=lambda: defaultdict(list))
    checkpoints: dict[int, list[CheckpointFiles]] = field(default_factory=lambda: defaultdict(list))

    @property
    def latest(self) -> int | None:
        """The newest version that any file speaks of."""
        return max((*self.commits, *self.checkpoints), default=None)

    def checkpoint_at_or_before(self, version: int) -> CheckpointFiles | None:
        """The newest complete checkpoint not newer than `version`; the cheapest of several to open."""
        candidates = [v for v in self.checkpoints if v <= version]
        return self.checkpoints[max(candidates)][0] if candidates else None

    def reconstructable(self) -> tuple[int, int] | None:
        """The first and last version that can be loaded, as far as this listing shows."""
        latest = self.latest
        if latest is None:
            return None
        starts = [*self.checkpoints, *([0] if 0 in self.commits else [])]
        starts += [file.end_version for file in self.compacted.get(0, ()) if file.end_version <= latest]
        return (min(starts), latest) if starts else None


def list_log(ctx: LogContext, from_version: int = 0) -> LogListing:
    """List the log directory from a version on."""
    start = ctx.format.first_key_of(from_version)
    return sort_listing(ctx.store.list_from(ctx.format.directory, start), ctx.format)


def sort_listing(metas: Iterable[ObjectMeta], log_format: LogFormat = DELTA) -> LogListing:
    """Sort objects of the log directory by kind; incomplete multi-part checkpoints are left out."""
    listing = LogListing()
    parts: dict[tuple[int, int], dict[int, ObjectMeta]] = defaultdict(dict)
    for meta in metas:
        parsed = log_format.parse(meta.key.rpartition("/")[2])
        if parsed is None:
            continue
        version = parsed.version
        match parsed.kind:
            case "commit":
                listing.commits[version] = meta
            case "compacted":
                listing.compacted[version].append(CommitFile(version, parsed.end_version, meta))
            case "classic" | "uuid" | "json":
                listing.checkpoints[version].append(CheckpointFiles(version, parsed.kind, (meta,)))
            case "multipart":
                parts[version, parsed.parts][parsed.part] = meta
    for (version, count), found in parts.items():
        if len(found) == count:
            files = tuple(found[part] for part in range(1, count + 1))
            listing.checkpoints[version].append(CheckpointFiles(version, "multipart", files))
    preference: dict[Kind, int] = {"json": 0, "uuid": 0, "classic": 1, "multipart": 2}
    for candidates in listing.checkpoints.values():
        candidates.sort(key=lambda c: preference[c.kind])
    return listing


def find_segment(ctx: LogContext, version: int | None = None, passed_over: frozenset[int] = frozenset()) -> LogSegment:
    """The segment of a version, or of the newest one.

    Args:
        ctx: the table's log.
        version: the version; None for the newest.
        passed_over: versions of checkpoints that could not be read.

    Raises:
        TableNotFoundError: there is no log here.
        VersionNotFoundError: the version is newer than the table, or its log has been cleaned up.
        MissingCommitError: the commits have a gap.
    """
    hint = hinted_version(ctx.store, ctx.format.last_checkpoint_key)
    if hint is not None and not passed_over and (version is None or hint <= version):
        listing = list_log(ctx, hint)
        wanted = listing.latest if version is None else version
        if wanted is not None and listing.checkpoint_at_or_before(wanted) is not None:
            return _segment_of(ctx, listing, version)
    listing = list_log(ctx)
    for unreadable in passed_over:
        listing.checkpoints.pop(unreadable, None)
    return _segment_of(ctx, listing, version, at_least=max(passed_over, default=hint if hint is not None else 0))


def loadable_commits(listing: LogListing) -> list[int]:
    """The newest contiguous commits whose versions can be loaded, ascending.

    What stands before a gap is left out: nobody can tell what happened in between.
    """
    versions = sorted(listing.commits)
    start = len(versions) - 1
    while start > 0 and versions[start - 1] == versions[start] - 1:
        start -= 1
    # In a contiguous run, every version after a loadable one is loadable.
    return versions[bisect_left(versions, True, lo=max(start, 0), key=lambda version: _is_loadable(listing, version)) :]


def _is_loadable(listing: LogListing, version: int) -> bool:
    checkpoint = listing.checkpoint_at_or_before(version)
    return _cover(listing, 0 if checkpoint is None else checkpoint.version + 1, version) is not None


def _segment_of(ctx: LogContext, listing: LogListing, version: int | None, at_least: int = 0) -> LogSegment:
    """The segment of a version. A newest version below `at_least` is a loss that nobody may miss."""
    latest = listing.latest
    if latest is None:
        raise table_not_found(ctx)
    wanted = latest if version is None else version
    if not 0 <= wanted <= latest:
        raise version_not_found(ctx, wanted, _available(ctx, latest))
    checkpoint = listing.checkpoint_at_or_before(wanted)
    if checkpoint is None and listing.checkpoints and not _has_beginning(listing):
        raise version_not_found(ctx, wanted, _available(ctx, latest))
    first = 0 if checkpoint is None else checkpoint.version + 1
    commits = _cover(listing, first, wanted)
    while commits is None:
        # A listing may lag. Each turn finds one more commit by its name, or ends with an error.
        missing = _first_gap(listing, first, wanted)
        if not _await_commit(ctx, listing, missing):
            if ctx.format.stops_at_gaps and version is None and missing > at_least:
                return _up_to_gap(listing, checkpoint, missing)
            raise gap(ctx, listing, wanted, checkpoint, missing)
        commits = _cover(listing, first, wanted)
    return LogSegment(wanted, checkpoint, tuple(commits), listing.commits.get(wanted))


def _up_to_gap(listing: LogListing, checkpoint: CheckpointFiles | None, missing: int) -> LogSegment:
    """The segment of the version before a gap (spec 002: "Version Gap")."""
    first = 0 if checkpoint is None else checkpoint.version + 1
    commits = tuple(CommitFile(v, v, listing.commits[v]) for v in range(first, missing))
    unreachable = tuple(sorted(v for v in listing.commits if v > missing))
    return LogSegment(missing - 1, checkpoint, commits, listing.commits.get(missing - 1), unreachable)


def _available(ctx: LogContext, latest: int) -> tuple[int, int]:
    """The first and the last version that there are."""
    return list_log(ctx).reconstructable() or (latest, latest)


def _has_beginning(listing: LogListing) -> bool:
    return 0 in listing.commits or 0 in listing.compacted


def _cover(listing: LogListing, first: int, last: int) -> list[CommitFile] | None:
    """Commits and compacted files that cover `first..last` without a gap: the widest that lead to the end."""
    steps: dict[int, CommitFile] = {}
    for version in sorted({*listing.commits, *listing.compacted}, reverse=True):
        if not first <= version <= last:
            continue
        options = [file for file in listing.compacted.get(version, ()) if file.end_version <= last]
        if version in listing.commits:
            options.append(CommitFile(version, version, listing.commits[version]))
        options = [file for file in options if file.end_version == last or file.end_version + 1 in steps]
        if options:
            steps[version] = max(options, key=lambda file: file.end_version)
    cover: list[CommitFile] = []
    version = first
    while version <= last:
        if version not in steps:
            return None
        cover.append(_with_commits(listing, steps[version]))
        version = steps[version].end_version + 1
    return cover


def _with_commits(listing: LogListing, file: CommitFile) -> CommitFile:
    """A compacted file together with the commits that it stands for, if they all exist."""
    if file.version == file.end_version and file.meta is listing.commits.get(file.version):
        return file
    commits: list[ObjectMeta] = []
    for version in range(file.version, file.end_version + 1):
        if version not in listing.commits:
            return file
        commits.append(listing.commits[version])
    return replace(file, instead_of=tuple(commits))


def _first_gap(listing: LogListing, first: int, last: int) -> int:
    """The version that would have to come next after everything that can be read from `first` on."""
    reached = {first}
    for version in sorted({*listing.commits, *listing.compacted}):
        if version in reached:
            ends = [file.end_version for file in listing.compacted.get(version, ()) if file.end_version <= last]
            reached.update(end + 1 for end in ends)
            if version in listing.commits:
                reached.add(version + 1)
    return max(reached)


def _await_commit(ctx: LogContext, listing: LogListing, version: int) -> bool:
    """Ask for a commit by name, a bounded number of times, and add it to the listing once it is there."""
    for wait_s in (0.0, *ctx.missing_object_waits_s):
        if wait_s:
            ctx.sleep(wait_s)
        with contextlib.suppress(ObjectNotFoundError):
            listing.commits[version] = ctx.store.head(ctx.format.commit_key(version))
            return True
    return False
