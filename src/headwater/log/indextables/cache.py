"""What a process keeps of a search table's log from one opening to the next (spec 002: "Cache Invalidation").

Four caches: parsed versions, the computed list of files, metadata (both with the newest snapshot), and checkpoints. An
entry is believed for a time, and only while the store shows the same object (size and modification time); so a reader
with a warm cache asks for one listing and sees every commit. Writers drop what depends on the newest version.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from headwater.log.actions.decode import CommitActions
from headwater.log.segment import list_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.log.context import LogContext
    from headwater.log.indextables.checkpoint import JsonCheckpoint
    from headwater.log.segment import CheckpointFiles
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectMeta

_Value = TypeVar("_Value")
MOST_VERSIONS = 2_048
MOST_CHECKPOINTS = 8
"""The least recently used ones go first."""


class _Entries(Generic[_Value]):
    """Values by the object that they were read from, for a limited time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[ObjectMeta, tuple[int, _Value]] = OrderedDict()

    def get(self, meta: ObjectMeta, now_ms: int, lifetime_ms: int) -> _Value | None:
        entry = self._entries.get(meta)
        if entry is None:
            return None
        if not 0 <= now_ms - entry[0] < lifetime_ms:
            del self._entries[meta]
            return None
        self._entries.move_to_end(meta)
        return entry[1]

    def put(self, meta: ObjectMeta, value: _Value, now_ms: int) -> None:
        self._entries[meta] = now_ms, value
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """How often a cache could answer."""

    hits: int
    misses: int
    versions: int
    """Parsed versions that are kept."""
    checkpoints: int
    has_newest: bool
    """Whether the newest snapshot (metadata and list of files) is kept."""


class LogCache:
    """The caches of one table, whose entries expire after `lifetime_s`."""

    def __init__(self, lifetime_s: float, clock_ms: Callable[[], int]) -> None:
        self._lifetime_ms = int(lifetime_s * 1_000)
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._versions: _Entries[CommitActions] = _Entries(MOST_VERSIONS)
        self._checkpoints: _Entries[JsonCheckpoint] = _Entries(MOST_CHECKPOINTS)
        self._newest: tuple[int, Snapshot, ObjectMeta] | None = None
        self._hits = self._misses = 0

    # --- versions and checkpoints, which never change ------------------------------------------------------

    def commits(
        self, ctx: LogContext, metas: Sequence[ObjectMeta], versions: Sequence[int]
    ) -> tuple[CommitActions, ...]:
        """Return the commits of version files, and read only those that are not cached."""
        known = [self._look_up(self._versions, meta) for meta in metas]
        missing = [meta.key for meta, commit in zip(metas, known, strict=True) if commit is None]
        contents = iter(ctx.store.get_many(missing))
        found: list[CommitActions] = []
        for meta, version, commit in zip(metas, versions, known, strict=True):
            if commit is None:
                commit = CommitActions(version, version, meta.key, next(contents), ctx.dialect)
                self._keep(self._versions, meta, commit)
            found.append(commit)
        return tuple(found)

    def checkpoint(self, ctx: LogContext, files: CheckpointFiles) -> JsonCheckpoint:
        """Return a checkpoint; raises as `read_json_checkpoint` does."""
        from headwater.log.indextables.checkpoint import decode_checkpoint

        meta = files.files[0]
        known = self._look_up(self._checkpoints, meta)
        if known is None:
            known = decode_checkpoint(files, ctx.store.get(meta.key))
            self._keep(self._checkpoints, meta, known)
        return known

    def knows(self, meta: ObjectMeta) -> bool:
        with self._lock:
            now_ms = self._clock_ms()
            caches: tuple[_Entries[CommitActions] | _Entries[JsonCheckpoint], ...] = (self._versions, self._checkpoints)
            return any(entries.get(meta, now_ms, self._lifetime_ms) is not None for entries in caches)

    def _look_up(self, entries: _Entries[_Value], meta: ObjectMeta) -> _Value | None:
        with self._lock:
            found = entries.get(meta, self._clock_ms(), self._lifetime_ms)
            self._hits += found is not None
            self._misses += found is None
            return found

    def _keep(self, entries: _Entries[_Value], meta: ObjectMeta, value: _Value) -> None:
        with self._lock:
            entries.put(meta, value, self._clock_ms())

    # --- the newest version: metadata and the list of files ------------------------------------------------

    def newest(self, ctx: LogContext) -> Snapshot | None:
        """Return the newest version, if it is cached and one listing shows nothing newer."""
        with self._lock:
            entry = self._newest
            if entry is not None and not 0 <= self._clock_ms() - entry[0] < self._lifetime_ms:
                entry = self._newest = None
        if entry is None:
            return None
        _, snapshot, own = entry
        listing = list_log(ctx, snapshot.version)
        if listing.latest == snapshot.version and listing.commits.get(snapshot.version) == own:
            with self._lock:
                self._hits += 1
            return snapshot
        self.invalidate_newest()
        return None

    def keep_newest(self, snapshot: Snapshot) -> None:
        """Keep a snapshot that was opened as the newest."""
        meta = snapshot.segment.commit_meta
        if meta is not None and not snapshot.segment.unreachable:
            with self._lock:
                self._newest = self._clock_ms(), snapshot, meta

    # --- invalidation ---------------------------------------------------------------------------------------

    def invalidate_newest(self) -> None:
        """Drop what depends on which version is the newest: after every write."""
        with self._lock:
            self._newest = None

    def invalidate_all(self) -> None:
        """Drop everything: after a checkpoint, or on request."""
        with self._lock:
            self._newest = None
            self._versions.clear()
            self._checkpoints.clear()

    @property
    def counts(self) -> CacheCounts:
        with self._lock:
            kept = len(self._versions), len(self._checkpoints), self._newest is not None
            return CacheCounts(self._hits, self._misses, *kept)
