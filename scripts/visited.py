"""Count the files of the package that one operation runs through: plan, read, append, merge, search.

    python scripts/visited.py            # counts
    python scripts/visited.py --names    # and the files, in the order in which they are first entered

A file is visited when a function of it is called (`sys.setprofile`); importing it does not count, and neither does
what executors run in other processes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater as hw

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PACKAGE = Path(hw.__file__).parent


def visited(operation: Callable[[], object]) -> list[str]:
    """The files of the package whose functions an operation calls, in order."""
    seen: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.setdefault(frame.f_code.co_filename)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        operation()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [str(Path(name).relative_to(PACKAGE)) for name in seen if name.startswith(str(PACKAGE))]


def main() -> None:
    spark = hw.session("visited")
    root = Path(tempfile.mkdtemp())
    try:
        table, source = str(root / "table"), spark.range(50, 150).selectExpr("id", "id % 7 AS part", "'new' AS text")
        rows = spark.range(100).selectExpr("id", "id % 7 AS part", "'old' AS text")
        hw.write(rows, table, partition_by="part")

        def merge() -> None:
            into = hw.DeltaTable.forPath(spark, table).alias("t").merge(source.alias("s"), "t.id = s.id")
            into.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

        logs = hw.SearchTable.create(spark, root / "logs", rows.schema, types={"text": "text"})
        logs.write(rows)
        operations: dict[str, Callable[[], object]] = {
            "plan": lambda: hw.open_log(table).files(where="part = 3 AND id > 10"),
            "read": lambda: hw.read(spark, table).where("part = 3 AND id > 10").collect(),
            "append": lambda: hw.write(rows, table, mode="append"),
            "merge": merge,
            "search": lambda: logs.search("old", filter="part = 3", limit=5).collect(),
        }
        for name, operation in operations.items():
            operation()  # what happens once in a process is not the way of an operation
            files = visited(operation)
            print(f"{name:8}{len(files)}")
            if "--names" in sys.argv:
                print("".join(f"    {file}\n" for file in files))
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
