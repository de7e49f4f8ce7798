"""MERGE SPLITS: small splits of a partition become one, in one commit that changes no row.

Spec 002, "Merge Operations" and "SkipAction": bins are packed by size, merged on the executors, and committed together.
Appends meanwhile do not matter. A bin whose splits another command has removed meanwhile is dropped, and its new split
with it. A split that is damaged or gone does not stop the merge: the rest is merged without it, `mergeskip` records
why, and the split is left alone until its cool-down is over.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import (
    CorruptSplitError,
    DeltaConcurrentModificationException,
    ObjectNotFoundError,
    WriteOptionError,
)
from headwater.log.actions.paths import canonical
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.indextables.actions import MergeSkip, SplitRemove, read_add
from headwater.parquet.plan import size_bytes
from headwater.search.split import build
from headwater.search.split.bundle import part_blocks
from headwater.search.split.reader import Split
from headwater.spark.maintenance.plan import pack
from headwater.spark.search.splits import SplitPlaces, SplitRef, check_reachable, collect_answers
from headwater.spark.search.upkeep import partition_filter
from headwater.spark.search.write import SplitPlacer, check_shared
from headwater.storage.copying import delete_data

if TYPE_CHECKING:
    from headwater.log.indextables.actions import SplitAdd
    from headwater.log.snapshot import Snapshot
    from headwater.spark.search.table import OpenTable


@dataclass(frozen=True)
class MergedBin:
    """The result of merging one bin."""

    sources: tuple[str, ...]
    """The paths of the splits that were merged; none if fewer than two were good."""
    add: SplitAdd | None
    """The new split."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Path and reason of each split that could not be merged."""


@dataclass(frozen=True)
class MergeTask:
    """Splits of one partition that are to become one."""

    number: int
    partition_values: dict[str, str | None]
    splits: tuple[SplitRef, ...]


def merge_bin(uri: str, storage_options: dict[str, str] | None, task: MergeTask) -> MergedBin:
    """Merge one bin, in a Python worker: check each split, merge the good ones, and report the others."""
    places, placer = SplitPlaces(uri, storage_options), SplitPlacer(uri, storage_options)
    good: dict[str, Split] = {}
    skipped: list[tuple[str, str]] = []
    for ref in task.splits:
        try:
            good[ref.path] = _checked(places, ref)
        except (CorruptSplitError, ObjectNotFoundError) as error:
            skipped.append((ref.path, str(error)))
    if len(good) < 2:
        return MergedBin((), None, tuple(skipped))
    with tempfile.TemporaryDirectory(prefix="headwater-merge-") as directory:
        built = build.merge_splits(list(good.values()), directory)
        try:
            add = placer.place(built, task.number, task.partition_values, data_change=False)
        except BaseException:
            placer.remove_all()
            raise
    return MergedBin(tuple(good), read_add(add.encode(), "the result of a task"), tuple(skipped))


def _checked(places: SplitPlaces, ref: SplitRef) -> Split:
    """Open a split, after every byte of it has been read and compared with its checksums."""
    store, key = places.place(ref.path)
    split = Split.open(store, key, size_bytes=ref.size_bytes, footer_start=ref.footer_start)
    for part in split.footer.parts.values():
        for _ in part_blocks(lambda start, length: store.get_range(key, start, length), part, split.path):
            pass
    return split


COOLDOWN_OPTION = "spark.indextables.skippedFiles.cooldownDuration"
"""For how many hours a split that could not be merged is left alone."""
_DEFAULT_COOLDOWN_HOURS = 24.0
_HOUR_MS = 3_600_000
_MAX_COMMITS = 20


@dataclass(frozen=True)
class MergedSplits:
    """The result of a merge."""

    version: int | None
    """The version that it made; None if there was nothing to merge and nothing to record."""
    num_source_splits: int
    num_merged_splits: int
    num_skipped_splits: int
    """Splits that could not be read, and were recorded."""
    num_cooling_splits: int
    """Splits that were left alone, because a recent merge could not read them."""
    num_dropped_bins: int
    """New splits that were dropped again, because their sources were gone when they were to be committed."""
    size_bytes: int
    """Of the new splits."""


def merge_splits(
    table: OpenTable, target_size: int | str, *, where: str | None = None, max_dest_splits: int | None = None
) -> MergedSplits:
    """Merge small splits; see `SearchTable.merge_splits`.

    Raises:
        WriteOptionError: the target size is not a positive size.
        FilterError: the condition is not about partition columns alone.
    """
    check_reachable(table.uri)
    target_bytes = _target_bytes(target_size)
    if max_dest_splits is not None and (type(max_dest_splits) is not int or max_dest_splits < 1):
        raise WriteOptionError(f"max_dest_splits is a positive whole number, not {max_dest_splits!r}.")
    snapshot = table.snapshot
    cooling = cooling_paths(snapshot)
    tasks = plan_bins(snapshot, target_bytes, where, cooling)[:max_dest_splits]
    options = snapshot.ctx.storage_options
    bins = collect_answers(table.spark, partial(merge_bin, table.uri, options), tasks) if tasks else []
    check_shared(table, [merged.add for merged in bins if merged.add is not None])
    return _commit(table, bins, target_bytes, len(cooling))


