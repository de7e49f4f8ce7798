"""Merging splits: rows stay, writers go on, and what cannot be read is recorded and left alone for a while."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pytest

import headwater as hw
from headwater.spark.search import merge_splits as merging
from support.search.search_tables import append, log_rows, make_table, words_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.api.search_table import SearchTable

pytestmark = pytest.mark.spark


def files_of(table: SearchTable) -> list[Path]:
    paths = table.snapshot.files(columns=["path"]).column("path").to_pylist()
    return [Path(unquote(urlparse(path).path)) for path in paths]


def damage(path: Path) -> None:
    """Change one byte of the rows, which stand at the beginning."""
    data = bytearray(path.read_bytes())
    data[300] ^= 0xFF
    path.write_bytes(data)


def refused(start: int, end: int) -> int:
    return sum("refused" in words_of(row[6]) for row in log_rows(start, end))


def test_small_splits_of_a_partition_become_one(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=2, rows=90, partition_by="day")
    before = sorted(map(tuple, table.toDF().select("id", "day", "message").collect()), key=repr)
    splits = table.snapshot.num_files

    merged = table.merge_splits("1G")

    assert merged.num_source_splits == splits
    assert merged.num_merged_splits == table.snapshot.num_files == 4  # three days, and rows without one
    assert merged.version == table.snapshot.version == 3
    assert sorted(map(tuple, table.toDF().select("id", "day", "message").collect()), key=repr) == before
    assert table.count("refused") == refused(0, 180)
    assert table.snapshot.files(columns=["numMergeOps"]).column("numMergeOps").to_pylist() == [1] * 4
    # The past is as it was, and merging again finds nothing to do.
    assert table.count("refused", version=1) == refused(0, 90)
    assert table.merge_splits("1G").version is None


def test_a_merge_changes_no_row_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=40)
    table.merge_splits("1G")

    newest = table.history(1).first()

    assert newest is not None
    assert newest.operation == "MERGE SPLITS"
    text = (tmp_path / "logs" / "_transaction_log" / f"{2:020}.json").read_text()
    assert text.count('"dataChange":false') == 3  # two removes, one add


def test_bins_are_packed_up_to_the_target_size_and_a_limit(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=3, rows=40)  # six splits of about the same size
    sizes = table.snapshot.files(columns=["size"]).column("size").to_pylist()

    merged = table.merge_splits(max(sizes) * 2 + max(sizes) // 2, max_dest_splits=2)

    assert (merged.num_source_splits, merged.num_merged_splits) == (4, 2)
    assert table.snapshot.num_files == 4
    assert table.merge_splits(min(sizes)).version is None  # nothing is smaller than that
    with pytest.raises(hw.WriteOptionError, match="target size"):
        table.merge_splits("large")


def test_only_the_partitions_that_are_named_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(spark, tmp_path / "logs", writes=1, rows=60, partition_by="day")
    merged = table.merge_splits("1G", where="day = '2024-03-02'")
    assert (merged.num_source_splits, merged.num_merged_splits) == (2, 1)
    with pytest.raises(hw.FilterError, match="level is no partition column"):
        table.merge_splits("1G", where="level = 'ERROR'")


def test_a_damaged_split_is_skipped_recorded_and_tried_again_after_its_cool_down(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make_table(spark, tmp_path / "logs", writes=2, rows=40)
    victim = files_of(table)[0]
    damage(victim)

    first = table.merge_splits("1G")

    assert (first.num_source_splits, first.num_merged_splits, first.num_skipped_splits) == (3, 1, 1)
    (skip,) = table.snapshot.merge_skips.values()
    assert Path(unquote(urlparse(skip.path).path)) == victim
    assert victim.name in skip.reason
    assert skip.operation == "merge"
    assert skip.size == os.path.getsize(victim)
    assert skip.skip_count == 1
    assert skip.retry_after is not None
    assert skip.retry_after - skip.skip_timestamp == 24 * 3_600_000
    # While it cools down nobody tries again ...
    append(spark, table, 80, 90)
    cooling = table.merge_splits("1G")
    assert (cooling.num_cooling_splits, cooling.num_skipped_splits) == (1, 0)
    # ... afterwards somebody does, and it counts.
    spark.conf.set(merging.COOLDOWN_OPTION, "0")
    try:
        table.merge_splits("1G", max_dest_splits=1)
        append(spark, table, 90, 100)
        again = after_cool_down(table)
    finally:
        spark.conf.unset(merging.COOLDOWN_OPTION)
    assert again.num_skipped_splits == 1
    (skip,) = table.snapshot.merge_skips.values()
    assert skip.skip_count == 2
    with pytest.raises(hw.CorruptSplitError, match=victim.name):
        table.toDF().collect()


def after_cool_down(table: SearchTable) -> Any:
    """A merge two days later."""
    from dataclasses import replace

    opened = table._open()
    ctx = opened.snapshot.ctx
    later = replace(ctx, clock_ms=lambda: ctx.clock_ms() + 48 * 3_600_000, cache=None)
    snapshot = replace(opened.snapshot, ctx=later)
    return merging.merge_splits(replace(opened, snapshot=snapshot), "1G")


def test_appends_during_a_merge_are_unharmed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(spark, tmp_path / "logs", writes=2, rows=40)
    commit = merging._commit

    def append_first(*arguments: Any) -> Any:
        append(spark, table, 80, 120)
        return commit(*arguments)

    monkeypatch.setattr(merging, "_commit", append_first)
    merged = table.merge_splits("1G")

    assert merged.num_merged_splits == 1
    assert table.snapshot.num_files == 3
    assert sorted(row.id for row in table.toDF().select("id").collect()) == list(range(120))
    assert table.count("refused") == refused(0, 120)


def test_a_merge_whose_splits_are_gone_by_then_is_dropped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(spark, tmp_path / "logs", writes=2, rows=40)
    commit = merging._commit

    def overwrite_first(*arguments: Any) -> Any:
        table.write(spark.createDataFrame(log_rows(500, 510), table.toDF().schema).coalesce(1), "overwrite")
        return commit(*arguments)

    monkeypatch.setattr(merging, "_commit", overwrite_first)
    merged = table.merge_splits("1G")

    assert (merged.version, merged.num_merged_splits, merged.num_dropped_bins) == (None, 0, 1)
    assert sorted(row.id for row in table.toDF().select("id").collect()) == list(range(500, 510))
    assert len(list((tmp_path / "logs").glob("*.split"))) == 5  # four old ones, one new one, none of the merge
