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
    far = distance + 1  # also outside of the band around the diagonal, where every way is too long
    before: list[int] = []
    last = [min(j, far) for j in range(len(other) + 1)]
    for i, a in enumerate(word, 1):
        row = [far] * (len(other) + 1)
        row[0] = min(i, far)
        for j in range(max(1, i - distance), min(len(other), i + distance) + 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != other[j - 1]))
            if i > 1 and j > 1 and a == other[j - 2] and other[j - 1] == word[i - 2]:
                best = min(best, before[j - 2] + 1)
            row[j] = min(best, far)
        before, last = last, row
    return last[-1] <= distance
