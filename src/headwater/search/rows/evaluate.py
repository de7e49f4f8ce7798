"""A query on plain rows: the same meaning as in the index, with the same analysers and scores.

This answers for rows that no index covers, and decides where the index can only propose. The work is done by Arrow on
whole columns; `leaf_rows` does one leaf, the rest is logic.

>>> from headwater.log.schema import STRING
>>> from headwater.search.config import FieldConfig, IndexConfig
>>> from headwater.search.query.parse import parse_query
>>> config = IndexConfig((FieldConfig("message", "message", "text", STRING, tokenizer="default"),))
>>> rows = pa.table({"message": ["Disk full on web-1", "all fine"]})
>>> matches(parse_query("disk AND NOT web-2", config), rows, config).to_pylist()
[True, False]
"""

from __future__ import annotations

import ipaddress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SearchQueryError
from headwater.log.files import arrow as build
from headwater.log.schema import DecimalType, StructField, StructType
from headwater.search.analysis import ip_text
from headwater.search.engine.scoring import K1, B, leaf_weight, rounded_length, scored_terms
from headwater.search.query.patterns import wildcard_regex
from headwater.search.query.targets import Target, resolve
from headwater.search.query.tree import (
    All,
    Boolean,
    Boost,
    Exists,
    FieldPath,
    Fuzzy,
    Nothing,
    Phrase,
    Prefix,
    Range,
    Regex,
    Term,
    TermSet,
    Wildcard,
    leaves,
)
from headwater.search.rows.tokens import TokenColumn, counting, phrase_rows, row_mask, token_column, within_edits
from headwater.search.rows.values import (
    DecodedJson,
    Placed,
    column_values,
    decoded_json,
    indexed_values,
    rows_with_object,
    typed_values,
)
from headwater.search.types import conform, row_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.search.config import IndexConfig
    from headwater.search.engine.scoring import Statistics
    from headwater.search.query.tree import Leaf, Query, Value


BATCH_ROWS = 65_536


def matches(query: Query, rows: pa.Table | pa.RecordBatch, config: IndexConfig) -> pa.BooleanArray:
    """Return which rows the query finds; there are no nulls in the answer.

    The rows have at least the columns that the query needs (`columns_needed`).

    Raises:
        SearchQueryError: the query names a field that the configuration does not have, or the rows lack its column.
    """
    masks = [mask(query, batch) for batch in plain_batches(rows, config)]
    return pa.concat_arrays([*masks, build.bools([])])


def columns_needed(query: Query, config: IndexConfig) -> list[str]:
    """Return the columns that a query looks at."""
    return list(dict.fromkeys(resolve(config, leaf.on).field.column for leaf in leaves(query)))


