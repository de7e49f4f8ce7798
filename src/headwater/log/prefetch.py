"""Threads for reading: the next batch while the current one is worked on, and several row groups at once.

Arrow decodes Parquet without the interpreter lock and msgspec decodes JSON with it, so the two overlap; on an object
store the wait for the next range overlaps as well.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_Item = TypeVar("_Item")
_Half = TypeVar("_Half")
_Result = TypeVar("_Result")
_END = object()
_MAX_THREADS = min(8, os.cpu_count() or 1)
"""Decoding is bound by cores, and every thread holds a batch of its own."""


def ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """The same items, each made one step before it is asked for.

    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    source = iter(items)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-prefetch") as pool:
        pending = pool.submit(next, source, _END)
        while (item := pending.result()) is not _END:
            pending = pool.submit(next, source, _END)
            yield item  # type: ignore[misc]


def each(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """The results for all items, in their order; made by a few threads when there are several items.

    >>> each(str, [1, 2])
    ['1', '2']
    """
    if len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _MAX_THREADS), thread_name_prefix="headwater-read") as pool:
        return list(pool.map(work, items))


def each_in_two_steps(
    first: Callable[[_Item], _Half], second: Callable[[_Item, _Half], _Result], items: Sequence[_Item]
) -> list[_Result]:
    """As `each`, with work in two steps: smaller pieces keep all threads busy to the end.

    >>> each_in_two_steps(len, lambda text, length: text * length, ["a", "bc"])
    ['a', 'bcbc']
    """
    if len(items) <= 1:
        return [second(item, first(item)) for item in items]
    with ThreadPoolExecutor(min(len(items), _MAX_THREADS), thread_name_prefix="headwater-read") as pool:
        # First steps are started before all second ones, so a second step waits for a running one at most.
        halves = [pool.submit(first, item) for item in items]
        return list(pool.map(lambda item, half: second(item, half.result()), items, halves))
