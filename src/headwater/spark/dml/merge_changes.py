"""The change data files of a MERGE (spec: "Add CDC File"): every row that it inserts, updates or deletes.

Old rows are read from where the first pass found them; new ones from the files that were just written, for a value that
is computed twice may differ.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from headwater.spark.change_files import CHANGE_TYPE
from headwater.spark.columns import quoted
from headwater.spark.dml.target import HIDDEN_COLUMNS
from headwater.spark.functions import functions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headwater.log.actions import Add, AddCdcFile
    from headwater.spark.dml.merge_matches import Matches
    from headwater.spark.dml.target import DmlTarget, Positions
    from headwater.spark.dml.target_files import TargetFiles


def write_merge_changes(
    target: DmlTarget, files: TargetFiles, matches: Matches, updated: Sequence[Add], inserted: Sequence[Add]
) -> list[AddCdcFile]:
    """Write what a merge changes.

    Args:
        target: the table.
        files: the candidates of the first pass.
        matches: what the first pass has found.
        updated: the files with the new values of updated rows.
        inserted: the files with new rows.
    """
    frames: list[DataFrame] = []

    def old(positions: Positions, change: str) -> None:
        if positions:
            frames.append(_marked(target.rows(files, positions, only=positions), change))

    def new(adds: Sequence[Add], change: str) -> None:
        if adds:
            frames.append(_marked(target.written_rows(adds), change))

    old(matches.deleted, "delete")
    old(matches.updated, "update_preimage")
    new(updated, "update_postimage")
    new(inserted, "insert")
    return target.write_changes(reduce(lambda one, other: one.unionByName(other), frames)) if frames else []


def _marked(frame: DataFrame, change: str) -> DataFrame:
    sf = functions()
    columns = [sf.col(quoted(name)) for name in frame.columns if name not in HIDDEN_COLUMNS]
    return frame.select(*columns, sf.lit(change).alias(CHANGE_TYPE))
