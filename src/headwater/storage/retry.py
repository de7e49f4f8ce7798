"""Bounded repetition of what may pass: exponential backoff with full jitter, and nothing that never ends.

Only `StorageThrottledError` is repeated. The stores' own retries are switched off, so that this is the only
place that decides, and a caller knows whether an earlier attempt may have reached the store.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import StorageThrottledError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how long, a request is repeated.

    The n-th pause is drawn evenly between nothing and `first_delay_s * 2**(n-1)`, never more than
    `max_delay_s`: with the defaults at most 12.7 s in all. So writers that collided drift apart.

    Attributes:
        max_attempts: the first one included.
        first_delay_s: the upper bound of the first pause.
        max_delay_s: the upper bound of any pause.
        sleep: waits; replaced in tests.
        jitter: a number in [0, 1); replaced in tests.
    """

    max_attempts: int = 8
    first_delay_s: float = 0.1
    max_delay_s: float = 10.0
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts has to be at least 1, not {self.max_attempts}")

    def run(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it returns, fails for good, or `max_attempts` is reached.

        >>> RetryPolicy().run(lambda: 42)
        42

        Raises:
            StorageThrottledError: every attempt was throttled or went unanswered.
        """
        for number in range(1, self.max_attempts):
            try:
                return attempt()
            except StorageThrottledError:
                bound_s = min(self.first_delay_s * 2 ** (number - 1), self.max_delay_s)
                self.sleep(bound_s * self.jitter())
        try:
            return attempt()
        except StorageThrottledError as error:
            raise StorageThrottledError(f"{error} (gave up after {self.max_attempts} attempts)") from error
