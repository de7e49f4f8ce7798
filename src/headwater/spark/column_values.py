"""Values for columns that the data does not have: generated, default and identity columns.

A generated column is computed from the others, or compared with what is given. A default is an expression of its own.
Identity values are counted without a shuffle: see `identity`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.features.activation import DEFAULT_KEY, GENERATION_KEY, supports
from headwater.log.schema.lookup import dotted
from headwater.spark.assignment import spark_type
from headwater.spark.columns import quoted
from headwater.spark.constraints import Check, mentioned_columns
from headwater.spark.functions import functions
from headwater.spark.identity import Identity, identity_of

if TYPE_CHECKING:
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
    return functions().expr(expression).cast(spark_type(field.type))


def generation_check(field: StructField, expression: str, schema: StructType) -> Check:
    """That the values given for a generated column are those that it would get."""
    sf = functions()
    holds = sf.col(quoted(field.name)).eqNullSafe(computed(field, expression))
    rule = f"column {dotted((field.name,))} is generated as ({expression}), and a row has another value."
    return Check(rule, holds, (field.name, *mentioned_columns(expression, schema)))


def _expressions(schema: StructType, key: str) -> dict[str, str]:
    return {field.name: str(field.metadata[key]) for field in schema.fields if field.metadata.get(key) is not None}
