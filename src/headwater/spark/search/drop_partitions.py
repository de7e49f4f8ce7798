"""Removing whole partitions of a search table, in one commit: no split is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import FilterError
from headwater.log.draft import Operation
from headwater.log.expressions import And, Not, Or, Unknown, columns_of
from headwater.log.filter_sql import parse_filter
from headwater.log.transaction import Transaction
from headwater.spark.search.write import removes_of
from headwater.spark.write import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.expressions import Expression
    from headwater.log.snapshot import Snapshot
    from headwater.spark.search.opening import OpenTable


def partition_filter(where: str, snapshot: Snapshot) -> Expression:
    """A condition on partition columns alone, which the log decides exactly.

    Raises:
        FilterError: it is about other columns too, or cannot be decided by the log.
    """
    parsed = parse_filter(where)
    known = {snapshot.schema.field(name).name.lower() for name in snapshot.partition_columns}
    others = sorted(str(column) for column in columns_of(parsed) if column.parts[0].lower() not in known)
    if others or _has_unknown(parsed) or not columns_of(parsed):
        what = f"{', '.join(others)} is no partition column" if others else "the log cannot decide it"
        raise FilterError(
            f"{where!r} must be a condition on the partition columns of {snapshot.uri} "
            f"({', '.join(snapshot.partition_columns) or 'it has none'}): {what}"
        )
    return parsed


def _has_unknown(expr: Expression) -> bool:
    match expr:
        case Unknown():
            return True
        case Not(operand=inner):
            return _has_unknown(inner)
        case And(operands=parts) | Or(operands=parts):
            return any(map(_has_unknown, parts))
    return False


def drop_partitions(table: OpenTable, where: str) -> Written | None:
    """Remove the partitions that match a condition; see `SearchTable.drop_partitions`.

    Raises:
        FilterError: the condition is not about partition columns alone, or the log cannot decide it for some split.
    """
    snapshot = table.snapshot
    condition = partition_filter(where, snapshot)
    removes = removes_of(snapshot, condition, reason="drop partitions")
    undecided = {remove.path for remove in removes} & set(_paths(snapshot, Not(condition)))
    if undecided:
        raise FilterError(
            f"the log cannot decide {where!r} for {len(undecided)} splits of {snapshot.uri}, such as {min(undecided)}: "
            "nothing was dropped"
        )
    if not removes:
        return None
    metrics = {"numRemovedFiles": len(removes)}
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.read_files(condition)
    transaction.remove(removes)
    operation = Operation("DROP PARTITIONS", {"predicate": where}, metrics)
    return Written(transaction.commit(operation).version, metrics)


def _paths(snapshot: Snapshot, where: Expression) -> Sequence[str]:
    paths: list[str] = snapshot.files(where, ["path"]).column("path").to_pylist()
    return paths
