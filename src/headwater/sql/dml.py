"""Run DELETE, UPDATE and MERGE."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.api.builders import merged_rows
from headwater.features.context import TableRef
from headwater.spark.dml.delete import DeleteRequest, delete
from headwater.spark.dml.update import UpdateRequest, update
from headwater.spark.jvm import jvm_of
from headwater.spark.merge.clauses import Action, Clause, When
from headwater.spark.merge.merge import MergeRequest, merge
from headwater.spark.session import SparkTable
from headwater.sql.gateway import frame_of, handles, session_of
from headwater.sql.names import refresh_cached

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.spark.jvm import JavaObject

_PLANS = "headwater.Plans"
_PLAIN_NAME = re.compile(r"\w+")
_ACTIONS = {
    "DeleteAction": (Action.DELETE, False),
    "UpdateAction": (Action.UPDATE, False),
    "UpdateStarAction": (Action.UPDATE, True),
    "InsertAction": (Action.INSERT, False),
    "InsertStarAction": (Action.INSERT, True),
}
"""Spark's classes of merge actions: what they do, and whether they take all columns of the source."""


@handles("delete")
def run_delete(
    java_session: JavaObject, plan: JavaObject, table: JavaObject, alias: str | None, relation: JavaObject
) -> JavaObject:
    spark = session_of(java_session)
    condition = plan.condition()
    wanted = None if condition.sql().lower() == "true" else column_of(spark, condition)
    metrics = delete(DeleteRequest(target(spark, table), wanted, alias))
    _committed(spark, table, relation)
    return _counts(spark, metrics.get("numDeletedRows", -1))


@handles("update")
def run_update(
    java_session: JavaObject, plan: JavaObject, table: JavaObject, alias: str | None, relation: JavaObject
) -> JavaObject:
    spark = session_of(java_session)
    values = _assignments(spark, plan.assignments(), alias)
    metrics = update(UpdateRequest(target(spark, table), _condition(spark, plan), values, alias))
    _committed(spark, table, relation)
    return _counts(spark, metrics.get("numUpdatedRows", -1))


@handles("merge")
def run_merge(
    java_session: JavaObject, plan: JavaObject, table: JavaObject, alias: str | None, relation: JavaObject
) -> JavaObject:
    spark = session_of(java_session)
    source = frame_of(spark, jvm_of(spark).static(_PLANS).frame(java_session, plan.sourceTable()))
    clauses = [
        *_clauses(spark, plan.matchedActions(), When.MATCHED, alias),
        *_clauses(spark, plan.notMatchedActions(), When.NOT_MATCHED, alias),
        *_clauses(spark, plan.notMatchedBySourceActions(), When.NOT_MATCHED_BY_SOURCE, alias),
    ]
    condition = column_of(spark, plan.mergeCondition())
    evolves = bool(plan.withSchemaEvolution())
    metrics = merge(MergeRequest(target(spark, table), source, condition, tuple(clauses), alias, evolves))
    _committed(spark, table, relation)
    return merged_rows(spark, metrics)._jdf


def target(spark: SparkSession, table: JavaObject) -> SparkTable:
    return SparkTable(spark, TableRef(table.path()))


def column_of(spark: SparkSession, expression: JavaObject) -> Column:
    """Return a Column for an expression of a plan, with columns called by their names."""
    from pyspark.sql.classic.column import Column

    return Column(jvm_of(spark).static(_PLANS).column(expression))


def _condition(spark: SparkSession, node: JavaObject) -> Column | None:
    condition = node.condition()
    return column_of(spark, condition.get()) if condition.isDefined() else None


def _assignments(spark: SparkSession, assignments: JavaObject, alias: str | None) -> dict[str, Column]:
    values = {}
    for i in range(assignments.size()):
        assignment = assignments.apply(i)
        parts = list(jvm_of(spark).static(_PLANS).fieldPath(assignment.key()))
        if alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower():
            parts = parts[1:]
        name = ".".join(part if _PLAIN_NAME.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in parts)
        values[name] = column_of(spark, assignment.value())
    return values


def _clauses(spark: SparkSession, actions: JavaObject, when: When, alias: str | None) -> list[Clause]:
    return [_clause(spark, actions.apply(i), when, alias) for i in range(actions.size())]


def _clause(spark: SparkSession, node: JavaObject, when: When, alias: str | None) -> Clause:
    action, is_star = _ACTIONS[node.getClass().getSimpleName()]
    if action is Action.DELETE:
        return Clause(when, action, _condition(spark, node))
    values = None if is_star else _assignments(spark, node.assignments(), alias)
    return Clause(when, action, _condition(spark, node), values)


def _committed(spark: SparkSession, table: JavaObject, relation: JavaObject) -> None:
    identifier = relation.identifier()
    refresh_cached(spark, table.path(), identifier.get() if identifier.isDefined() else None)


def _counts(spark: SparkSession, number: int) -> JavaObject:
    frame: DataFrame = spark.createDataFrame([(int(number),)], "num_affected_rows long")
    return frame._jdf
