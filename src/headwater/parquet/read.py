"""Read rows of data files with Arrow in the table's own schema.

Names or ids are resolved, missing columns are null, and types are widened. The rules are those of Spark's Parquet
reader. Whatever Spark refuses, or reads differently than Arrow, raises `UnreadableInPythonError` here, and so do
shredded variants and dates of the old calendar: callers then let Spark read, so that a command that rewrites files has
the rows of a scan, or fails as a scan does.

Spark Connect loses the case of a read's options, and with it the one that makes the Parquet reader use field ids. There
the footers are read first, and files that name their columns alike are read together by these names (`by_names`; spec:
"Reader Requirements for Column Mapping").
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import UnreadableDataFileError, UnreadableInPythonError
from headwater.log.actions.paths import hadoop_root
from headwater.log.files.parquet import ParquetObject
from headwater.log.schema import (
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MappingMode,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    column_id,
    physical_name,
)
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.schema.mapping import PARQUET_FIELD_ID_KEY
from headwater.log.schema.spark import readable_types
from headwater.log.schema.types import hidden, part_in_files
from headwater.storage import ObjectMeta, ObjectStore, open_store
from headwater.storage.elsewhere import OtherStores
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import pyarrow.parquet as pq

    _Held = dict[bytes | str, list[pa.Field]]
    _Found = dict[str, pa.Field | None]
    """Columns of a file by the names that they have in the result."""


_FIELD_ID = b"PARQUET:field_id"
_SPARK_VERSION = b"org.apache.spark.version"
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VARIANT = pa.struct(
    [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={b"variant": b"true"})]
)
"""The struct in which Spark hands variants to Arrow; it takes the two fields by their position."""
_GREGORIAN = {
    pa.date32(): pa.scalar(-141_427, pa.int32()).cast(pa.date32()),
    pa.timestamp("us", "UTC"): pa.scalar(-2_208_988_800_000_000, pa.int64()).cast(pa.timestamp("us", "UTC")),
    pa.timestamp("us"): pa.scalar(-2_208_988_800_000_000, pa.int64()).cast(pa.timestamp("us")),
}
"""The first date and timestamps that mean the same in the old calendar (and its old time zones)."""
_SMALL_INTEGERS = (pa.int8(), pa.int16(), pa.int32())
_READ_AS = {
    pa.int8(): _SMALL_INTEGERS,
    pa.int16(): (*_SMALL_INTEGERS, pa.uint8()),
    pa.int32(): (*_SMALL_INTEGERS, pa.uint8(), pa.uint16()),
    pa.int64(): (*_SMALL_INTEGERS, pa.uint8(), pa.uint16(), pa.uint32()),
    pa.float64(): (*_SMALL_INTEGERS, pa.float32()),
    pa.timestamp("us"): (pa.date32(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
}
"""The types that Spark reads as another type without changing values."""
_INTEGER_DIGITS = {**dict.fromkeys(_SMALL_INTEGERS, 10), pa.int64(): 20}
"""The digits before the point that a decimal needs for Spark to read such integers as one."""


def find_columns(
    fields: Iterable[StructField], schema: pa.Schema, mode: MappingMode, unmapped: Collection[str] = ()
) -> dict[str, pa.Field | None]:
    """Find the columns of a file that hold columns of the table; None for those that the file does not have.

    Args:
        fields: the columns of the table.
        schema: the schema of the file.
        unmapped: columns that have the same name in files, whatever the mode.
    """
    held = {each: _by_key(schema, each) for each in (mode, "none")}
    found: dict[str, pa.Field | None] = {}
    for field in readable_types(StructType(list(fields))).fields:
        own_mode: MappingMode = "none" if field.name in unmapped else mode
        if own_mode == "id" and not has_field_ids(schema):
            raise UnreadableInPythonError(
                "it has no field ids, and the table maps its columns by id: they cannot be identified"
            )
        source = _find_column(field, held[own_mode], own_mode)
        if source is not None:
            _check_type(source.type, field.type, own_mode, field.name)
        found[field.name] = source
    return found


def has_field_ids(held: Iterable[pa.Field]) -> bool:
    """Return whether any column of a file, at any depth, has a field id."""
    return any(_FIELD_ID in (field.metadata or {}) or has_field_ids(_inner_fields(field.type)) for field in held)


def _inner_fields(type_: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(type_):
        return list(type_.fields)
    if pa.types.is_map(type_):
        return [type_.key_field, type_.item_field]
    return [type_.value_field] if pa.types.is_list(type_) else []


def _by_key(held: Iterable[pa.Field], mode: MappingMode) -> _Held:
    """Group columns of a file by id, or by name in lower case, as Spark does."""
    found: _Held = {}
    for field in held:
        key = (field.metadata or {}).get(_FIELD_ID) if mode == "id" else field.name.lower()
        if key is not None:
            found.setdefault(key, []).append(field)
    return found


def _find_column(field: StructField, held: _Held, mode: MappingMode) -> pa.Field | None:
    if part_in_files(field.type) is None:
        return None
    if mode == "id":
        found = held.get(str(column_id(field)).encode(), [])
    else:
        found = held.get((physical_name(field) if mode == "name" else field.name).lower(), [])
    if len(found) > 1:
        raise UnreadableInPythonError(
            f"it has {len(found)} columns that may be {field.name}: {', '.join(f.name for f in found)}"
        )
    return found[0] if found else None


def _check_type(held: pa.DataType, type_: DataType, mode: MappingMode, name: str) -> None:
    """Raise unless Arrow reads a column as Spark does."""
    match type_:
        case UserDefinedType(sql_type=stored):
            return _check_type(held, stored, mode, name)
        case StructType(fields=fields) if pa.types.is_struct(held):
            inner = _by_key(held.fields, mode)
            for field in fields:
                source = _find_column(field, inner, mode)
                if source is not None:
                    _check_type(source.type, field.type, mode, f"{name}.{field.name}")
            return None
        case ArrayType(element_type=element) if pa.types.is_list(held):
            return _check_type(held.value_type, element, mode, f"{name}.element")
        case MapType(key_type=key, value_type=value) if pa.types.is_map(held):
            _check_type(held.key_type, key, mode, f"{name}.key")
            return _check_type(held.item_type, value, mode, f"{name}.value")
        case _ if type_ == VARIANT and pa.types.is_struct(held):
            return None
        case PrimitiveType() | DecimalType() if _reads_alike(held, type_to_arrow(type_)):
            return None
    raise UnreadableInPythonError(f"it holds column {name} as {held}, and the table has it as {type_}")


def _reads_alike(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a value of a Parquet column means the same to Arrow as to Spark's Parquet reader."""
    if held == wanted:
        return True
    if pa.types.is_decimal(wanted):
        if pa.types.is_decimal128(held):
            more_digits, more_decimals = wanted.precision - held.precision, wanted.scale - held.scale
            return bool(0 <= more_decimals <= more_digits)
        return held in _INTEGER_DIGITS and bool(wanted.precision - wanted.scale >= _INTEGER_DIGITS[held])
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(held):
        return str(held.unit) in ("ms", "us")
    if pa.types.is_fixed_size_binary(held):
        return bool(wanted == pa.binary())
    return held in _READ_AS.get(wanted, ())


