"""Spark's own Parquet reader over a list of paths, for sessions of Spark Connect, which cannot have our file index.

The reader takes paths for patterns, leaves out names that it takes for hidden ones, and lists many paths in a job.
Here it is asked so that it reads the very files that the log names, or so that it is clear why it cannot.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headwater.errors import HeadwaterError
from headwater.log.schema import drop_field_ids
from headwater.spark.columns import quoted
from headwater.spark.connect_failures import explained
from headwater.spark.data_files import DataFiles
from headwater.spark.file_rows import PATH
from headwater.spark.footer_names import by_names
from headwater.spark.functions import functions
from headwater.spark.path_values import FILE_PATH, ROW_POSITION
from headwater.spark.row_locations import row_file, row_position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.schema import StructType
    from headwater.log.snapshot import Snapshot

_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MANY_FILES = 2**31 - 1
_GLOB_CHARACTERS = re.compile(r"([*?\[\]{}\\])")
_HIDDEN_NAME = re.compile(r"/(?:\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$")
"""Names of files that Spark leaves out, whoever asks for them."""
_COLON = re.compile(r"/[^/]*:(?!//)")


class FileNameError(HeadwaterError):
    """The table has a data file with a name that Spark Connect cannot be asked for."""


def path_scans(
    spark: SparkSession,
    snapshot: Snapshot,
    rows: pa.Table,
    schema: StructType,
    options: Mapping[str, str],
    storage_options: Mapping[str, str] | None,
) -> Iterator[tuple[DataFrame, pa.Table]]:
    """Scans that have, together, all the files; and the files of each. Files that name their columns alike share one.

    Their columns `FILE_PATH` and `ROW_POSITION` say where a row is.

    Args:
        spark: a session of Spark Connect.
        snapshot: says how columns are found in files.
        rows: the files: `PATH`, each one once; `SIZE`, and whatever else.
        schema: the columns of the scans, by physical name.
        options: of Spark's Parquet reader.
        storage_options: options of the object store, for footers.
    """
    if snapshot.mapping_mode != "id":
        frame = _parquet(spark, rows, schema, options)
        yield frame.select("*", *_places(frame)), rows
        return
    for names, group in by_names(rows, schema, DataFiles(snapshot.uri, storage_options)):
        yield _renamed(_parquet(spark, group, names, options), names, schema), group


def _places(frame: DataFrame) -> list[Column]:
    """Where rows are, in columns that no table has; Spark reads them only if they are used."""
    return [row_file(frame).alias(FILE_PATH), row_position(frame).alias(ROW_POSITION)]


def _renamed(frame: DataFrame, names: StructType, schema: StructType) -> DataFrame:
    """The columns by the names of the schema instead of those in the files."""
    shown: Any = drop_field_ids(schema).to_spark()
    sf = functions()
    pairs = zip(names.names, shown.fields, strict=True)
    columns = (sf.col(quoted(old)).cast(new.dataType).alias(new.name) for old, new in pairs)
    return frame.select(*columns, *_places(frame))


def _check_names(paths: list[str]) -> None:
    """Refuse files that Spark would silently leave out, or cannot find."""
    for path in paths:
        if _HIDDEN_NAME.search(path):
            reason = "it takes the name for that of a hidden file"
        elif _GLOB_CHARACTERS.search(path) and _COLON.search(path):
            reason = "Hadoop finds no file with both a colon and one of *?[]{}\\ in its path"
        else:
            continue
        raise FileNameError(
            f"Spark cannot be asked for the data file {path}: {reason}. Read the table with a classic session "
            "(not Spark Connect), or let OPTIMIZE rewrite the file."
        )


def _parquet(spark: SparkSession, rows: pa.Table, schema: StructType, options: Mapping[str, str]) -> DataFrame:
    """Spark's Parquet scan of the files."""
    decoded = [unquote(uri) for uri in rows.column(PATH).to_pylist()]
    _check_names(decoded)
    # The reader decodes no URIs, and takes every path as a pattern.
    paths = [_GLOB_CHARACTERS.sub(r"\\\1", path) for path in decoded]
    frame = spark.read.schema(schema.to_spark()).options(**options).parquet(*paths)
    with _quick_listing(spark, len(paths)), explained():
        # The server lists the files now, and keeps the plan for the queries that are built on it.
        assert frame.schema is not None
    return frame


@contextmanager
def _quick_listing(spark: SparkSession, file_count: int) -> Iterator[None]:
    """Let the server look at the files by itself: by default it starts a job for more than a few, 10 times slower."""
    before = str(spark.conf.get(_LISTING_THRESHOLD))
    if file_count <= int(before):
        yield
        return
    spark.conf.set(_LISTING_THRESHOLD, str(_MANY_FILES))
    try:
        yield
    finally:
        spark.conf.unset(_LISTING_THRESHOLD)
        if spark.conf.get(_LISTING_THRESHOLD) != before:
            spark.conf.set(_LISTING_THRESHOLD, before)
