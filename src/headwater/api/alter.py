"""`table.alter`: the ALTER TABLE of SQL as methods, which change a table without writing rows.

Each method is one commit on the newest version (enabling row tracking may take more), under the operation name that the
history of Delta tables has for it. A column inside a struct is named with dots (`address.city`), with backticks around
names that have dots; `element`, `key` and `value` lead into arrays and maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.alter.columns import (
    AddColumns,
    DropColumns,
    DropDefault,
    MoveColumn,
    RenameColumn,
    SetColumnComment,
    SetColumnType,
    SetDefault,
    SetNullable,
)
from headwater.commands.alter.properties import (
    AddConstraint,
    ClusterBy,
    DropConstraint,
    RemoveDomain,
    SetDomain,
    SetProperties,
    UnsetProperties,
)
from headwater.commands.create import column_fields, column_type
from headwater.log.schema import StructField
from headwater.spark.commands import AlterRequest, alter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import types as spark_types

    from headwater.commands.alter.commit import Alteration
    from headwater.spark.session import SparkTable


class TableAlter:
    """Changes of a table's definition. Get it with `DeltaTable.alter`.

    Example:
        >>> table.alter.set_properties({"delta.appendOnly": "true"})
    """

    def __init__(self, table: SparkTable) -> None:
        self._table = table

    # --- properties and protocol --------------------------------------------------------------------

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties; those that need a table feature add it. `comment` is the table's description.

        Setting `delta.enableRowTracking` to `true` first gives row ids to all files, in commits of their own.

        Raises:
            InvalidTablePropertyError: the property does not exist, or cannot have the value.

        Example:
            >>> table.alter.set_properties({"delta.appendOnly": "true", "owner": "finance"})
            >>> table.detail().first().properties["owner"]
            'finance'
        """
        self._commit(SetProperties(properties))

    def unset_properties(self, names: Iterable[str], if_exists: bool = False) -> None:
        """Remove table properties, so that their defaults hold again.

        Raises:
            InvalidTablePropertyError: one is not set (and `if_exists` is False), or cannot be removed.

        Example:
            >>> table.alter.set_properties({"owner": "finance"})
            >>> table.alter.unset_properties(["owner"])
            >>> table.detail().first().properties
            {}
        """
        self._commit(UnsetProperties(names, if_exists))

    def set_domain_metadata(self, domain: str, configuration: str) -> None:
        """Keep a text with the table, under a name of your own such as `com.example.lineage`.

        Raises:
            InvalidCommitError: the name starts with `delta.`, which belongs to the system.

        Example:
            >>> table.alter.set_domain_metadata("com.example.lineage", '{"source": "web"}')
            >>> hw.open_log("events").domain_metadata["com.example.lineage"]
            '{"source": "web"}'
        """
        self._commit(SetDomain(domain, configuration))

    def remove_domain_metadata(self, domain: str) -> None:
        """Remove what `set_domain_metadata` has set.

        Raises:
            InvalidCommitError: there is none under that name, or it belongs to the system.

        Example:
            >>> table.alter.set_domain_metadata("com.example.lineage", '{"source": "web"}')
            >>> table.alter.remove_domain_metadata("com.example.lineage")
            >>> "com.example.lineage" in hw.open_log("events").domain_metadata
            False
        """
        self._commit(RemoveDomain(domain))

    def cluster_by(self, *cols: str | Sequence[str] | None) -> None:
        """Cluster new and rewritten files by these columns; `cluster_by(None)` ends clustering.

        Raises:
            InvalidCommitError: the table is partitioned, or a column cannot be clustered by.

        Example:
            >>> customers.alter.cluster_by("name", "address.city")
            >>> customers.detail().first().clusteringColumns
            ['name', 'address.city']
        """
        if not cols:
            raise ValueError("name the columns to cluster by, or None to end clustering.")
        self._commit(ClusterBy(() if cols == (None,) else [c for c in cols if c is not None]))

    # --- columns ------------------------------------------------------------------------------------

    def add_columns(
        self,
        cols: Mapping[str, str | spark_types.DataType] | spark_types.StructType | Sequence[spark_types.StructField],
        position: str | None = None,
    ) -> None:
        """Add columns, which are null in existing rows.

        Args:
            cols: types by name, or PySpark's fields. `address.zip` adds a field to the struct `address`.
            position: `FIRST` or `AFTER other` for the first of them, which the others follow; last by default.

        Raises:
            SchemaError: a name is taken, or the column cannot be added to rows that are there.

        Example:
            >>> table.alter.add_columns({"city": "STRING"}, position="AFTER country")
            >>> table.toDF().columns
            ['id', 'country', 'city', 'amount', 'message', 'day']
        """
        if hasattr(cols, "items"):
            fields = [StructField(name, column_type(type_, name)) for name, type_ in cols.items()]
        else:
            fields = column_fields(cols)
        self._commit(AddColumns(fields, position))

    def rename_column(self, name: str, new_name: str) -> None:
        """Rename a column; no file is rewritten. Needs column mapping (`delta.columnMapping.mode = name`).

        Args:
            name: the column, with dots for one inside a struct.
            new_name: its new name, without what is around it.

        Raises:
            InvalidCommitError: there is no column mapping, or a constraint or generated column depends on the column.

        Example:
            >>> table.alter.set_properties({"delta.columnMapping.mode": "name"})
            >>> table.alter.rename_column("message", "text")
            >>> table.toDF().columns
            ['id', 'country', 'amount', 'text', 'day']
        """
        self._commit(RenameColumn(name, new_name))

    def drop_columns(self, *names: str, if_exists: bool = False) -> None:
        """Drop columns; no file is rewritten. Needs column mapping (`delta.columnMapping.mode = name`).

        Raises:
            InvalidCommitError: there is no column mapping, or something depends on a column.
            ColumnNotFoundError: there is no such column (and `if_exists` is False).

        Example:
            >>> table.alter.set_properties({"delta.columnMapping.mode": "name"})
            >>> table.alter.drop_columns("message", "country")
            >>> table.toDF().columns
            ['id', 'amount', 'day']
        """
        if not names:
            raise ValueError("name the columns to drop.")
        self._commit(DropColumns(names, if_exists))

    def reorder_column(self, name: str, position: str) -> None:
        """Move a column within the table, or within its struct: `FIRST` or `AFTER other`.

        Example:
            >>> table.alter.reorder_column("day", "AFTER id")
            >>> table.toDF().columns
            ['id', 'day', 'country', 'amount', 'message']
        """
        self._commit(MoveColumn(name, position))

    def set_column_comment(self, name: str, comment: str | None) -> None:
        """Set the comment of a column; None removes it.

        Example:
            >>> table.alter.set_column_comment("amount", "in euros")
            >>> table.toDF().schema["amount"].metadata
            {'comment': 'in euros'}
        """
        self._commit(SetColumnComment(name, comment))

    def set_column_type(self, name: str, data_type: str | spark_types.DataType) -> None:
        """Make the type of a column wider, such as int to bigint. Needs `delta.enableTypeWidening = true`.

        Raises:
            InvalidCommitError: it would not be wider, the table has no type widening, or something depends on it.

        Example:
            >>> table.alter.set_properties({"delta.enableTypeWidening": "true"})
            >>> table.alter.set_column_type("amount", "BIGINT")
            >>> table.toDF().schema["amount"].dataType
            LongType()
        """
        self._commit(SetColumnType(name, column_type(data_type, name)))

    def set_nullable(self, name: str, nullable: bool) -> None:
        """Allow null in a column, or forbid it, after a Spark job has checked all rows.

        Raises:
            ConstraintViolationError: a row has null.
            ConcurrentAppendException: rows were added meanwhile.

        Example:
            >>> table.alter.set_nullable("country", False)
            >>> table.toDF().schema["country"].nullable
            False
        """
        self._commit(SetNullable(name, nullable))

    def drop_not_null(self, name: str) -> None:
        """Allow null in a column.

        Example:
            >>> table.alter.set_nullable("country", False)
            >>> table.alter.drop_not_null("country")
            >>> table.toDF().schema["country"].nullable
            True
        """
        self.set_nullable(name, True)

    def set_default(self, name: str, expression: str) -> None:
        """Set the default of a column, an expression in SQL: the value of rows that are written without it.

        Needs the table feature `allowColumnDefaults`. Existing rows stay as they are.

        Raises:
            InvalidCommitError: the feature is missing, or the expression is not a value of the column's type.

        Example:
            >>> table.addFeatureSupport("allowColumnDefaults")
            >>> table.alter.set_default("country", "'SE'")
            >>> hw.write(source.drop("country"), "events", mode="append").version
            4
            >>> table.toDF().where("country = 'SE'").count()
            5
        """
        self._commit(SetDefault(name, expression))

    def drop_default(self, name: str) -> None:
        """Remove the default of a column.

        Example:
            >>> table.addFeatureSupport("allowColumnDefaults")
            >>> table.alter.set_default("country", "'SE'")
            >>> table.alter.drop_default("country")
        """
        self._commit(DropDefault(name))

    # --- constraints --------------------------------------------------------------------------------

    def add_constraint(self, name: str, expression: str) -> None:
        """Add a condition that every row must fulfil; a Spark job checks the existing rows first.

        Raises:
            ConstraintViolationError: a row does not fulfil it.
            InvalidCommitError: it is not a condition on this table, or the name is taken.
            ConcurrentAppendException: rows were added meanwhile.

        Example:
            >>> table.alter.add_constraint("positive", "amount > 0")
            >>> table.detail().first().properties
            {'delta.constraints.positive': 'amount > 0'}
        """
        self._commit(AddConstraint(name, expression))

    def drop_constraint(self, name: str, if_exists: bool = False) -> None:
        """Drop a constraint.

        Raises:
            InvalidCommitError: there is none of that name (and `if_exists` is False).

        Example:
            >>> table.alter.add_constraint("positive", "amount > 0")
            >>> table.alter.drop_constraint("positive")
            >>> table.alter.drop_constraint("positive", if_exists=True)
        """
        self._commit(DropConstraint(name, if_exists))

    def _commit(self, change: Alteration) -> None:
        alter(AlterRequest(self._table, change))
