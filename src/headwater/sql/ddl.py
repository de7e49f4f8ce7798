"""Run CREATE, REPLACE, ALTER and the like."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headwater.commands.alter import columns as column_changes
from headwater.commands.alter import properties as property_changes
from headwater.commands.create import CreateMode, CreateRequest
from headwater.errors import InvalidCommitError, TableAlreadyExistsError, TableNotFoundError
from headwater.features.context import TableRef
from headwater.log.schema import StructField, StructType
from headwater.log.schema.types import dotted
from headwater.spark.commands import AlterRequest, alter, create_table
from headwater.spark.dml.delete import DeleteRequest, delete
from headwater.spark.jvm import jvm_of
from headwater.spark.session import SparkTable
from headwater.spark.write.write import write
from headwater.sql.gateway import handles, session_of
from headwater.sql.names import CatalogName, location, refresh_cached
from headwater.sql.writes import write_arguments, written_query

if TYPE_CHECKING:
    from headwater.commands.alter.commit import Alteration
    from headwater.spark.jvm import JavaObject

_CREATED_OPTION = "isdataframewriterv1"


@handles("create")
def run_create(java_session: JavaObject, plan: JavaObject) -> None:
    """Run CREATE TABLE, REPLACE TABLE, and both AS SELECT."""
    spark = session_of(java_session)
    wanted = json.loads(jvm_of(spark).static("headwater.Plans").creation(plan))
    identifier = plan.name().identifier()
    path = jvm_of(spark).static("headwater.DeltaCatalog").pathOf(identifier)
    name = None if path is not None else CatalogName(spark, identifier)
    entry = None if name is None else name.entry()
    managed = False
    if name is None:
        place = location(spark, path)
    elif entry is not None:
        place = entry["location"]
    elif wanted["location"] is not None:
        place = location(spark, wanted["location"])
    else:
        place, managed = name.default_location(), True
    if entry is not None and not wanted["replace"]:
        if wanted.get("ifNotExists"):
            return
        raise TableAlreadyExistsError(f"the table {name} already exists")
    if entry is None and name is not None and wanted["replace"] and not wanted.get("orCreate"):
        raise TableNotFoundError(f"the table {name} cannot be replaced: there is no such table")
    table = TableRef(place)
    partitions, clustering = _layout(wanted["partitioning"])
    properties = json.loads(wanted["properties"])
    if wanted.get("writeOptions") is not None:
        options = {k.lower(): v for k, v in json.loads(wanted["writeOptions"]).items()}
        arguments = write_arguments(options, creates=True)
        if wanted["replace"]:
            arguments |= {"mode": "overwrite", "overwrite_schema": options.get(_CREATED_OPTION) is None}
        else:
            arguments["mode"] = "error"
        write(
            written_query(spark, plan.query()),
            table.location,
            partition_by=partitions or None,
            cluster_by=[dotted(column) for column in clustering] or None,
            **{**arguments, "properties": {**arguments.get("properties", {}), **properties}},
        )
    else:
        mode = (
            (CreateMode.CREATE_OR_REPLACE if wanted.get("orCreate") else CreateMode.REPLACE)
            if wanted["replace"]
            else CreateMode.CREATE_IF_NOT_EXISTS
        )
        checks = {f"delta.constraints.{c['name']}": c["expression"] for c in wanted["constraints"]}
        create_table(
            spark,
            CreateRequest(
                table,
                mode,
                _schema(wanted["schema"]),
                tuple(partitions),
                tuple(clustering),
                {**properties, **checks},
                wanted["comment"],
            ),
        )
    if name is not None and entry is None:
        name.register(place, managed=managed, comment=wanted["comment"])
    refresh_cached(spark, place, identifier)


def _layout(transforms: list[dict[str, Any]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the partition columns and the clustering columns."""
    partitions: list[str] = []
    clustering: list[tuple[str, ...]] = []
    for transform in transforms:
        if transform["name"] == "identity":
            partitions += [dotted(column) for column in transform["columns"]]
        elif transform["name"] == "cluster_by":
            clustering += [tuple(column) for column in transform["columns"]]
        else:
            raise InvalidCommitError(f"a Delta table cannot be partitioned by {transform['text']}, only by columns")
    return partitions, clustering


def _schema(text: str) -> StructType:
    """Return the columns of CREATE TABLE, with Delta's metadata keys instead of Spark's."""
    value = json.loads(text)
    for column in value["fields"]:
        metadata = column["metadata"]
        metadata.pop("EXISTS_DEFAULT", None)
        if "GENERATION_EXPRESSION" in metadata:
            metadata["delta.generationExpression"] = metadata.pop("GENERATION_EXPRESSION")
        for key in [key for key in metadata if key.startswith("identity.")]:
            metadata[f"delta.{key}"] = metadata.pop(key)
    return StructType.from_json(value)


