"""Values for columns that the data does not have: generated, default and identity columns.

A generated column is computed from the others, or compared with what is given. A default is an expression of its own.
Identity values are counted without a shuffle: see `identity`. What is made here is held against the length that its
column was declared with, as what is given is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.features.activation import DEFAULT_KEY, GENERATION_KEY, supports
from headwater.log.schema import BINARY, is_string
from headwater.log.schema.lookup import dotted
from headwater.spark.assignment import spark_type
from headwater.spark.char_types import declared_type
from headwater.spark.columns import quoted
from headwater.spark.conform import conformed
from headwater.spark.constraints import Check, mentioned_columns
from headwater.spark.functions import functions
from headwater.spark.identity import Identity, identity_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column

    from headwater.log.actions import Protocol
    from headwater.log.schema import StructField, StructType


@dataclass(frozen=True)
class FilledColumns:
    """The columns of a table that get values by themselves, as far as its protocol supports that."""

    generated: dict[str, str]
    """Expressions by column."""
    defaults: dict[str, str]
    identities: dict[str, Identity]

    @property
    def names(self) -> set[str]:
        """All of them."""
        return {*self.generated, *self.defaults, *self.identities}


def filled_columns(protocol: Protocol, schema: StructType) -> FilledColumns:
    """The columns that get values by themselves."""
    generated = _expressions(schema, GENERATION_KEY) if supports(protocol, "generatedColumns") else {}
    defaults = _expressions(schema, DEFAULT_KEY) if supports(protocol, "allowColumnDefaults") else {}
    identities: dict[str, Identity] = {}
    if supports(protocol, "identityColumns"):
        found = {field.name: identity_of(field) for field in schema.fields}
        identities = {name: identity for name, identity in found.items() if identity is not None}
    return FilledColumns(generated, defaults, identities)


def computed(field: StructField, expression: str) -> Column:
    """The value of an expression, in the type of the column."""
    value = functions().expr(expression).cast(spark_type(field.type))
    return conformed(value, field.type, declared_type(field), (field.name,))


def as_partition_value(value: Column, field: StructField, partition_columns: Collection[str]) -> Column:
    """The value that a row of the table will have: the log has no text for an empty partition value but null's.

    So a row has null there from the start: rules are about the rows that readers will see.

    Args:
        value: of the column.
        field: the column.
        partition_columns: of the table, by name.
    """
    is_partition = field.name.lower() in {name.lower() for name in partition_columns}
    if not is_partition or not (is_string(field.type) or field.type == BINARY):
        return value
    sf = functions()
    # Not a comparison with an empty text: some collations take blanks for that.
    kept: Column = sf.when(sf.octet_length(value) > 0, value)
    return kept


def generation_check(
    field: StructField, expression: str, schema: StructType, partition_columns: Collection[str]
) -> Check:
    """That the values given for a generated column are those that it would get."""
    sf = functions()
    generated = as_partition_value(computed(field, expression), field, partition_columns)
    holds = sf.col(quoted(field.name)).eqNullSafe(generated)
    rule = f"column {dotted((field.name,))} is generated as ({expression}), and a row has another value."
    return Check(rule, holds, (field.name, *mentioned_columns(expression, schema)))


def _expressions(schema: StructType, key: str) -> dict[str, str]:
    return {field.name: str(field.metadata[key]) for field in schema.fields if field.metadata.get(key) is not None}
