"""Find the log files that make up a version (spec: "Checkpoints", "Log Compaction Files", "Last Checkpoint File").

The newest complete checkpoint that is not newer than the wanted version, and contiguous commits after it, are the
segment; compacted files stand in for the commits they cover. Listings of an object store may lag, so a missing commit
is asked for by name before it counts as a gap.

`_last_checkpoint` is a hint for where to start listing. It may be missing, stale or damaged (its checksum is the MD5 of
the canonical form of the JSON): then the log is listed from its beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headwater.errors import (
    MissingCommitError,
    ObjectNotFoundError,
    TableNotFoundError,
    VersionNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.context import LogContext
    from headwater.log.dialect import FileKind, LogDialect
    from headwater.storage.base import ObjectMeta, ObjectStore


NOT_ASKED_MS = -1
"""The modification time of a commit that is known by its content: the store was not asked for it."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of one complete checkpoint: one file, or all parts in order."""

    version: int
    kind: FileKind
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
        """Return the newest complete checkpoint not newer than `version`; the cheapest of several to open."""
        candidates = [v for v in self.checkpoints if v <= version]
        return self.checkpoints[max(candidates)][0] if candidates else None

    def reconstructable(self) -> tuple[int, int] | None:
        """Return the first and last version that can be loaded, as far as this listing shows."""
        latest = self.latest
        if latest is None:
            return None
        starts = [*self.checkpoints, *([0] if 0 in self.commits else [])]
        starts += [file.end_version for file in self.compacted.get(0, ()) if file.end_version <= latest]
        return (min(starts), latest) if starts else None


@dataclass(frozen=True, slots=True)
class Gap:
    """A commit that is missing between a checkpoint (or the beginning) and a wanted version."""

    listing: LogListing
    checkpoint: CheckpointFiles | None
    wanted: int
    missing: int
    ends_before: bool
    """Whether the newest version is wanted, and no hint says that the log reaches the missing commit."""


def list_log(ctx: LogContext, from_version: int = 0) -> LogListing:
    start = ctx.dialect.first_key_of(from_version)
    return sort_listing(ctx.store.list_from(ctx.dialect.directory, start), ctx.dialect)


def sort_listing(metas: Iterable[ObjectMeta], dialect: LogDialect) -> LogListing:
    """Sort objects of the log directory by kind; incomplete multi-part checkpoints are left out."""
    listing = LogListing()
    parts: dict[tuple[int, int], dict[int, ObjectMeta]] = defaultdict(dict)
    for meta in metas:
        parsed = dialect.parse(meta.key.rpartition("/")[2])
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
    preference: dict[FileKind, int] = {"json": 0, "uuid": 0, "classic": 1, "multipart": 2}
    for candidates in listing.checkpoints.values():
        candidates.sort(key=lambda c: preference[c.kind])
    return listing


def find_segment(ctx: LogContext, version: int | None = None, unreadable: frozenset[int] = frozenset()) -> LogSegment:
    """Return the segment of a version, or of the newest one, without the checkpoints that proved `unreadable`.

    Raises:
        TableNotFoundError: there is no log here.
        VersionNotFoundError: the version is newer than the table, or its log has been cleaned up.
        MissingCommitError: the commits have a gap.
    """
    hint = hinted_version(ctx.store, ctx.dialect.last_checkpoint_key)
    if hint is not None and not unreadable and (version is None or hint <= version):
        listing = list_log(ctx, hint)
        wanted = listing.latest if version is None else version
        if wanted is not None and listing.checkpoint_at_or_before(wanted) is not None:
            return _segment_of(ctx, listing, version)
    listing = list_log(ctx)
    for damaged in unreadable:
        listing.checkpoints.pop(damaged, None)
    return _segment_of(ctx, listing, version, at_least=max(unreadable, default=hint if hint is not None else 0))


