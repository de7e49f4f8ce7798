"""What a table is, as plain values that a command line or a page can show: facts, file sizes, the schema as a tree.

Texts come from the log as they are: whoever shows them on a terminal or a page must escape them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headwater.log.delta.dialect import DELTA
from headwater.log.schema import ArrayType, MapType, StructField, StructType, UserDefinedType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from headwater.log.schema import DataType
    from headwater.log.snapshot import Snapshot

ChecksumState = Literal["found", "missing", "damaged", "not applicable"]

_FIRST_BITS = 10
"""The first bin of file sizes ends at 1 KiB."""


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """Return the facts about a table, by the names of the Python API."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    segment = snapshot.segment
    checkpoint = segment.checkpoint
    described: dict[str, Any] = {
        "uri": snapshot.uri,
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "created_time": metadata.created_time,
        "version": snapshot.version,
        "timestamp": snapshot.timestamp,
        "protocol": {
            "min_reader_version": protocol.min_reader_version,
            "min_writer_version": protocol.min_writer_version,
            "reader_features": protocol.reader_features,
            "writer_features": protocol.writer_features,
        },
        "schema": snapshot.schema.to_dict(),
        "partition_columns": snapshot.partition_columns,
        "properties": snapshot.properties,
        "num_files": snapshot.num_files,
        "size_bytes": snapshot.size_bytes,
        "file_sizes": [each._asdict() for each in histogram(snapshot.file_sizes())],
        "app_transactions": snapshot.app_transactions,
        "domain_metadata": snapshot.domain_metadata,
        "log": {
            "checkpoint_version": None if checkpoint is None else checkpoint.version,
            "checkpoint_kind": None if checkpoint is None else checkpoint.kind,
            "num_commits": sum(commit.end_version - commit.version + 1 for commit in segment.commits),
        },
        "checksum": checksum_state(snapshot),
    }
    if snapshot.ctx.dialect is not DELTA:
        described |= {"format": snapshot.ctx.dialect.name, "merge_skips": list(snapshot.merge_skips.values())}
    return described


def checksum_state(snapshot: Snapshot) -> ChecksumState:
    """Return whether the version has a checksum file, in a log that has such files at all."""
    return snapshot.ctx.dialect.checksum_state(snapshot)


class Bin(NamedTuple):
    """Files of `from_bytes` to less than `to_bytes`."""

    from_bytes: int
    to_bytes: int
    num_files: int


def histogram(sizes_bytes: Iterable[int]) -> list[Bin]:
    """Count files by size, in bins from one power of four to the next; from the smallest file to the largest.

    >>> [tuple(bin) for bin in histogram([100, 5_000, 6_000])]
    [(0, 1024, 1), (1024, 4096, 0), (4096, 16384, 2)]
    """
    # The length of a number in bits says which powers of two it is between; both steps run in C.
    by_bits = Counter(map(int.bit_length, sizes_bytes))
    counts: Counter[int] = Counter()
    for bits, num_files in by_bits.items():
        counts[max(0, (bits - _FIRST_BITS + 1) // 2)] += num_files
    if not counts:
        return []
    return [Bin(_start(i), _start(i + 1), counts[i]) for i in range(min(counts), max(counts) + 1)]


def _start(index: int) -> int:
    return 0 if index == 0 else 1 << (_FIRST_BITS + 2 * (index - 1))


class SchemaRow(NamedTuple):
    """One field of a schema, in the order in which a tree shows them."""

    is_last: tuple[bool, ...]
    """Whether the field is the last of its struct, after the same for each field around it."""
    name: str
    type: str
    notes: tuple[str, ...]
    """What else is known: `partition`, `not null`, `generated: ...`, `identity`, `default ...`."""
    comment: str


def schema_rows(schema: StructType, partition_columns: Collection[str]) -> Iterator[SchemaRow]:
    """Return the rows of the tree, from top to bottom."""
    return _rows(schema.fields, (), {name.lower() for name in partition_columns})


def _rows(fields: Collection[StructField], above: tuple[bool, ...], partitions: set[str]) -> Iterator[SchemaRow]:
    for number, field in enumerate(fields, 1):
        is_last = (*above, number == len(fields))
        notes = ["partition"] if field.name.lower() in partitions else []
        comment = str(field.metadata.get("comment") or "")
        yield SchemaRow(is_last, field.name, type_label(field), (*notes, *_notes(field)), comment)
        yield from _rows(_children(field.type), is_last, set())


def type_label(field: StructField) -> str:
    """Return the type of a field, by the names of the schema's JSON; fields of structs have rows of their own.

    >>> from headwater.log.schema import LONG, STRING
    >>> type_label(StructField("x", MapType(STRING, ArrayType(StructType([StructField("y", LONG)])))))
    'map<string, array<struct>>'
    """
    declared = field.metadata.get("__CHAR_VARCHAR_TYPE_STRING")
    return declared if isinstance(declared, str) else _label(field.type)


def _label(data_type: DataType) -> str:
    if isinstance(data_type, ArrayType):
        return f"array<{_label(data_type.element_type)}>"
    if isinstance(data_type, MapType):
        return f"map<{_label(data_type.key_type)}, {_label(data_type.value_type)}>"
    return data_type.json_name


def _children(data_type: DataType) -> Collection[StructField]:
    if isinstance(data_type, StructType):
        return data_type.fields
    if isinstance(data_type, ArrayType):
        return _children(data_type.element_type)
    if isinstance(data_type, UserDefinedType):
        return _children(data_type.sql_type)
    if isinstance(data_type, MapType):
        if not _children(data_type.key_type):
            return _children(data_type.value_type)
        return [
            StructField("key", data_type.key_type, nullable=False),
            StructField("value", data_type.value_type, data_type.value_contains_null),
        ]
    return ()


def _notes(field: StructField) -> Iterator[str]:
    if not field.nullable:
        yield "not null"
    if "delta.generationExpression" in field.metadata:
        yield f"generated: {field.metadata['delta.generationExpression']}"
    if "delta.identity.start" in field.metadata:
        yield "identity"
    if "CURRENT_DEFAULT" in field.metadata:
        yield f"default {field.metadata['CURRENT_DEFAULT']}"
