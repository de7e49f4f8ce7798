"""Creating a search table: version 0 of its log, with the configuration of its index among its properties."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import SearchConfigError, TableAlreadyExistsError, WriteOptionError
from headwater.log.schema import BINARY, VARIANT, VOID, DecimalType, PrimitiveType, StructType
from headwater.search.fields import index_config
from headwater.search.table_log import create_search_log
from headwater.spark.search.opening import DOC_MAPPING_PROPERTY, session_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from pyspark.sql import SparkSession

    from headwater.log.schema import StructField

_NO_TEXT = frozenset({BINARY, VARIANT, VOID})


@dataclass(frozen=True)
class FieldChoices:
    """How columns shall be indexed; see `headwater.search.fields.index_config`."""

    types: Mapping[str, str | Sequence[str]] | None = None
    tokenizers: Mapping[str, str] | None = None
    fast: tuple[str, ...] = ()
    not_fast: tuple[str, ...] = ()
    stored_only: tuple[str, ...] = ()
    indexed_only: tuple[str, ...] = ()


def create_table(
    spark: SparkSession,
    path: str | PathLike[str],
    schema: Any,
    fields: FieldChoices,
    *,
    partition_by: tuple[str, ...] = (),
    name: str | None = None,
    description: str | None = None,
    options: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Create a table; see `SearchTable.create`."""
    table_schema = schema_of(spark, schema)
    partition_columns = tuple(table_schema.field(column).name for column in partition_by)
    for column in partition_columns:
        _check_partition_column(table_schema.field(column))
    config = index_config(table_schema, partition_columns=partition_columns, options=options, **asdict(fields))
    kept = {**(options or {}), DOC_MAPPING_PROPERTY: config.to_json()}
    created = create_search_log(
        path,
        table_schema,
        partition_columns=partition_columns,
        configuration=kept,
        name=name,
        description=description,
        storage_options=storage_options,
        options={**session_options(spark), **(options or {})},
    )
    if not created and not if_not_exists:
        raise TableAlreadyExistsError(f"there is a search table at {path} already: get it with SearchTable.forPath")


def _check_partition_column(field: StructField) -> None:
    """Raise unless the log has a text for values of the column (spec 002: "Partition Support")."""
    type_ = field.type
    has_text = isinstance(type_, DecimalType) or (isinstance(type_, PrimitiveType) and type_.is_known)
    if not has_text or type_ in _NO_TEXT:
        raise SearchConfigError(
            f"column {field.name} is of type {type_}, and no table can be partitioned by that: the log keeps partition "
            "values as text"
        )


def schema_of(spark: SparkSession, schema: Any) -> StructType:
    """The columns of a table, from any of the forms that people have them in."""
    from pyspark.sql.types import StructType as SparkStructType

    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return StructType.from_spark(spark.createDataFrame([], schema).schema)
    given = getattr(schema, "schema", schema)
    if not isinstance(given, SparkStructType):
        raise WriteOptionError(
            "the schema of a search table is a DataFrame, a StructType of Spark's or DDL text, not "
            f"{type(schema).__name__}"
        )
    return StructType.from_spark(given)
