"""Per-file statistics as typed columns, and the columns of a table that have statistics (spec: "Per-file Statistics").

Bounds come from `stats_parsed` where a checkpoint has it and from the JSON text elsewhere; either way they become
Arrow columns in which null means "not known". Only the leaves that a filter mentions are decoded, and they are kept
for the next filter.

The first 32 leaves of a table have statistics, or as many as `delta.dataSkippingNumIndexedCols` says (-1 for all), or
the columns that `delta.dataSkippingStatsColumns` names (a struct stands for all its fields).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.files.parquet import ahead
from headwater.log.schema import FLOAT, TIMESTAMP, VOID, PrimitiveType, StructType, to_physical
from headwater.log.stats.decode import Leaf, StatsDecoder, is_bounded
from headwater.log.stats.value_text import NON_FINITE
from headwater.log.stats.values import comparable_type, decimal_array, has_zone, parse_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headwater.log.files.chunks import FileChunk
    from headwater.log.filters.pruning import TableShape
    from headwater.log.schema import DataType, MappingMode


_DECODED_TOGETHER = 1_024
_TIMESTAMP_SLACK_US = 999
"""Timestamps in statistics are cut to milliseconds: the true maximum may be this much later."""


Column: TypeAlias = "pa.ChunkedArray | None"


@dataclass(frozen=True, slots=True)
class LeafStatistics:
    """Bounds and null counts of one leaf over the files of a chunk, decoded on first use; null means "not known"."""

    source: ChunkStatistics
    leaf: Leaf

    @property
    def lower(self) -> Column:
        return self.source.bounds(self.leaf)[0]

    @property
    def upper(self) -> Column:
        return self.source.bounds(self.leaf)[1]

    @property
    def null_count(self) -> Column:
        return self.source.null_count(self.leaf)

    @property
    def num_records(self) -> pa.ChunkedArray:
        """The physical number of rows in each file."""
        return self.source.num_records


class ChunkStatistics:
    """The statistics of one chunk, decoded on demand and kept.

    Bounds and counts are decoded separately: most filters need the bounds alone.
    """

    def __init__(self, chunk: FileChunk) -> None:
        self._chunk = chunk
        self._wanted: dict[Leaf, None] = {}
        self._bounds: dict[Leaf, tuple[Column, Column]] = {}
        self._null_counts: dict[Leaf, Column] = {}
        self._totals: tuple[pa.ChunkedArray, Column] | None = None

    def load(self, leaves: Iterable[Leaf]) -> None:
        """Announce leaves that are needed soon: one pass over the text decodes all of them."""
        self._wanted.update(dict.fromkeys(leaves))

    def leaf(self, leaf: Leaf) -> LeafStatistics:
        self._wanted[leaf] = None
        return LeafStatistics(self, leaf)

    def bounds(self, leaf: Leaf) -> tuple[Column, Column]:
        """Return the lower and upper bounds."""
        if leaf not in self._bounds:
            missing = [wanted for wanted in self._wanted if wanted not in self._bounds]
            self._bounds.update(self._load_bounds(missing))
        return self._bounds[leaf]

    def null_count(self, leaf: Leaf) -> Column:
        if leaf not in self._null_counts:
            self._load_counts([wanted for wanted in self._wanted if wanted not in self._null_counts])
        return self._null_counts[leaf]

    @property
    def num_records(self) -> pa.ChunkedArray:
        """The physical number of rows in each file."""
        return self._known_totals()[0]

    @property
    def tight_bounds(self) -> Column:
        """Whether the bounds are tight; null, or no column at all, means that they are."""
        return self._known_totals()[1]

    def _known_totals(self) -> tuple[pa.ChunkedArray, Column]:
        if self._totals is None:
            self._load_counts([])
        assert self._totals is not None, "just loaded"
        return self._totals

    def _load_bounds(self, leaves: Sequence[Leaf]) -> dict[Leaf, tuple[Column, Column]]:
        if self._parsed_records is None:
            return _text_bounds(ahead(self._chunk.text_batches("stats")), leaves)
        parsed = {leaf: _parsed_bounds(self._chunk, leaf) for leaf in leaves}
        if self._rest_as_text is None:
            return parsed
        rest = _text_bounds(self._rest_as_text, leaves)
        return {
            leaf: (_coalesce(lower, rest[leaf][0]), _coalesce(upper, rest[leaf][1]))
            for leaf, (lower, upper) in parsed.items()
        }

    def _load_counts(self, leaves: Sequence[Leaf]) -> None:
        records = self._parsed_records
        if records is None:
            totals, counts = _text_counts(ahead(self._chunk.text_batches("stats")), leaves)
        else:
            totals = records, self._chunk.parsed(("stats_parsed", "tightBounds"))
            counts = {leaf: _parsed_count(self._chunk, leaf) for leaf in leaves}
            if self._rest_as_text is not None:
                rest_totals, rest = _text_counts(self._rest_as_text, leaves)
                totals = pc.coalesce(records, rest_totals[0]), _coalesce(totals[1], rest_totals[1])
                counts = {leaf: _coalesce(count, rest[leaf]) for leaf, count in counts.items()}
        self._totals = totals
        self._null_counts.update(counts)

    @cached_property
    def _parsed_records(self) -> Column:
        return self._chunk.parsed(("stats_parsed", "numRecords"))

    @cached_property
    def _rest_as_text(self) -> list[pa.Array] | None:
        """The texts of files without parsed statistics, which some writers omit; None when all are parsed."""
        records = self._parsed_records
        if records is None or not records.null_count:
            return None
        text = pa.chunked_array(list(self._chunk.text_batches("stats")), type=pa.string())
        missing = pc.and_(records.is_null(), text.is_valid())
        only_missing: list[pa.Array] = pc.if_else(missing, text, build.strings([None])[0]).chunks
        return only_missing


def _coalesce(first: pa.ChunkedArray | None, second: pa.ChunkedArray | None) -> pa.ChunkedArray | None:
    if first is None or second is None:
        return second if first is None else first
    return pc.coalesce(first, second)


# --- struct statistics -----------------------------------------------------------------------------


def _parsed_bounds(chunk: FileChunk, leaf: Leaf) -> tuple[Column, Column]:
    lower = _parsed_bound(chunk.parsed(("stats_parsed", "minValues", *leaf.path)), leaf.type)
    upper = _parsed_bound(chunk.parsed(("stats_parsed", "maxValues", *leaf.path)), leaf.type)
    return _outwards(lower, leaf, upper=False), _outwards(upper, leaf, upper=True)


def _parsed_count(chunk: FileChunk, leaf: Leaf) -> Column:
    null_count = chunk.parsed(("stats_parsed", "nullCount", *leaf.path))
    return null_count if null_count is not None and pa.types.is_integer(null_count.type) else None


def _parsed_bound(values: pa.ChunkedArray | None, type_: DataType) -> pa.ChunkedArray | None:
    """Convert a bound of the checkpoint to the comparable type; None if that is impossible."""
    target = comparable_type(type_)
    if values is None or target is None or not is_bounded(target):
        return None
    if values.type == target:
        return values
    if pa.types.is_string(values.type):
        return _bounds_as_text(values, type_, target)
    try:
        return values.cast(target, safe=not pa.types.is_timestamp(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _bounds_as_text(values: pa.ChunkedArray, type_: DataType, target: pa.DataType) -> pa.ChunkedArray:
    """Parse bounds that a dialect writes as text, whatever the type; what does not parse is not known."""
    parts = [parse_bounds(part, type_) for part in values.chunks]
    if pa.types.is_floating(target):  # NaN is above all numbers, but no comparison with it says so
        parts = [pc.if_else(pc.is_nan(part), build.float64s([None])[0], part) for part in parts]
    return pa.chunked_array(parts, type=target)


def _outwards(bounds: Column, leaf: Leaf, *, upper: bool) -> Column:
    """Widen bounds so that they hold for every writer, and for the type that the column had then."""
    if bounds is not None and leaf.was_float:
        return pa.chunked_array([floats_outwards(part, upper=upper) for part in bounds.chunks], type=bounds.type)
    return _with_slack(bounds) if upper else bounds


def floats_outwards(bounds: pa.Array, *, upper: bool) -> pa.Array:
    """Widen bounds of doubles, some of which may be texts of floats: 0.1 may stand for the float, which is greater.

    >>> floats_outwards(pa.array([0.1, 0.5]), upper=True).to_pylist()
    [0.10000000149011612, 0.5]
    """
    as_float = bounds.cast(pa.float32(), safe=False).cast(pa.float64())
    pick = pc.max_element_wise if upper else pc.min_element_wise
    return pick(bounds, as_float, skip_nulls=False)


def _with_slack(upper: Column) -> Column:
    if upper is None or not pa.types.is_timestamp(upper.type):
        return upper
    slack = build.int64s([_TIMESTAMP_SLACK_US], pa.duration("us"))[0]
    try:
        return pc.add_checked(upper, slack)
    except pa.ArrowInvalid:  # beyond the last instant: no upper bound at all
        return None


# --- statistics as JSON text ------------------------------------------------------------------------


def _text_bounds(texts: Iterable[pa.Array], leaves: Sequence[Leaf]) -> dict[Leaf, tuple[Column, Column]]:
    """Decode the bounds of leaves from many JSON texts, batch by batch."""
    decoder = StatsDecoder(leaves, "bounds")

    def arrays(rows: list[Any]) -> Iterator[pa.Array]:
        for i, leaf in enumerate(leaves):
            yield bound_values(decoder.values(rows, "min_values", i), leaf.type, upper=False)
            yield bound_values(decoder.values(rows, "max_values", i), leaf.type, upper=True)

    types = [comparable_type(leaf.type) or pa.null() for leaf in leaves for _ in range(2)]
    columns = _decoded(decoder, texts, arrays, types)
    return {
        leaf: (_outwards(columns[2 * i], leaf, upper=False), _outwards(columns[2 * i + 1], leaf, upper=True))
        for i, leaf in enumerate(leaves)
    }


def _text_counts(
    texts: Iterable[pa.Array], leaves: Sequence[Leaf]
) -> tuple[tuple[pa.ChunkedArray, Column], dict[Leaf, Column]]:
    """Decode row counts, tightness, and the null counts of leaves."""
    decoder = StatsDecoder(leaves, "counts")

    def arrays(rows: list[Any]) -> Iterator[pa.Array]:
        yield count_values([row.num_records for row in rows])
        yield build.bools([row.tight_bounds for row in rows])
        for i in range(len(leaves)):
            yield count_values(decoder.values(rows, "null_count", i))

    columns = _decoded(decoder, texts, arrays, [pa.int64(), pa.bool_(), *[pa.int64()] * len(leaves)])
    return (columns[0], columns[1]), dict(zip(leaves, columns[2:], strict=True))


def _decoded(
    decoder: StatsDecoder,
    texts: Iterable[pa.Array],
    arrays: Callable[[list[Any]], Iterable[pa.Array]],
    types: Sequence[pa.DataType],
) -> list[pa.ChunkedArray]:
    batches: list[list[pa.Array]] = []
    for text in _slices(texts):
        found = list(arrays(decoder.decode(text.drop_null() if text.null_count else text)))
        batches.append([build.spread(array, text.is_valid()) for array in found] if text.null_count else found)
    return [pa.chunked_array([batch[i] for batch in batches], type=type_) for i, type_ in enumerate(types)]


def _slices(texts: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield a thousand texts at a time, so that their decoded objects reuse the same memory."""
    for text in texts:
        for start in range(0, len(text), _DECODED_TOGETHER):
            yield text.slice(start, _DECODED_TOGETHER)


