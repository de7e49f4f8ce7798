"""Row tracking columns of a scan (spec: "Row Tracking", "Reader Requirements for Row Tracking").

A stable row id is the materialized one where a file has it, else the file's base id plus the row's position;
a row commit version is the materialized one, else the file's default. Base id and default travel as hidden
partition values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, SchemaError
from headwater.features.activation import is_active
from headwater.features.row_tracking import check_materialized_names
from headwater.log.schema.lookup import hidden
from headwater.spark.columns import quoted
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from headwater.log.snapshot import Snapshot

ROW_ID = hidden("row_id")
ROW_COMMIT_VERSION = hidden("row_commit_version")
_SHOWN = {ROW_ID: "_row_id", ROW_COMMIT_VERSION: "_row_commit_version"}
"""What the two columns are called where users see them. Inside, a table may have columns of these names."""
HIDDEN_COLUMNS = {
    hidden("base_row_id"): "baseRowId",
    hidden("default_row_commit_version"): "defaultRowCommitVersion",
}
"""The hidden partition columns, and the field of the add action that each one holds."""
_BASE_ROW_ID, _DEFAULT_COMMIT_VERSION = HIDDEN_COLUMNS
_MATERIALIZED = {
    ROW_ID: "delta.rowTracking.materializedRowIdColumnName",
    ROW_COMMIT_VERSION: "delta.rowTracking.materializedRowCommitVersionColumnName",
}


class RowTrackingDisabledError(HeadwaterError):
    """Row ids were asked for, and the table does not have them."""


def materialized_columns(snapshot: Snapshot) -> dict[str, str | None]:
    """The names in data files of the materialized columns; None where the table has not chosen one.

    Raises:
        RowTrackingDisabledError: row tracking is not enabled, so rows may have no ids.
        InvalidCommitError: the properties name a column of the table.
    """
    properties = snapshot.properties
    if not is_active("rowTracking", snapshot.protocol, snapshot.metadata):
        raise RowTrackingDisabledError(
            f"row tracking is off in version {snapshot.version} of {snapshot.uri}: its rows have no ids. "
            "Set the table property delta.enableRowTracking to true, or read without row_tracking."
        )
    check_materialized_names(snapshot.schema, properties)
    return {column: properties.get(key) for column, key in _MATERIALIZED.items()}


def shown_names(snapshot: Snapshot) -> dict[str, str]:
    """The names of the two columns for users, by those that a scan has.

    Raises:
        SchemaError: the table has columns of its own with these names.
    """
    taken = {name.lower() for name in snapshot.schema.names}.intersection(_SHOWN.values())
    if taken:
        raise SchemaError(
            f"{snapshot.uri} has a column {min(taken)} of its own, so it cannot be read with row_tracking"
        )
    return dict(_SHOWN)


def materialized_names(properties: Mapping[str, str]) -> dict[str, str]:
    """The names in data files of `ROW_ID` and `ROW_COMMIT_VERSION`, as far as the table has chosen them."""
    return {column: name for column, key in _MATERIALIZED.items() if (name := properties.get(key))}


def row_tracking_columns(materialized: dict[str, str | None], position: Column) -> list[Column]:
    """The columns `ROW_ID` and `ROW_COMMIT_VERSION`, over the scan's.

    Args:
        materialized: what files call them.
        position: of a row in its file.
    """
    sf = functions()
    fresh = {
        ROW_ID: sf.col(_BASE_ROW_ID) + position,
        ROW_COMMIT_VERSION: sf.col(_DEFAULT_COMMIT_VERSION),
    }
    columns = []
    for name, default in fresh.items():
        stored = materialized[name]
        columns.append((sf.coalesce(sf.col(quoted(stored)), default) if stored else default).alias(name))
    return columns
