"""How the sizes of files are spread: bins from one power of four to the next, and bars to draw them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from headwater.cli import formats

if TYPE_CHECKING:
    from collections.abc import Iterable

_FIRST_BITS = 10
"""The first bin ends here, at 1 KiB: what is smaller is simply small."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Bin(NamedTuple):
    """Files of `from_bytes` to less than `to_bytes`."""

    from_bytes: int
    to_bytes: int
    num_files: int

    @property
    def label(self) -> str:
        """The bounds, for people."""
        upper = formats.size(self.to_bytes).replace(".0", "")
        if self.from_bytes == 0:
            return f"< {upper}"
        lower = formats.size(self.from_bytes).replace(".0", "")
        return f"{lower} – {upper}"


def histogram(sizes_bytes: Iterable[int]) -> list[Bin]:
    """The bins from the smallest file to the largest; empty ones only in between.

    >>> [tuple(bin) for bin in histogram([100, 5_000, 6_000])]
    [(0, 1024, 1), (1024, 4096, 0), (4096, 16384, 2)]
    """
    # The length of a number in bits says which powers of two it is between; both steps run in C.
    by_bits = Counter(map(int.bit_length, sizes_bytes))
    counts: Counter[int] = Counter()
    for bits, num_files in by_bits.items():
        counts[max(0, (bits - _FIRST_BITS + 1) // 2)] += num_files
    if not counts:
        return []
    return [Bin(_start(i), _start(i + 1), counts[i]) for i in range(min(counts), max(counts) + 1)]


def _start(index: int) -> int:
    return 0 if index == 0 else 1 << (_FIRST_BITS + 2 * (index - 1))


def bar(share: float, width: int, *, ascii_only: bool) -> str:
    """A bar that fills this share of the width; anything above nothing is visible.

    >>> bar(0.5, 4, ascii_only=False), bar(0.5, 4, ascii_only=True), bar(0.001, 4, ascii_only=False)
    ('██', '##', '▏')
    """
    if share <= 0:
        return ""
    eighths = max(1, round(share * width * 8))
    if ascii_only:
        return "#" * max(1, round(eighths / 8))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
