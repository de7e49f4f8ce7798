"""What can be changed about a table without writing rows: the ALTER TABLE of SQL as methods of `DeltaTable`.

Each method is one commit on the newest version (enabling row tracking may take more), under the operation name that the
history of Delta tables has for it. A column inside a struct is named with dots (`address.city`), with backticks around
names that have dots; `element`, `key` and `value` lead into arrays and maps.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headwater.storage.redaction import redacted, shortened
from headwater.tables import open_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as spark_types

    from headwater.log.schema import StructType
    from headwater.log.snapshot import Snapshot


class AlterableTable:
    """The methods of `DeltaTable` that change a table's definition."""

    def __init__(self, sparkSession: SparkSession, path: str, storage_options: Mapping[str, str] | None) -> None:
        self._spark = sparkSession
        self._path = path
        self._storage_options = storage_options

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shortened(redacted(self._path))!r})"

    def _snapshot(self) -> Snapshot:
        """The newest version."""
        return open_log(self._path, storage_options=self._storage_options)

    # --- properties and protocol --------------------------------------------------------------------

    def setProperties(self, properties: Mapping[str, str]) -> None:
        """Set table properties; those that need a table feature add it. `comment` is the table's description.

        Setting `delta.enableRowTracking` to `true` first gives row ids to all files, in commits of their own.

        Raises:
            InvalidTablePropertyError: there is no such property, or it cannot have the value.

        Example:
            >>> table.setProperties({"delta.appendOnly": "true", "owner": "finance"})
            >>> table.detail().first().properties["owner"]
            'finance'
        """
        from headwater.alterations.properties import set_properties

        set_properties(self._snapshot(), properties)

    def unsetProperties(self, names: Iterable[str], if_exists: bool = False) -> None:
        """Remove table properties, so that their defaults hold again.

        Raises:
            InvalidTablePropertyError: one is not set (and `if_exists` is False), or cannot be removed.

        Example:
            >>> table.setProperties({"owner": "finance"})
            >>> table.unsetProperties(["owner"])
            >>> table.detail().first().properties
            {}
        """
        from headwater.alterations.properties import unset_properties

        unset_properties(self._snapshot(), names, if_exists=if_exists)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the versions of the table's protocol. This locks out older clients and cannot be undone.

        Raises:
            InvalidCommitError: there are no such versions, or they are lower than the table's.

        Example:
            >>> table.upgradeTableProtocol(readerVersion=3, writerVersion=7)
            >>> table.detail().select("minReaderVersion", "minWriterVersion").first()
            Row(minReaderVersion=3, minWriterVersion=7)
        """
        from headwater.alterations.protocols import upgrade

        upgrade(self._snapshot(), readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Support a table feature; clients that do not know it are locked out.

        Raises:
            UnsupportedProtocolError: there is no such feature, or it cannot be written.

        Example:
            >>> table.addFeatureSupport("deletionVectors")
            >>> "deletionVectors" in table.detail().first().tableFeatures
            True
        """
        from headwater.alterations.protocols import add_feature

        add_feature(self._snapshot(), featureName)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Stop supporting a table feature that the table does not use any more.

        Features that readers need as well cannot be dropped: older versions of the table use them.

        Raises:
            InvalidCommitError: the table uses the feature, or it cannot be dropped.
            UnsupportedProtocolError: there is no such feature.

        Example:
            >>> table.addFeatureSupport("allowColumnDefaults")
            >>> table.dropFeatureSupport("allowColumnDefaults")
            >>> "allowColumnDefaults" in table.detail().first().tableFeatures
            False
        """
        from headwater.alterations.protocols import drop_feature

        drop_feature(self._snapshot(), featureName, truncate_history=bool(truncateHistory))

    def setDomainMetadata(self, domain: str, configuration: str) -> None:
        """Keep a text with the table, under a name of your own such as `com.example.lineage`.

        Raises:
            InvalidCommitError: the name starts with `delta.`, which belongs to the system.

        Example:
            >>> table.setDomainMetadata("com.example.lineage", '{"source": "web"}')
            >>> hw.open_log("events").domain_metadata["com.example.lineage"]
            '{"source": "web"}'
        """
        from headwater.alterations.domains import set_domain

        set_domain(self._snapshot(), domain, configuration)

    def removeDomainMetadata(self, domain: str) -> None:
        """Remove what `setDomainMetadata` has set.

        Raises:
            InvalidCommitError: there is none under that name, or it belongs to the system.

        Example:
            >>> table.setDomainMetadata("com.example.lineage", '{"source": "web"}')
            >>> table.removeDomainMetadata("com.example.lineage")
            >>> "com.example.lineage" in hw.open_log("events").domain_metadata
            False
        """
        from headwater.alterations.domains import remove_domain

        remove_domain(self._snapshot(), domain)

    def clusterBy(self, *cols: str | Sequence[str] | None) -> None:
        """Cluster new and rewritten files by these columns; `clusterBy(None)` ends clustering.

        Raises:
            InvalidCommitError: the table is partitioned, or a column cannot be clustered by.

        Example:
            >>> customers.clusterBy("name", "address.city")
            >>> customers.detail().first().clusteringColumns
            ['name', 'address.city']
        """
        from headwater.alterations.clustering import cluster_by

        if not cols:
            raise ValueError("name the columns to cluster by, or None to end clustering.")
        cluster_by(self._snapshot(), () if cols == (None,) else [c for c in cols if c is not None])

    # --- columns ------------------------------------------------------------------------------------

    def addColumns(
        self,
        cols: Mapping[str, str | spark_types.DataType] | spark_types.StructType | Sequence[spark_types.StructField],
        position: str | None = None,
    ) -> None:
        """Add columns, which are null in the rows that are there.

        Args:
            cols: types by name, or PySpark's fields. `address.zip` adds a field to the struct `address`.
            position: `FIRST` or `AFTER other` for the first of them, which the others follow; last by default.

        Raises:
            SchemaError: a name is taken, or the column cannot be added to rows that are there.

        Example:
            >>> table.addColumns({"city": "STRING"}, position="AFTER country")
            >>> table.toDF().columns
            ['id', 'country', 'city', 'amount', 'message', 'day']
        """
        from headwater.alterations.columns import add_columns
        from headwater.alterations.declared_columns import column_fields, column_type
        from headwater.log.schema import StructField

        if hasattr(cols, "items"):
            fields = [StructField(name, column_type(type_, name)) for name, type_ in cols.items()]
        else:
            fields = column_fields(cols)
        add_columns(self._snapshot(), fields, position)

    def renameColumn(self, name: str, newName: str) -> None:
        """Rename a column; no file is rewritten. Needs column mapping (`delta.columnMapping.mode = name`).

        Args:
            name: the column, with dots for one inside a struct.
            newName: its new name, without what is around it.

        Raises:
            InvalidCommitError: there is no column mapping, or a constraint or generated column depends on the column.

        Example:
            >>> table.setProperties({"delta.columnMapping.mode": "name"})
            >>> table.renameColumn("message", "text")
            >>> table.toDF().columns
            ['id', 'country', 'amount', 'text', 'day']
        """
        from headwater.alterations.columns import rename_column

        rename_column(self._snapshot(), name, newName)

    def dropColumns(self, *names: str, if_exists: bool = False) -> None:
        """Drop columns; no file is rewritten. Needs column mapping (`delta.columnMapping.mode = name`).

        Raises:
            InvalidCommitError: there is no column mapping, or something depends on a column.
            ColumnNotFoundError: there is no such column (and `if_exists` is False).

        Example:
            >>> table.setProperties({"delta.columnMapping.mode": "name"})
            >>> table.dropColumns("message", "country")
            >>> table.toDF().columns
            ['id', 'amount', 'day']
        """
        from headwater.alterations.columns import drop_columns

        if not names:
            raise ValueError("name the columns to drop.")
        drop_columns(self._snapshot(), names, if_exists=if_exists)

    def reorderColumn(self, name: str, position: str) -> None:
        """Move a column within the table, or within its struct: `FIRST` or `AFTER other`.

        Example:
            >>> table.reorderColumn("day", "AFTER id")
            >>> table.toDF().columns
            ['id', 'day', 'country', 'amount', 'message']
        """
        from headwater.alterations.columns import reorder_column

        reorder_column(self._snapshot(), name, position)

    def setColumnComment(self, name: str, comment: str | None) -> None:
        """Say what a column is for; None takes that away.

        Example:
            >>> table.setColumnComment("amount", "in euros")
            >>> table.toDF().schema["amount"].metadata
            {'comment': 'in euros'}
        """
        from headwater.alterations.columns import set_column_comment

        set_column_comment(self._snapshot(), name, comment)

    def setColumnType(self, name: str, dataType: str | spark_types.DataType) -> None:
        """Make the type of a column wider, such as int to bigint. Needs `delta.enableTypeWidening = true`.

        Raises:
            InvalidCommitError: it would not be wider, the table has no type widening, or something depends on it.

        Example:
            >>> table.setProperties({"delta.enableTypeWidening": "true"})
            >>> table.setColumnType("amount", "BIGINT")
            >>> table.toDF().schema["amount"].dataType
            LongType()
        """
        from headwater.alterations.column_types import set_column_type
        from headwater.alterations.declared_columns import column_type

        set_column_type(self._snapshot(), name, column_type(dataType, name))

    def setNullable(self, name: str, nullable: bool) -> None:
        """Allow null in a column, or forbid it; for that, a Spark job looks at all rows first.

        Raises:
            ConstraintViolationError: a row has null.
            ConcurrentAppendException: rows were added while it looked.

        Example:
            >>> table.setNullable("country", False)
            >>> table.toDF().schema["country"].nullable
            False
        """
        from headwater.alterations.column_types import set_nullable
        from headwater.spark.expression_checks import check_no_nulls

        snapshot = self._snapshot()

        def check_rows(schema: StructType, path: tuple[str, ...]) -> None:
            check_no_nulls(self._rows(snapshot), path, schema)

        set_nullable(snapshot, name, nullable, check_rows)

    def dropNotNull(self, name: str) -> None:
        """Allow null in a column.

        Example:
            >>> table.setNullable("country", False)
            >>> table.dropNotNull("country")
            >>> table.toDF().schema["country"].nullable
            True
        """
        self.setNullable(name, True)

    def setDefault(self, name: str, expression: str) -> None:
        """Set what rows get that are written without the column: an expression in SQL.

        Needs the table feature `allowColumnDefaults`. Rows that are there stay as they are.

        Raises:
            InvalidCommitError: the feature is missing, or the expression is no value of the column's type.

        Example:
            >>> table.addFeatureSupport("allowColumnDefaults")
            >>> table.setDefault("country", "'SE'")
            >>> hw.write(source.drop("country"), "events", mode="append").version
            4
            >>> table.toDF().where("country = 'SE'").count()
            5
        """
        from headwater.alterations.column_types import set_default
        from headwater.spark.expression_checks import check_default

        set_default(self._snapshot(), name, expression, partial(check_default, self._spark))

    def dropDefault(self, name: str) -> None:
        """Remove the default of a column.

        Example:
            >>> table.addFeatureSupport("allowColumnDefaults")
            >>> table.setDefault("country", "'SE'")
            >>> table.dropDefault("country")
        """
        from headwater.alterations.column_types import drop_default

        drop_default(self._snapshot(), name)

    # --- constraints --------------------------------------------------------------------------------

    def addConstraint(self, name: str, expression: str) -> None:
        """Add a condition that every row must fulfil; a Spark job looks at all rows that are there first.

        Raises:
            ConstraintViolationError: a row does not fulfil it.
            InvalidCommitError: it is no condition on this table, or the name is taken.
            ConcurrentAppendException: rows were added while it looked.

        Example:
            >>> table.addConstraint("positive", "amount > 0")
            >>> table.detail().first().properties
            {'delta.constraints.positive': 'amount > 0'}
        """
        from headwater.alterations.constraints import add_constraint
        from headwater.spark.expression_checks import check_condition, check_rows

        snapshot = self._snapshot()

        def check(name: str, expression: str) -> None:
            check_condition(self._spark, snapshot.schema, name, expression)
            what = f"{snapshot.uri}: the constraint {name} ({expression}) cannot be added"
            check_rows(self._rows(snapshot), expression, what, snapshot.schema)

        add_constraint(snapshot, name, expression, check)

    def dropConstraint(self, name: str, if_exists: bool = False) -> None:
        """Drop a constraint.

        Raises:
            InvalidCommitError: there is none of that name (and `if_exists` is False).

        Example:
            >>> table.addConstraint("positive", "amount > 0")
            >>> table.dropConstraint("positive")
            >>> table.dropConstraint("positive", if_exists=True)
        """
        from headwater.alterations.constraints import drop_constraint

        drop_constraint(self._snapshot(), name, if_exists=if_exists)

    def _rows(self, snapshot: Snapshot) -> DataFrame:
        from headwater.spark.scan import scan

        return scan(self._spark, snapshot, storage_options=self._storage_options)
