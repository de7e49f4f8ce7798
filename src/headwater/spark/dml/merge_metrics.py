"""What the history says of a MERGE: its parameters and metrics, under the names that Delta users know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from headwater.spark.dml.condition import expression_text
from headwater.spark.dml.merge_clauses import When
from headwater.spark.dml.merge_matches import Fate
from headwater.spark.dml.metrics import vector_metrics

if TYPE_CHECKING:
    from headwater.log.row_changes import RowPlan
    from headwater.spark.dml.merge_clauses import Clause, SqlOrColumn
    from headwater.spark.dml.merge_files import MergedFiles
    from headwater.spark.dml.merge_matches import Matches
    from headwater.spark.dml.target_files import TargetFiles

_PARAMETERS = {
    When.MATCHED: "matchedPredicates",
    When.NOT_MATCHED: "notMatchedPredicates",
    When.NOT_MATCHED_BY_SOURCE: "notMatchedBySourcePredicates",
}


def merge_parameters(condition: SqlOrColumn, clauses: tuple[Clause, ...]) -> dict[str, Any]:
    """`operationParameters`."""
    return {
        "predicate": [expression_text(condition)],
        **{name: [_described(c) for c in clauses if c.when is when] for when, name in _PARAMETERS.items()},
    }


def merge_metrics(
    planned: RowPlan, files: TargetFiles, matches: Matches, done: MergedFiles, source_rows: int
) -> dict[str, int]:
    """`operationMetrics`, but for the times."""
    removed_bytes = pc.sum(files.take(done.removed).column("size")).as_py() or 0
    vectors = vector_metrics(planned, files, done.removed)
    return {
        "numSourceRows": source_rows,
        "numTargetRowsInserted": done.inserted_rows,
        "numTargetRowsUpdated": done.updated_rows,
        "numTargetRowsMatchedUpdated": matches.count(Fate.UPDATED),
        "numTargetRowsNotMatchedBySourceUpdated": matches.count(Fate.UPDATED_UNMATCHED),
        "numTargetRowsDeleted": matches.count(Fate.DELETED, Fate.DELETED_UNMATCHED),
        "numTargetRowsMatchedDeleted": matches.count(Fate.DELETED),
        "numTargetRowsNotMatchedBySourceDeleted": matches.count(Fate.DELETED_UNMATCHED),
        "numTargetRowsCopied": done.copied_rows,
        "numOutputRows": done.inserted_rows + done.updated_rows + done.copied_rows,
        "numTargetFilesAdded": len(done.added),
        "numTargetFilesRemoved": len(done.removed) + planned.files_removed,
        "numTargetBytesAdded": sum(add.size for add in done.added),
        "numTargetBytesRemoved": removed_bytes + planned.bytes_removed,
        "numTargetChangeFilesAdded": len(done.changes),
        **{name.replace("num", "numTarget", 1): count for name, count in vectors.items()},
    }


def _described(clause: Clause) -> dict[str, str]:
    action = {"actionType": clause.action.value}
    return action if clause.condition is None else {"predicate": expression_text(clause.condition), **action}