def conform(array: pa.Array, type_: DataType, mode: MappingMode) -> pa.Array:
    """Convert an array of a file to the type of the table."""
    target = row_type(type_)
    match type_:
        case UserDefinedType(sql_type=stored):
            return conform(array, stored, mode)
        case StructType():
            return _conform_struct(array, type_, mode)
        case ArrayType(element_type=element):
            return with_elements(array, target, conform(array.values, element, mode))
        case MapType(key_type=key, value_type=value):
            pair = [conform(array.keys, key, mode), conform(array.items, value, mode)]
            entries = pa.StructArray.from_arrays(pair, fields=[target.key_field, target.item_field])
            return with_elements(array, target, entries)
    if type_ == VARIANT:
        return _conform_variant(array)
    try:
        return array if array.type == target else _cast(array, target)
    except pa.ArrowException as error:
        raise UnreadableInPythonError(f"a column of type {array.type} cannot be read as {type_}: {error}") from error


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
        # Spark counts from the same moment with and without a time zone.
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).cast(target)
    if pa.types.is_decimal(target) and pa.types.is_integer(array.type):
        return array.cast(pa.decimal128(38, target.scale)).cast(target)
    return array.cast(target)


def _conform_struct(array: pa.Array, type_: StructType, mode: MappingMode) -> pa.Array:
    inner = list(array.type.fields)
    held = _by_key(inner, mode)
    children = []
    for field in type_.fields:
        source = _find_column(field, held, mode)
        if source is None:
            children.append(pa.nulls(len(array), row_type(field.type)))
        else:
            place = next(place for place, one in enumerate(inner) if one is source)
            children.append(conform(array.field(place), field.type, mode))
    fields = list(row_type(type_).fields)
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _conform_variant(array: pa.Array) -> pa.Array:
    names = {field.name: position for position, field in enumerate(array.type.fields)}
    if set(names) != {"metadata", "value"}:
        raise UnreadableInPythonError(
            f"a variant is stored shredded (as {', '.join(names)}), which cannot be read in Python: configure a Hadoop "
            "filesystem for the store in Spark"
        )
    children = [array.field(names[field.name]).cast(pa.binary()) for field in _VARIANT.fields]
    return pa.StructArray.from_arrays(children, fields=list(_VARIANT.fields), mask=array.is_null())


