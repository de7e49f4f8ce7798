"""The columns of a checkpoint, and its rows that are not about files (spec: "Checkpoint Schema").

Every row is one action: one column has a value, all others are null. Statistics are written as text
(`delta.checkpoint.writeStatsAsJson`, true by default), as `stats_parsed` and `partitionValues_parsed`
(`delta.checkpoint.writeStatsAsStruct`, false by default), or both.
"""

from __future__ import annotations

from array import array
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.configuration.properties import STATS_AS_JSON, STATS_AS_STRUCT
from headwater.log.delta.checkpoint.rows import STATS_PARSED
from headwater.log.files import arrow as build
from headwater.log.files.chunks import ADD_COLUMNS, REMOVE_COLUMNS, values_of_key
from headwater.log.schema import is_string, physical_path
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.stats.columns import count_values, floats_outwards, indexed_leaves
from headwater.log.stats.decode import StatsDecoder, is_bounded
from headwater.log.stats.encode import bound_column, conformed, json_text, nested_struct, nested_type
from headwater.log.stats.values import comparable_type, typed_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.actions.model import CheckpointMetadata, DomainMetadata, Metadata, Protocol, Sidecar, Txn
    from headwater.log.configuration import TableConfiguration
    from headwater.log.filters.pruning import TableShape
    from headwater.log.schema import StructField
    from headwater.log.stats.decode import Leaf


_STRING_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())

REMOVE = pa.struct(list(REMOVE_COLUMNS.items()))
"""Without `stats` and `tags`: what a checkpoint keeps of a removed file is only its tombstone."""

_TABLE_ACTIONS = {
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _STRING_MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _STRINGS),
            ("configuration", _STRING_MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _STRINGS),
            ("writerFeatures", _STRINGS),
        ]
    ),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
}
_V2_ACTIONS = {
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _STRING_MAP)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", _STRING_MAP),
        ]
    ),
}


def v1_schema(add: pa.DataType) -> pa.Schema:
    """Return the columns of a checkpoint after the V1 spec."""
    return pa.schema({"txn": _TABLE_ACTIONS["txn"], "add": add, "remove": REMOVE, **_TABLE_ACTIONS}.items())


def v2_schema(add: pa.DataType) -> pa.Schema:
    """Return the columns of a checkpoint after the V2 spec."""
    return pa.schema([*v1_schema(add), *_V2_ACTIONS.items()])


def sidecar_schema(add: pa.DataType) -> pa.Schema:
    return pa.schema([("add", add), ("remove", REMOVE)])


def rows_of(schema: pa.Schema, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Rows for the actions in each of the columns, one after the other; in a row, all other columns are null."""
    total = sum(map(len, columns.values()))
    arrays: dict[str, list[pa.Array]] = {name: [] for name in schema.names}
    before = 0
    for name, values in columns.items():
        after = total - before - len(values)
        parts = [pa.nulls(before, values.type), values, pa.nulls(after, values.type)]
        arrays[name] = [part for part in parts if len(part)]
        before += len(values)
    return pa.table(
        [
            pa.chunked_array(arrays[field.name], type=field.type)
            if arrays[field.name]
            else pa.chunked_array([pa.nulls(total, field.type)])
            for field in schema
        ],
        schema=schema,
    )


# --- actions as arrays -----------------------------------------------------------------------------------


def protocol_rows(protocol: Protocol) -> pa.Array:
    """Return the `protocol`; its lists of features are there exactly if its versions demand them."""
    reader = (protocol.reader_features or ()) if protocol.min_reader_version >= 3 else None
    writer = (protocol.writer_features or ()) if protocol.min_writer_version >= 7 else None
    return build.structs(
        {
            "minReaderVersion": build.int32s([protocol.min_reader_version]),
            "minWriterVersion": build.int32s([protocol.min_writer_version]),
            "readerFeatures": _string_lists([reader]),
            "writerFeatures": _string_lists([writer]),
        }
    )


def metadata_rows(metadata: Metadata) -> pa.Array:
    format_ = {
        "provider": build.strings([metadata.format.provider]),
        "options": build.string_maps([metadata.format.options]),
    }
    return build.structs(
        {
            "id": build.strings([metadata.id]),
            "name": build.strings([metadata.name]),
            "description": build.strings([metadata.description]),
            "format": build.structs(format_),
            "schemaString": build.strings([metadata.schema_string]),
            "partitionColumns": _string_lists([metadata.partition_columns]),
            "configuration": build.string_maps([metadata.configuration]),
            "createdTime": build.int64s([metadata.created_time]),
        }
    )


def txn_rows(txns: Sequence[Txn]) -> pa.Array:
    return build.structs(
        {
            "appId": build.strings([txn.app_id for txn in txns]),
            "version": build.int64s([txn.version for txn in txns]),
            "lastUpdated": build.int64s([txn.last_updated for txn in txns]),
        }
    )


def domain_rows(domains: Sequence[DomainMetadata]) -> pa.Array:
    return build.structs(
        {
            "domain": build.strings([domain.domain for domain in domains]),
            "configuration": build.strings([domain.configuration for domain in domains]),
            "removed": build.bools([domain.removed for domain in domains]),
        }
    )


def checkpoint_metadata_rows(found: CheckpointMetadata) -> pa.Array:
    return build.structs({"version": build.int64s([found.version]), "tags": build.string_maps([found.tags])})


def sidecar_rows(sidecars: Sequence[Sidecar]) -> pa.Array:
    return build.structs(
        {
            "path": build.strings([sidecar.path for sidecar in sidecars]),
            "sizeInBytes": build.int64s([sidecar.size_in_bytes for sidecar in sidecars]),
            "modificationTime": build.int64s([sidecar.modification_time for sidecar in sidecars]),
            "tags": build.string_maps([sidecar.tags for sidecar in sidecars]),
        }
    )


def _string_lists(values: Sequence[Sequence[str] | None]) -> pa.Array:
    items = build.strings([item for value in values for item in value or ()])
    offsets = array("i", accumulate((len(value or ()) for value in values), initial=0))
    present = [value is not None for value in values]
    validity = None if all(present) else build.bitmap(present)
    return pa.Array.from_buffers(
        _STRINGS, len(values), [validity, pa.py_buffer(offsets)], present.count(False), children=[items]
    )


_PARTITIONS_PARSED = "partitionValues_parsed"
_DECODED_TOGETHER = 1_024


class AddColumns:
    """The fields of `add` in a checkpoint of one table."""

    def __init__(self, shape: TableShape, configuration: TableConfiguration) -> None:
        self._shape = shape
        self._configuration = configuration
        self.as_json = configuration[STATS_AS_JSON]
        self.as_struct = configuration[STATS_AS_STRUCT]

    @property
    def types(self) -> dict[str, pa.DataType]:
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
        """Return a batch of actions as they were read, with the same columns for all sources."""
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
        """Return the `add` column of a checkpoint for some actions that have passed."""
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
        return indexed_leaves(self._shape, self._configuration.properties)

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
