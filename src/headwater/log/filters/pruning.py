"""Find the files that may hold a matching row: partition pruning and data skipping in one evaluation.

A filter is evaluated on bounds, not on rows: the result is False only where no row of a file can match. NOT is pushed
down to the leaves, as SQL's three-valued logic allows, and every leaf answers "may match"; what is not known answers
True. A partition column is a column whose bounds are both its one value, so its answers are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.filters.expressions import (
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    chain,
    columns_of,
    is_unknown,
    walk,
)
from headwater.log.filters.literals import NotComparableError, coerce
from headwater.log.schema import VOID, StructType, compares_as_is, physical_path
from headwater.log.stats.columns import ChunkStatistics
from headwater.log.stats.decode import Leaf
from headwater.log.stats.values import partition_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.files.chunks import FileChunk
    from headwater.log.filters.expressions import Column, CompareOp, Expression
    from headwater.log.schema import MappingMode, StructField
    from headwater.log.stats.columns import LeafStatistics

DEFAULT_STRING_PREFIX_LENGTH = 32


@dataclass(frozen=True, slots=True)
class TableShape:
    """What pruning needs to know about a table."""

    schema: StructType
    partition_columns: tuple[str, ...]
    mapping_mode: MappingMode
    string_prefix_length: int = DEFAULT_STRING_PREFIX_LENGTH
    """The shortest length at which strings in statistics may have been cut."""
    empty_text_is_null: bool = True
    """Whether an empty partition value is null in a text column as well."""
    time_zone: str = "UTC"
    """The zone of timestamps among the partition values that do not name theirs."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A column of the filter, resolved in the table."""

    field: StructField
    leaf: Leaf
    is_partition: bool
    compares_as_is: bool
    """False for text that has a collation, or the padding of `char(n)`."""

    @property
    def has_statistics(self) -> bool:
        """Whether files can have statistics of it: a struct has none of its own."""
        return not self.is_partition and not self.is_void and not isinstance(self.field.type, StructType)

    @property
    def is_void(self) -> bool:
        return self.field.type == VOID


def resolve(column: Column, shape: TableShape) -> Operand:
    """Find a filter's column in the table. Raises `ColumnNotFoundError`."""
    fields = shape.schema.resolve(column.parts)
    names = tuple(field.name for field in fields)
    path = physical_path(shape.schema, names, shape.mapping_mode)
    is_partition = len(names) == 1 and names[0] in shape.partition_columns
    return Operand(fields[-1], Leaf.of(path, fields[-1]), is_partition, compares_as_is(fields))


def operands_of(expr: Expression, shape: TableShape) -> dict[Column, Operand]:
    """Resolve the columns that a filter compares with constants: those compared with each other prune nothing.

    Raises:
        ColumnNotFoundError: the table has no such column.
    """
    leaves = (node for node in walk(expr) if not isinstance(node, And | Or | Not) and not is_unknown(node))
    return {column: resolve(column, shape) for column in {column for leaf in leaves for column in columns_of(leaf)}}


def split_by_partition(expr: Expression, shape: TableShape) -> tuple[list[Expression], list[Expression]]:
    """Return the conjuncts that need only partition values, and the others."""
    only_partition: list[Expression] = []
    others: list[Expression] = []
    for part in chain(expr, And):
        operands = operands_of(part, shape).values()
        is_only = bool(operands) and all(operand.is_partition for operand in operands)
        (only_partition if is_only else others).append(part)
    return only_partition, others


Mask: TypeAlias = "pa.ChunkedArray"
"""One boolean for each row of a chunk, without nulls."""

_NEGATED: dict[CompareOp, CompareOp] = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MAX_RANGES = 128
"""More values than this in an IN list are tested as that many ranges."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What is known of an operand over the rows of a chunk."""

    lower: pa.ChunkedArray | None
    upper: pa.ChunkedArray | None
    exact: bool
    """The bounds are the one value that all rows have."""
    counts: LeafStatistics | None = None

    @property
    def num_records(self) -> pa.ChunkedArray | None:
        return None if self.counts is None else self.counts.num_records

    @property
    def null_count(self) -> pa.ChunkedArray | None:
        return None if self.counts is None else self.counts.null_count

    @property
    def surely_has_values(self) -> bool:
        """Whether no file is all null: a bound is a value, and all are known."""
        return not self.exact and self.lower is not None and self.lower.null_count == 0


