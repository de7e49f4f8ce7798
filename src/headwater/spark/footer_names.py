"""Column mapping by id where Spark cannot be told to use ids: the names that ids have in each file (spec: "Column
Mapping", "Reader Requirements for Column Mapping").

Spark Connect loses the case of a read's options, and with it the one that makes the Parquet reader go by field ids. So
the footers are read here, and files that name their columns alike are read together, by those names.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import UnreadableDataFileError
from headwater.log.columns import int64s
from headwater.log.schema import ArrayType, DataType, MapType, StructType
from headwater.log.schema.mapping import PARQUET_FIELD_ID_KEY
from headwater.spark.arrow_rows import has_field_ids
from headwater.spark.file_rows import PATH, SIZE

if TYPE_CHECKING:
    from headwater.spark.data_files import DataFiles

_PARALLEL_READS = 16


def by_names(rows: pa.Table, schema: StructType, files: DataFiles) -> list[tuple[StructType, pa.Table]]:
    """The files in groups that can be read by name, and the schema with the names of each group.

    Args:
        rows: the files: `PATH`, `SIZE` and whatever else.
        schema: the columns to read, with their field ids.
        files: opens them.

    Raises:
        UnreadableDataFileError: a file has no field ids at all, or one of them twice, so its columns cannot be told.
    """

    def named(uri: str, size_bytes: int) -> StructType:
        footer = files.open(uri, size_bytes).schema
        if not has_field_ids(footer):
            raise UnreadableDataFileError(
                f"{uri} has no field ids, and the table maps its columns by id: nobody can tell them", uri
            )
        return _named(schema, list(footer), uri)

    groups: dict[StructType, list[int]] = {}
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = pool.map(named, rows.column(PATH).to_pylist(), rows.column(SIZE).to_pylist())
        for position, names in enumerate(found):
            groups.setdefault(names, []).append(position)
    return [(names, rows.take(int64s(positions))) for names, positions in groups.items()]


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if text is None else int(text)


def _named(struct: StructType, held: list[pa.Field], uri: str) -> StructType:
    """The struct with the names of the file; a field that is not in it keeps its name, which is in no file."""
    fields = []
    for field in struct.fields:
        id_ = field.metadata.get(PARQUET_FIELD_ID_KEY)
        metadata = {k: v for k, v in field.metadata.items() if k != PARQUET_FIELD_ID_KEY}
        found = [] if id_ is None else [f for f in held if _id(f) == id_]
        if len(found) > 1:
            raise UnreadableDataFileError(f"{uri} has the field id {id_} of column {field.name} more than once", uri)
        source = found[0] if found else None
        if source is None:
            fields.append(replace(field, metadata=metadata))
        else:
            fields.append(
                replace(field, name=source.name, type=_named_type(field.type, source.type, uri), metadata=metadata)
            )
    return StructType(fields)


def _named_type(type_: DataType, held: pa.DataType, uri: str) -> DataType:
    match type_:
        case StructType() if pa.types.is_struct(held):
            return _named(type_, list(held.fields), uri)
        case ArrayType(element_type=element) if pa.types.is_list(held):
            return replace(type_, element_type=_named_type(element, held.value_type, uri))
        case MapType(key_type=key, value_type=value) if pa.types.is_map(held):
            names = (_named_type(key, held.key_type, uri), _named_type(value, held.item_type, uri))
            return replace(type_, key_type=names[0], value_type=names[1])
    return type_