def plain_batches(rows: pa.Table | pa.RecordBatch, config: IndexConfig) -> Iterator[PlainBatch]:
    """Yield the rows in pieces of a size that is good for evaluation."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if table.num_columns == 0:  # Arrow forgets the number of rows then, but a query for all of them needs no column
        table = pa.table({"": pa.nulls(table.num_rows)})
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield PlainBatch(batch, config)


def mask(query: Query, batch: PlainBatch) -> pa.BooleanArray:
    """Return which rows of a batch the query finds."""
    match query:
        case All():
            return _constant(True, batch)
        case Nothing():
            return _constant(False, batch)
        case Boost(query=inner):
            return mask(inner, batch)
        case Boolean(must=must, should=should, must_not=must_not):
            found = _constant(True, batch)
            for part in must:
                found = pc.and_(found, mask(part, batch))
            if should and not must:
                any_found = _constant(False, batch)
                for part in should:
                    any_found = pc.or_(any_found, mask(part, batch))
                found = pc.and_(found, any_found)
            for part in must_not:
                found = pc.and_not(found, mask(part, batch))
            return found
        case _:
            return row_mask(leaf_rows(query, batch), batch.num_rows)


def _constant(value: bool, batch: PlainBatch) -> pa.BooleanArray:
    return pa.repeat(build.bools([value])[0], batch.num_rows)


class PlainBatch:
    """Rows with what was computed about their columns: several leaves on one field share its tokens."""

    def __init__(self, rows: pa.RecordBatch | pa.Table, config: IndexConfig) -> None:
        self._rows = rows
        self._config = config
        self._columns: dict[str, pa.Array] = {}
        self._tokens: dict[FieldPath, TokenColumn] = {}
        self._json: dict[str, DecodedJson] = {}
        self.num_rows: int = rows.num_rows

    def target(self, on: FieldPath) -> Target:
        return resolve(self._config, on)

    def column(self, target: Target) -> pa.Array:
        """Return the column of a target, in the type that the rows of a split have."""
        name = target.field.column
        if name not in self._columns:
            if name not in self._rows.schema.names:
                raise SearchQueryError(f"the rows have no column {name!r}, which the query needs")
            wanted = row_schema(StructType([StructField(name, target.field.data_type)]))
            one = pa.RecordBatch.from_arrays([self._rows.column(name)], names=[name])
            self._columns[name] = conform(one, wanted).column(0)
        return self._columns[name]

    def tokens(self, target: Target) -> TokenColumn:
        """Return the tokens at a target that is text (of JSON text: those of its strings)."""
        if target.on not in self._tokens:
            self._tokens[target.on] = self._tokenized(target)
        return self._tokens[target.on]

    def maybe_tokens(self, target: Target, needle: str | None) -> TokenColumn:
        """Return the tokens of the rows that can have one with `needle` in it: to cut all texts takes longer."""
        is_plain = target.field.kind == "text" and target.tokenizer in ("default", "whitespace")
        if needle is None or not needle.isascii() or not is_plain or target.on in self._tokens:
            return self.tokens(target)
        values, rows = column_values(self.column(target))
        folded = pc.ascii_lower(values) if target.tokenizer == "default" else values
        # What is not ASCII may have become ASCII in lower case (the sign of Kelvin).
        maybe = pc.or_(pc.match_substring(folded, needle), pc.invert(pc.string_is_ascii(values)))
        return token_column(values.filter(maybe), rows.filter(maybe), target.tokenizer)

    def _tokenized(self, target: Target) -> TokenColumn:
        if target.kind == "any":
            strings = [(row, v) for row, v in self.json_values(target) if isinstance(v, str)]
            placed = Placed(build.strings([v for _, v in strings]), build.int64s([row for row, _ in strings]))
        elif target.field.kind == "json":
            placed = typed_values(self.column(target), target)
        else:
            placed = column_values(self.column(target))
        return token_column(placed.values, placed.rows, target.tokenizer)

    def json_values(self, target: Target, *, deep: bool = False) -> list[tuple[int, Any]]:
        """Return row and value of the scalars at a target in JSON text."""
        name = target.field.column
        if name not in self._json:
            self._json[name] = decoded_json(self.column(target))
        return self._json[name].leaves(target.path, deep=deep)

    def values(self, target: Target) -> Placed:
        """Return the values at a target that is neither text nor JSON text, in the form of the index."""
        placed = self.raw_values(target)
        return placed if target.data_type is None else indexed_values(placed, target.data_type)

    def raw_values(self, target: Target) -> Placed:
        """Return the same values in the column's own type."""
        if target.field.kind == "json":
            return typed_values(self.column(target), target)
        return column_values(self.column(target))


def leaf_rows(leaf: Leaf, batch: PlainBatch) -> pa.Int64Array:
    """Return the rows that a leaf finds; a row may occur several times."""
    target = batch.target(leaf.on)
    if isinstance(leaf, Exists):
        return _existing(target, batch)
    if target.kind == "text":
        return _with_tokens(leaf, batch.maybe_tokens(target, _needle(leaf)))
    if target.kind == "any":
        return _in_json_text(leaf, target, batch)
    if target.kind == "ip":
        return _with_addresses(leaf, batch.values(target))
    if target.kind == "string" and isinstance(leaf, Range) and isinstance(target.data_type, DecimalType):
        return _in_range(leaf, batch.raw_values(target), Decimal)
    if target.kind in ("object", "stored"):
        raise SearchQueryError(f"field {str(leaf.on)!r} has no values that can be searched")
    placed = batch.values(target)
    match leaf:
        case Term(value=value):
            return placed.rows.filter(pc.equal(placed.values, _scalar(value, placed.values.type)))
        case TermSet(values=values):
            wanted = pa.array(list(values), placed.values.type)
            return placed.rows.filter(pc.is_in(placed.values, value_set=wanted))
        case Range():
            return _in_range(leaf, placed, lambda value: value)
        case _ if target.kind == "string" and not isinstance(leaf, Phrase):
            return _with_tokens(leaf, token_column(placed.values, placed.rows, "raw"))
    raise SearchQueryError(f"field {str(leaf.on)!r} is not text: {leaf} cannot be asked of it")


def _needle(leaf: Leaf) -> str | None:
    """Return a text that every row has which the leaf finds."""
    match leaf:
        case Term(value=str(value)):
            return value
        case Phrase(terms=terms):
            return max(terms, key=len)
        case Prefix(prefix=prefix):
            return prefix or None
    return None