def loadable_commits(listing: LogListing) -> list[int]:
    """Return the newest contiguous commits whose versions can be loaded, ascending.

    Commits before a gap are left out: what happened in between is unknown.
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
    """Return the segment of a version. A newest version below `at_least` is an error."""
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
            ends_before = version is None and missing > at_least
            return ctx.dialect.resolve_gap(ctx, Gap(listing, checkpoint, wanted, missing, ends_before))
        commits = _cover(listing, first, wanted)
    return LogSegment(wanted, checkpoint, tuple(commits), listing.commits.get(wanted))


def _available(ctx: LogContext, latest: int) -> tuple[int, int]:
    """Return the first and the last version that there are."""
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
    """Return a compacted file together with the commits that it stands for, if they all exist."""
    if file.version == file.end_version and file.meta is listing.commits.get(file.version):
        return file
    commits: list[ObjectMeta] = []
    for version in range(file.version, file.end_version + 1):
        if version not in listing.commits:
            return file
        commits.append(listing.commits[version])
    return replace(file, instead_of=tuple(commits))


def _first_gap(listing: LogListing, first: int, last: int) -> int:
    """Return the version that would have to come next after everything that can be read from `first` on."""
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
            listing.commits[version] = ctx.store.head(ctx.dialect.commit_key(version))
            return True
    return False


def hinted_version(store: ObjectStore, key: str) -> int | None:
    """Return the version of a recent checkpoint, or None when there is no hint that can be believed."""
    try:
        text = store.get(key)
    except ObjectNotFoundError:
        return None
    return parse_hint(text)


def parse_hint(text: bytes) -> int | None:
    """Return the version in the hint, None unless it is well-formed and its checksum (if any) is right."""
    try:
        hint = json.loads(text, object_pairs_hook=_no_duplicates, parse_float=_Number, parse_int=_Number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(hint, dict) or not isinstance(hint.get("version"), _Number):
        return None
    checksum = hint.get("checksum")
    if checksum is not None and checksum != json_checksum(hint):
        return None
    try:
        version = int(hint["version"])
    except ValueError:
        return None
    return version if 0 <= version < 10**20 else None


def json_checksum(value: dict[str, Any]) -> str:
    """Return the checksum of a decoded JSON object, its own `checksum` field left out.

    >>> json_checksum({"k1": "v1", "checksum": "<anything>", "k3": 23}) == hashlib.md5(b'"k1"="v1","k3"=23').hexdigest()
    True
    """
    return hashlib.md5(canonical_json(value).encode(), usedforsecurity=False).hexdigest()


def canonical_json(value: dict[str, Any]) -> str:
    """Return the canonical form: sorted `path=value` pairs, with URL-encoded names and strings."""
    pairs: list[tuple[str, str]] = []
    for name, inner in value.items():
        if name != "checksum":
            _flatten(_encode(name), inner, pairs)
    pairs.sort(key=lambda pair: pair[0].encode())
    return ",".join(f"{path}={leaf}" for path, leaf in pairs)


class _Number(str):
    """A number as it was written: its text is its canonical form."""


def _flatten(path: str, value: Any, pairs: list[tuple[str, str]]) -> None:
    match value:
        case _Number():
            pairs.append((path, str(value)))
        case str():
            pairs.append((path, _encode(value)))
        case dict():
            for name, inner in value.items():
                _flatten(f"{path}+{_encode(name)}", inner, pairs)
        case list():
            for index, inner in enumerate(value):
                _flatten(f"{path}+{index}", inner, pairs)
        case _:
            pairs.append((path, json.dumps(value)))


def _encode(text: str) -> str:
    return f'"{quote(text, safe="-._~", errors="surrogatepass")}"'


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate keys")
    return value


def table_not_found(ctx: LogContext) -> TableNotFoundError:
    """Return the error for a location without a log."""
    dialect, directory = ctx.dialect, ctx.dialect.directory
    return TableNotFoundError(
        f"{dialect.not_found_prefix}{ctx.uri} is not a {dialect.title}: there is no commit and no checkpoint in "
        f"{directory}. Check the path; a table is the folder that contains {directory.rstrip('/')}."
    )


def missing_commit(ctx: LogContext, gap: Gap) -> MissingCommitError:
    """Return the error for a version that needs a commit which is not there."""
    wanted, missing, checkpoint = gap.wanted, gap.missing, gap.checkpoint
    later = min((v for v in gap.listing.commits if missing < v <= wanted), default=None)
    start = "has no complete checkpoint" if checkpoint is None else f"has a checkpoint at {checkpoint.version}"
    key = ctx.dialect.commit_key(missing)
    return MissingCommitError(
        f"{ctx.uri} cannot be opened at version {wanted}: commit {missing} ({key}) is missing"
        + ("" if later is None else f", the next one is {later}")
        + f". The log {start} and must be contiguous after that."
    )


def version_not_found(ctx: LogContext, wanted: int, available: tuple[int, int]) -> VersionNotFoundError:
    """Return the error for a version outside the log, naming what is available: the first and the last version."""
    span = (
        f"versions {available[0]} to {available[1]} are"
        if available[0] < available[1]
        else f"only version {available[0]} is"
    )
    reason = "it does not exist yet" if wanted > available[1] else "its log files have been cleaned up"
    if wanted < 0:
        reason = "versions start at 0"
    return VersionNotFoundError(f"{ctx.uri} has no version {wanted}: {reason}; {span} available.")
