"""Check the options of a write, and complete them by the session's settings.

Settings have the names that Delta users know: `spark.databricks.delta.schema.autoMerge.enabled`, the defaults of table
properties (`spark.databricks.delta.properties.defaults.*`), and others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from headwater.errors import WriteOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

Mode: TypeAlias = Literal["append", "overwrite", "error", "errorifexists", "ignore"]
PartitionOverwrite: TypeAlias = Literal["static", "dynamic"]

_AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_PARTITION_OVERWRITE = "spark.sql.sources.partitionOverwriteMode"
_PROPERTY_DEFAULTS = "spark.databricks.delta.properties.defaults."


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of a write; see `headwater.spark.write.write.write`."""

    mode: Mode
    partition_by: tuple[str, ...] | None
    cluster_by: tuple[str, ...] | None
    replace_where: str | None
    partition_overwrite: PartitionOverwrite
    merge_schema: bool
    overwrite_schema: bool
    properties: Mapping[str, str]
    property_defaults: Mapping[str, str]
    """For a table that is created."""
    txn: tuple[str, int] | None
    user_metadata: str | None
    data_change: bool
    file_sizes: Mapping[str, Any]
    """Attributes of `headwater.parquet.plan.WriteTarget`: how large files become, and how they are compressed."""

    @property
    def mode_name(self) -> str:
        """As the history spells it."""
        return {"append": "Append", "overwrite": "Overwrite", "ignore": "Ignore"}.get(self.mode, "ErrorIfExists")

    def __post_init__(self) -> None:
        self._check_overwrite()
        if self.partition_by and self.cluster_by:
            raise WriteOptionError(
                "partition_by and cluster_by exclude each other: a table is partitioned or clustered."
            )
        for name, columns in (("partition_by", self.partition_by), ("cluster_by", self.cluster_by)):
            if columns and len({column.lower() for column in columns}) < len(columns):
                raise WriteOptionError(f"{name} names a column twice: {list(columns)}")
        if self.txn is not None and (not self.txn[0] or self.txn[1] < 0):
            raise WriteOptionError(f"txn is an application id and a version from 0 on, not {self.txn!r}")

    def _check_overwrite(self) -> None:
        overwrites = self.mode == "overwrite"
        if self.replace_where is not None:
            if not overwrites:
                raise WriteOptionError('replace_where replaces rows: it needs mode="overwrite".')
            if self.overwrite_schema:
                raise WriteOptionError("overwrite_schema replaces the whole table: it cannot go with replace_where.")
            if self.partition_overwrite == "dynamic":
                raise WriteOptionError(
                    "replace_where says which rows to replace: it cannot go with dynamic partitions."
                )
        if self.overwrite_schema and not overwrites:
            raise WriteOptionError('overwrite_schema replaces the schema with the rows: it needs mode="overwrite".')
        if self.overwrite_schema and self.partition_overwrite == "dynamic":
            raise WriteOptionError("overwrite_schema replaces the whole table: it cannot go with dynamic partitions.")
        if not self.data_change and (not overwrites or self.overwrite_schema or self.merge_schema):
            raise WriteOptionError(
                'data_change=False says that rows are only rearranged: it needs mode="overwrite" (perhaps with '
                "replace_where) and the schema that the table has."
            )


def parse_write_options(
    spark: SparkSession,
    *,
    mode: str,
    partition_by: str | Sequence[str] | None = None,
    cluster_by: str | Sequence[str] | None = None,
    replace_where: str | None = None,
    partition_overwrite: str | None = None,
    merge_schema: bool | None = None,
    overwrite_schema: bool = False,
    properties: Mapping[str, str] | None = None,
    txn: tuple[str, int] | None = None,
    user_metadata: str | None = None,
    data_change: bool = True,
    file_sizes: Mapping[str, Any] | None = None,
) -> WriteOptions:
    """Check the options and complete them by the session's settings.

    Raises:
        WriteOptionError: an option is invalid, or two of them contradict each other.
    """
    if merge_schema is None:
        merge_schema = data_change and not overwrite_schema and _setting(spark, _AUTO_MERGE).lower() == "true"
    return WriteOptions(
        mode=_mode(mode),
        partition_by=_names(partition_by),
        cluster_by=_names(cluster_by),
        replace_where=replace_where,
        partition_overwrite=_partition_overwrite(spark, mode, partition_overwrite, replace_where, overwrite_schema),
        merge_schema=merge_schema,
        overwrite_schema=overwrite_schema,
        properties={name: _text(value) for name, value in (properties or {}).items()},
        property_defaults=_property_defaults(spark),
        txn=None if txn is None else (str(txn[0]), int(txn[1])),
        user_metadata=user_metadata if user_metadata is not None else user_metadata_of(spark),
        data_change=data_change,
        file_sizes=file_sizes or {},
    )


def user_metadata_of(spark: SparkSession) -> str | None:
    """Return the note for the history that the session has set for all commits."""
    return _setting(spark, _USER_METADATA) or None


def _mode(mode: str) -> Mode:
    for known in get_args(Mode):
        if str(mode).lower() == known:
            found: Mode = known
            return found
    raise WriteOptionError(f"there is no write mode {mode!r}: choose from {', '.join(get_args(Mode))}")


def _partition_overwrite(
    spark: SparkSession, mode: str, wanted: str | None, replace_where: str | None, overwrite_schema: bool
) -> PartitionOverwrite:
    if wanted is None:
        is_free = mode.lower() == "overwrite" and replace_where is None and not overwrite_schema
        wanted = _setting(spark, _PARTITION_OVERWRITE) or "static" if is_free else "static"
    if wanted.lower() not in get_args(PartitionOverwrite):
        raise WriteOptionError(f"partition_overwrite is static or dynamic, not {wanted!r}")
    if wanted.lower() == "dynamic" and mode.lower() != "overwrite":
        raise WriteOptionError('partition_overwrite replaces partitions: it needs mode="overwrite".')
    return "dynamic" if wanted.lower() == "dynamic" else "static"


def _names(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _property_defaults(spark: SparkSession) -> dict[str, str]:
    settings = spark.conf.getAll
    return {
        f"delta.{key.removeprefix(_PROPERTY_DEFAULTS)}": str(value)
        for key, value in settings.items()
        if key.startswith(_PROPERTY_DEFAULTS)
    }


def _setting(spark: SparkSession, name: str) -> str:
    return str(spark.conf.get(name, None) or "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
