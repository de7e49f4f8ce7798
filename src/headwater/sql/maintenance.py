"""Run the statements that only Delta has, each as the request of a command."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headwater.commands.alter.properties import AddConstraint, DropConstraint, DropFeature
from headwater.commands.clone import CloneRequest
from headwater.commands.create import column_type
from headwater.commands.restore import RestoreRequest
from headwater.commands.vacuum import VacuumRequest
from headwater.errors import InvalidCommitError, NotADeltaTableError, TableAlreadyExistsError, TableNotFoundError
from headwater.features.context import TableRef
from headwater.log.schema import StructType
from headwater.spark.commands import (
    DETAIL_SCHEMA,
    HISTORY_SCHEMA,
    RESTORE_SCHEMA,
    AlterRequest,
    alter,
    clone_table,
    detail_frame,
    history_frame,
    restore_table,
    vacuum_table,
)
from headwater.spark.jvm import jvm_of
from headwater.spark.maintenance.convert import ConvertRequest, convert
from headwater.spark.maintenance.optimize import OptimizeRequest, optimize
from headwater.spark.maintenance.rewrite import RESULT_SCHEMA as OPTIMIZE_SCHEMA
from headwater.spark.session import SparkTable
from headwater.sql import statements as sql
from headwater.sql.gateway import handles, session_of
from headwater.sql.names import CatalogName, Found, find, location, refresh_cached, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.jvm import JavaObject

_CLONE_SCHEMA = (
    "source_table_size BIGINT, source_num_of_files BIGINT, num_removed_files BIGINT, num_copied_files BIGINT, "
    "removed_files_size BIGINT, copied_files_size BIGINT"
)
_PATH_SCHEMA = "path STRING"


@handles("parse")
def parse(java_session: JavaObject, _: JavaObject, text: str) -> JavaObject | None:
    """Return the command of a statement that only Delta has; None for one of Spark's."""
    statement = sql.parse_statement(text)
    if statement is None:
        return None
    if type(statement) not in _RUNNERS:
        raise InvalidCommitError(f"{text.strip()}: search indexes have no SQL yet. Use hw.search_index in Python.")
    spark = session_of(java_session)
    jvm = jvm_of(spark)
    about = jvm.gateway.new_array(jvm.static("java.lang.Object"), 1)
    about[0] = msgspec.json.encode(statement).decode()
    columns = _RUNNERS[type(statement)].schema
    struct = "org.apache.spark.sql.types.StructType"
    schema = (jvm.call(struct, "fromDDL", columns) if columns else jvm.static(struct)()).json()
    return jvm.static("headwater.DeltaCommand").of("statement", about, schema, text.strip())


@handles("statement")
def run(java_session: JavaObject, text: str) -> JavaObject | None:
    """Run a statement, and return its rows."""
    statement = sql.decode_statement(text)
    spark = session_of(java_session)
    result = _RUNNERS[type(statement)].run(spark, statement)
    return None if result is None else result._jdf


def _history(spark: SparkSession, statement: sql.DescribeHistory) -> DataFrame:
    return history_frame(spark, table_of(spark, statement.target).ref.snapshot(), statement.limit)


def _detail(spark: SparkSession, statement: sql.DescribeDetail) -> DataFrame:
    return detail_frame(spark, table_of(spark, statement.target).ref.snapshot())


def _vacuum(spark: SparkSession, statement: sql.Vacuum) -> DataFrame:
    table = table_of(spark, statement.target)
    inventory = None if statement.inventory is None else spark.sql(statement.inventory).toArrow()
    request = VacuumRequest(
        table.ref,
        retention_hours=statement.retention_hours,
        mode="LITE" if statement.lite else "FULL",
        dry_run=statement.dry_run,
        inventory=inventory,
    )
    found = vacuum_table(spark, request)
    return found if statement.dry_run else spark.createDataFrame([(str(table.ref.location),)], _PATH_SCHEMA)


def _optimize(spark: SparkSession, statement: sql.Optimize) -> DataFrame:
    table = table_of(spark, statement.target)
    if statement.full:
        raise InvalidCommitError(f"OPTIMIZE FULL of {table} is not supported yet. OPTIMIZE clusters what is new.")
    where = () if statement.where is None else (statement.where,)
    columns = tuple(sql.quoted_name(name) for name in statement.zorder_by)
    done = optimize(OptimizeRequest(table, where, columns)).frame(spark)
    refresh_cached(spark, str(table.ref.location))
    return done


def _reorg(spark: SparkSession, statement: sql.Reorg) -> DataFrame:
    table = table_of(spark, statement.target)
    if statement.iceberg_compat_version is not None:
        raise InvalidCommitError(
            f"REORG TABLE ... APPLY (UPGRADE UNIFORM) is not supported: no Iceberg metadata is written for {table}."
        )
    where = () if statement.where is None else (statement.where,)
    return optimize(OptimizeRequest(table, where, purges=True)).frame(spark)


def _restore(spark: SparkSession, statement: sql.Restore) -> DataFrame:
    table = table_of(spark, statement.target)
    done = restore_table(spark, RestoreRequest(table.ref, statement.as_of.version, statement.as_of.timestamp))
    refresh_cached(spark, str(table.ref.location))
    return done


