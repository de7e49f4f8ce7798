"""What Headwater and deltalake do in the benchmark `checkpoint_write`: open a table and write its checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import HEADWATER, Answer, Operation, Peers
from benchmarks.log_open_operations import DELTALAKE, DELTALAKE_IMPORTS, HEADWATER_IMPORTS
from benchmarks.tables import PROJECT, open_table

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_CHECKPOINT = """
import sys
import headwater as hw
from headwater.log.delta.checkpoint.write import write_checkpoint
write_checkpoint(hw.open_log(sys.argv[1]))
"""
_ANSWER = """
import json, sys
import headwater as hw
from deltalake import DeltaTable
snapshot, table = hw.open_log(sys.argv[1]), DeltaTable(sys.argv[1])
assert snapshot.segment.checkpoint.version == snapshot.version == table.version()
assert len(table.get_add_actions()) == snapshot.num_files
print(json.dumps({"num_files": snapshot.num_files, "version": snapshot.version}))
"""


def _clone(subject: str) -> str:
    """A setup: a copy of the table that may be written to."""
    [path] = json.loads(subject)
    table = open_table(Path(path))
    return str(table.clone(Path(tempfile.mkdtemp(dir=table.path.parent, prefix=".clone-"))))


def _clone_with_our_checkpoint(subject: str) -> str:
    """A setup: the same, with a checkpoint that Headwater has written, and the next commit after it."""
    [path] = json.loads(subject)
    clone = _clone(subject)
    # Elsewhere, so that the peak of memory is that of the measured checkpoint alone.
    subprocess.run([sys.executable, "-c", _FIRST_CHECKPOINT, clone], check=True, cwd=PROJECT)
    table = open_table(Path(path))
    commit = Path(clone) / "_delta_log" / f"{table.truth.version + 1:020}.json"
    commit.write_text('{"commitInfo":{"operation":"NOTHING"}}\n')
    return clone


def _remove(clone: str) -> None:
    shutil.rmtree(Path(clone).parent)


def _headwater(clone: str) -> str:
    import headwater as hw
    from headwater.log.delta.checkpoint.write import write_checkpoint

    write_checkpoint(hw.open_log(clone))
    return clone


def _deltalake(clone: str) -> str:
    from deltalake import DeltaTable

    DeltaTable(clone).create_checkpoint()
    return clone


def _answer(clone: str) -> Answer:
    found = subprocess.run([sys.executable, "-c", _ANSWER, clone], check=True, cwd=PROJECT, capture_output=True)
    answer: Answer = json.loads(found.stdout)
    return answer


def _answer_before(clone: str) -> Answer:
    """The version that the table had before the setup added a commit."""
    answer = _answer(clone)
    return {**answer, "version": answer["version"] - 1}


def _peers(setup: Callable[[str], str], answer: Callable[[Any], Answer]) -> Peers:
    phases: dict[str, Any] = {"setup": setup, "cleanup": _remove}
    return {
        HEADWATER: Operation(HEADWATER_IMPORTS, _headwater, answer, **phases),
        DELTALAKE: Operation(DELTALAKE_IMPORTS, _deltalake, answer, **phases),
    }


OPERATIONS: dict[str, Peers] = {
    "checkpoint": _peers(_clone, _answer),
    "second-checkpoint": _peers(_clone_with_our_checkpoint, _answer_before),
}
"""For each operation, what each peer does."""
