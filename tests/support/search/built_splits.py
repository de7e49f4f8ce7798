"""Splits for tests: built from rows, opened again, asked by plain tantivy queries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import tantivy

from headwater.log.schema import StructField, StructType
from headwater.search.choices import index_config
from headwater.search.config import IndexConfig
from headwater.search.split.build import BuiltSplit, SplitWriter
from headwater.search.split.cache import SplitCache
from headwater.search.split.reader import Split
from headwater.search.types import ROW_ID_FIELD, row_schema
from headwater.storage import LocalStore


def schema_of(**columns: Any) -> StructType:
    return StructType(StructField(name, type_) for name, type_ in columns.items())


def batch_of(schema: StructType, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), row_schema(schema))


def build(
    directory: Path,
    schema: StructType,
    rows: Sequence[dict[str, Any]],
    config: IndexConfig | None = None,
    **choices: Any,
) -> BuiltSplit:
    with SplitWriter(config or index_config(schema, **choices), schema, str(directory)) as writer:
        writer.add(batch_of(schema, rows))
        return writer.finish()


def opened(built: BuiltSplit) -> Split:
    directory, key = os.path.split(built.path)
    return Split.open(LocalStore(directory), key, cache=SplitCache(f"{directory}/cache"))


def split_of(directory: Path, schema: StructType, rows: Sequence[dict[str, Any]], **choices: Any) -> Split:
    return opened(build(directory, schema, rows, **choices))


def found(split: Split, query: tantivy.Query) -> list[int]:
    """The row numbers of the hits, ascending."""
    searcher = split.searcher
    hits = searcher.search(query, limit=max(1, searcher.num_docs), order_by_field=ROW_ID_FIELD).hits
    return sorted(split.row_numbers_of([row_id for row_id, _ in hits]).to_pylist())


def rows_with(split: Split, field: str, value: Any) -> list[int]:
    """The rows that have a value in an index field."""
    known = {one.index_name: one for one in split.config.fields}.get(field)
    if known is not None and not known.has_terms:
        kind = tantivy.FieldType.Float if known.kind == "f64" else tantivy.FieldType.Integer
        return found(split, tantivy.Query.range_query(split.index.schema, field, kind, value, value))
    return found(split, tantivy.Query.term_query(split.index.schema, field, value))