def _existing(target: Target, batch: PlainBatch) -> pa.Int64Array:
    if not target.path:
        return column_values(batch.column(target)).rows
    if target.kind == "any":
        return build.int64s([row for row, _ in batch.json_values(target, deep=True)])
    return rows_with_object(batch.column(target), target)


def _with_tokens(leaf: Leaf, column: TokenColumn) -> pa.Int64Array:
    if isinstance(leaf, Phrase):
        return phrase_rows(column, leaf.terms, leaf.slop)
    return column.token_rows(chosen_terms(leaf, column.terms))


def chosen_terms(leaf: Leaf, terms: pa.StringArray) -> pa.BooleanArray:
    """Return which of some terms a leaf matches."""
    match leaf:
        case Term(value=value):
            return pc.equal(terms, _scalar(str(value), terms.type))
        case TermSet(values=values):
            return pc.is_in(terms, value_set=build.strings([str(value) for value in values]))
        case Range():
            return _between(leaf, terms, lambda value: value)
        case Prefix(prefix=prefix):
            return pc.starts_with(terms, pattern=prefix)
        case Wildcard(pattern=pattern):
            return _matching(terms, wildcard_regex(pattern))
        case Regex(pattern=pattern):
            return _matching(terms, pattern)
        case Fuzzy(text=text, distance=distance):
            return _similar(text, distance, terms)
    raise SearchQueryError(f"{leaf} cannot be asked of text")


def _similar(text: str, distance: int, terms: pa.StringArray) -> pa.BooleanArray:
    lengths = pc.utf8_length(terms)
    shortest, longest = (build.int32s([len(text) + step])[0] for step in (-distance, distance))
    possible = pc.and_(pc.greater_equal(lengths, shortest), pc.less_equal(lengths, longest))
    found = [term for term in terms.filter(possible).to_pylist() if within_edits(text, term, distance)]
    return pc.is_in(terms, value_set=build.strings(found))


