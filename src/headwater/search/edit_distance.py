"""How many edits lie between two words, as fuzzy queries count them.

An edit is a character more, less or other, or two neighbours swapped; characters that were swapped are not edited again
(the "optimal string alignment" distance, which the index computes as well).
"""

from __future__ import annotations


def is_near(word: str, other: str, distance: int) -> bool:
    """Whether at most `distance` edits make one word of the other.

    >>> is_near("fox", "fxo", 1), is_near("fox", "foxes", 1), is_near("fox", "foxes", 2)
    (True, False, True)
    """
    if abs(len(word) - len(other)) > distance:
        return False
    # A row of the table has only the band around its diagonal: outside of it every way is too long.
    far = distance + 1
    before: dict[int, int] = {}
    last = {j: j for j in range(min(len(other), distance) + 1)}
    for i, a in enumerate(word, 1):
        row = {0: i} if i <= distance else {}
        for j in range(max(1, i - distance), min(len(other), i + distance) + 1):
            changed = last.get(j - 1, far) + (a != other[j - 1])
            best = min(last.get(j, far) + 1, row.get(j - 1, far) + 1, changed)
            if i > 1 and j > 1 and a == other[j - 2] and other[j - 1] == word[i - 2]:
                best = min(best, before.get(j - 2, far) + 1)
            row[j] = min(best, far)
        if min(row.values(), default=far) > distance:
            return False
        before, last = last, row
    return last.get(len(other), far) <= distance
