"""Checking the log of a search table: it has no checksums, but it can contradict itself (spec 002: "Error Scenarios").

Reported are version files behind a gap, which do not count; a version 0 or later version that holds what it must not;
checkpoints that cannot be read or that differ from the version files; and a hint that leads nowhere.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, ObjectNotFoundError
from headwater.log.checksum import Discrepancy
from headwater.log.commit import CommitActions
from headwater.log.json_checkpoint import read_json_checkpoint
from headwater.log.last_checkpoint import hinted_version
from headwater.log.paths import canonical
from headwater.log.replay import file_actions, replay_files
from headwater.log.segment import list_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.json_checkpoint import JsonCheckpoint
    from headwater.log.segment import LogListing
    from headwater.log.snapshot import Snapshot


def verify_split_log(snapshot: Snapshot) -> list[Discrepancy]:
    """Every discrepancy in the log up to a version, and what stands behind a gap after it."""
    listing = list_log(snapshot.ctx)
    versions = _versions(snapshot, listing)
    return [
        *_gap(snapshot, listing),
        *_contents(versions),
        *_checkpoints(snapshot, listing, versions),
        *_hint(snapshot, listing),
    ]


def _versions(snapshot: Snapshot, listing: LogListing) -> list[CommitActions]:
    ctx = snapshot.ctx
    wanted = [version for version in sorted(listing.commits) if version <= snapshot.version]
    contents = ctx.store.get_many([listing.commits[version].key for version in wanted])
    return [CommitActions.of(version, data, ctx.format) for version, data in zip(wanted, contents, strict=True)]


def _gap(snapshot: Snapshot, listing: LogListing) -> Iterator[Discrepancy]:
    for commit in snapshot.segment.commits:
        if commit.version not in listing.commits:
            yield Discrepancy(commit.meta.key, "version file", "one for every version", "missing: it was there before")
    ignored = snapshot.segment.unreachable
    if ignored:
        key = snapshot.ctx.format.commit_key(snapshot.version + 1)
        found = f"missing: the versions behind it do not count ({', '.join(map(str, ignored))})"
        yield Discrepancy(key, "version file", "one for every version", found)


def _contents(versions: list[CommitActions]) -> Iterator[Discrepancy]:
    """Version 0 is exactly `protocol` and `metaData`; no other version has a `metaData`."""
    for commit in versions:
        try:
            lines = commit.table_lines()
            files = [type(action).__name__.removeprefix("Split").lower() for action in file_actions(commit)]
        except CorruptLogError as error:
            yield Discrepancy(commit.key, "actions", "valid actions", str(error))
            continue
        found = Counter(files)
        found["protocol"] = sum(line.protocol is not None for line in lines)
        found["metaData"] = sum(line.meta_data is not None for line in lines)
        if commit.version == 0:
            counted = {name: count for name, count in found.items() if count}
            if counted != {"protocol": 1, "metaData": 1}:
                yield Discrepancy(commit.key, "actions", {"protocol": 1, "metaData": 1}, counted)
        elif found["metaData"]:
            yield Discrepancy(commit.key, "metaData", "only in version 0", found["metaData"])


def _checkpoints(snapshot: Snapshot, listing: LogListing, versions: list[CommitActions]) -> Iterator[Discrepancy]:
    for version in sorted(listing.checkpoints):
        if version > snapshot.version:
            continue
        files = listing.checkpoints[version][0]
        try:
            checkpoint = read_json_checkpoint(snapshot.ctx, files)
        except ObjectNotFoundError:
            continue  # cleaned up since it was listed
        except CorruptLogError as error:
            yield Discrepancy(files.files[0].key, "content", "a checkpoint that can be read", str(error))
            continue
        yield from _against_versions(checkpoint, [commit for commit in versions if commit.version <= version])


def _against_versions(checkpoint: JsonCheckpoint, commits: list[CommitActions]) -> Iterator[Discrepancy]:
    """A checkpoint must say what the version files say, where they are all still there."""
    if [commit.version for commit in commits] != list(range(checkpoint.version + 1)):
        return
    key = checkpoint.files.files[0].key
    try:
        newest = replay_files(commits)
        table = [commit.table_actions for commit in commits]
    except CorruptLogError:
        return  # said already
    live = sorted(path for (path, _), action in newest.items() if not hasattr(action, "deletion_timestamp"))
    found = sorted(canonical(add.path) for add in checkpoint.live)
    if live != found:
        yield Discrepancy(key, "add", live, found)
    protocol = next((actions.protocol for actions in reversed(table) if actions.protocol is not None), None)
    metadata = next((actions.metadata for actions in reversed(table) if actions.metadata is not None), None)
    if protocol != checkpoint.protocol:
        yield Discrepancy(key, "protocol", protocol, checkpoint.protocol)
    if metadata != checkpoint.metadata:
        yield Discrepancy(key, "metaData", metadata, checkpoint.metadata)


def _hint(snapshot: Snapshot, listing: LogListing) -> Iterator[Discrepancy]:
    key = snapshot.ctx.format.last_checkpoint_key
    version = hinted_version(snapshot.ctx.store, key)
    if version is not None and version not in listing.checkpoints:
        yield Discrepancy(key, "version", sorted(listing.checkpoints), version)
