"""The tokens of a column of text, as Arrow arrays, and the phrases and similar words among them.

Text is cut at the characters at which the field's analyser cuts, then each distinct word is analysed once. So the cost
in Python is that of the vocabulary, and patterns and edit distances are evaluated on the vocabulary.

An edit is a character more, less or other, or two neighbours swapped; characters that were swapped are not edited again
(the "optimal string alignment" distance, which the index computes as well).
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.search.analysis import tokens
from headwater.search.query.patterns import is_separator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_ASCII = "".join(map(chr, range(128)))


@dataclass(frozen=True)
class TokenColumn:
    """The tokens of some texts. A row may have any number of texts (in JSON); a phrase is always within one of them.

    Attributes:
        terms: the distinct tokens.
        codes: of every token in order, its place in `terms`.
        texts: of every token, the text it is in; ascending.
        rows: of every text, its row; ascending.
    """

    terms: pa.StringArray
    codes: pa.Int32Array
    texts: pa.Int64Array
    rows: pa.Int64Array

    def token_rows(self, chosen: pa.BooleanArray) -> pa.Int64Array:
        """Return the row of every token whose term is chosen, once for each."""
        return self.rows.take(self.texts.filter(chosen.take(self.codes)))

    @functools.cached_property
    def lengths(self) -> tuple[pa.Array, pa.Array]:
        """The rows that have a token, and the number of their tokens."""
        counted = pc.value_counts(self.rows.take(self.texts))
        return counted.field(0), counted.field(1)


def token_column(texts: pa.StringArray, rows: pa.Int64Array, tokenizer: str) -> TokenColumn:
    """Return the tokens of texts without nulls; `rows` has the row of each of them, ascending."""
    if tokenizer == "raw":
        encoded = texts.dictionary_encode()
        return TokenColumn(encoded.dictionary, encoded.indices, counting(len(texts)), rows)
    pieces = pc.split_pattern_regex(texts, _separators(texts, tokenizer))
    words, owners = pieces.flatten(), pc.list_parent_indices(pieces).cast(pa.int64())
    real = pc.not_equal(words, build.EMPTY)  # before a leading and behind a trailing separator stands no word
    encoded = words.filter(real).dictionary_encode()
    analysed = _analysed(encoded.dictionary, tokenizer).dictionary_encode()
    return TokenColumn(analysed.dictionary, analysed.indices.take(encoded.indices), owners.filter(real), rows)


def counting(length: int) -> pa.Int64Array:
    """Return 0, 1, 2, ..."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(build.int64s([1])[0], length)), build.int64s([1])[0])


def row_mask(rows: pa.Int64Array, num_rows: int) -> pa.BooleanArray:
    if len(rows) == 0:
        return pa.repeat(build.bools([False])[0], num_rows)
    return pc.is_in(counting(num_rows), value_set=pc.unique(rows))


def _analysed(words: pa.StringArray, tokenizer: str) -> pa.StringArray:
    """Return the token of each word: there is exactly one in a text without separators."""
    if tokenizer == "whitespace":
        return words
    if tokenizer == "default" and pc.all(pc.string_is_ascii(words), min_count=0).as_py():
        return pc.ascii_lower(words)
    return build.strings([tokens(tokenizer, word)[0] for word in words.to_pylist()])


def _separators(texts: pa.StringArray, tokenizer: str) -> str:
    """Return the regular expression of the separators that occur in these texts."""
    found = set(_ASCII)
    foreign = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    for text in foreign.to_pylist():
        found.update(text)
    cutting = sorted(ord(c) for c in found if is_separator(tokenizer, c))
    listed = "".join(rf"\x{{{code:x}}}" for code in cutting)
    return f"[{listed}]+"


def phrase_rows(column: TokenColumn, terms: Sequence[str], slop: int) -> pa.Int64Array:
    """Return the row of every occurrence of a phrase; with a slop, of every text that matches."""
    wanted = pc.index_in(build.strings(list(terms)), value_set=column.terms)
    if wanted.null_count:
        return build.int64s([])
    return _exact(column, wanted) if slop == 0 else _sloppy(column, wanted, slop)


def _exact(column: TokenColumn, wanted: pa.Int32Array) -> pa.Int64Array:
    length = len(column.codes) - len(wanted) + 1
    if length <= 0:
        return build.int64s([])
    starts = column.texts.slice(0, length)
    ends = column.texts.slice(len(wanted) - 1, length)
    first = pc.and_(pc.equal(starts, ends), pc.equal(column.codes.slice(0, length), wanted[0]))
    places = pc.indices_nonzero(first)
    for at, code in enumerate(wanted):
        if len(places) == 0:  # a long phrase is mostly decided by its first words
            break
        places = places.filter(pc.equal(column.codes.slice(at, length).take(places), code))
    return column.rows.take(starts.take(places))


def _sloppy(column: TokenColumn, wanted: pa.Int32Array, slop: int) -> pa.Int64Array:
    candidates: pa.Array | None = None
    for code in pc.unique(wanted):
        texts = pc.unique(column.texts.filter(pc.equal(column.codes, code)))
        candidates = texts if candidates is None else candidates.filter(pc.is_in(candidates, value_set=texts))
    chosen = pc.is_in(column.texts, value_set=candidates)
    positions: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    last, position = -1, 0
    for text, code in zip(
        column.texts.filter(chosen).to_pylist(), column.codes.filter(chosen).to_pylist(), strict=True
    ):
        position = position + 1 if text == last else 0
        last = text
        positions[text][code].append(position)
    slots = wanted.to_pylist()
    return column.rows.take(build.int64s([text for text, places in positions.items() if _fits(places, slots, slop)]))


def _fits(places: Mapping[int, Sequence[int]], slots: Sequence[int], slop: int) -> bool:
    """Say whether each slot can have a token of its own, with distances that differ by at most `slop`."""
    shifts = sorted({position - slot for slot, code in enumerate(slots) for position in places[code]})
    return any(_fits_from(places, slots, lowest, slop) for lowest in shifts)


def _fits_from(places: Mapping[int, Sequence[int]], slots: Sequence[int], lowest: int, slop: int) -> bool:
    """Say the same for all distances from `lowest` to `lowest + slop`.

    Slots of the same term come in order and have windows of the same width, so the first free token is the best one.
    """
    used: dict[int, int] = {}
    for slot, code in enumerate(slots):
        after = used.get(code, -1)
        at = bisect_left(places[code], max(after + 1, lowest + slot))
        if at == len(places[code]) or places[code][at] > lowest + slot + slop:
            return False
        used[code] = places[code][at]
    return True


def within_edits(word: str, other: str, distance: int) -> bool:
    """Say whether at most `distance` edits turn one word into the other.

    >>> within_edits("fox", "fxo", 1), within_edits("fox", "foxes", 1), within_edits("fox", "foxes", 2)
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
