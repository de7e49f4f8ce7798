"""All files of a scan as objects of Spark, kept on the JVM so that a second query over them is planned at once.

They are made once; the files of a query are then picked out of them in a few calls.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headwater.spark.jvm import JavaObject

_MAX_RUNS = 32
"""Files that lie together are picked in one call; from this many places, to send them anew is quicker."""


class WholeListing:
    """All files of a scan on the JVM, and where each of them is."""

    def __init__(self, paths: pa.ChunkedArray, directories: JavaObject) -> None:
        """Keep what was listed.

        Args:
            paths: the path of every file, each one once.
            directories: a Scala `IndexedSeq` with one element a file, in the same order.
        """
        # A dictionary, for Arrow would hash all paths again for every query. A listing that is kept is not large.
        self._positions = {path: position for position, path in enumerate(paths.to_pylist())}
        self._directories = directories

    def pick(self, paths: pa.ChunkedArray) -> JavaObject | None:
        """The elements of some files, in their order; None where they lie in too many places."""
        runs = _runs(self._positions[path] for path in paths.to_pylist())
        if len(runs) > _MAX_RUNS:
            return None
        parts = [self._directories.slice(start, end) for start, end in runs] or [self._directories.take(0)]
        return reduce(lambda one, other: one.concat(other), parts)


def _runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Consecutive positions as ranges; when there are too many, the first of them.

    >>> _runs([4, 5, 6, 9])
    [(4, 7), (9, 10)]
    """
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        elif len(runs) <= _MAX_RUNS:
            runs.append((position, position + 1))
        else:
            break
    return runs
