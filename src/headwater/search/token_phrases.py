"""Phrases in a column of tokens, with and without a slop (`headwater.search.query.Phrase` says what they mean)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.search.token_column import TokenColumn


def phrase_rows(column: TokenColumn, terms: Sequence[str], slop: int) -> pa.Int64Array:
    """The row of every occurrence of a phrase; with a slop, of every text that matches."""
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
    """Whether each slot can have a token of its own, with distances that differ by at most `slop`."""
    shifts = sorted({position - slot for slot, code in enumerate(slots) for position in places[code]})
    return any(_fits_from(places, slots, lowest, slop) for lowest in shifts)


def _fits_from(places: Mapping[int, Sequence[int]], slots: Sequence[int], lowest: int, slop: int) -> bool:
    """The same, with all distances from `lowest` to `lowest + slop`.

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
