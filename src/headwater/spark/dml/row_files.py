"""Rows of a command as files: data files in which rows keep their ids, and change data files.

Spec: "Row Tracking" (materialized row ids and row commit versions), "Add CDC File". Row ids are written into hidden
columns that the table's properties name; null there means that the row is new, and gets its id from the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.features.change_data_feed import check_change_type
from headwater.features.clustering import clustering_columns
from headwater.features.iceberg_compat import must_materialize_partition_columns
from headwater.log.actions import AddCdcFile
from headwater.log.schema import LONG, STRING, VOID, StructField, StructType, mapping_mode, physical_path
from headwater.spark.change_files import CHANGE_TYPE
from headwater.spark.columns import quoted
from headwater.spark.data_writer import write_files
from headwater.spark.functions import functions
from headwater.spark.required_statistics import with_required_statistics
from headwater.spark.row_tracking import materialized_names
from headwater.spark.violations import explained_violations
from headwater.spark.write_target import WriteTarget

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame

    from headwater.features.table_changes import TableDefinition
    from headwater.log.actions import Add

CHANGE_DIRECTORY = "_change_data"


def write_target(
    uri: str,
    definition: TableDefinition,
    domains: Mapping[str, str],
    storage_options: Mapping[str, str] | None,
    identities: Collection[str] = (),
) -> WriteTarget:
    """How files of a table are written by default.

    Args:
        uri: the table's location.
        definition: the table.
        domains: its metadata domains.
        storage_options: options of the object store.
        identities: identity columns that get new values: their statistics tell the last one.
    """
    protocol, metadata = definition.protocol, definition.metadata
    schema = StructType([field for field in definition.schema.fields if field.type != VOID])
    mode = mapping_mode(protocol, metadata)
    required = [*clustering_columns(domains), *(physical_path(schema, [name], mode) for name in identities)]
    return WriteTarget(
        uri=uri,
        schema=schema,
        partition_columns=metadata.partition_columns,
        mapping_mode=mode,
        properties=with_required_statistics(metadata, schema, mode, required),
        storage_options=storage_options,
        materialize_partition_columns=must_materialize_partition_columns(protocol, metadata),
    )


@dataclass(frozen=True)
class RowFiles:
    """Writes rows of a table into files."""

    target: WriteTarget

    def write_rows(self, frame: DataFrame) -> list[Add]:
        """Write data files.

        Args:
            frame: the table's columns; where rows keep their ids or commit versions also `ROW_ID` and
                `ROW_COMMIT_VERSION`, null for rows that are to get new ones.
        """
        sf = functions()
        held = frame.columns
        kept = {column: name for column, name in materialized_names(self.target.properties).items() if column in held}
        columns: list[Any] = [sf.col(quoted(field.name)) for field in self.target.schema.fields]
        columns += [sf.col(column).alias(name) for column, name in kept.items()]
        hidden = tuple(StructField(name, LONG) for name in kept.values())
        with explained_violations(self.target.uri):
            return write_files(frame.select(*columns), replace(self.target, hidden=hidden))

    def write_changes(self, frame: DataFrame) -> list[AddCdcFile]:
        """Write change data files.

        Args:
            frame: the table's columns, and `_change_type`.
        """
        sf = functions()
        check_change_type(self.target.schema, self.target.uri)
        columns: list[Any] = [sf.col(quoted(field.name)) for field in self.target.schema.fields]
        target = replace(
            self.target,
            hidden=(StructField(CHANGE_TYPE, STRING),),
            directory=CHANGE_DIRECTORY,
            statistics=False,
        )
        with explained_violations(self.target.uri):
            files = write_files(frame.select(*columns, sf.col(CHANGE_TYPE)), target)
        return [AddCdcFile(path=f.path, partition_values=f.partition_values, size=f.size) for f in files]
