"""What Headwater and deltalake do in the benchmark `log_open`: each the fastest way found to the same answer.

Nothing heavy is imported at the top: the harness imports what an operation names in `imports` before it takes
the time. The subject of a case is a JSON list: the path of the table, and the filters where there are some.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Command, Operation, Peers
from benchmarks.tables import digest_of_paths, open_table

if TYPE_CHECKING:
    from collections.abc import Callable

DELTALAKE = "deltalake"
HEADWATER_IMPORTS = (
    "headwater.api.open",
    "headwater.storage.*",
    "headwater.log.*",
    "headwater.features.*",
    "pyarrow.compute",
    "pyarrow.parquet",
    "sqlglot.dialects.spark",
)
DELTALAKE_IMPORTS = ("deltalake",)
DELTALAKE_ARROW_IMPORTS = ("deltalake", "pyarrow.compute")


# --- Headwater ----------------------------------------------------------------------------------------


def _open_headwater(path: str) -> Any:
    import headwater as hw

    return hw.open_log(path)


def _plan_headwater(snapshot: Any, where: str) -> Any:
    return snapshot.files(where=where, columns=["path"])


def _describe_headwater(snapshot: Any) -> Answer:
    columns = [field.name for field in snapshot.schema.fields]
    reader = snapshot.protocol.min_reader_version
    return {"version": snapshot.version, "min_reader_version": reader, "columns": columns}


def _files_headwater(files: Any) -> Answer:
    return _files(files["path"].to_pylist())


# --- deltalake ----------------------------------------------------------------------------------------


def _open_deltalake(path: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(path)


def _paths_deltalake(table: Any) -> Any:
    """All paths as an Arrow column: `file_uris` makes Python strings of them, which takes longer."""
    return table.get_add_actions().column("path")


def _in_partition_deltalake(table: Any, where: str) -> tuple[Any, list[str]]:
    return table, table.file_uris(file_pruning_predicate=where)


def _in_range_deltalake(table: Any, where: str) -> Any:
    """Prune by the statistics that deltalake has parsed: its own `file_uris` with a filter takes longer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # `pa.table` and scalars from Python numbers would import pandas here, which the peer does not deserve.
    bounds = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(struct.pack("=qq", *id_range(where)))])
    adds = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    kept = pc.and_(pc.greater_equal(adds["max.id"], bounds[0]), pc.less_equal(adds["min.id"], bounds[1]))
    return adds["path"].filter(kept)


def id_range(where: str) -> tuple[int, int]:
    """The bounds in `id >= 1 and id <= 2`.

    >>> id_range("id >= 1 and id <= 2")
    (1, 2)
    """
    words = where.split()
    if [*words[:2], *words[3:6]] != ["id", ">=", "and", "id", "<="]:
        raise ValueError(f"not a range of id: {where!r}")
    return int(words[2]), int(words[6])


def _describe_deltalake(table: Any) -> Answer:
    columns = [field.name for field in table.schema().fields]
    reader = table.protocol().min_reader_version
    return {"version": table.version(), "min_reader_version": reader, "columns": columns}


def _files_deltalake(found: tuple[Any, list[str]]) -> Answer:
    table, uris = found
    root = table.table_uri.removeprefix("file://").rstrip("/") + "/"
    return _files([uri.removeprefix("file://").removeprefix(root) for uri in uris])


def _column_deltalake(column: Any) -> Answer:
    return _files(column.to_pylist())


# --- both ---------------------------------------------------------------------------------------------


def _files(paths: list[str]) -> Answer:
    return {"num_files": len(paths), "paths": digest_of_paths(paths)}


def _used(open_: Callable[[str], Any], plan: Callable[[Any, str], Any]) -> Callable[[str], tuple[Any, str]]:
    """A setup: open the table and plan with the first filter; the second one is left to be measured."""

    def setup(subject: str) -> tuple[Any, str]:
        path, first, second = json.loads(subject)
        opened = open_(path)
        plan(opened, first)
        return opened, second

    return setup


@dataclass(frozen=True, slots=True)
class Behind:
    """An open table that is one commit behind."""

    opened: Any
    where: str
    clone: Path


def _behind(open_: Callable[[str], Any], plan: Callable[[Any, str], Any]) -> Callable[[str], Behind]:
    """A setup: open a clone of the table and use it; then a commit arrives."""

    def setup(subject: str) -> Behind:
        path, where = json.loads(subject)
        table = open_table(Path(path))
        parent = Path(tempfile.mkdtemp(dir=table.path.parent, prefix=".clone-"))
        try:
            clone = table.clone(parent)
            opened = open_(str(clone))
            plan(opened, where)
            (clone / "_delta_log" / f"{table.truth.version + 1:020}.json").write_bytes(table.next_commit())
        except BaseException:
            shutil.rmtree(parent)
            raise
        return Behind(opened, where, clone)

    return setup


def _remove_clone(state: Behind) -> None:
    shutil.rmtree(state.clone.parent)


def _refresh_headwater(state: Behind) -> Any:
    snapshot = state.opened.refresh()
    return snapshot.version, snapshot


