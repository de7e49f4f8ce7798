"""What a write of data files is told: where they go, what is in them, and how large they shall be.

The table's side of `headwater.spark.data_writer`: everything that the table's schema and properties decide about its
data files is decided once, on the driver, and travels to the executors as a plain value (`headwater.spark.file_plan`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.schema import MappingMode, StructField, StructType


def _nothing() -> dict[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class WriteTarget:
    """The table, or the part of it, that rows are written to.

    Attributes:
        uri: the table's location.
        schema: logical, with the partition columns; the rows have exactly these columns, in any order.
        partition_columns: their logical names.
        mapping_mode: the table's column mapping.
        properties: the table's properties (`metaData.configuration`): they say which columns get statistics, how
            files are called, and how large they shall be.
        storage_options: options of the object store.
        max_records_per_file: a file gets no more rows than this.
        target_file_size: about how many bytes a file shall have; `delta.targetFileSize` when None.
        optimize_write: shuffle the rows first, so that files are near their target size and partitions do not end in
            many small files; `delta.autoOptimize.optimizeWrite` when None.
        compression: of the Parquet files: snappy, zstd, gzip, lz4, brotli or none. By default what Spark's
            `spark.sql.parquet.compression.codec` says (snappy, unless somebody changed it).
        directory: below the table's location, for files that are no part of the table itself (`_change_data`).
        materialize_partition_columns: put the partition columns into the files as well, after the others.
        statistics: whether to collect statistics; files that the log names without them need none.
        hidden: further columns of the rows, which files hold under the same names whatever the column mapping, after
            all others and without statistics: row ids, kinds of changes.
    """

    uri: str
    schema: StructType
    partition_columns: tuple[str, ...] = ()
    mapping_mode: MappingMode = "none"
    properties: Mapping[str, str] = field(default_factory=_nothing)
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    max_records_per_file: int | None = None
    target_file_size: int | None = None
    optimize_write: bool | None = None
    compression: str | None = None
    directory: str = ""
    materialize_partition_columns: bool = False
    statistics: bool = True
    hidden: tuple[StructField, ...] = ()
