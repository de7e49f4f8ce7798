"""What the log core is given from outside: a store, a gate, a clock, a way to wait.

Nothing in this room reaches for the world by itself, so a whole history can be replayed deterministically in
a test. The gate decides whether a protocol can be read; the table features live above this room.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.log.actions import Metadata, Protocol
    from headwater.storage.base import ObjectStore


def now_ms() -> int:
    """The wall clock, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class LogContext:
    """One table's log as the core sees it."""

    store: ObjectStore
    check_readable: Callable[[Protocol, Metadata], None]
    """Raises `UnsupportedProtocolError` when the table cannot be read."""
    clock_ms: Callable[[], int] = now_ms
    sleep: Callable[[float], None] = time.sleep
    trust_checksum: bool = False
    """Take protocol and metaData from the version checksum rather than from the checkpoint, where it can be matched
    with its commit: one small object instead of the footers of all parts. The log stays the judge by default."""
    missing_object_waits_s: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """How long to wait, try after try, for an object that a listing should have shown (spec `000`, reads)."""

    @property
    def uri(self) -> str:
        """The table's location, for messages."""
        return self.store.uri
