"""Run writes: `save`, `saveAsTable`, `insertInto`, `writeTo`, INSERT, and the query of CREATE TABLE AS SELECT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headwater.errors import SchemaMismatchError, WriteOptionError
from headwater.features.context import TableRef
from headwater.spark.jvm import jvm_of
from headwater.spark.write.write import write
from headwater.sql.gateway import frame_of, handles, session_of
from headwater.sql.names import location, refresh_cached

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.jvm import JavaObject

_MODES = {"Append": "append", "Overwrite": "overwrite", "ErrorIfExists": "error", "Ignore": "ignore"}


@handles("save")
def save(java_session: JavaObject, mode: str, options_json: str, data: JavaObject) -> None:
    """Run `df.write.format("delta").save(path)`."""
    spark = session_of(java_session)
    options = {name.lower(): value for name, value in json.loads(options_json).items()}
    if "path" not in options:
        raise WriteOptionError("say where to write to: save(path), or option('path', ...)")
    arguments = write_arguments(options, creates=True)
    write(frame_of(spark, data), location(spark, options["path"]), mode=_MODES[mode], **arguments)
    refresh_cached(spark, location(spark, options["path"]))


@handles("write")
def run_write(
    java_session: JavaObject, plan: JavaObject, table: JavaObject, _: str | None, relation: JavaObject
) -> None:
    """Run INSERT, `insertInto`, `writeTo(...).append()` and the like."""
    spark = session_of(java_session)
    kind = plan.getClass().getSimpleName()
    plans = jvm_of(spark).static("headwater.Plans")
    frame = frame_of(spark, plans.frame(java_session, plan.query()))
    evolves = bool(plans.call(plan, "withSchemaEvolution"))
    if not plan.isByName():
        frame = _by_position(frame, [field.name for field in TableRef(table.path()).snapshot().schema.fields], evolves)
    options = {
        k.lower(): v for k, v in json.loads(jvm_of(spark).static("headwater.Python").json(plan.writeOptions())).items()
    }
    arguments = write_arguments(options, creates=False)
    if evolves:
        arguments["merge_schema"] = True
    if kind == "AppendData":
        mode = "append"
    elif kind == "OverwritePartitionsDynamic":
        mode, arguments["partition_overwrite"] = "overwrite", "dynamic"
    else:
        mode = "overwrite"
        arguments["partition_overwrite"] = arguments.get("partition_overwrite", "static")
        condition = plan.deleteExpr()
        if condition.sql().lower() != "true":
            arguments["replace_where"] = plans.byName(condition).sql()
    write(frame, table.path(), mode=mode, **arguments)
    identifier = relation.identifier()
    refresh_cached(spark, table.path(), identifier.get() if identifier.isDefined() else None)


def _by_position(frame: DataFrame, names: list[str], evolves: bool) -> DataFrame:
    """Give the columns of a query the names of the table's, one after the other."""
    if evolves:
        names = names + frame.columns[len(names) :]
    if len(names) != len(frame.columns):
        raise SchemaMismatchError(
            f"the table has {len(names)} columns ({', '.join(names)}), and the query gives {len(frame.columns)} "
            f"({', '.join(frame.columns)}). Give as many, or name the columns that are written: INSERT INTO t (a, b)."
        )
    return frame.toDF(*names)


def write_arguments(options: Mapping[str, str], *, creates: bool) -> dict[str, Any]:
    """Return the arguments of `write` for the options that Delta users know; names are in lower case."""
    arguments: dict[str, Any] = {}
    for name, argument, convert in _OPTIONS:
        if name in options:
            arguments[argument] = convert(options[name])
    if "txnappid" in options or "txnversion" in options:
        if not ("txnappid" in options and "txnversion" in options):
            raise WriteOptionError(
                "txnAppId and txnVersion are given together, or not at all: a write is known by both.",
                condition="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
            )
        arguments["txn"] = (options["txnappid"], int(options["txnversion"]))
    if creates:
        properties = {name: value for name, value in options.items() if name.startswith("delta.")}
        if properties:
            arguments["properties"] = properties
    return arguments


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise WriteOptionError(f"an option is true or false, not {text!r}")
    return text.lower() == "true"


_OPTIONS = (
    ("mergeschema", "merge_schema", _flag),
    ("overwriteschema", "overwrite_schema", _flag),
    ("replacewhere", "replace_where", str),
    ("partitionoverwritemode", "partition_overwrite", str.lower),
    ("usermetadata", "user_metadata", str),
    ("datachange", "data_change", _flag),
    ("optimizewrite", "optimize_write", _flag),
    ("maxrecordsperfile", "max_records_per_file", int),
    ("compression", "compression", str),
    ("__partition_columns", "partition_by", json.loads),
    ("__clustering_columns", "cluster_by", json.loads),
)
"""Options of a write, the arguments they become, and how their texts are read."""


def written_query(spark: SparkSession, query: JavaObject) -> DataFrame:
    return frame_of(spark, jvm_of(spark).static("headwater.Plans").frame(spark._jsparkSession, query))
