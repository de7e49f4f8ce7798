"""Copying the files of a deep clone: by the store itself, on this machine, or by Spark's executors.

Within one bucket, and from disk to disk, threads of this process only have to say what goes where. Between stores
all bytes pass through whoever copies, so the executors do it, each with its own connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.columns import int64s, strings
from headwater.maintenance.clone_files import Copy
from headwater.maintenance.copies import Sources, copy_file, copy_here
from headwater.spark.failures import explained_failures
from headwater.spark.workers import dealt, in_workers
from headwater.storage import open_store
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from headwater.maintenance.progress import Progress

_RESULT = "size_bytes long"
_RESULT_SCHEMA = pa.schema([("size_bytes", pa.int64())])
_FILES_PER_TASK = 4
_MOST_TASKS = 1_000


@dataclass(frozen=True)
class CopyPlan:
    """From where to where; it travels to the executors."""

    source_uri: str
    source_options: dict[str, str] | None = field(repr=False)
    target_uri: str
    target_options: dict[str, str] | None = field(repr=False)

    @property
    def passes_through_nobody(self) -> bool:
        """Whether the bytes stay where they are: within one bucket, on one machine's disks, or in its memory."""
        source, target = parse_uri(self.source_uri), parse_uri(self.target_uri)
        if "memory" in (source.kind, target.kind):
            return True
        return (source.kind, source.bucket, source.account_host) == (target.kind, target.bucket, target.account_host)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: copy the files of a task."""
        sources = Sources(self.source_uri, self.source_options)
        target = open_store(self.target_uri, self.target_options)
        for batch in batches:
            sizes = [
                copy_file(sources, target, Copy(row["source"], row["key"], row["size_bytes"]))
                for row in batch.to_pylist()
            ]
            yield pa.RecordBatch.from_arrays([int64s(sizes)], schema=_RESULT_SCHEMA)


def copy_files(spark: SparkSession, plan: CopyPlan, copies: Sequence[Copy], progress: Progress) -> None:
    """Copy files; all of them, or an error is raised.

    Raises:
        StorageError: a file could not be copied.
    """
    if not copies:
        return
    if plan.passes_through_nobody:
        sources = Sources(plan.source_uri, plan.source_options)
        copy_here(sources, open_store(plan.target_uri, plan.target_options), copies, progress)
        return
    progress.begin("Copying files", len(copies))
    table = pa.table(
        {
            "source": strings([copy.source for copy in copies]).cast(pa.string()),
            "key": strings([copy.key for copy in copies]).cast(pa.string()),
            "size_bytes": int64s([copy.size_bytes for copy in copies]),
        }
    )
    tasks = min(_MOST_TASKS, -(-len(copies) // _FILES_PER_TASK))
    with explained_failures():
        done = in_workers(dealt(spark, table, tasks, private=True), partial(CopyPlan.run, plan), _RESULT).count()
    assert done == len(copies), "every file was copied"
    progress.advance(len(copies))
