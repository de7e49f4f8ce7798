"""`DeltaTableBuilder` declares a table column by column, as delta-spark does, and creates it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.api.open import refusal
from headwater.commands.create import CreateMode, CreateRequest, column_fields, column_type
from headwater.errors import InvalidCommitError
from headwater.features.column_mapping import column_path
from headwater.features.context import TableRef
from headwater.features.feature import GENERATION_KEY
from headwater.features.identity_columns import ALLOW_EXPLICIT_INSERT, START, STEP
from headwater.log.schema import StructField, StructType
from headwater.spark.commands import create_table
from headwater.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike

    from pyspark.sql import SparkSession
    from pyspark.sql import types as spark_types

    from headwater.api.delta_table import DeltaTable

_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class IdentityGenerator:
    """Counts from `start` in steps of `step`, as given to `DeltaTableBuilder.addColumn`.

    Raises:
        ValueError: the step is 0, or a number is not a 64-bit integer.

    Example:
        >>> IdentityGenerator(start=100, step=10)
        IdentityGenerator(start=100, step=10)
    """

    start: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        numbers: tuple[tuple[str, object], ...] = (("start", self.start), ("step", self.step))
        for name, value in numbers:
            if isinstance(value, bool) or not isinstance(value, int) or value not in _LONG:
                raise ValueError(f"the {name} of an identity column is a whole number of 64 bits, not {value!r}.")
        if self.step == 0:
            raise ValueError(
                "the step of an identity column cannot be 0: it would give the same value again and again."
            )


class DeltaTableBuilder:
    """A table that is being declared. Get one with `DeltaTable.create` and its variants; `execute` makes the table.

    Example:
        >>> visits = (
        ...     DeltaTable.create(spark)
        ...     .location("visits")
        ...     .addColumn("id", "BIGINT", generatedAlwaysAs=IdentityGenerator())
        ...     .addColumn("at", "TIMESTAMP")
        ...     .addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)")
        ...     .partitionedBy("day")
        ...     .execute()
        ... )
        >>> visits.detail().first().partitionColumns
        ['day']
    """

    def __init__(
        self,
        sparkSession: SparkSession | None,
        mode: CreateMode,
        open_table: Callable[[SparkSession, str, Mapping[str, str] | None], DeltaTable],
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = sparkSession
        self._mode = mode
        self._open_table = open_table
        self._storage_options = storage_options
        self._location: str | None = None
        self._comment: str | None = None
        self._fields: list[StructField] = []
        self._partition_columns: tuple[str, ...] = ()
        self._clustering_columns: tuple[tuple[str, ...], ...] = ()
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> DeltaTableBuilder:
        """Raise: tables have a location here; names come with the catalog, in a later release.

        Raises:
            InvalidCommitError: always; the message says what to call instead.

        Example:
            >>> DeltaTable.create(spark).tableName("delta.`/data/rivers`")
            Traceback (most recent call last):
                ...
            headwater.errors.InvalidCommitError: ... Give its location, with location('/data/rivers').
        """
        raise InvalidCommitError(
            refusal(identifier, "a table cannot be created under", "Give its location, with location({})")
        )

    def location(self, location: str | PathLike[str]) -> DeltaTableBuilder:
        """Set the location of the table: a path or URI.

        Example:
            >>> rivers = DeltaTable.create(spark).location("rivers").addColumn("name", "STRING").execute()
            >>> DeltaTable.isDeltaTable(spark, "rivers")
            True
        """
        self._location = os.fspath(location)
        return self

    def comment(self, comment: str) -> DeltaTableBuilder:
        """Describe what the table is for.

        Example:
            >>> rivers = DeltaTable.create(spark).location("rivers").addColumn("name", "STRING")
            >>> rivers.comment("Rivers of Europe").execute().detail().first().description
            'Rivers of Europe'
        """
        self._comment = _text("comment", comment)
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | spark_types.DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder:
        """Add a column.

        Args:
            colName: its name.
            dataType: its type: in SQL (`"DECIMAL(10,2)"`), or as one of PySpark's.
            nullable: whether it may be null.
            generatedAlwaysAs: a SQL expression that computes it from other columns; or an `IdentityGenerator` that
                counts, so that no values can be given.
            generatedByDefaultAs: an `IdentityGenerator` that counts where no value is given.
            comment: what it is for.

        Example:
            >>> rivers = DeltaTable.create(spark).location("rivers")
            >>> rivers = rivers.addColumn("name", "STRING", nullable=False).addColumn("length", "INT", comment="in km")
            >>> rivers = rivers.addColumn("is_long", "BOOLEAN", generatedAlwaysAs="length > 1000")
            >>> rivers.execute().toDF().columns
            ['name', 'length', 'is_long']
        """
        metadata: dict[str, Any] = {}
        if comment is not None:
            metadata["comment"] = _text("comment", comment)
        if generatedAlwaysAs is not None and generatedByDefaultAs is not None:
            raise ValueError(f"column {colName}: give generatedAlwaysAs or generatedByDefaultAs, not both.")
        if generatedByDefaultAs is not None:
            if not isinstance(generatedByDefaultAs, IdentityGenerator):
                raise TypeError(f"column {colName}: generatedByDefaultAs is an IdentityGenerator.")
            metadata |= _identity(generatedByDefaultAs, explicit=True)
        elif isinstance(generatedAlwaysAs, IdentityGenerator):
            metadata |= _identity(generatedAlwaysAs, explicit=False)
        elif generatedAlwaysAs is not None:
            metadata[GENERATION_KEY] = _text("generatedAlwaysAs", generatedAlwaysAs)
        name = _text("colName", colName)
        self._fields.append(StructField(name, column_type(dataType, name), bool(nullable), metadata))
        return self

    def addColumns(self, cols: spark_types.StructType | Iterable[spark_types.StructField]) -> DeltaTableBuilder:
        """Add columns as a PySpark schema declares them, comments and other metadata included.

        Example:
            >>> copy = DeltaTable.create(spark).location("copy").addColumns(source.schema).execute()
            >>> copy.toDF().columns
            ['id', 'country', 'amount', 'message', 'day']
        """
        self._fields += column_fields(cols)
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """Keep rows with the same values of these columns in files of their own.

        Example:
            >>> copy = DeltaTable.create(spark).location("copy").addColumns(source.schema)
            >>> copy.partitionedBy("day", "country").execute().detail().first().partitionColumns
            ['day', 'country']
        """
        self._partition_columns = tuple(_names(cols))
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder:
        """Cluster files by these columns, so that filters on them skip files; `a.b` is a field inside a struct.

        Example:
            >>> copy = DeltaTable.create(spark).location("copy").addColumns(source.schema)
            >>> copy.clusterBy("country", "amount").execute().detail().first().clusteringColumns
            ['country', 'amount']
        """
        self._clustering_columns = tuple(column_path(name) for name in _names(cols))
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder:
        """Set a table property.

        Example:
            >>> rivers = DeltaTable.create(spark).location("rivers").addColumn("name", "STRING")
            >>> rivers.property("delta.appendOnly", "true").execute().detail().first().properties["delta.appendOnly"]
            'true'
        """
        self._properties[_text("key", key)] = _text("value", value)
        return self

    def execute(self) -> DeltaTable:
        """Create or replace the table.

        Returns:
            The table.

        Raises:
            TableAlreadyExistsError: `create` found a table.
            TableNotFoundError: `replace` found none.
            SchemaError, InvalidCommitError, InvalidTablePropertyError: what is declared is not a possible table.

        Example:
            >>> rivers = DeltaTable.create(spark).location("rivers").addColumn("name", "STRING").execute()
            >>> rivers.toDF().count()
            0
        """
        if self._location is None:
            raise InvalidCommitError("a table needs a location: give it with location(path).")
        spark = self._spark or session()
        request = CreateRequest(
            TableRef(self._location, self._storage_options),
            self._mode,
            StructType(self._fields),
            self._partition_columns,
            self._clustering_columns,
            dict(self._properties),
            self._comment,
        )
        create_table(spark, request)
        return self._open_table(spark, self._location, self._storage_options)


def _identity(generator: IdentityGenerator, *, explicit: bool) -> dict[str, Any]:
    return {START: generator.start, STEP: generator.step, ALLOW_EXPLICIT_INSERT: explicit}


def _names(cols: tuple[str | list[str] | tuple[str, ...], ...]) -> list[str]:
    given: Any = cols[0] if len(cols) == 1 and not isinstance(cols[0], str) else cols
    names = [_text("a column", name) for name in given]
    if not names:
        raise ValueError("name at least one column.")
    return names


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text, not {value!r}.")
    return value