class ChunkPruner:
    """Evaluates filters over the files of one chunk, and keeps decoded statistics for the next filter."""

    def __init__(self, chunk: FileChunk, shape: TableShape) -> None:
        self._chunk = chunk
        self._shape = shape
        self._statistics = ChunkStatistics(chunk)
        self._partitions: dict[str, pa.ChunkedArray | None] = {}

    def may_match(self, expr: Expression) -> Mask:
        """Return for each file of the chunk whether any of its rows may match."""
        try:
            return self._evaluated(expr)
        except RecursionError:  # nested too deeply to evaluate: all files are kept
            return self.constant(True)

    def _evaluated(self, expr: Expression) -> Mask:
        operands = operands_of(expr, self._shape)
        leaves = [o.leaf for o in operands.values() if o.has_statistics]
        if leaves:
            self._statistics.load(leaves)
        return _Evaluation(self, operands).keep(expr, negated=False)

    def bounds(self, operand: Operand) -> _Bounds:
        """Return the bounds of a column: its partition value, or its statistics."""
        if not operand.is_partition and not operand.has_statistics:
            return _Bounds(None, None, exact=False)
        if not operand.is_partition:
            known = self._statistics.leaf(operand.leaf)
            return _Bounds(known.lower, known.upper, False, known)
        name = operand.leaf.path[0]
        if name not in self._partitions:
            self._partitions[name] = partition_column(self._chunk, operand.field, name, self._shape)
        value = self._partitions[name]
        return _Bounds(value, value, exact=True)

    def constant(self, value: bool) -> Mask:
        return pa.chunked_array([_repeated(value, self._chunk.num_rows)])

    @property
    def tight_bounds(self) -> Mask:
        """Whether the statistics of each file are exact for its rows that are not deleted."""
        known = self._statistics.tight_bounds
        return self.constant(True) if known is None else pc.fill_null(known, build.TRUE)

    @property
    def string_prefix_length(self) -> int:
        return self._shape.string_prefix_length