def count_values(values: list[int | None]) -> pa.Array:
    """Return row counts as an array; a number that does not fit is not known."""
    try:
        return build.int64s(values)
    except OverflowError:
        return build.int64s([v if v is not None and 0 <= v < 2**63 else None for v in values])


def bound_values(values: list[Any], type_: DataType, *, upper: bool) -> pa.Array:
    """Return decoded JSON values as an array of the comparable type."""
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
    """Return doubles; NaN (which bounds nothing) is not known, infinities may be texts."""
    try:
        floats = build.float64s(values)  # type: ignore[arg-type]
    except TypeError:
        floats = build.float64s([NON_FINITE.get(v) if isinstance(v, str) else v for v in values])
    return pc.if_else(pc.is_nan(floats), build.float64s([None])[0], floats)


NUMBER_PROPERTY = "delta.dataSkippingNumIndexedCols"
COLUMNS_PROPERTY = "delta.dataSkippingStatsColumns"
DEFAULT_INDEXED_COLUMNS = 32
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_NAMES = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")


def indexed_leaves(shape: TableShape, configuration: Mapping[str, str]) -> list[Leaf]:
    """Return the leaves of the table's data columns that have statistics, with physical names.

    They include arrays, maps and binaries, which have no bounds, but null counts.
    """
    data = StructType(field for field in shape.schema.fields if field.name not in shape.partition_columns)
    return [leaf for leaf in chosen_leaves(data, shape.mapping_mode, configuration) if _is_known(leaf)]