@handles("createLike")
def create_like(_: JavaObject, identifier: JavaObject, __: str, ___: JavaObject) -> None:
    raise InvalidCommitError(
        f"CREATE TABLE {identifier.toString()} LIKE is not supported yet: name the columns, or use AS SELECT."
    )


@handles("truncate")
def truncate(table: JavaObject) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    assert spark is not None
    delete(DeleteRequest(SparkTable(spark, TableRef(table.path()))))


@handles("alter")
def run_alter(_: JavaObject, identifier: JavaObject, table: JavaObject, changes: JavaObject) -> None:
    """Run ALTER TABLE, one change after the other."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    assert spark is not None
    target = SparkTable(spark, TableRef(table.path()))
    for change in _grouped([_change(item) for item in changes]):
        alter(AlterRequest(target, change))
    refresh_cached(spark, table.path(), identifier)


def _grouped(changes: list[Alteration]) -> list[Alteration]:
    """Return the changes with those of one kind in one commit, as ADD COLUMNS and SET TBLPROPERTIES make them."""
    grouped: list[Alteration] = []
    for change in changes:
        last = grouped[-1] if grouped else None
        if isinstance(change, property_changes.SetProperties) and isinstance(last, property_changes.SetProperties):
            grouped[-1] = property_changes.SetProperties({**last.properties, **change.properties})
        elif isinstance(change, property_changes.UnsetProperties) and isinstance(
            last, property_changes.UnsetProperties
        ):
            grouped[-1] = property_changes.UnsetProperties([*last.names, *change.names], if_exists=True)
        else:
            grouped.append(change)
    return grouped


def _change(item: JavaObject) -> Alteration:
    kind = item.getClass().getSimpleName()
    name = dotted(list(item.fieldNames())) if kind in _COLUMN_CHANGES else ""
    if kind == "SetProperty":
        return property_changes.SetProperties({item.property(): item.value()})
    if kind == "RemoveProperty":
        return property_changes.UnsetProperties([item.property()], if_exists=True)
    if kind == "AddColumn":
        metadata = {} if item.comment() is None else {"comment": item.comment()}
        position = None if item.position() is None else item.position().toString()
        field = StructField(name, _type(item.dataType()), bool(item.isNullable()), metadata)
        return column_changes.AddColumns([field], position)
    if kind == "RenameColumn":
        return column_changes.RenameColumn(list(item.fieldNames()), item.newName())
    if kind == "DeleteColumn":
        return column_changes.DropColumns([list(item.fieldNames())], bool(item.ifExists()))
    if kind == "UpdateColumnType":
        return column_changes.SetColumnType(list(item.fieldNames()), _type(item.newDataType()))
    if kind == "UpdateColumnComment":
        return column_changes.SetColumnComment(list(item.fieldNames()), item.newComment() or None)
    if kind == "UpdateColumnNullability":
        return column_changes.SetNullable(list(item.fieldNames()), bool(item.nullable()))
    if kind == "UpdateColumnPosition":
        return column_changes.MoveColumn(list(item.fieldNames()), item.position().toString())
    if kind == "UpdateColumnDefaultValue":
        value = item.newDefaultValue()
        return column_changes.SetDefault(name, value) if value else column_changes.DropDefault(name)
    if kind == "ClusterBy":
        columns = [dotted(list(reference.fieldNames())) for reference in item.clusteringColumns()]
        return property_changes.ClusterBy(tuple(columns))
    if kind == "DropConstraint":
        return property_changes.DropConstraint(item.name(), bool(item.ifExists()))
    raise InvalidCommitError(f"ALTER TABLE cannot do {kind} on a Delta table")


_COLUMN_CHANGES = frozenset(
    {
        "AddColumn",
        "RenameColumn",
        "DeleteColumn",
        "UpdateColumnType",
        "UpdateColumnComment",
        "UpdateColumnNullability",
        "UpdateColumnPosition",
        "UpdateColumnDefaultValue",
    }
)


def _type(java_type: JavaObject) -> Any:
    field = {"name": "x", "type": json.loads(java_type.json()), "nullable": True, "metadata": {}}
    return StructType.from_json({"type": "struct", "fields": [field]}).fields[0].type


@handles("addConstraint")
def add_constraint(java_session: JavaObject, plan: JavaObject, table: JavaObject, *_: Any) -> None:
    spark = session_of(java_session)
    check = plan.checkConstraint()
    change = property_changes.AddConstraint(check.userProvidedName(), check.condition())
    alter(AlterRequest(SparkTable(spark, TableRef(table.path())), change))