def _generate(spark: SparkSession, statement: sql.Generate) -> None:
    from headwater.features.symlink_manifests import write_manifests

    if statement.mode.lower() != "symlink_format_manifest":
        raise InvalidCommitError(f"GENERATE knows symlink_format_manifest, not {statement.mode}")
    write_manifests(table_of(spark, statement.target).ref.snapshot())


def _convert(spark: SparkSession, statement: sql.ConvertToDelta) -> None:
    """Convert a directory of Parquet files, or a table of them in the catalog, whose entry then says Delta."""
    name = statement.target.name
    found: Found | None = None
    if len(name) == 2 and name[0].lower() == "parquet" and "/" in name[1]:
        place = location(spark, name[1])
    else:
        found = find(spark, name)
        if found.location is None:
            raise TableNotFoundError(f"there is no table {sql.quoted_name(name)} to convert")
        if found.is_delta:
            return
        if str(found.provider).lower() != "parquet":
            raise NotADeltaTableError(f"only Parquet can be converted to Delta, and {sql.quoted_name(name)} is not")
        place = found.location
    columns = None
    if statement.partition_schema is not None:
        declared = column_type(f"struct<{statement.partition_schema}>", "PARTITIONED BY")
        assert isinstance(declared, StructType)
        columns = declared
    convert(ConvertRequest(SparkTable(spark, TableRef(place)), columns))
    if found is not None:
        entry = CatalogName.of(spark, found.name[1:-1], found.name[-1])
        managed = bool(found.entry.get("managed"))
        entry.drop()
        entry.register(place, managed=managed)


def _clone(spark: SparkSession, statement: sql.Clone) -> DataFrame:
    source = table_of(spark, statement.source)
    found = find(spark, statement.target.name)
    exists = found.location is not None and (not found.is_path or _is_table(TableRef(found.location)))
    if exists and statement.if_not_exists:
        return spark.createDataFrame([], _CLONE_SCHEMA)
    if exists and not statement.replace:
        raise TableAlreadyExistsError(f"the table {statement.target} already exists")
    if not exists and statement.replace and not statement.create:
        raise TableNotFoundError(f"the table {statement.target} cannot be replaced: there is no such table")
    name = None if found.is_path else CatalogName.of(spark, found.name[1:-1], found.name[-1])
    managed = False
    if found.location is not None:
        place = found.location
    elif statement.location is not None:
        place = location(spark, statement.location)
    else:
        assert name is not None
        place, managed = name.default_location(), True
    at = statement.as_of or sql.AsOf()
    request = CloneRequest(
        source.ref,
        TableRef(place),
        at.version,
        at.timestamp,
        not statement.deep,
        statement.replace,
        statement.properties,
    )
    done = clone_table(spark, request)
    if name is not None and not exists:
        name.register(place, managed=managed)
    return spark.createDataFrame([astuple(done)[1:]], _CLONE_SCHEMA)


def _is_table(table: TableRef) -> bool:
    try:
        table.snapshot()
    except TableNotFoundError:
        return False
    return True


def _add_constraint(spark: SparkSession, statement: sql.AddConstraint) -> None:
    alter(AlterRequest(table_of(spark, statement.target), AddConstraint(statement.name, statement.expression)))


def _drop_constraint(spark: SparkSession, statement: sql.DropConstraint) -> None:
    alter(AlterRequest(table_of(spark, statement.target), DropConstraint(statement.name, statement.if_exists)))


def _drop_feature(spark: SparkSession, statement: sql.DropFeature) -> None:
    change = DropFeature(statement.feature, statement.truncate_history)
    alter(AlterRequest(table_of(spark, statement.target), change))


def _sync_identity(spark: SparkSession, statement: sql.SyncIdentity) -> None:
    table = table_of(spark, statement.target)
    raise InvalidCommitError(
        f"SYNC IDENTITY of {sql.quoted_name(statement.column)} of {table} is not supported yet: nothing was changed."
    )


class _Runner(NamedTuple):
    run: Callable[[SparkSession, Any], DataFrame | None]
    schema: str = ""


_RUNNERS: dict[type, _Runner] = {
    sql.DescribeHistory: _Runner(_history, HISTORY_SCHEMA),
    sql.DescribeDetail: _Runner(_detail, DETAIL_SCHEMA),
    sql.Vacuum: _Runner(_vacuum, _PATH_SCHEMA),
    sql.Optimize: _Runner(_optimize, OPTIMIZE_SCHEMA),
    sql.Reorg: _Runner(_reorg, OPTIMIZE_SCHEMA),
    sql.Restore: _Runner(_restore, RESTORE_SCHEMA),
    sql.Generate: _Runner(_generate),
    sql.ConvertToDelta: _Runner(_convert),
    sql.Clone: _Runner(_clone, _CLONE_SCHEMA),
    sql.AddConstraint: _Runner(_add_constraint),
    sql.DropConstraint: _Runner(_drop_constraint),
    sql.DropFeature: _Runner(_drop_feature),
    sql.SyncIdentity: _Runner(_sync_identity),
}
"""How each statement runs, and the columns of its result."""