def _refresh_deltalake(state: Behind) -> Any:
    state.opened.update_incremental()
    return state.opened.version(), state.opened


def _refreshed_headwater(found: Any) -> Answer:
    version, snapshot = found
    return {"version": version, **_files_headwater(snapshot.files(columns=["path"]))}


def _refreshed_deltalake(found: Any) -> Answer:
    version, table = found
    return {"version": version, **_column_deltalake(_paths_deltalake(table))}


# --- whole processes ----------------------------------------------------------------------------------

_SHOW_DELTALAKE = """
import json, sys
from deltalake import DeltaTable
table = DeltaTable(sys.argv[1])
columns = [field.name for field in table.schema().fields]
print(json.dumps({"version": table.version(), "protocol": list(table.protocol())[:2], "columns": columns}))
"""


def _show_headwater(subject: str) -> list[str]:
    return [str(Path(sys.executable).with_name("headwater")), "show", json.loads(subject)[0], "--json"]


def _show_deltalake(subject: str) -> list[str]:
    return [sys.executable, "-c", _SHOW_DELTALAKE, json.loads(subject)[0]]


def _import_pyarrow(_subject: str) -> list[str]:
    return [sys.executable, "-c", "import pyarrow"]


def _shown(output: str) -> Answer:
    return {"version": json.loads(output)["version"]}


# --- the table of them --------------------------------------------------------------------------------


def _headwater(run: Callable[[Any], Any], answer: Callable[[Any], Answer], **phases: Any) -> Operation:
    return Operation(HEADWATER_IMPORTS, run, answer, **{"setup": json.loads, **phases})


def _deltalake(run: Callable[[Any], Any], answer: Callable[[Any], Answer], **phases: Any) -> Operation:
    return Operation(DELTALAKE_IMPORTS, run, answer, **{"setup": json.loads, **phases})


def _deltalake_arrow(run: Callable[[Any], Any], **phases: Any) -> Operation:
    return Operation(DELTALAKE_ARROW_IMPORTS, run, _column_deltalake, **{"setup": json.loads, **phases})


_headwater_plan = _headwater(lambda s: _plan_headwater(_open_headwater(s[0]), s[1]), _files_headwater)
_headwater_second = _headwater(
    lambda s: _plan_headwater(*s), _files_headwater, setup=_used(_open_headwater, _plan_headwater)
)
_headwater_behind = {"setup": _behind(_open_headwater, _plan_headwater), "cleanup": _remove_clone}
_deltalake_behind = {"setup": _behind(_open_deltalake, _in_partition_deltalake), "cleanup": _remove_clone}

OPERATIONS: dict[str, Peers] = {
    "open": {
        HEADWATER: _headwater(lambda s: _describe_headwater(_open_headwater(s[0])), dict),
        DELTALAKE: _deltalake(lambda s: _describe_deltalake(_open_deltalake(s[0])), dict),
    },
    "paths": {
        HEADWATER: _headwater(lambda s: _open_headwater(s[0]).files(columns=["path"]), _files_headwater),
        DELTALAKE: _deltalake(lambda s: _paths_deltalake(_open_deltalake(s[0])), _column_deltalake),
    },
    "partition": {
        HEADWATER: _headwater_plan,
        DELTALAKE: _deltalake(lambda s: _in_partition_deltalake(_open_deltalake(s[0]), s[1]), _files_deltalake),
    },
    "statistics": {
        HEADWATER: _headwater_plan,
        DELTALAKE: _deltalake_arrow(lambda s: _in_range_deltalake(_open_deltalake(s[0]), s[1])),
    },
    "second-partition": {
        HEADWATER: _headwater_second,
        DELTALAKE: _deltalake(
            lambda s: _in_partition_deltalake(*s),
            _files_deltalake,
            setup=_used(_open_deltalake, _in_partition_deltalake),
        ),
    },
    "second-statistics": {
        HEADWATER: _headwater_second,
        DELTALAKE: _deltalake_arrow(
            lambda s: _in_range_deltalake(*s), setup=_used(_open_deltalake, _in_range_deltalake)
        ),
    },
    "refresh": {
        HEADWATER: _headwater(_refresh_headwater, _refreshed_headwater, **_headwater_behind),
        DELTALAKE: _deltalake(_refresh_deltalake, _refreshed_deltalake, **_deltalake_behind),
    },
    "refresh-partition": {
        HEADWATER: _headwater(
            lambda s: _plan_headwater(_refresh_headwater(s)[1], s.where),
            _files_headwater,
            **_headwater_behind,
        ),
        DELTALAKE: _deltalake(
            lambda s: _in_partition_deltalake(_refresh_deltalake(s)[1], s.where),
            _files_deltalake,
            **_deltalake_behind,
        ),
    },
    "show": {
        HEADWATER: Command(_show_headwater, _shown),
        DELTALAKE: Command(_show_deltalake, _shown),
        "`import pyarrow`": Command(_import_pyarrow, None),
    },
}
"""For each operation, what each peer does."""