def _matching(terms: pa.StringArray, pattern: str) -> pa.BooleanArray:
    try:
        return pc.match_substring_regex(terms, rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        raise SearchQueryError(f"the pattern {pattern!r} cannot be used: {error}") from error


def _between(leaf: Range, values: pa.Array, convert: Any) -> pa.BooleanArray:
    inside = pa.repeat(build.bools([True])[0], len(values))
    if leaf.lower is not None:
        compare = pc.greater_equal if leaf.include_lower else pc.greater
        inside = compare(values, _scalar(convert(leaf.lower), values.type))
        if pa.types.is_floating(values.type):
            inside = pc.or_(inside, pc.is_nan(values))  # Spark's order: NaN is larger than any number
    if leaf.upper is not None:
        compare = pc.less_equal if leaf.include_upper else pc.less
        inside = pc.and_(inside, compare(values, _scalar(convert(leaf.upper), values.type)))
    return inside


def _in_range(leaf: Range, placed: Placed, convert: Any) -> pa.Int64Array:
    values = placed.values.cast(pa.int8()) if pa.types.is_boolean(placed.values.type) else placed.values
    return placed.rows.filter(_between(leaf, values, convert))


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_decimal(type_):
        return pa.scalar(value)
    return pa.scalar(value, type_)


def _with_addresses(leaf: Leaf, placed: Placed) -> pa.Int64Array:
    encoded = placed.values.dictionary_encode()
    chosen = build.bools([_is_address(leaf, text) for text in encoded.dictionary.to_pylist()])
    return placed.rows.filter(chosen.take(encoded.indices))


def _is_address(leaf: Leaf, text: str) -> bool:
    canonical = ip_text(text)
    if canonical is None:
        return False
    match leaf:
        case Term(value=value):
            return canonical == value
        case TermSet(values=values):
            return canonical in values
        case Range():
            return _number_between(leaf, address_number(canonical), address_number)
    raise SearchQueryError(f"field {str(leaf.on)!r} holds IP addresses: {leaf} cannot be asked of it")


def address_number(text: Value) -> int:
    """Return an address as a number; IPv4 addresses are among the IPv6 ones (`::ffff:a.b.c.d`)."""
    address = ipaddress.ip_address(str(text))
    return int(address) + (0xFFFF << 32 if address.version == 4 else 0)


def _number_between(leaf: Range, number: Any, convert: Any) -> bool:
    low = None if leaf.lower is None else convert(leaf.lower)
    high = None if leaf.upper is None else convert(leaf.upper)
    above = low is None or number > low or (leaf.include_lower and number == low)
    return above and (high is None or number < high or (leaf.include_upper and number == high))


def _in_json_text(leaf: Leaf, target: Target, batch: PlainBatch) -> pa.Int64Array:
    """Find rows in JSON text, where a text matches strings, and a number or boolean matches values of its own type."""
    wanted: tuple[Value, ...]
    match leaf:
        case Term(value=value) if not isinstance(value, str):
            wanted = (value,)
        case TermSet(values=values):
            wanted = tuple(v for v in values if not isinstance(v, str))
            texts = tuple(v for v in values if isinstance(v, str))
            strings = _with_tokens(TermSet(leaf.on, texts), batch.tokens(target))
            return pa.concat_arrays([strings, _equal_in_json(wanted, target, batch)])
        case Range(lower=lower, upper=upper) if not isinstance(lower, str) and not isinstance(upper, str):
            numbers = [(r, v) for r, v in batch.json_values(target) if _is_number(v)]
            return build.int64s([r for r, v in numbers if _number_between(leaf, v, lambda bound: bound)])
        case _:
            return _with_tokens(leaf, batch.tokens(target))
    return _equal_in_json(wanted, target, batch)


def _equal_in_json(wanted: tuple[Value, ...], target: Target, batch: PlainBatch) -> pa.Int64Array:
    numbers = {v for v in wanted if _is_number(v)}
    truths = {v for v in wanted if isinstance(v, bool)}
    found = [
        r
        for r, v in batch.json_values(target)
        if (v in truths if isinstance(v, bool) else _is_number(v) and v in numbers)
    ]
    return build.int64s(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def scores(query: Query, rows: pa.Table, config: IndexConfig, statistics: Statistics) -> pa.DoubleArray:
    """Return the score of each row; 0 for those that the query does not find.

    The rows have the columns that the query needs; `statistics` are those of all rows that are searched together.
    """
    scorer = _Scorer(config, statistics)
    return pa.concat_arrays([*(scorer.score(query, b) for b in plain_batches(rows, config)), build.float64s([])])


class _Scorer:
    def __init__(self, config: IndexConfig, statistics: Statistics) -> None:
        self._config = config
        self._statistics = statistics

    def score(self, query: Query, batch: PlainBatch) -> pa.DoubleArray:
        match query:
            case All():
                return _row_scores_constant(1.0, batch)
            case Nothing():
                return _row_scores_constant(0.0, batch)
            case Boost(query=inner, factor=factor):
                return pc.multiply(self.score(inner, batch), build.float64s([factor])[0])
            case Boolean(must=must, should=should):
                total = _row_scores_constant(0.0, batch)
                for part in (*must, *should):
                    total = pc.add(total, self.score(part, batch))
                return pc.if_else(mask(query, batch), total, build.float64s([0.0])[0])
            case _:
                return self._leaf(query, batch)

    def _leaf(self, leaf: Leaf, batch: PlainBatch) -> pa.DoubleArray:
        found = leaf_rows(leaf, batch)
        terms = scored_terms(leaf, self._config)
        if terms is None:
            return row_mask(found, batch.num_rows).cast(pa.float64())
        if len(found) == 0:
            return _row_scores_constant(0.0, batch)
        return self._bm25(leaf, terms, found, batch)

    def _bm25(self, leaf: Leaf, terms: Sequence[str], found: pa.Int64Array, batch: PlainBatch) -> pa.DoubleArray:
        counted = pc.value_counts(found)
        rows, frequencies = counted.field(0), counted.field(1).cast(pa.float64())
        length_rows, lengths = batch.tokens(batch.target(leaf.on)).lengths
        lengths = lengths.take(pc.index_in(rows, value_set=length_rows)).dictionary_encode()
        mean = self._statistics.mean_length(leaf.on.field)
        damping = [K1 * (1 - B + B * rounded_length(n) / mean) for n in lengths.dictionary.to_pylist()]
        saturated = pc.divide(frequencies, pc.add(frequencies, build.float64s(damping).take(lengths.indices)))
        scored = pc.multiply(saturated, build.float64s([leaf_weight(leaf, terms, self._statistics)])[0])
        places = pc.index_in(counting(batch.num_rows), value_set=rows)
        return pc.fill_null(scored.take(places), 0.0)


def _row_scores_constant(value: float, batch: PlainBatch) -> pa.DoubleArray:
    return pa.repeat(build.float64s([value])[0], batch.num_rows)
