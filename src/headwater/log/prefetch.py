"""Reading ahead: the next item is made in a thread while the current one is worked on.

Arrow decodes Parquet without the interpreter lock and msgspec decodes JSON with it, so the two overlap; on an object
store the wait for the next range overlaps as well.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Item = TypeVar("_Item")
_END = object()


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