def chosen_leaves(data: StructType, mode: MappingMode, configuration: Mapping[str, str]) -> list[Leaf]:
    """Return the leaves that the table's properties choose, with physical names.

    A void counts like any other column, as in delta-spark, though no file has it.

    Args:
        data: the logical schema without partition columns.
        mode: the table's column mapping.
        configuration: the table's properties.
    """
    wanted = _chosen([leaf.path for leaf in schema_leaves(data)], configuration)
    physical = schema_leaves(to_physical(data, mode))
    return [leaf for leaf, is_wanted in zip(physical, wanted, strict=True) if is_wanted]


def schema_leaves(struct: StructType, parent: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield the columns of a schema that are not structs, in order; those in structs as well."""
    for field in struct.fields:
        path = (*parent, field.name)
        if isinstance(field.type, StructType):
            yield from schema_leaves(field.type, path)
        else:
            yield Leaf.of(path, field)


def _is_known(leaf: Leaf) -> bool:
    return leaf.type != VOID and (not isinstance(leaf.type, PrimitiveType) or leaf.type.is_known)


def _chosen(paths: list[tuple[str, ...]], configuration: Mapping[str, str]) -> list[bool]:
    named = configuration.get(COLUMNS_PROPERTY)
    if named is not None:
        columns = {tuple(part.lower() for part in parts) for parts in column_names(named)}
        folded = [tuple(part.lower() for part in path) for path in paths]
        return [any(path[:depth] in columns for depth in range(1, len(path) + 1)) for path in folded]
    count = whole_number(configuration, NUMBER_PROPERTY, DEFAULT_INDEXED_COLUMNS)
    return [count < 0 or number < count for number in range(len(paths))]


def whole_number(configuration: Mapping[str, str], name: str, default: int) -> int:
    """Return a property that is a number; any other text counts as not set.

    >>> whole_number({"a": "5", "b": "many"}, "a", 1), whole_number({"b": "many"}, "b", 1)
    (5, 1)
    """
    text = configuration.get(name, "")
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else default


def column_names(text: str) -> list[tuple[str, ...]]:
    """Return the columns in a list such as `id, address.city, `a.b``, each as the parts of its name.

    >>> column_names("id, address.city, `a,b.c`.d")
    [('id',), ('address', 'city'), ('a,b.c', 'd')]
    """
    return [
        tuple(quoted.replace("``", "`") or plain.strip() for quoted, plain in _NAME.findall(column.strip()))
        for column in _NAMES.findall(text)
        if column.strip()
    ]