def with_elements(array: pa.Array, target: pa.DataType, elements: pa.Array) -> pa.Array:
    """Replace the elements of a list or map, and keep its lengths."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, offsets], array.null_count, array.offset, [elements])


@dataclass(frozen=True)
class ReaderSettings:
    """How the session reads files whose writers left something open."""

    unmarked_is_old: bool = False
    """Whether files that do not name their Spark version may have dates of the old calendar."""
    shifts_int96: bool = False
    """Whether Spark converts INT96 timestamps of other writers to another time zone."""

    def may_be_old(self, footer: pq.FileMetaData) -> bool:
        """Return whether a Spark that used the old calendar may have written a file."""
        noted = footer.metadata or {}
        if any(key in noted for key in _LEGACY_KEYS):
            return True
        return _is_old_spark(noted[_SPARK_VERSION]) if _SPARK_VERSION in noted else self.unmarked_is_old

    def check(self, footer: pq.FileMetaData) -> None:
        """Raise if the settings make Spark read other values than Arrow."""
        if self.shifts_int96:
            schema = footer.schema
            if any(schema.column(place).physical_type == "INT96" for place in range(footer.num_columns)):
                raise UnreadableInPythonError("it has timestamps that the session's settings move to another time zone")


@lru_cache
def _is_old_spark(text: bytes) -> bool:
    version = re.match(rb"(\d+)\.(\d+)", text)
    return version is not None and (int(version[1]), int(version[2])) < (3, 1)


def refuse_old_dates(array: pa.Array, name: str) -> None:
    """Raise for dates and timestamps, at any depth, that mean something else in the old calendar."""
    type_ = array.type
    if pa.types.is_struct(type_):
        for position in range(type_.num_fields):
            refuse_old_dates(array.field(position), name)
    elif pa.types.is_map(type_):
        refuse_old_dates(array.keys, name)
        refuse_old_dates(array.items, name)
    elif pa.types.is_list(type_):
        refuse_old_dates(array.values, name)
    elif type_ in _GREGORIAN and pc.any(pc.less(array, _GREGORIAN[type_])).as_py():
        raise UnreadableInPythonError(
            f"column {name} holds dates before 1900, and an old Spark wrote them in the old calendar, which cannot be "
            "read in Python: configure a Hadoop filesystem for the store in Spark"
        )


def output_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the rows: everything may be null, as for Spark's file sources."""
    return pa.schema([pa.field(f.name, row_type(f.type)) for f in schema.fields])


def row_type(type_: DataType) -> pa.DataType:
    """Return the Arrow type in which Spark takes values of a type of the table."""
    match type_:
        case UserDefinedType(sql_type=stored):
            return row_type(stored)
        case StructType(fields=fields):
            return pa.struct([pa.field(f.name, row_type(f.type)) for f in fields])
        case ArrayType(element_type=element):
            return pa.list_(pa.field("element", row_type(element)))
        case MapType(key_type=key, value_type=value):
            return pa.map_(row_type(key), row_type(value))
    return _VARIANT if type_ == VARIANT else type_to_arrow(type_)


