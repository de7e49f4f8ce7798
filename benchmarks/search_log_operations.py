"""What is measured in the benchmark `search_log`: the same table opened from a checkpoint, or from all its versions.

The subject of a case is a JSON list: the table with checkpoints, the one without, and how many milliseconds the store
takes for a request. As a program it makes such a table.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Operation, Peers

if TYPE_CHECKING:
    from collections.abc import Callable

WITHOUT_CHECKPOINTS = "without checkpoints"
SPLITS_PER_VERSION = 4
IMPORTS = ("headwater.storage.*", "headwater.log.*", "headwater.search.table_log", "headwater.search.table_log")
OPTIONS = {"spark.indextables.transaction.cache.enabled": "false"}


class FarStore:
    """A store that takes its time for every request."""

    def __init__(self, inner: Any, request_s: float) -> None:
        self._inner = inner
        self._request_s = request_s

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._inner, name)
        return partial(self._later, method) if callable(method) else method

    def _later(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        time.sleep(self._request_s)
        return method(*args, **named)


def _context(path: str, request_ms: int) -> Any:
    from headwater.search.table_log import ParallelReads, search_context
    from headwater.storage import open_store

    store = open_store(path)
    far = FarStore(store, request_ms / 1_000) if request_ms else store
    return search_context(ParallelReads(far, parallelism=8, timeout_s=60))  # type: ignore[arg-type]


def _opened(ctx: Any) -> Any:
    from headwater.log.opening import open_snapshot

    snapshot = open_snapshot(ctx)
    return snapshot, snapshot.files(columns=["path", "size"])


def _answer(found: Any) -> Answer:
    snapshot, files = found
    return {"version": snapshot.version, "num_files": files.num_rows}


def _setup(which: int, subject: str) -> Any:
    *paths, request_ms = json.loads(subject)
    return _context(paths[which], request_ms)


OPERATIONS: dict[str, Peers] = {
    "open": {
        HEADWATER: Operation((*IMPORTS, "pyarrow.compute"), _opened, _answer, partial(_setup, 0)),
        WITHOUT_CHECKPOINTS: Operation((*IMPORTS, "pyarrow.compute"), _opened, _answer, partial(_setup, 1)),
    }
}


def make_table(path: Path, versions: int, interval: int) -> None:
    """Make a search table with a number of versions, and checkpoints at an interval."""
    from headwater.log.commit.draft import Operation as Did
    from headwater.log.commit.transaction import Transaction
    from headwater.log.indextables.actions import SplitAdd
    from headwater.log.schema import LONG, STRING, StructField, StructType
    from headwater.search.table_log import create_search_log, open_search_log

    making = path.with_name(path.name + ".making")
    options = {"spark.indextables.checkpoint.interval": str(interval), **OPTIONS}
    schema = StructType([StructField("id", LONG), StructField("message", STRING)])
    create_search_log(making, schema, options=options)
    snapshot = open_search_log(making, options=options)
    for version in range(1, versions + 1):
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.add(
            SplitAdd(
                f"{making.as_uri()}/part-{version:05}-{number}.split",
                1_048_576,
                modification_time=1_700_000_000_000,
                num_records=1_000,
                min_values={"id": str(version * 1_000), "message": "a message"},
                max_values={"id": str(version * 1_000 + 999), "message": "the last message"},
                footer_start_offset=1_040_000,
                footer_end_offset=1_048_576,
                hotcache_start_offset=0,
                hotcache_length=8_192,
                has_footer_offsets=True,
                doc_mapping_json='{"fields":[{"name":"id","type":"i64"},{"name":"message","type":"text"}]}',
                uncompressed_size_bytes=2_097_152,
            )
            for number in range(SPLITS_PER_VERSION)
        )
        snapshot = transaction.commit(Did("WRITE", {"mode": "Append"})).snapshot
    making.rename(path)


if __name__ == "__main__":
    make_table(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
