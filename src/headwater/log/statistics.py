"""Per-file statistics as typed columns (spec: "Per-file Statistics").

Bounds come from `stats_parsed` where a checkpoint has it and from the JSON text elsewhere; either way they end as
Arrow columns in which null means "not known". Only the leaves that a filter mentions are decoded, and they are kept,
so that a second filter on the same columns costs nothing but its comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.prefetch import ahead
from headwater.log.schema import FLOAT, TIMESTAMP
from headwater.log.stats_decoder import Leaf, StatsDecoder, is_bounded
from headwater.log.values import comparable_type, decimal_array, has_zone, parse_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headwater.log.file_chunks import FileChunk
    from headwater.log.schema import DataType

_DECODED_TOGETHER = 8_192
_TIMESTAMP_SLACK_US = 999
"""Timestamps in statistics are cut to milliseconds: the true maximum may be this much later."""


Column: TypeAlias = "pa.ChunkedArray | None"


@dataclass(frozen=True)
class LeafStatistics:
    """Bounds and null counts of one leaf over the rows of a chunk; null is "not known"."""

    lower: Column
    upper: Column
    load_null_count: Callable[[], Column]
    """Most filters are decided by the bounds alone, and a column less to read is a column less."""

    @cached_property
    def null_count(self) -> Column:
        """The number of nulls."""
        return self.load_null_count()


@dataclass(frozen=True)
class _Totals:
    """The statistics of whole files."""

    num_records: pa.ChunkedArray
    load_tight_bounds: Callable[[], Column]

    @cached_property
    def tight_bounds(self) -> Column:
        """Whether the bounds of a file are tight."""
        return self.load_tight_bounds()


class ChunkStatistics:
    """The statistics of one chunk, decoded on demand and kept."""

    def __init__(self, chunk: FileChunk) -> None:
        self._chunk = chunk
        self._leaves: dict[Leaf, LeafStatistics] = {}
        self._totals: _Totals | None = None

    def load(self, leaves: Iterable[Leaf]) -> None:
        """Make sure that these leaves are decoded, in one pass over the text for all of them."""
        missing = [leaf for leaf in dict.fromkeys(leaves) if leaf not in self._leaves]
        if not missing and self._totals is not None:
            return
        totals, found = _from_struct(self._chunk, missing)
        if totals is None:
            totals, found = _from_text(ahead(self._chunk.text_batches("stats")), missing)
        else:
            totals, found = self._filled_from_text(totals, found)
        self._totals = totals
        self._leaves.update(found)

    def leaf(self, leaf: Leaf) -> LeafStatistics:
        """The statistics of a leaf that was loaded."""
        return self._leaves[leaf]

    @property
    def num_records(self) -> pa.ChunkedArray:
        """The physical number of rows in each file."""
        assert self._totals is not None, "load() comes first"
        return self._totals.num_records

    @property
    def tight_bounds(self) -> pa.ChunkedArray | None:
        """Whether the bounds are tight; null (or no column at all) means that they are."""
        assert self._totals is not None, "load() comes first"
        return self._totals.tight_bounds

    def _filled_from_text(
        self, totals: _Totals, found: dict[Leaf, LeafStatistics]
    ) -> tuple[_Totals, dict[Leaf, LeafStatistics]]:
        """Rows without parsed statistics may still have them as text (a writer that does not parse)."""
        if not totals.num_records.null_count:
            return totals, found
        text = pa.chunked_array(list(self._chunk.text_batches("stats")), type=pa.string())
        missing = pc.and_(totals.num_records.is_null(), text.is_valid())
        only_missing = pc.if_else(missing, text, build.strings([None])[0])
        text_totals, from_text = _from_text(only_missing.chunks, list(found))
        filled = {
            leaf: LeafStatistics(
                _coalesce(parsed.lower, from_text[leaf].lower),
                _coalesce(parsed.upper, from_text[leaf].upper),
                partial(_coalesce, parsed.null_count, from_text[leaf].null_count),
            )
            for leaf, parsed in found.items()
        }
        num_records = pc.coalesce(totals.num_records, text_totals.num_records)
        return _Totals(num_records, partial(_coalesce, totals.tight_bounds, text_totals.tight_bounds)), filled


def _coalesce(first: pa.ChunkedArray | None, second: pa.ChunkedArray | None) -> pa.ChunkedArray | None:
    if first is None or second is None:
        return second if first is None else first
    return pc.coalesce(first, second)


# --- struct statistics -----------------------------------------------------------------------------


def _from_struct(chunk: FileChunk, leaves: Sequence[Leaf]) -> tuple[_Totals | None, dict[Leaf, LeafStatistics]]:
    num_records = chunk.parsed(("stats_parsed", "numRecords"))
    if num_records is None:
        return None, {}
    found = {}
    for leaf in leaves:
        lower = _parsed_bound(chunk.parsed(("stats_parsed", "minValues", *leaf.path)), leaf.type)
        upper = _parsed_bound(chunk.parsed(("stats_parsed", "maxValues", *leaf.path)), leaf.type)
        found[leaf] = LeafStatistics(lower, _widen(upper), partial(_parsed_count, chunk, leaf))
    return _Totals(num_records, partial(chunk.parsed, ("stats_parsed", "tightBounds"))), found


def _parsed_count(chunk: FileChunk, leaf: Leaf) -> Column:
    null_count = chunk.parsed(("stats_parsed", "nullCount", *leaf.path))
    return null_count if null_count is not None and pa.types.is_integer(null_count.type) else None


def _parsed_bound(values: pa.ChunkedArray | None, type_: DataType) -> pa.ChunkedArray | None:
    """A bound as the checkpoint has it, in the comparable type; None if that type does not fit."""
    target = comparable_type(type_)
    if values is None or target is None or not is_bounded(target):
        return None
    if values.type == target:
        return values
    try:
        return values.cast(target, safe=not pa.types.is_timestamp(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _widen(upper: pa.ChunkedArray | None) -> pa.ChunkedArray | None:
    if upper is None or not pa.types.is_timestamp(upper.type):
        return upper
    slack = build.int64s([_TIMESTAMP_SLACK_US], pa.duration("us"))[0]
    try:
        return pc.add_checked(upper, slack)
    except pa.ArrowInvalid:  # beyond the last instant: no upper bound at all
        return None


# --- statistics as JSON text ------------------------------------------------------------------------


def _from_text(texts: Iterable[pa.Array], leaves: Sequence[Leaf]) -> tuple[_Totals, dict[Leaf, LeafStatistics]]:
    """Decode the wanted leaves of many JSON texts, batch by batch."""
    decoder = StatsDecoder(leaves)
    batches: list[list[pa.Array]] = []
    for text in _slices(texts):
        rows = decoder.decode(text.drop_null() if text.null_count else text)
        arrays = [_counts([row.num_records for row in rows]), build.bools([row.tight_bounds for row in rows])]
        for i, leaf in enumerate(leaves):
            arrays.append(_bounds(decoder.values(rows, "min_values", i), leaf.type, upper=False))
            arrays.append(_bounds(decoder.values(rows, "max_values", i), leaf.type, upper=True))
            arrays.append(_counts(decoder.values(rows, "null_count", i)))
        valid = text.is_valid()
        batches.append([build.spread(array, valid) for array in arrays] if text.null_count else arrays)
    types = [pa.int64(), pa.bool_()]
    for leaf in leaves:
        types += [comparable_type(leaf.type) or pa.null()] * 2 + [pa.int64()]
    columns = [pa.chunked_array([batch[i] for batch in batches], type=type_) for i, type_ in enumerate(types)]
    found = {
        leaf: LeafStatistics(columns[at], _widen(columns[at + 1]), partial(_same, columns[at + 2]))
        for leaf, at in zip(leaves, range(2, len(columns), 3), strict=True)
    }
    return _Totals(columns[0], partial(_same, columns[1])), found


def _slices(texts: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """A few thousand texts at a time: their decoded objects fit memory that is used again, not ever new pages."""
    for text in texts:
        for start in range(0, len(text), _DECODED_TOGETHER):
            yield text.slice(start, _DECODED_TOGETHER)


def _same(column: Column) -> Column:
    return column


def _counts(values: list[int | None]) -> pa.Array:
    """Row counts; one that no file can have is not known."""
    try:
        return build.int64s(values)
    except OverflowError:
        return build.int64s([v if v is not None and 0 <= v < 2**63 else None for v in values])


def _bounds(values: list[Any], type_: DataType, *, upper: bool) -> pa.Array:
    """Decoded JSON values as an array of the comparable type."""
    target = comparable_type(type_)
    if target is None:
        return pa.nulls(len(values))
    if not is_bounded(target):
        return pa.nulls(len(values), target)
    if pa.types.is_integer(target):
        try:
            return build.int64s(values)
        except OverflowError:
            return build.int64s([v if v is not None and -(2**63) <= v < 2**63 else None for v in values])
    if pa.types.is_floating(target):
        floats = _floats(values)
        # The text of a 32-bit float is its shortest form, which is not its value as a double.
        return floats.cast(pa.float32(), safe=False).cast(pa.float64()) if type_ == FLOAT else floats
    if pa.types.is_decimal(target):
        return decimal_array(values, target, upper=upper)
    if pa.types.is_boolean(target):
        return build.bools(values)
    if type_ == TIMESTAMP:
        # Without a zone the instant depends on who wrote it: not known.
        values = [v if v is not None and has_zone(v) else None for v in values]
    text = build.strings(values).cast(pa.string())
    return text if pa.types.is_string(target) else parse_bounds(text, type_)


def _floats(values: list[float | str | None]) -> pa.Array:
    """Doubles; NaN (which bounds nothing) is not known, infinities may stand as text."""
    try:
        floats = build.float64s(values)  # type: ignore[arg-type]
    except TypeError:
        floats = build.float64s([_NON_FINITE.get(v) if isinstance(v, str) else v for v in values])
    return pc.if_else(pc.is_nan(floats), build.float64s([None])[0], floats)


_NON_FINITE = {"Infinity": float("inf"), "-Infinity": float("-inf")}
