"""Many writers on one table, in virtual time: a whole history follows from one number.

Every writer is a thread, and one of them runs at a time: at each call to the store it hands over to the scheduler,
which picks the next one by chance. The store forgets answers, asks to slow down, lags behind in listings, and writers
die at any call. What happened is recorded for `simulation_check`, which knows what must be true of it.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headwater.errors import ObjectAlreadyExistsError, ObjectNotFoundError, StorageThrottledError
from headwater.storage.base import ObjectMeta
from support.stores.faults import (
    Action,
    Call,
    CrashAfter,
    CrashBefore,
    FaultyStore,
    HideFromListings,
    RaiseAfter,
    RaiseBefore,
    SimulatedCrash,
)

START_MS = 1_700_000_000_000
LONGEST_LAG_MS = 3_600_000
"""No listing lags behind by hours: cleanup relies on it that one shows what is older than a day."""
MOST_STEPS = 20_000
"""A history that takes longer does not end."""


def without_shared_locks(package: str) -> None:
    """Let simulated processes be independent of each other.

    In Python 3.11 a `cached_property` holds one lock for all instances while it is worked out. A writer that waits for
    its turn within one would stop all others for ever, as real processes would not.
    """
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(found.name)
    for name, module in list(sys.modules.items()):
        if name.startswith(package):
            for cls in [value for value in vars(module).values() if isinstance(value, type)]:
                for attribute in vars(cls).values():
                    if isinstance(attribute, cached_property) and hasattr(attribute, "lock"):
                        attribute.lock = nullcontext()


class Scheduler:
    """Lets one thread run at a time; time passes only here."""

    def __init__(self, chance: random.Random) -> None:
        self.now_ms = START_MS
        self.steps = 0
        self._chance = chance
        self._turn = threading.Semaphore(0)
        self._waiting: dict[_Task, float] = {}
        self._running: _Task | None = None

    def run(self, bodies: list[Callable[[], None]]) -> None:
        """Run all to their ends. An error of one of them is raised here."""
        tasks = [_Task(self, body) for body in bodies]
        self._waiting = dict.fromkeys(tasks, 0.0)
        while self._waiting:
            ready = [task for task, until in self._waiting.items() if until <= self.now_ms]
            if not ready:
                self.now_ms = int(min(self._waiting.values())) + 1
                continue
            self._running = self._chance.choice(ready)
            del self._waiting[self._running]
            self.steps += 1
            self.now_ms += self._chance.randrange(4)
            self._running.go.release()
            self._turn.acquire()
            if self._running is not None and self._running.error is not None:
                raise self._running.error
            if self.steps > MOST_STEPS:
                raise AssertionError("this history does not end")

    def pause(self, seconds: float = 0.0) -> None:
        """Let others run, and come back after a while. Helper threads of a writer just go on."""
        task = self._running
        if task is None or threading.current_thread() is not task.thread:
            return
        self._waiting[task] = self.now_ms + seconds * 1_000
        self._turn.release()
        task.go.acquire()

    def ended(self) -> None:
        self._turn.release()


class _Task:
    def __init__(self, scheduler: Scheduler, body: Callable[[], None]) -> None:
        self.go = threading.Semaphore(0)
        self.error: BaseException | None = None
        self._scheduler, self._body = scheduler, body
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.go.acquire()
        try:
            self._body()
        except BaseException as error:
            self.error = error
        self._scheduler.ended()


class SimulatedStore:
    """A consistent store in memory that remembers every commit that was ever put into the log."""

    uri = "memory://simulated"

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._objects: dict[str, tuple[bytes, int]] = {}
        self.commits: dict[int, bytes] = {}
        self.twice: list[str] = []
        """Commits that were put where one had been before: those would be lost."""

    def get(self, key: str) -> bytes:
        if key not in self._objects:
            raise ObjectNotFoundError(f"no object {key}")
        return self._objects[key][0]

    def get_many(self, keys: Any) -> list[bytes]:
        return [self.get(key) for key in keys]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def head(self, key: str) -> ObjectMeta:
        return ObjectMeta(key, len(self.get(key)), self._objects[key][1])

    def list_from(self, prefix: str, start_after: str = "", *, recursive: bool = False) -> list[ObjectMeta]:
        return [
            self.head(key)
            for key in sorted(self._objects)
            if key.startswith(prefix) and key > start_after and (recursive or "/" not in key.removeprefix(prefix))
        ]

    def put(self, key: str, data: bytes) -> None:
        self._objects[key] = (data, self._scheduler.now_ms)

    def put_if_absent(self, key: str, data: bytes) -> None:
        if key in self._objects:
            raise ObjectAlreadyExistsError(f"{key} exists")
        if key.startswith("_delta_log/") and key.endswith(".json") and ".checkpoint." not in key:
            name = key.removeprefix("_delta_log/").removesuffix(".json")
            if name.isdigit():
                if int(name) in self.commits:
                    self.twice.append(key)
                self.commits[int(name)] = data
        self.put(key, data)

    def delete_many(self, keys: Any) -> None:
        for key in keys:
            self._objects.pop(key, None)


@dataclass(frozen=True)
class Odds:
    """How likely things go wrong, per call."""

    throttled: float = 0.0
    lost_answer: float = 0.0
    crash: float = 0.0
    hidden: float = 0.0
    outage: float = 0.0
    """A while in which one process gets no answer to anything."""


@dataclass
class World:
    """A table's store, the time, and chance; writers are added by `processes`."""

    seed: int
    odds: Odds
    chance: random.Random = field(init=False)
    scheduler: Scheduler = field(init=False)
    store: SimulatedStore = field(init=False)
    shared: FaultyStore = field(init=False)
    ids: int = 0
    hidden_ms: int = START_MS
    """When a key was hidden last."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.scheduler = Scheduler(self.chance)
        self.store = SimulatedStore(self.scheduler)
        self.shared = FaultyStore(self.store, self._lagging)

    def new_id(self) -> str:
        self.ids += 1
        return str(uuid.UUID(int=self.chance.getrandbits(32) << 96 | self.ids))

    def client(self) -> FaultyStore:
        """The store as one process sees it: it may wait at every call, be told nothing, or die."""
        left = 0

        def fault(call: Call) -> Action | None:
            nonlocal left
            if threading.current_thread().name.startswith("headwater-"):
                return None  # a helper thread of a reader: the order of these is not ours to decide
            self.scheduler.pause()
            if left == 0 and self.chance.random() < self.odds.outage:
                left = self.chance.randint(1, 15)
            if left == 0:
                return self._fault()
            left -= 1
            return self.chance.choice([RaiseBefore, RaiseAfter])(StorageThrottledError("no answer"))

        return FaultyStore(self.shared, fault)

    def _lagging(self, call: Call) -> Action | None:
        if call.operation in ("put", "put_if_absent") and self.chance.random() < self.odds.hidden:
            self.hidden_ms = self.scheduler.now_ms
            return HideFromListings(self.chance.randint(1, 3))
        if call.operation == "list_from" and self.scheduler.now_ms - self.hidden_ms > LONGEST_LAG_MS:
            self.shared.show_all()
        return None

    def _fault(self) -> Action | None:
        drawn = self.chance.random()
        for odds, makes in (
            (self.odds.crash / 2, lambda: CrashBefore()),
            (self.odds.crash / 2, lambda: CrashAfter()),
            (self.odds.throttled, lambda: RaiseBefore(StorageThrottledError("slow down"))),
            (self.odds.lost_answer, lambda: RaiseAfter(StorageThrottledError("no answer"))),
        ):
            if drawn < odds:
                return makes()
            drawn -= odds
        return None

    def processes(self, count: int, life: Callable[[FaultyStore], bool]) -> list[Callable[[], None]]:
        """Writers: each lives until `life` returns False, and is started anew after it died."""

        def body() -> None:
            alive = True
            while alive:
                try:
                    alive = life(self.client())
                except SimulatedCrash:
                    continue

        return [body] * count
