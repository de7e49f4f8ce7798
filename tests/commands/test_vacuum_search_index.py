"""VACUUM and the search index of a table: splits go with their data files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.commands.alter.properties import drop_search_index, set_search_index
from headwater.log.context import LogContext, now_ms
from headwater.log.opening import open_snapshot
from headwater.search.delta_index import define, fingerprint_of
from support.commands import vacuum
from support.tables.local_tables import commit, keys, later, new_table, put


@pytest.fixture
def ctx(tmp_path: Path) -> LogContext:
    """A table with a live file, a file that was removed, and splits of both."""
    ctx = new_table(tmp_path / "t", partition_by=("p",))
    put(ctx, "p=1/live.parquet", "p=2/gone.parquet")
    commit(ctx, add=("p=1/live.parquet", "p=2/gone.parquet"))
    set_search_index(open_snapshot(ctx), define(open_snapshot(ctx), {"_q": "text"}))
    put(ctx, *(split(ctx, name) for name in ("p=1/live.parquet.4", "p=2/gone.parquet.4", "p=1/live.parquet.5")))
    put(ctx, "_search_index/older0000definition/p=1/live.parquet.4.split", "_other/hidden")
    commit(ctx, remove=("p=2/gone.parquet",))
    return ctx


def split(ctx: LogContext, name: str) -> str:
    return f"_search_index/{fingerprint_of(open_snapshot(ctx))}/{name}.split"


def test_splits_of_files_that_no_version_needs_are_deleted(ctx: LogContext) -> None:
    vacuum(later(ctx))

    assert keys(ctx) == {"p=1/live.parquet", split(ctx, "p=1/live.parquet.4"), "_other/hidden"}
    left = [path.relative_to(Path(ctx.uri.removeprefix("file://"))) for path in _directories(ctx, "_search_index")]
    assert sorted(map(str, left)) == sorted(
        ["_search_index", f"_search_index/{_fingerprint(ctx)}", f"_search_index/{_fingerprint(ctx)}/p=1"]
    )


def test_a_dry_run_names_them_and_deletes_nothing(ctx: LogContext) -> None:
    before = keys(ctx)

    found = vacuum(later(ctx), dry_run=True)

    assert keys(ctx) == before
    named = {path.partition("/t/")[2] for path in found.paths()}
    assert {split(ctx, "p=2/gone.parquet.4"), split(ctx, "p=1/live.parquet.5")} <= named
    assert split(ctx, "p=1/live.parquet.4") not in named


def test_splits_of_files_within_the_retention_stay(ctx: LogContext) -> None:
    vacuum(ctx, retention_hours=0, enforce_retention=False)  # everything is younger than this very moment

    assert split(ctx, "p=2/gone.parquet.4") not in keys(ctx)
    assert split(ctx, "p=1/live.parquet.4") in keys(ctx)


def test_splits_of_removed_files_stay_as_long_as_the_files(ctx: LogContext) -> None:
    before = keys(ctx)

    vacuum(later(ctx, days=3))

    assert keys(ctx) == before


def test_an_index_that_was_dropped_goes_as_a_whole(ctx: LogContext, tmp_path: Path) -> None:
    drop_search_index(open_snapshot(ctx))

    vacuum(later(ctx))

    assert keys(ctx) == {"p=1/live.parquet", "_other/hidden"}
    assert not (tmp_path / "t" / "_search_index").exists()


def test_an_inventory_tells_of_splits_too(ctx: LogContext) -> None:
    names = sorted(keys(ctx))
    inventory = pa.table(
        {
            "path": [f"{ctx.uri.removeprefix('file://')}/{name}" for name in names],
            "length": pa.array([4] * len(names), pa.int64()),
            "isDir": [False] * len(names),
            "modificationTime": pa.array([now_ms()] * len(names), pa.int64()),
        }
    )

    vacuum(later(ctx), inventory=inventory)

    assert keys(ctx) == {"p=1/live.parquet", split(ctx, "p=1/live.parquet.4"), "_other/hidden"}


def _fingerprint(ctx: LogContext) -> str | None:
    return fingerprint_of(open_snapshot(ctx))


def _directories(ctx: LogContext, name: str) -> list[Path]:
    root = Path(ctx.uri.removeprefix("file://")) / name
    return [root, *(path for path in root.rglob("*") if path.is_dir())]
