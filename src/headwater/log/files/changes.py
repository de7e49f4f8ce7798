"""The change data feed of a range of versions, as files (spec: "Add CDC File", "Change Data Files").

A version with `cdc` actions is described by those files alone. In any other version the rows of added files are inserts
and the rows of removed files deletes; where one commit removes and adds the same file under another deletion vector,
only the rows that the two vectors do not share have changed. Commits that change no data say so (`dataChange`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from headwater.errors import ChangeDataError, CorruptLogError, VersionNotFoundError
from headwater.log.actions.decode import CommitActions
from headwater.log.actions.paths import canonical
from headwater.log.commit.history import modification_times
from headwater.log.configuration.properties import ENABLE_CHANGE_DATA_FEED
from headwater.log.opening import open_snapshot
from headwater.log.schema import StructType
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY
from headwater.log.segment import list_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.actions.model import Add, AddCdcFile, DeletionVector, Metadata, Remove
    from headwater.log.context import LogContext
    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot

ChangeType: TypeAlias = Literal["insert", "delete"]
_BATCH = 256


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file with change rows of one version.

    Attributes:
        change_type: of all its rows; None for a `cdc` file, where the column `_change_type` says it.
        without: a deletion vector whose rows do not count.
        only: with `without`, the vectors before and after: only rows of `only` that `without` lacks have changed.
    """

    version: int
    timestamp_ms: int
    path: str
    size: int | None
    partition_values: Mapping[str, str | None] | None
    change_type: ChangeType | None
    without: DeletionVector | None = None
    only: DeletionVector | None = None


@dataclass(frozen=True)
class ChangeFeed:
    """The changes of a range of versions, and the table at its end."""

    snapshot: Snapshot
    first_version: int
    files: tuple[ChangeFile, ...]


def read_change_feed(ctx: LogContext, first: int, last: int | None) -> ChangeFeed:
    """Find the change files of the versions from `first` to `last`, both included.

    Raises:
        VersionNotFoundError: the range is empty, or has versions that do not exist (any more).
        ChangeDataError: the feed was not enabled in all of the range, or the schema changed incompatibly.
    """
    end = open_snapshot(ctx, version=last)
    if first < 0 or first > end.version:
        raise VersionNotFoundError(
            f"there are no changes from version {first} to {end.version} of {ctx.uri}: the first version must not be "
            f"negative or after the last one"
        )
    start = open_snapshot(ctx, version=first)
    _check(start.metadata, first, end)
    files: list[ChangeFile] = []
    for commit, timestamp_ms in _commits(ctx, end, first):
        metadata = commit.table_actions.metadata
        if metadata is not None:
            _check(metadata, commit.version, end)
        files += changes_of(commit, timestamp_ms)
    return ChangeFeed(end, first, tuple(files))


def changes_of(commit: CommitActions, timestamp_ms: int) -> list[ChangeFile]:
    """Return the change files of one commit."""
    adds: list[Add] = []
    removes: list[Remove] = []
    recorded: list[AddCdcFile] = []
    for line in commit.file_lines():
        if line.cdc is not None:
            recorded.append(line.cdc)
        elif line.add is not None and line.add.data_change:
            adds.append(line.add)
        elif line.remove is not None and line.remove.data_change:
            removes.append(line.remove)
    version = commit.version
    if recorded:
        return [ChangeFile(version, timestamp_ms, c.path, c.size, c.partition_values, None) for c in recorded]
    return _derived(version, timestamp_ms, adds, removes)


def _derived(version: int, timestamp_ms: int, adds: list[Add], removes: list[Remove]) -> list[ChangeFile]:
    """Return inserts and deletes from the files that a commit adds and removes."""

    def change(action: Add | Remove, type_: ChangeType, **vectors: DeletionVector | None) -> ChangeFile:
        values = action.partition_values
        return ChangeFile(version, timestamp_ms, action.path, action.size, values, type_, **vectors)

    before = {canonical(r.path): r for r in removes}
    found: list[ChangeFile] = []
    for add in adds:
        removed = before.pop(canonical(add.path), None)
        new = add.deletion_vector
        if removed is None:
            found.append(change(add, "insert", without=new))
            continue
        old = removed.deletion_vector
        if new is not None:
            found.append(change(add, "delete", only=new, without=old))
        if old is not None:
            found.append(change(add, "insert", only=old, without=new))
    found += [change(r, "delete", without=r.deletion_vector) for r in before.values()]
    return found


def _commits(ctx: LogContext, end: Snapshot, first: int) -> Iterator[tuple[CommitActions, int]]:
    """Yield the commits of the range and when they were made."""
    listing = list_log(ctx)
    times = modification_times(listing)
    missing = [v for v in range(first, end.version + 1) if v not in listing.commits]
    if missing:
        raise VersionNotFoundError(
            f"the changes of version {missing[0]} of {ctx.uri} are gone: its commit file has been cleaned up"
        )
    in_commit_from = end.configuration.first_in_commit_version
    for begin in range(first, end.version + 1, _BATCH):
        versions = range(begin, min(begin + _BATCH, end.version + 1))
        keys = [listing.commits[v].key for v in versions]
        for version, key, data in zip(versions, keys, ctx.store.get_many(keys), strict=True):
            commit = CommitActions(version, version, key, data, ctx.dialect)
            recorded = commit.in_commit_timestamp
            own = in_commit_from is not None and version >= in_commit_from and recorded is not None
            yield commit, recorded if own and recorded is not None else times[version]


def _check(metadata: Metadata, version: int, end: Snapshot) -> None:
    """Raise unless the changes of a version were recorded, and can be read with the schema at the end."""
    if not ENABLE_CHANGE_DATA_FEED.read(metadata.configuration):
        raise ChangeDataError(
            f"the change data feed of {end.uri} is not enabled in version {version}: set the table property "
            f"{ENABLE_CHANGE_DATA_FEED.name} to true; changes are recorded from that version on, so start there"
        )
    if not metadata.schema_string:
        raise CorruptLogError(f"the metaData of version {version} of {end.uri} has no schema")
    schema = StructType.from_json(metadata.schema_string)
    problem = _incompatible(schema, end.schema, ())
    if problem or tuple(metadata.partition_columns) != tuple(end.metadata.partition_columns):
        raise ChangeDataError(
            f"the schema of {end.uri} changed between version {version} and version {end.version}, so their changes "
            f"cannot be read together: {problem or 'the partition columns differ'}. Read the two parts one by one."
        )


def _incompatible(old: StructType, new: StructType, path: tuple[str, ...]) -> str | None:
    """Return why rows of the old schema are not rows of the new one, if so; new nullable columns are allowed."""
    kept = {f.name.lower(): f for f in new.fields}
    for field in old.fields:
        name = ".".join((*path, field.name))
        now = kept.pop(field.name.lower(), None)
        if now is None:
            return f"column {name} was dropped or renamed"
        key = PHYSICAL_NAME_KEY
        if field.metadata.get(key, now.metadata.get(key)) != now.metadata.get(key):
            return f"column {name} is another column now"
        if field.nullable and not now.nullable:
            return f"column {name} may not be null any more"
        problem = _incompatible_types(field.type, now.type, (*path, field.name), "delta.typeChanges" in now.metadata)
        if problem:
            return problem
    added = next((f for f in kept.values() if not f.nullable), None)
    return None if added is None else f"column {'.'.join((*path, added.name))} was added and may not be null"


def _incompatible_types(old: DataType, new: DataType, path: tuple[str, ...], widened: bool) -> str | None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _incompatible(old, new, path)
    return None if str(old) == str(new) or widened else f"column {'.'.join(path)} was {old} and is {new}"
