"""What a Python worker does to merge splits: it checks each of them, merges the good ones, and tells of the others.

A split that is damaged or gone does not stop the merge: the rest is merged without it, and the driver records why it
was skipped (spec 002: "SkipAction").
"""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from headwater.errors import CorruptSplitError, ObjectNotFoundError
from headwater.spark.search.split_places import SplitPlaces, SplitRef
from headwater.spark.search.task_writer import SplitPlacer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.search.split import Split

MERGED_SCHEMA = "merged string"
"""One row for each task: a `MergedBin` as JSON."""


class SkippedSplit(msgspec.Struct, frozen=True):
    """A split that could not be merged."""

    path: str
    reason: str


class MergedBin(msgspec.Struct, frozen=True):
    """What came of one bin."""

    sources: tuple[str, ...]
    """The paths of the splits that were merged; none if fewer than two were good."""
    add: str | None
    """The `add` of the new split, as JSON."""
    skipped: tuple[SkippedSplit, ...] = ()


@dataclass(frozen=True)
class MergeTask:
    """Splits of one partition that shall become one."""

    number: int
    partition_values: dict[str, str | None]
    splits: tuple[SplitRef, ...]


class SplitMerger:
    """Merges the bins of tasks. It travels to the executors."""

    def __init__(self, uri: str, storage_options: dict[str, str] | None) -> None:
        self._uri = uri
        self._storage_options = storage_options

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of pickled tasks; made for `mapInArrow`."""
        for batch in batches:
            for task in batch.column(0).to_pylist():
                merged = msgspec.json.encode(self.merge(pickle.loads(task))).decode()
                yield pa.RecordBatch.from_arrays([pa.array([merged], pa.string())], names=["merged"])

    def merge(self, task: MergeTask) -> MergedBin:
        """Merge one bin."""
        places = SplitPlaces(self._uri, self._storage_options)
        good: list[tuple[SplitRef, Split]] = []
        skipped: list[SkippedSplit] = []
        for ref in task.splits:
            try:
                good.append((ref, _checked(places, ref)))
            except (CorruptSplitError, ObjectNotFoundError) as error:
                skipped.append(SkippedSplit(ref.path, str(error)))
        if len(good) < 2:
            return MergedBin((), None, tuple(skipped))
        add = self._merged([split for _, split in good], task)
        return MergedBin(tuple(ref.path for ref, _ in good), add, tuple(skipped))

    def _merged(self, splits: list[Split], task: MergeTask) -> str:
        from headwater.search.split_merge import merge_splits

        placer = SplitPlacer(self._uri, self._storage_options)
        with tempfile.TemporaryDirectory(prefix="headwater-merge-") as directory:
            built = merge_splits(splits, directory)
            try:
                return placer.place(built, task.number, task.partition_values, data_change=False)
            except BaseException:
                placer.remove_all()
                raise


def _checked(places: SplitPlaces, ref: SplitRef) -> Split:
    """A split, after every byte of it has been read and compared with its checksums."""
    from headwater.search.split import Split
    from headwater.search.split_bundle import part_blocks

    store, key = places.place(ref.path)
    split = Split.open(store, key, size_bytes=ref.size_bytes, footer_start=ref.footer_start)
    for part in split.footer.parts.values():
        for _ in part_blocks(lambda start, length: store.get_range(key, start, length), part, split.path):
            pass
    return split
