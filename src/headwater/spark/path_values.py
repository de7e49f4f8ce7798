"""Values of files as columns of a plain Parquet scan: a literal map from a file's path to its values.

Spark Connect has no file index of ours, so partition values (and what else the log says of a file) cannot come as
partition columns. They are looked up by `_metadata.file_path`, in a map that is a constant of the plan. Spark applies
filters on such a column when it lists files, so a later filter on a partition column still skips whole files.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.spark.functions import functions

if TYPE_CHECKING:
    from pyspark.sql import Column


def path_columns(rows: pa.Table, fields: list[dict[str, Any]]) -> dict[str, Column]:
    """One column for each field, over a scan of the files.

    Args:
        rows: the files: a column `path` (as `_metadata.file_path` spells it, each one once), and one for each field.
        fields: the fields in Spark's schema JSON.
    """
    return values_at(path_position(rows.column("path")), rows, fields)


def values_at(position: Column, rows: pa.Table, fields: list[dict[str, Any]]) -> dict[str, Column]:
    """One column for each field: its value at a position of the table."""
    return {field["name"]: _array(rows.column(field["name"]), field)[position] for field in fields}


def path_position(paths: pa.ChunkedArray) -> Column:
    """The position of the row's file in the list. A file that is not in it fails the query: nothing is known of it."""
    sf = functions()
    path = sf.col("_metadata.file_path")
    positions = dict(zip(paths.to_pylist(), range(len(paths)), strict=True))
    found = sf.from_json(sf.lit(json.dumps(positions, ensure_ascii=False)), "map<string,int>")[path]
    unknown = sf.concat(sf.lit("Headwater did not ask for the file "), path)
    return sf.coalesce(found, sf.raise_error(unknown).cast("int"))


def _array(values: pa.ChunkedArray, field: dict[str, Any]) -> Column:
    """The values as a constant array. They travel as text: there may be many, and a literal each would be slow."""
    from pyspark.sql.types import ArrayType, StructField

    sf = functions()
    kind = StructField.fromJson(field).dataType
    if pa.types.is_binary(values.type):
        encoded = [None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
        return sf.from_json(sf.lit(json.dumps(encoded)), ArrayType(kind))
    text = sf.from_json(sf.lit(json.dumps(_texts(values), ensure_ascii=False)), "array<string>")
    return text if field["type"] == "string" else text.cast(ArrayType(kind))


def _texts(values: pa.ChunkedArray) -> list[str | None]:
    """Values as text that Spark casts back exactly."""
    texts: list[str | None] = values.cast(pa.string()).to_pylist()
    return texts
