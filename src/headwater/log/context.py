"""What the log core is given from outside: a store, a gate, rules for commits, a clock, ids, chance, a way to wait.

Nothing in this room reaches for the world by itself, so a whole history can be replayed deterministically in
a test. The gate decides whether a protocol can be read or written, the rules what its features demand of a commit;
the table features live above this room.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import UnsupportedProtocolError
from headwater.log.delta.dialect import DELTA
from headwater.log.indextables.options import NO_OPTIONS, LogOptions
from headwater.storage.redaction import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.log.commit.draft import CommitRule
    from headwater.log.configuration import TableConfiguration
    from headwater.log.dialect import LogDialect
    from headwater.log.indextables.cache import LogCache
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore


def now_ms() -> int:
    """Return the wall clock, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return str(uuid.uuid4())


def read_only(configuration: TableConfiguration) -> None:  # noqa: ARG001
    """Refuse to write: the table was opened for reading."""
    raise UnsupportedProtocolError("this table was opened for reading only.")


def local_files(path: str) -> tuple[ObjectStore, str]:
    """The store and the key for a file on this machine: in a context without options, no path leads anywhere else."""
    from headwater.storage.elsewhere import OtherStores

    return OtherStores("/", None).locate(path)


@dataclass(frozen=True, slots=True, repr=False)
class LogContext:
    """One table's log as the core sees it."""

    store: ObjectStore
    check_readable: Callable[[TableConfiguration], None]
    """Raises `UnsupportedProtocolError` when the table cannot be read."""
    check_writable: Callable[[TableConfiguration], None] = read_only
    """Raises `UnsupportedProtocolError` when the table cannot be written."""
    commit_rules: tuple[CommitRule, ...] = ()
    """What table features demand of every commit, in order."""
    after_commit: tuple[Callable[[Snapshot], None], ...] = ()
    """What table features do once a commit has happened, each with the table right after it."""
    clock_ms: Callable[[], int] = now_ms
    sleep: Callable[[float], None] = time.sleep
    new_id: Callable[[], str] = new_id
    """A new UUID; names of files are made of them."""
    random: Callable[[], float] = random.random
    """Between 0 and 1, for waiting times."""
    storage_options: dict[str, str] | None = field(default=None, repr=False)
    """Options of the object store, for whoever opens files of the table elsewhere: in a task of Spark's."""
    open_absolute: Callable[[str], tuple[ObjectStore, str]] = local_files
    """The store and the key for a file outside the table, by its decoded path: a clone names those of its source."""
    trust_checksum: bool = False
    """Take protocol and metaData from the version checksum rather than from the checkpoint, where it can be matched
    with its commit: one small object instead of the footers of all parts. The log stays the judge by default."""
    compaction_interval: int | None = None
    """Write a log compaction file after this many commits without a checkpoint. Off by default: with checkpoints
    every few commits readers gain nothing."""
    dialect: LogDialect = DELTA
    options: LogOptions = NO_OPTIONS
    """What overrules the table's configuration, in dialects that have such options."""
    cache: LogCache | None = None
    """What is kept of the log from one opening to the next."""
    time_zone: str = "UTC"
    """The zone of timestamps among the partition values that do not name theirs. The log itself takes them for UTC, as
    the kernels do; for reads and writes in Spark it is the session's zone, as in delta-spark."""
    missing_object_waits_s: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """How long to wait, try after try, for an object that a listing should have shown (spec `000`, reads)."""

    def __repr__(self) -> str:
        return f"LogContext({shortened(self.uri)!r})"

    @property
    def uri(self) -> str:
        return self.store.uri
