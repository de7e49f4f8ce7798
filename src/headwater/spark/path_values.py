"""Values of files as columns of a plain Parquet scan: a literal map from a file's path to its values.

Spark Connect has no file index of ours, so partition values (and what else the log says of a file) cannot come as
partition columns. They are looked up by the path of a row's file, in a map that is a constant of the plan. Spark
applies filters on such a column when it lists files, so a later filter on a partition column still skips whole files.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.log.schema.chars import CHAR_VARCHAR_KEY
from headwater.log.schema.lookup import hidden
from headwater.spark.file_rows import PATH
from headwater.spark.functions import functions
from headwater.spark.partition_text import day_text, timestamp_text

if TYPE_CHECKING:
    from pyspark.sql import Column

FILE_PATH = hidden("file_path")
"""The path of a row's file, in a scan of Spark Connect."""
ROW_POSITION = hidden("row_position")
"""The position of a row in its file, deleted rows counted, in such a scan."""


_CHAR = re.compile(r"char\((\d+)\)")


def path_columns(rows: pa.Table, fields: list[dict[str, Any]]) -> dict[str, Column]:
    """One column for each field, over a scan of the files.

    Args:
        rows: the files: a column `PATH` (as Spark's file source spells it, each one once), and one for each field.
        fields: the fields in Spark's schema JSON.
    """
    return values_at(path_position(rows.column(PATH)), rows, fields)


def values_at(position: Column, rows: pa.Table, fields: list[dict[str, Any]]) -> dict[str, Column]:
    """One column for each field: its value at a position of the table."""
    return {field["name"]: _array(rows.column(field["name"]), field)[position] for field in fields}


def path_position(paths: pa.ChunkedArray) -> Column:
    """The position of the row's file in the list. A file that is not in it fails the query: nothing is known of it."""
    sf = functions()
    path = sf.col(FILE_PATH)
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
    texts = _texts(values)
    char = _CHAR.fullmatch(str(field["metadata"].get(CHAR_VARCHAR_KEY)))
    if char is not None:  # Spark pads what it reads of such columns, but these values are read from no file
        texts = [None if text is None else text.ljust(int(char[1])) for text in texts]
    text = sf.from_json(sf.lit(json.dumps(texts, ensure_ascii=False)), "array<string>")
    return text if kind.simpleString() == "string" else text.cast(ArrayType(kind))


def _texts(values: pa.ChunkedArray) -> list[str | None]:
    """Values as text that Spark casts back exactly."""
    texts: list[str | None]
    if pa.types.is_date32(values.type):
        texts = [None if day is None else day_text(day) for day in values.cast(pa.int32()).to_pylist()]
    elif pa.types.is_timestamp(values.type):
        micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).to_pylist()
        texts = [None if us is None else timestamp_text(us, zoned=values.type.tz is not None) for us in micros]
    else:
        texts = values.cast(pa.string()).to_pylist()
    return texts