class _Evaluation:
    """One filter over one chunk."""

    def __init__(self, pruner: ChunkPruner, operands: dict[Column, Operand]) -> None:
        self._pruner = pruner
        self._operands = operands

    def keep(self, expr: Expression, *, negated: bool) -> Mask:
        match expr:
            case Not(operand=inner):
                return self.keep(inner, negated=not negated)
            case And(operands=parts):
                return self._combine(parts, negated=negated, conjunction=not negated)
            case Or(operands=parts):
                return self._combine(parts, negated=negated, conjunction=negated)
            case Constant(value=value):
                return self._pruner.constant(value is not None and value != negated)
            case IsNull(column=column):
                return self._null_test(self._operands[column], is_null=not negated)
            case Compare(op="<=>", left=column, right=Literal(value=None)):
                return self._null_test(self._operands[column], is_null=not negated)
            case Compare(op="<=>", left=column, right=Literal(value=value)) if negated:
                differs = self._compare(self._operands[column], "<>", value)
                return pc.or_(differs, self._null_test(self._operands[column], is_null=True))
            case Compare(op=op, left=column, right=Literal(value=value)):
                op = "=" if op == "<=>" else op
                return self._compare(self._operands[column], _NEGATED[op] if negated else op, value)
            case In(column=column, values=values):
                return self._in(self._operands[column], [v.value for v in values], negated=negated)
            case StartsWith(column=column, prefix=prefix):
                return self._starts_with(self._operands[column], prefix, negated=negated)
        return self._pruner.constant(True)  # `Unknown`, or two columns compared: any row may match

    def _combine(self, parts: Sequence[Expression], *, negated: bool, conjunction: bool) -> Mask:
        mask = self._pruner.constant(conjunction)
        for part in parts:
            mask = (pc.and_ if conjunction else pc.or_)(mask, self.keep(part, negated=negated))
        return mask

    def _null_test(self, operand: Operand, *, is_null: bool) -> Mask:
        if operand.is_void:
            return self._pruner.constant(is_null)
        bounds = self._pruner.bounds(operand)
        if bounds.exact:
            if bounds.lower is None:
                return self._pruner.constant(True)
            return bounds.lower.is_null() if is_null else bounds.lower.is_valid()
        if is_null:
            if bounds.null_count is None:
                return self._pruner.constant(True)
            return _true_or_unknown(pc.not_equal(bounds.null_count, build.ZERO))
        return self._has_values(bounds)

    def _has_values(self, bounds: _Bounds) -> Mask:
        """Return where not all rows of the file are null in the column."""
        if bounds.exact:
            assert bounds.lower is not None
            return bounds.lower.is_valid()
        if bounds.surely_has_values:
            return self._pruner.constant(True)
        if bounds.null_count is None or bounds.num_records is None:
            return self._pruner.constant(True)
        return _true_or_unknown(pc.not_equal(bounds.null_count, bounds.num_records))

    def _compare(self, operand: Operand, op: CompareOp, value: object) -> Mask:
        if operand.is_void or value is None:
            return self._pruner.constant(False)
        if not operand.compares_as_is:
            return self._pruner.constant(True)
        bounds = self._pruner.bounds(operand)
        try:
            op, literal = coerce(op, value, operand.field.type)
            if literal is None:
                return self._has_values(bounds) if op == "<>" else self._pruner.constant(False)
            if bounds.lower is None and bounds.upper is None:
                raise NotComparableError
            mask = self._compare_bounds(bounds, op, literal)
        except (NotComparableError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return self._pruner.constant(True)
        return pc.and_(mask, self._has_values(bounds))

    def _compare_bounds(self, bounds: _Bounds, op: CompareOp, literal: pa.Scalar) -> Mask:
        if op in ("=", "<>"):
            return self._between(bounds, literal, literal) if op == "=" else self._not_equal(bounds, literal)
        if op in ("<", "<="):
            return self._at_most(bounds, op, literal)
        above = self._at_least(bounds, op, literal)
        if bounds.upper is not None and pa.types.is_floating(bounds.upper.type):
            # Spark orders NaN above every number, and some writers leave NaN out of the maximum.
            above = pc.or_(above, _nan(bounds.upper) if bounds.exact else self._may_hold_nan(bounds))
        return above

    def _between(self, bounds: _Bounds, low: pa.Scalar, high: pa.Scalar) -> Mask:
        """Return where some value may lie between two literals, both included."""
        return pc.and_(self._at_most(bounds, "<=", high), self._at_least(bounds, ">=", low))

    def _at_most(self, bounds: _Bounds, op: CompareOp, literal: pa.Scalar) -> Mask:
        """Return where some value may be below the literal, because the lower bound is."""
        if bounds.lower is None:
            return self._pruner.constant(True)
        return _true_or_unknown((pc.less if op == "<" else pc.less_equal)(bounds.lower, literal))

    def _at_least(self, bounds: _Bounds, op: CompareOp, literal: pa.Scalar) -> Mask:
        """Return where some value may be above the literal, because the upper bound is, or may be."""
        if bounds.upper is None:
            return self._pruner.constant(True)
        above = (pc.greater if op == ">" else pc.greater_equal)(bounds.upper, literal)
        if pa.types.is_string(bounds.upper.type) and not bounds.exact:
            above = pc.or_(above, self._may_be_cut(bounds.upper, literal.as_py()))
        return _true_or_unknown(above)

    def _may_hold_nan(self, bounds: _Bounds) -> Mask:
        """Return where NaN may be beside the bounds: not in a file with one value, or with two that differ."""
        assert bounds.upper is not None
        if bounds.lower is None or bounds.null_count is None or bounds.num_records is None:
            return self._pruner.constant(True)
        tight = self._pruner.tight_bounds
        values = pc.subtract(bounds.num_records, bounds.null_count)
        differ = pc.not_equal(bounds.lower, bounds.upper)
        has_more = pc.greater(values, pc.if_else(differ, build.int64s([2])[0], build.ONE))
        return pc.or_(_true_or_unknown(has_more), pc.invert(tight))

    def _may_be_cut(self, upper: pa.ChunkedArray, text: str) -> Mask:
        """Return where the upper bound is a prefix of the text, long enough to have been cut from a longer value."""
        shortest = self._pruner.string_prefix_length
        if len(text) < shortest:
            return self._pruner.constant(False)
        # Only prefixes of a length that some bound has: together they are no longer than the bounds.
        lengths = pc.unique(pc.utf8_length(upper)).to_pylist()
        prefixes = [text[:n] for n in lengths if n is not None and shortest <= n <= len(text)]
        return pc.is_in(upper, value_set=build.strings(prefixes))

    def _not_equal(self, bounds: _Bounds, literal: pa.Scalar) -> Mask:
        """Return where some value may differ from the literal, because the bounds are not both equal to it."""
        if bounds.lower is None or bounds.upper is None:
            return self._pruner.constant(True)
        if bounds.exact:
            return _true_or_unknown(pc.not_equal(bounds.lower, literal))
        floating = pa.types.is_floating(bounds.lower.type)
        cut = pa.types.is_string(bounds.lower.type) and len(literal.as_py()) >= self._pruner.string_prefix_length
        if floating or cut:
            return self._pruner.constant(True)
        both = pc.and_(pc.equal(bounds.lower, literal), pc.equal(bounds.upper, literal))
        return _true_or_unknown(pc.invert(both))

    def _in(self, operand: Operand, values: list[object], *, negated: bool) -> Mask:
        present = [v for v in values if v is not None]
        if negated:
            if len(present) < len(values):
                return self._pruner.constant(False)  # NOT IN with a null is never true
            mask = self._null_test(operand, is_null=False)
            if operand.is_partition and len(present) > _MAX_RANGES:
                mask, present = self._without_many(mask, operand, present)
            for value in present if operand.is_partition else present[:_MAX_RANGES]:
                mask = pc.and_(mask, self._compare(operand, "<>", value))
            return mask
        if len(present) > _MAX_RANGES:
            return self._in_many(operand, present)
        mask = self._pruner.constant(False)
        for value in present:
            mask = pc.or_(mask, self._compare(operand, "=", value))
        return mask

    def _in_many(self, operand: Operand, values: list[object]) -> Mask:
        """Evaluate a long IN list: exactly for partitions, by ranges of neighbouring values for statistics."""
        if operand.is_void:
            return self._pruner.constant(False)
        bounds = self._pruner.bounds(operand)
        try:
            literals = [coerce("=", value, operand.field.type)[1] for value in values]
            known = pa.array(sorted({s.as_py() for s in literals if s is not None}), literals[0].type)  # type: ignore[union-attr]
            if bounds.lower is None or not operand.compares_as_is or pa.types.is_decimal(known.type):
                raise NotComparableError
        except (NotComparableError, TypeError, AttributeError, pa.ArrowInvalid):
            return self._pruner.constant(True)
        if bounds.exact and pa.types.is_floating(known.type):  # there are two zeros, which are equal
            zero = build.float64s([0.0])[0]
            return pc.is_in(pc.add(bounds.lower, zero), value_set=pc.add(known, zero))
        if bounds.exact:
            return pc.is_in(bounds.lower, value_set=known)
        step = -(-len(known) // _MAX_RANGES)
        mask = self._pruner.constant(False)
        for start in range(0, len(known), step):
            group = known[start : start + step]
            mask = pc.or_(mask, self._between(bounds, group[0], group[len(group) - 1]))
        return pc.and_(mask, self._has_values(bounds))

    def _without_many(self, mask: Mask, operand: Operand, values: list[object]) -> tuple[Mask, list[object]]:
        """Evaluate a long NOT IN list of a partition column; return also the values to compare one by one."""
        bounds = self._pruner.bounds(operand)
        if (
            bounds.lower is None
            or operand.is_void
            or not operand.compares_as_is
            or pa.types.is_decimal(bounds.lower.type)
        ):
            return mask, values
        excluded: list[pa.Scalar] = []
        rest: list[object] = []
        for value in values:
            try:
                literal = coerce("=", value, operand.field.type)[1]
            except NotComparableError:
                continue  # as if it were not in the list: a file more may be kept
            if literal is not None and literal.type == bounds.lower.type:
                excluded.append(literal)
            else:
                rest.append(value)
        known = pa.array([scalar.as_py() for scalar in excluded], bounds.lower.type)
        return pc.and_(mask, pc.invert(pc.is_in(bounds.lower, value_set=known))), rest

    def _starts_with(self, operand: Operand, prefix: str, *, negated: bool) -> Mask:
        if operand.is_void:
            return self._pruner.constant(False)
        bounds = self._pruner.bounds(operand)
        if bounds.lower is None or not pa.types.is_string(bounds.lower.type) or not operand.compares_as_is:
            return self._pruner.constant(True)
        if bounds.exact:
            found = pc.starts_with(bounds.lower, prefix)
            return pc.fill_null(pc.invert(found) if negated else found, build.FALSE)
        if negated:
            return self._has_values(bounds)
        literal = build.strings([prefix])[0]
        low = _true_or_unknown(pc.or_(pc.less(bounds.lower, literal), pc.starts_with(bounds.lower, prefix)))
        high = self._at_least(bounds, ">=", literal)
        return pc.and_(pc.and_(low, high), self._has_values(bounds))


def _true_or_unknown(answer: pa.ChunkedArray) -> Mask:
    return pc.fill_null(answer, build.TRUE)


def _nan(values: pa.ChunkedArray) -> Mask:
    return pc.fill_null(pc.is_nan(values), build.FALSE)


def _repeated(value: bool, length: int) -> pa.Array:
    bits = (b"\xff" if value else b"\x00") * ((length + 7) // 8)
    return pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(bits)])
