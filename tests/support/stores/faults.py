"""A store that fails on purpose, for tests: errors, lost answers, crashes, stale listings and torn writes.

A policy decides for every call what goes wrong. It is deterministic: the same policy and the same calls give
the same faults, so a test can crash a writer at each of its steps in turn.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.storage.base import ObjectMeta, ObjectStore

T = TypeVar("T")

Operation = Literal["get", "get_many", "get_range", "head", "list_from", "put", "put_if_absent", "delete_many"]
_LISTED = frozenset({"put", "put_if_absent"})
_SIZED = frozenset({"get", "get_many", "get_range", "put", "put_if_absent"})


class SimulatedCrash(BaseException):
    """The process died here. Not an `Exception`, so no handler takes it for an ordinary error."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as the policy sees it before it is made.

    Attributes:
        operation: the method's name. `get_many` and `delete_many` make one call per key, in order.
        key: the key, or the prefix of a listing.
        nth: this is the n-th call with this operation and key, counted from 1.
        index: this is the n-th call of all, counted from 1.
    """

    operation: Operation
    key: str
    nth: int
    index: int


@dataclass(frozen=True, slots=True)
class RaiseBefore:
    """Raise instead of doing it."""

    error: Exception


@dataclass(frozen=True, slots=True)
class RaiseAfter:
    """Do it, then raise: the answer was lost."""

    error: Exception


@dataclass(frozen=True, slots=True)
class CrashBefore:
    """Die instead of doing it. From then on the store refuses everything, as a dead process does nothing."""


@dataclass(frozen=True, slots=True)
class CrashAfter:
    """Do it, then die."""


@dataclass(frozen=True, slots=True)
class HideFromListings:
    """Do the write, but leave its key out of the next `listings` listings that would show it."""

    listings: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Read or write only the first `length_bytes` bytes."""

    length_bytes: int


Action = RaiseBefore | RaiseAfter | CrashBefore | CrashAfter | HideFromListings | Truncate


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of a script: what happens to the calls that match.

    Attributes:
        action: what goes wrong.
        operation: the method's name, or a pattern such as `put*`.
        key: the key, or a pattern such as `*.json`.
        nth: only the n-th call with one operation and key; all of them if None.
        index: only the n-th call of all; all of them if None.
    """

    action: Action
    operation: str = "*"
    key: str = "*"
    nth: int | None = None
    index: int | None = None

    def matches(self, call: Call) -> bool:
        """Whether this fault is for that call."""
        return (
            self.nth in (None, call.nth)
            and self.index in (None, call.index)
            and fnmatchcase(call.operation, self.operation)
            and fnmatchcase(call.key, self.key)
        )


Policy = Callable[[Call], Action | None]
"""What goes wrong with a call, if anything. It may also let something else happen first."""


def script(*faults: Fault) -> Policy:
    """The policy that follows a list of faults: the first one that matches a call decides."""
    return lambda call: next((fault.action for fault in faults if fault.matches(call)), None)


class FaultyStore:
    """A store with faults in front of it.

    >>> from headwater.storage import open_store
    >>> inner = open_store("memory://faults-example")
    >>> store = FaultyStore(inner, script(Fault(CrashBefore(), operation="put", nth=1)))
    >>> try:
    ...     store.put("a", b"1")
    ... except SimulatedCrash:
    ...     inner.list_from("")
    []

    Attributes:
        calls: all calls so far, in order. Their number after a run without faults is the number of places
            to crash at.
    """

    def __init__(self, inner: ObjectStore, policy: Policy | None = None) -> None:
        self._inner = inner
        self._policy = policy or script()
        self._lock = threading.Lock()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._hidden: dict[str, int] = {}
        self._crashed = False
        self.calls: list[Call] = []

    @property
    def uri(self) -> str:
        """The root of the store behind."""
        return self._inner.uri

    def get(self, key: str) -> bytes:
        return self._read("get", key, partial(self._inner.get, key))

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        """As `ObjectStore.get_many`, one call per key."""
        return [self._read("get_many", key, partial(self._inner.get, key)) for key in keys]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read("get_range", key, lambda: self._inner.get_range(key, start, length))

    def head(self, key: str) -> ObjectMeta:
        return self._around(self._decide("head", key), lambda: self._inner.head(key))

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        """As `ObjectStore.list_from`, without the keys that are hidden for now."""
        action = self._decide("list_from", prefix)
        listed = self._around(action, lambda: self._inner.list_from(prefix, start_after, recursive=recursive))
        return [meta for meta in listed if not self._still_hidden(meta.key)]

    def put(self, key: str, data: bytes) -> None:
        self._write("put", key, data, self._inner.put)

    def put_if_absent(self, key: str, data: bytes) -> None:
        self._write("put_if_absent", key, data, self._inner.put_if_absent)

    def delete_many(self, keys: Iterable[str]) -> None:
        """As `ObjectStore.delete_many`, one call per key."""
        for key in keys:
            self._around(self._decide("delete_many", key), partial(self._inner.delete_many, [key]))

    # --- faults ---------------------------------------------------------------------------------------

    def _decide(self, operation: Operation, key: str) -> Action | None:
        with self._lock:
            if self._crashed:
                raise SimulatedCrash("this process is dead already")
            self._seen[operation, key] += 1
            call = Call(operation, key, self._seen[operation, key], len(self.calls) + 1)
            self.calls.append(call)
        action = self._policy(call)
        for kind, operations in ((HideFromListings, _LISTED), (Truncate, _SIZED)):
            if isinstance(action, kind) and operation not in operations:
                raise ValueError(f"{kind.__name__} makes no sense for {operation} of {key!r}")
        return action

    def _around(self, action: Action | None, call: Callable[[], T]) -> T:
        match action:
            case RaiseBefore(error):
                raise error
            case CrashBefore():
                self._crash()
        result = call()
        match action:
            case RaiseAfter(error):
                raise error
            case CrashAfter():
                self._crash()
        return result

    def _crash(self) -> None:
        self._crashed = True
        raise SimulatedCrash("the process dies here")

    def _read(self, operation: Operation, key: str, read: Callable[[], bytes]) -> bytes:
        action = self._decide(operation, key)
        data = self._around(action, read)
        return data[: action.length_bytes] if isinstance(action, Truncate) else data

    def _write(self, operation: Operation, key: str, data: bytes, write: Callable[[str, bytes], None]) -> None:
        action = self._decide(operation, key)
        if isinstance(action, Truncate):
            data = data[: action.length_bytes]
        self._around(action, lambda: write(key, data))
        if isinstance(action, HideFromListings):
            with self._lock:
                self._hidden[key] = action.listings

    def show_all(self) -> None:
        """Let listings show every key again."""
        with self._lock:
            self._hidden.clear()

    def _still_hidden(self, key: str) -> bool:
        with self._lock:
            left = self._hidden.get(key, 0)
            if left > 0:
                self._hidden[key] = left - 1
            return left > 0