def plan_bins(snapshot: Snapshot, target_bytes: int, where: str | None, cooling: set[str]) -> list[MergeTask]:
    """Choose which splits become one: two or more small ones of the same partition."""
    condition = None if where is None else partition_filter(where, snapshot)
    columns = ["path", "size", "numRecords", "footerStartOffset", "modificationTime", "partitionValues"]
    files = snapshot.files(condition, columns)
    files = files.filter(pc.less(files.column("size"), target_bytes))
    if cooling:
        warm = [canonical(path) not in cooling for path in files.column("path").to_pylist()]
        files = files.filter(pa.array(warm, pa.bool_()))
    files = files.combine_chunks()
    values = [dict(value or ()) for value in files.column("partitionValues").to_pylist()]
    groups = pa.array([msgspec.json.encode(sorted(value.items())).decode() for value in values], pa.string())
    rows = list(zip(*(files.column(name).to_pylist() for name in columns[:4]), strict=True))
    bins = [numbers.to_pylist() for numbers in pack(groups, files, target_bytes) if len(numbers) > 1]
    # The bins with the most splits first: they are the ones that gain most, if there is a limit.
    bins.sort(key=lambda numbers: (-len(numbers), numbers))
    return [
        MergeTask(number, values[numbers[0]], tuple(SplitRef(*rows[i]) for i in numbers))
        for number, numbers in enumerate(bins)
    ]


def cooling_paths(snapshot: Snapshot) -> set[str]:
    """Return the splits, by canonical path, that are not to be tried again yet."""
    now_ms = snapshot.ctx.clock_ms()
    return {path for path, skip in snapshot.merge_skips.items() if (skip.retry_after or 0) > now_ms}


def _commit(table: OpenTable, bins: list[MergedBin], target_bytes: int, num_cooling: int) -> MergedSplits:
    """Make all merges visible together, as far as their sources are still there."""
    snapshot, cooldown_ms = table.snapshot, _cooldown_ms(table)
    skips = [skipped for result in bins for skipped in result.skipped]
    merged = [result for result in bins if result.add is not None]
    for attempts_left in reversed(range(_MAX_COMMITS)):
        snapshot = snapshot.refresh()
        live = _live(snapshot, merged)
        done = [result for result in merged if all(path in live for path in result.sources)]
        if not done and not skips:
            version = None
            break
        transaction = Transaction(snapshot.ctx, snapshot)
        now_ms = snapshot.ctx.clock_ms()
        for result in done:
            assert result.add is not None
            transaction.remove([_remove(live[path], now_ms) for path in result.sources])
            transaction.add([result.add])
            transaction.reads_paths(result.sources)
        transaction.skip_merge([_skip(snapshot, path, reason, now_ms, cooldown_ms) for path, reason in skips])
        try:
            version = transaction.commit(_operation(done, len(skips), target_bytes)).version
            break
        except DeltaConcurrentModificationException:
            if not attempts_left:
                raise
    lost = [result for result in merged if result not in done]
    _drop(table, [result.add.path for result in lost if result.add is not None])
    return MergedSplits(
        version=version,
        num_source_splits=sum(len(result.sources) for result in done),
        num_merged_splits=len(done),
        num_skipped_splits=len(skips),
        num_cooling_splits=num_cooling,
        num_dropped_bins=len(lost),
        size_bytes=sum(result.add.size for result in done if result.add is not None),
    )


def _live(snapshot: Snapshot, merged: list[MergedBin]) -> dict[str, tuple[str, dict[str, str | None], int]]:
    """Return path, partition values and size, by path, of the sources that the table still has."""
    wanted = pa.array(sorted({path for result in merged for path in result.sources}), pa.string())
    files = snapshot.files(columns=["path", "partitionValues", "size"])
    files = files.filter(pc.is_in(files.column("path"), value_set=wanted))
    rows = zip(*(files.column(name).to_pylist() for name in files.column_names), strict=True)
    return {path: (path, dict(values or ()), size) for path, values, size in rows}


def _remove(split: tuple[str, dict[str, str | None], int], now_ms: int) -> SplitRemove:
    path, values, size = split
    return SplitRemove(path, data_change=False, deletion_timestamp=now_ms, partition_values=values, size=size)


def _skip(snapshot: Snapshot, path: str, reason: str, now_ms: int, cooldown_ms: int) -> MergeSkip:
    """Return the record of a split that could not be merged, which counts the attempts."""
    before = snapshot.merge_skips.get(canonical(path))
    files = snapshot.files_named([canonical(path)], ["partitionValues", "size"]).to_pylist()
    return MergeSkip(
        path=path,
        skip_timestamp=now_ms,
        reason=reason,
        operation="merge",
        partition_values=dict(files[0]["partitionValues"] or ()) if files else None,
        size=files[0]["size"] if files else None,
        retry_after=now_ms + cooldown_ms,
        skip_count=1 if before is None else before.skip_count + 1,
    )


def _operation(done: list[MergedBin], num_skipped: int, target_bytes: int) -> Operation:
    metrics = {
        "numRemovedFiles": sum(len(result.sources) for result in done),
        "numAddedFiles": len(done),
        "numSkippedFiles": num_skipped,
    }
    return Operation("MERGE SPLITS", {"targetSize": target_bytes}, metrics)


def _drop(table: OpenTable, paths: list[str]) -> None:
    """Delete new splits that no version names."""
    places = SplitPlaces(table.uri, table.snapshot.ctx.storage_options)
    for path in paths:
        store, key = places.place(path)
        delete_data(store, [key])


def _target_bytes(target_size: int | str) -> int:
    number = target_size if type(target_size) is int else size_bytes(str(target_size))
    if number <= 0:
        raise WriteOptionError(
            f"the target size of a merge is a positive size such as 512M or 4G, not {target_size!r}."
        )
    return number


def _cooldown_ms(table: OpenTable) -> int:
    text = str(table.spark.conf.get(COOLDOWN_OPTION, str(_DEFAULT_COOLDOWN_HOURS)))
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 <= hours < float("inf"):
        raise WriteOptionError(f"{COOLDOWN_OPTION} is a number of hours, not {text!r}.")
    return round(hours * _HOUR_MS)
