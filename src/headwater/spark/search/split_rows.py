"""The rows of a DataFrame as rows of a search table: columns by name, values in the table's types.

A search table's schema never changes (spec 002, "Schema Evolution"), so what the table has no column for is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import SchemaMismatchError
from headwater.log.schema import STRING, StructType
from headwater.spark.char_types import declared_type
from headwater.spark.columns import quoted
from headwater.spark.conform import conformed, null_of
from headwater.spark.constraints import null_checks, with_checks
from headwater.spark.functions import functions
from headwater.spark.schema_match import as_table, by_folded_name, differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from headwater.log.schema import StructField


def split_rows(df: DataFrame, schema: StructType, partition_columns: Sequence[str], uri: str) -> DataFrame:
    """The rows of a DataFrame with exactly the columns and types of a search table, sorted for its splits.

    The columns are named by their number: PySpark hands columns with dots in their names to no Python function.

    Raises:
        SchemaMismatchError: the columns or types do not fit; the message lists the differences.
    """
    data = StructType.from_spark(df.schema)
    found = list(differences(data, schema))
    if found:
        raise SchemaMismatchError(
            f"the DataFrame does not fit the search table {uri}, whose schema cannot change:\n{as_table(found)}"
        )
    given = by_folded_name(data)
    frame = df.select(*(_value(field, given, partition_columns).alias(field.name) for field in schema.fields))
    frame = with_checks(frame, schema, null_checks(schema))
    if partition_columns:
        # One open split at a time, however many partitions a task meets.
        frame = frame.sortWithinPartitions(*(functions().col(quoted(name)) for name in partition_columns))
    return frame.toDF(*(f"c{number}" for number in range(len(schema))))


def _value(field: StructField, given: dict[str, StructField], partition_columns: Sequence[str]) -> Column:
    own = given.get(field.name.lower())
    if own is None:
        return null_of(field.type)
    sf = functions()
    value: Column = conformed(sf.col(quoted(own.name)), own.type, declared_type(field), (field.name,))
    if field.name in partition_columns and field.type == STRING:
        # The log has no text for empty text: it is null there, so it is null in the rows.
        return sf.nullif(value, sf.lit(""))
    return value
