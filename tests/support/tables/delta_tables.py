"""Small Delta tables written by hand: Parquet by pyarrow, the log as JSON, so that nothing of ours is in them."""

from __future__ import annotations

import binascii
import json
import struct
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from headwater.log.actions.deletion_vectors import z85_encode

if TYPE_CHECKING:
    from pathlib import Path

Field = dict[str, Any]


def field(name: str, type_: Any, nullable: bool = True, **metadata: Any) -> Field:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def mapped(name: str, type_: Any, physical: str, id_: int, nullable: bool = True) -> Field:
    """A field with column mapping."""
    metadata = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": id_}
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def struct_of(*fields: Field) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


class DeltaTable:
    """A table that grows by hand-made commits."""

    def __init__(
        self,
        path: Path,
        *fields: Field,
        partition_columns: tuple[str, ...] = (),
        configuration: dict[str, str] | None = None,
        features: tuple[str, ...] = (),
        writer_features: tuple[str, ...] = (),
    ) -> None:
        self.path = path
        self.version = -1
        (path / "_delta_log").mkdir(parents=True)
        protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
        if features or writer_features:
            protocol = {"minReaderVersion": 3 if features else 1, "minWriterVersion": 7}
            protocol["writerFeatures"] = [*features, *writer_features]
            if features:
                protocol["readerFeatures"] = list(features)
        self.metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct_of(*fields)),
            "partitionColumns": list(partition_columns),
            "configuration": configuration or {},
        }
        self.commit({"protocol": protocol}, {"metaData": self.metadata})

    def commit(self, *actions: dict[str, Any]) -> int:
        self.version += 1
        file = self.path / "_delta_log" / f"{self.version:020d}.json"
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        return self.version

    def file(self, rows: pa.Table, name: str | None = None, **fields: Any) -> dict[str, Any]:
        """Write a data file; the `add` action for it. `name` is the decoded path below the table."""
        name = name or f"part-{uuid.uuid4()}.parquet"
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, target)
        add = {
            "path": quote(name, safe="/=:"),
            "partitionValues": {},
            "size": target.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": json.dumps(statistics(rows)),
        }
        return {"add": {**add, **fields}}

    def append(self, rows: pa.Table, name: str | None = None, **fields: Any) -> dict[str, Any]:
        """Commit one data file; its `add` action."""
        action = self.file(rows, name, **fields)
        self.commit(action)
        return action


def statistics(rows: pa.Table) -> dict[str, Any]:
    """Per-file statistics of the columns whose bounds JSON can hold."""
    found: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_struct(column.type):
            inner = statistics(pa.Table.from_struct_array(column))
            for kind in ("minValues", "maxValues", "nullCount"):
                found[kind][name] = inner[kind]
        if pa.types.is_integer(column.type) or pa.types.is_string(column.type):
            bounds = pc.min_max(column).as_py()
            found["nullCount"][name] = column.null_count
            if bounds["min"] is not None:
                found["minValues"][name], found["maxValues"][name] = bounds["min"], bounds["max"]
    return found


def vector_bytes(rows: list[int]) -> bytes:
    """A deletion vector: magic number and portable bitmap."""
    return struct.pack("<i", 1681511377) + BitMap64(rows).serialize()


def vector_file(path: Path, *vectors: list[int]) -> list[dict[str, Any]]:
    """Write a file of deletion vectors; the descriptors without the way to the file."""
    content, described = b"\x01", []
    for rows in vectors:
        data = vector_bytes(rows)
        described.append({"offset": len(content), "sizeInBytes": len(data), "cardinality": len(rows)})
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", binascii.crc32(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return described


def relative_vectors(table: Path, *vectors: list[int], prefix: str = "") -> list[dict[str, Any]]:
    """Vectors in a file of the table, with the file's UUID (and a random prefix) in the descriptor."""
    identifier = uuid.uuid4()
    described = vector_file(table / prefix / f"deletion_vector_{identifier}.bin", *vectors)
    text = prefix + z85_encode(identifier.bytes)
    return [{"storageType": "u", "pathOrInlineDv": text, **d} for d in described]


def inline_vector(rows: list[int]) -> dict[str, Any]:
    data = vector_bytes(rows)
    text = z85_encode(data + b"\0" * (-len(data) % 4))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}