_SMALL_BYTES = 256 * 2**10


def check_places(uri: str, storage_options: Mapping[str, str] | None, paths: pa.ChunkedArray) -> None:
    """Raise before a job starts if workers lack options to read some files.

    Args:
        paths: URIs of data files (`headwater.log.actions.paths.file_uris`).

    Raises:
        ForeignLocationError: a file lies in a store for which there are no options.
    """
    own = f"{hadoop_root(replace(parse_uri(uri), path='').uri)}/" if parse_uri(uri).kind != "local" else "file:/"
    others = paths.filter(pc.invert(pc.starts_with(paths, own)))
    if not len(others):
        return
    elsewhere = OtherStores(uri, storage_options)
    places = pc.struct_field(pc.extract_regex(others, r"^(?P<place>[^:]+:/{0,2}[^/]*/)"), "place")
    for place in places.unique().drop_null().to_pylist():
        elsewhere.locate_uri(others.filter(pc.starts_with(others, place))[0].as_py())


class DataFiles:
    """Opens the data files of one table; most of them lie below its location."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None) -> None:
        self._root = hadoop_root(uri)
        self._table = open_store(uri, storage_options)
        self._elsewhere = OtherStores(uri, storage_options)

    def open(self, uri: str, size_bytes: int) -> ParquetObject:
        """Return a data file by its URI (`file_uris`) and its size by the log; nothing is read yet."""
        store, key = self.locate(uri)
        return ParquetObject(store, ObjectMeta(key, size_bytes, 0), small_bytes=_SMALL_BYTES)

    def locate(self, uri: str) -> tuple[ObjectStore, str]:
        """Return the store that holds a file, and the file's key in it.

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
        """
        decoded = unquote(uri, errors="surrogateescape")
        if decoded.startswith(self._root + "/"):
            return self._table, decoded[len(self._root) + 1 :]
        return self._elsewhere.locate_uri(uri)


_PARALLEL_READS = 16


def by_names(rows: pa.Table, schema: StructType, files: DataFiles) -> list[tuple[StructType, pa.Table]]:
    """Group files that can be read by the same names; return the schema of each group with these names.

    Args:
        rows: the files: `PATH`, `SIZE` and any other columns.
        schema: the columns to read, with their field ids.
        files: opens them.
    """

    def named(uri: str, size_bytes: int) -> StructType:
        footer = files.open(uri, size_bytes).schema
        if not has_field_ids(footer):
            raise UnreadableDataFileError(
                f"{uri} has no field ids, and the table maps its columns by id: they cannot be identified", uri
            )
        return _named(schema, list(footer), uri)

    groups: dict[StructType, list[int]] = {}
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = pool.map(named, rows.column(PATH).to_pylist(), rows.column(SIZE).to_pylist())
        for position, names in enumerate(found):
            groups.setdefault(names, []).append(position)
    return [(names, rows.take(positions)) for names, positions in groups.items()]


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if text is None else int(text)


def _named(struct: StructType, held: list[pa.Field], uri: str) -> StructType:
    """Rename the fields to the names in a file; a field that the file lacks keeps its name, which no file has."""
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


PATH, SIZE, MODIFIED = hidden("path"), hidden("size"), hidden("modification_time")
"""Columns of a table of files: URI, bytes, milliseconds."""
START, END = hidden("start"), hidden("end")
"""Columns of file ranges: the row groups that begin between these two offsets count."""


_BATCH_BYTES = 16 * 2**20
_MIN_BATCH_ROWS = 1_024
_MAX_BATCH_ROWS = 65_536


def batch_rows(file: ParquetObject, group: int) -> int:
    """Return how many rows make a batch of moderate size, whether rows are narrow or wide."""
    metadata = file.metadata.row_group(group)
    row_bytes = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
    return int(max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, _BATCH_BYTES // row_bytes)))
