"""How often and how long: the bounds of repetition."""

from __future__ import annotations

import pytest

from headwater.errors import ObjectNotFoundError, StorageThrottledError
from headwater.storage.errors import RetryPolicy


def throttled_times(count: int) -> object:
    calls = iter(range(count + 1))

    def attempt() -> str:
        if next(calls) < count:
            raise StorageThrottledError("slow down")
        return "done"

    return attempt


def test_pauses_double_up_to_their_bound() -> None:
    pauses_s: list[float] = []
    policy = RetryPolicy(8, first_delay_s=1.0, max_delay_s=10.0, sleep=pauses_s.append, jitter=lambda: 1.0)
    assert policy.run(throttled_times(7)) == "done"
    assert pauses_s == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_pauses_are_spread_by_the_jitter() -> None:
    pauses_s: list[float] = []
    shares = iter([0.0, 0.5, 0.25])
    policy = RetryPolicy(first_delay_s=1.0, sleep=pauses_s.append, jitter=lambda: next(shares))
    policy.run(throttled_times(3))
    assert pauses_s == [0.0, 1.0, 1.0]


def test_last_attempt_is_not_followed_by_a_pause() -> None:
    pauses_s: list[float] = []
    policy = RetryPolicy(max_attempts=3, sleep=pauses_s.append)
    with pytest.raises(StorageThrottledError, match=r"slow down \(gave up after 3 attempts\)"):
        policy.run(throttled_times(3))
    assert len(pauses_s) == 2


def test_one_attempt_never_sleeps() -> None:
    policy = RetryPolicy(max_attempts=1, sleep=pytest.fail)
    with pytest.raises(StorageThrottledError):
        policy.run(throttled_times(1))


def test_other_errors_pass_through_at_once() -> None:
    def attempt() -> None:
        raise ObjectNotFoundError("gone")

    with pytest.raises(ObjectNotFoundError, match=r"^gone$"):
        RetryPolicy(sleep=pytest.fail).run(attempt)


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RetryPolicy(max_attempts=0)
