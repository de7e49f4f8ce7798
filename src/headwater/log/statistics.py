"""Per-file statistics as typed columns (spec: "Per-file Statistics").

Bounds come from `stats_parsed` where a checkpoint has it and from the JSON text elsewhere; either way they end as
Arrow columns in which null means "not known". Only the leaves that a filter mentions are decoded, and they are kept,
so that a second filter on the same columns costs nothing but its comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.schema import FLOAT, TIMESTAMP
from headwater.log.values import comparable_type, decimal_array, has_zone, parse_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.log.file_chunks import FileChunk
    from headwater.log.schema import DataType

_TIMESTAMP_SLACK_US = 999
"""Timestamps in statistics are cut to milliseconds: the true maximum may be this much later."""
_NEWLINE = build.strings(["\n"])[0]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column of the table by its physical path, with its Delta type."""

    path: tuple[str, ...]
    type: DataType


@dataclass(frozen=True, slots=True)
class LeafStatistics:
    """Bounds and null counts of one leaf over the rows of a chunk; null is "not known"."""

    lower: pa.ChunkedArray | None
    upper: pa.ChunkedArray | None
    null_count: pa.ChunkedArray | None


@dataclass(frozen=True, slots=True)
class _Totals:
    """The statistics of whole files."""

    num_records: pa.ChunkedArray
    tight_bounds: pa.ChunkedArray | None


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
            totals, found = _from_text(self._chunk.text_batches("stats"), missing)
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
        text = self._chunk.column("stats")
        missing = pc.and_(totals.num_records.is_null(), text.is_valid())
        if not pc.any(missing).as_py():
            return totals, found
        only_missing = pc.if_else(missing, text, build.strings([None])[0])
        text_totals, from_text = _from_text(only_missing.chunks, list(found))
        filled = {
            leaf: LeafStatistics(
                _coalesce(parsed.lower, from_text[leaf].lower),
                _coalesce(parsed.upper, from_text[leaf].upper),
                _coalesce(parsed.null_count, from_text[leaf].null_count),
            )
            for leaf, parsed in found.items()
        }
        num_records = pc.coalesce(totals.num_records, text_totals.num_records)
        return _Totals(num_records, _coalesce(totals.tight_bounds, text_totals.tight_bounds)), filled


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
        null_count = chunk.parsed(("stats_parsed", "nullCount", *leaf.path))
        if null_count is not None and not pa.types.is_integer(null_count.type):
            null_count = None
        found[leaf] = LeafStatistics(lower, _widen(upper), null_count)
    return _Totals(num_records, chunk.parsed(("stats_parsed", "tightBounds"))), found


