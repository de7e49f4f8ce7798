"""Statistics and partition values of a checkpoint's `add` actions, as text or as columns (spec: "Checkpoints").

`delta.checkpoint.writeStatsAsJson` (true by default) asks for the text, `delta.checkpoint.writeStatsAsStruct` (false by
default) for `stats_parsed` and `partitionValues_parsed`: typed by the table's schema, with physical names.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import columns as build
from headwater.log.action_batches import STATS_PARSED
from headwater.log.file_chunks import ADD_COLUMNS
from headwater.log.indexed_columns import indexed_leaves
from headwater.log.map_lookup import values_of_key
from headwater.log.partition_values import typed_values
from headwater.log.schema import is_string, physical_path
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.statistics import count_values, floats_outwards
from headwater.log.stats_decoder import StatsDecoder, is_bounded
from headwater.log.stats_struct import bound_column, conformed, nested_struct, nested_type
from headwater.log.stats_text import json_text
from headwater.log.values import comparable_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.operands import TableShape
    from headwater.log.schema import StructField
    from headwater.log.stats_decoder import Leaf

_PARTITIONS_PARSED = "partitionValues_parsed"
_DECODED_TOGETHER = 1_024


class AddColumns:
    """The fields of `add` in a checkpoint of one table.

    Args:
        shape: the table's schema, partition columns and mapping.
        configuration: the table's properties.
    """

    def __init__(self, shape: TableShape, configuration: Mapping[str, str]) -> None:
        self._shape = shape
        self._configuration = configuration
        self.as_json = configuration.get("delta.checkpoint.writeStatsAsJson", "true").lower() != "false"
        self.as_struct = configuration.get("delta.checkpoint.writeStatsAsStruct", "false").lower() == "true"

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Names and types of the fields, in order."""
        types = {name: type_ for name, type_ in ADD_COLUMNS.items() if name != "stats" or self.as_json}
        if self.as_struct and self._partitions:
            types[_PARTITIONS_PARSED] = pa.struct(
                [(physical, _partition_type(field)) for physical, field in self._partitions.items()]
            )
        if self.as_struct:
            types[STATS_PARSED] = self.stats_type
        return types

    @property
    def first_bounded_leaf(self) -> Leaf | None:
        """The first column that has bounds, if statistics are written as columns."""
        return next(iter(self._bounded), None) if self.as_struct else None

    # --- while batches pass ------------------------------------------------------------------------

    def passing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of actions as they were read, with the same columns for all sources."""
        columns = {name: batch.column(name) for name in batch.schema.names if name != STATS_PARSED}
        parsed = batch.column(STATS_PARSED) if STATS_PARSED in batch.schema.names else None
        if parsed is not None and self.as_json and columns["stats"].null_count:
            columns["stats"] = pc.coalesce(columns["stats"], json_text(parsed))
        if self.as_struct:
            nothing = pa.nulls(batch.num_rows, self.stats_type)
            columns[STATS_PARSED] = nothing if parsed is None else conformed(parsed, self.stats_type)
        return pa.record_batch(columns)

    # --- for a row group -----------------------------------------------------------------------------

    def finished(self, batch: pa.RecordBatch) -> pa.StructArray:
        """The `add` column of a checkpoint for some actions that have passed."""
        present = frozenset(batch.schema.names)
        children = {
            name: batch.column(name) if name in present else pa.nulls(batch.num_rows, type_)
            for name, type_ in ADD_COLUMNS.items()
        }
        if self.as_struct and self._partitions:
            children[_PARTITIONS_PARSED] = self._parsed_partitions(children["partitionValues"])
        if self.as_struct:
            children[STATS_PARSED] = self._parsed_stats(batch.column(STATS_PARSED), children["stats"])
        fields = [pa.field(name, type_) for name, type_ in self.types.items()]
        return pa.StructArray.from_arrays([children[field.name] for field in fields], fields=fields)

    @cached_property
    def _partitions(self) -> dict[str, StructField]:
        """The partition columns by physical name."""
        shape = self._shape
        return {
            physical_path(shape.schema, [name], shape.mapping_mode)[0]: shape.schema.field(name)
            for name in shape.partition_columns
        }

    def _parsed_partitions(self, maps: pa.MapArray) -> pa.StructArray:
        arrays = [
            typed_values(values_of_key(maps, physical), field, _partition_type(field))
            for physical, field in self._partitions.items()
        ]
        return pa.StructArray.from_arrays(arrays, names=list(self._partitions))

    @cached_property
    def _leaves(self) -> list[Leaf]:
        return indexed_leaves(self._shape, self._configuration)

    @cached_property
    def _bounded(self) -> dict[Leaf, pa.DataType]:
        """The leaves that have bounds, and the types of these."""
        comparable = {leaf: comparable_type(leaf.type) for leaf in self._leaves}
        return {
            leaf: type_to_arrow(leaf.type)
            for leaf, target in comparable.items()
            if target is not None and is_bounded(target)
        }

    @cached_property
    def stats_type(self) -> pa.DataType:
        """The type of `stats_parsed`; a struct without a field cannot be stored and is left out."""
        bounds = nested_type({leaf.path: type_ for leaf, type_ in self._bounded.items()})
        counts = nested_type({leaf.path: pa.int64() for leaf in self._leaves})
        parts = {"minValues": bounds, "maxValues": bounds, "nullCount": counts}
        fields = [("numRecords", pa.int64())]
        fields += [(name, type_) for name, type_ in parts.items() if type_ is not None]
        return pa.struct([*fields, ("tightBounds", pa.bool_())])

    def _parsed_stats(self, parsed: pa.StructArray, text: pa.Array) -> pa.StructArray:
        """Statistics as columns; those that are there only as text are decoded."""
        only_text = pc.and_(parsed.is_null(), text.is_valid())
        if not only_text.true_count:
            return parsed
        texts = text.filter(only_text)
        decoded = pa.concat_arrays(
            [self._decoded(texts.slice(at, _DECODED_TOGETHER)) for at in range(0, len(texts), _DECODED_TOGETHER)]
        )
        if len(decoded) == len(parsed):
            return decoded
        # Each row is one of: parsed (or nothing at all), decoded. Take it from where it is.
        both = pa.concat_arrays([parsed, decoded])
        nth = pc.add(pc.cumulative_sum(only_text.cast(pa.int64())), build.int64s([len(parsed) - 1])[0])
        return both.take(pc.if_else(only_text, nth, build.int64s(range(len(parsed)))))

    def _decoded(self, text: pa.Array) -> pa.StructArray:
        bounded, leaves = list(self._bounded), self._leaves
        bounds, counts = StatsDecoder(bounded, "bounds"), StatsDecoder(leaves, "counts")
        bound_rows, count_rows = bounds.decode(text), counts.decode(text)

        def of_bounds(part: str) -> pa.Array:
            found = {}
            for i, leaf in enumerate(bounded):
                column = bound_column(bounds.values(bound_rows, part, i), leaf.type, self._bounded[leaf])
                # Other readers take what stands here for bounds of the column's own type.
                found[leaf.path] = floats_outwards(column, upper=part == "max_values") if leaf.was_float else column
            return nested_struct(found)

        children: dict[str, Any] = {"numRecords": count_values([row.num_records for row in count_rows])}
        if bounded:
            children |= {"minValues": of_bounds("min_values"), "maxValues": of_bounds("max_values")}
        if leaves:
            found = {leaf.path: counts.values(count_rows, "null_count", i) for i, leaf in enumerate(leaves)}
            children["nullCount"] = nested_struct({path: count_values(values) for path, values in found.items()})
        children["tightBounds"] = build.bools([row.tight_bounds for row in count_rows])
        return pa.StructArray.from_arrays(list(children.values()), fields=list(self.stats_type))


def _partition_type(field: StructField) -> pa.DataType:
    """Text for types whose values have no other form that we know."""
    return pa.string() if is_string(field.type) or comparable_type(field.type) is None else type_to_arrow(field.type)