def _parsed_bound(values: pa.ChunkedArray | None, type_: DataType) -> pa.ChunkedArray | None:
    """A bound as the checkpoint has it, in the comparable type; None if that type does not fit."""
    target = comparable_type(type_)
    if values is None or target is None or not _is_bounded(target):
        return None
    if values.type == target:
        return values
    try:
        return values.cast(target, safe=not pa.types.is_timestamp(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _is_bounded(target: pa.DataType) -> bool:
    return not pa.types.is_binary(target)


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
    decoder = _StatsDecoder(leaves)
    batches: list[list[pa.Array]] = []
    for text in texts:
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
        leaf: LeafStatistics(columns[at], _widen(columns[at + 1]), columns[at + 2])
        for leaf, at in zip(leaves, range(2, len(columns), 3), strict=True)
    }
    return _Totals(columns[0], columns[1]), found


def _counts(values: list[int | None]) -> pa.Array:
    """Row counts; one that no file can have is not known."""
    try:
        return build.int64s(values)
    except OverflowError:
        return build.int64s([v if v is not None and 0 <= v < 2**63 else None for v in values])


class _StatsDecoder:
    """A generated decoder that builds only the wanted leaves and skips the rest of the text.

    A text that does not decode (it is damaged, or a value has another type than the column) is decoded again
    leniently, alone; what it says about other leaves still counts.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._leaves = leaves
        bounds = _nested_struct("Bounds", {leaf.path: _json_type(leaf.type) for leaf in leaves})
        counts = _nested_struct("Counts", {leaf.path: int for leaf in leaves})
        fields: list[tuple[str, Any, Any]] = [
            ("num_records", int | None, None),
            ("tight_bounds", bool | None, None),
            ("min_values", bounds | None, bounds()),
            ("max_values", bounds | None, bounds()),
            ("null_count", counts | None, counts()),
        ]
        self._type = msgspec.defstruct("Stats", fields, rename="camel", frozen=True, gc=False)
        self._strict = msgspec.json.Decoder(self._type)
        self._lenient = msgspec.json.Decoder()
        self._attributes = [_attributes(leaf.path, leaves) for leaf in leaves]

    def decode(self, text: pa.Array) -> list[Any]:
        """One value for each text."""
        try:
            # One text a line, in one buffer, decoded in one call.
            lines = pc.binary_join_element_wise(text, _NEWLINE, build.EMPTY)
            rows = self._strict.decode_lines(_bytes_of(lines))
            if len(rows) == len(text):
                return rows
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        return [self._decode_one(t) for t in text.to_pylist()]

    def values(self, rows: list[Any], part: str, index: int) -> list[Any]:
        """The values of one leaf in `min_values`, `max_values` or `null_count`."""
        attributes = [part, *self._attributes[index]]
        try:
            return list(map(attrgetter(".".join(attributes)), rows))
        except AttributeError:  # something on the way is null
            return [_reach(row, attributes) for row in rows]

    def _decode_one(self, text: str) -> Any:
        try:
            return self._strict.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        try:
            raw = self._lenient.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._type()
        return self._salvage(raw) if isinstance(raw, dict) else self._type()

    def _salvage(self, raw: dict[str, Any]) -> Any:
        """Leaf by leaf: what fits is taken, what does not is not known."""
        tight = raw.get("tightBounds")
        records = raw.get("numRecords")
        kept: dict[str, Any] = {
            "numRecords": records if type(records) is int else None,
            "tightBounds": tight if isinstance(tight, bool) else None,
        }
        for part in ("minValues", "maxValues", "nullCount"):
            kept[part] = {}
            for leaf in self._leaves:
                type_ = int if part == "nullCount" else _json_type(leaf.type)
                value = raw.get(part)
                for name in leaf.path:
                    value = value.get(name) if isinstance(value, dict) else None
                try:
                    value = msgspec.convert(value, type_ | None, strict=True)
                except (msgspec.ValidationError, ValueError):
                    continue
                inner = kept[part]
                for name in leaf.path[:-1]:
                    inner = inner.setdefault(name, {})
                inner[leaf.path[-1]] = value
        return msgspec.convert(kept, self._type)


def _reach(value: Any, attributes: list[str]) -> Any:
    for attribute in attributes:
        if value is None:
            return None
        value = getattr(value, attribute)
    return value


def _bytes_of(text: pa.Array) -> memoryview:
    """All text of an array that starts at the beginning of its buffers, as one."""
    assert text.offset == 0, "made by a compute function"
    _, offsets, data = text.buffers()
    length = memoryview(offsets).cast("i")[len(text)] if len(text) else 0
    return memoryview(data)[:length] if length else memoryview(b"")


def _json_type(type_: DataType) -> Any:
    """How a bound of this type stands in JSON."""
    target = comparable_type(type_)
    if target is None or not _is_bounded(target):
        return msgspec.Raw
    if pa.types.is_decimal(target):
        return Decimal
    if pa.types.is_integer(target):
        return int
    if pa.types.is_floating(target):
        return float | str
    return bool if pa.types.is_boolean(target) else str


def _bounds(values: list[Any], type_: DataType, *, upper: bool) -> pa.Array:
    """Decoded JSON values as an array of the comparable type."""
    target = comparable_type(type_)
    if target is None:
        return pa.nulls(len(values))
    if not _is_bounded(target):
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


# --- generated structs -------------------------------------------------------------------------------


def _nested_struct(name: str, leaves: dict[tuple[str, ...], Any]) -> Any:
    """A struct type for nested leaves; attributes are numbered because column names can be anything."""
    tops = list(dict.fromkeys(path[0] for path in leaves))
    fields: list[tuple[str, Any, Any]] = []
    for i, top in enumerate(tops):
        below = {path[1:]: type_ for path, type_ in leaves.items() if path[0] == top}
        inner = below[()] if () in below else _nested_struct(f"{name}{i}", below)
        fields.append((f"f{i}", inner | None, None))
    rename = {f"f{i}": top for i, top in enumerate(tops)}
    return msgspec.defstruct(name, fields, rename=rename, frozen=True, gc=False)


def _attributes(path: tuple[str, ...], leaves: Sequence[Leaf]) -> list[str]:
    """The generated attribute names along a path."""
    attributes = []
    paths = [leaf.path for leaf in leaves]
    for depth, part in enumerate(path):
        siblings = list(dict.fromkeys(p[depth] for p in paths if p[:depth] == path[:depth] and len(p) > depth))
        attributes.append(f"f{siblings.index(part)}")
    return attributes
