"""Building a synthetic table: its history of commits, its checkpoint, its checksums and its truth.

The history is planned first, as row numbers of files; commits, checkpoint and truth are then written from the
same plan, so what the truth says does not come from any reader of the log.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.actions import CREATED_MS, add_lines, metadata_action, protocol_action, remove_lines
from benchmarks.checkpoints import CheckpointContent, write_classic, write_multi_part, write_v2
from benchmarks.columns import Files, digest_of_rows, synthesise_files
from benchmarks.tables import NEXT_COMMIT_FILE, TRUTH_FILE, FileSet, Selection, TableSpec, Truth

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT_VERSION = 1_000
COMMITS_WITHOUT_CHECKPOINT = 1_000
TAIL_ADDS = 10
"""Files that one commit after the checkpoint adds."""
TAIL_OLD_REMOVES = 5
"""Files of the checkpoint that every third commit after it removes."""
FILES_PER_PART = 100_000
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, as row numbers of files."""

    version: int
    adds: np.ndarray
    removes: np.ndarray

    @property
    def modified_ms(self) -> int:
        """When the commit file says it was written: a minute after the commit before it."""
        return CREATED_MS + self.version * MINUTE_MS


def build_table(spec: TableSpec, path: Path) -> None:
    """Write the table of this spec into the new directory `path`."""
    commits = plan_commits(spec)
    count = int(max(commit.adds.max() for commit in commits)) + 1
    files = synthesise_files(count, files_per_date=-(-spec.num_files // spec.num_partitions), seed=spec.seed)
    log = path / "_delta_log"
    log.mkdir(parents=True)
    v2 = spec.layout == "v2"
    protocol, metadata = protocol_action(v2_checkpoints=v2), metadata_action(spec.stats, v2_checkpoints=v2)
    *made, upcoming = commits
    for commit in made:
        first = [{"protocol": protocol}, {"metaData": metadata}] if commit.version == 0 else []
        _write_commit(log / f"{commit.version:020}.json", commit, files, first)
    live = np.zeros(count, dtype=bool)
    if spec.layout != "commits":
        live[: spec.num_files] = True
        _write_checkpoint(spec, log, files, [{"protocol": protocol}, {"metaData": metadata}])
    _write_commit(path / NEXT_COMMIT_FILE, upcoming, files, [])
    for commit in made:
        live[commit.adds], live[commit.removes] = True, False
        if spec.checksums:
            _write_checksum(log, commit, files, live, protocol, metadata)
    known = {"spec": asdict(spec), "truth": asdict(_truth(spec, files, live, commits))}
    (path / TRUTH_FILE).write_text(json.dumps(known, indent=1))


def plan_commits(spec: TableSpec) -> list[Commit]:
    """All commits whose files are in the log, and last the one that is kept back for refreshing.

    Every third commit, and the last one, also removes: a file of the commit before it, and some older ones.
    """
    checkpointed = spec.layout != "commits"
    if checkpointed:
        # The commit of the checkpoint's own version is still there; the checkpoint already holds its files.
        first, count, size = CHECKPOINT_VERSION, spec.tail_commits + 2, TAIL_ADDS
        start = spec.num_files - size
    else:
        first, count, size, start = (
            0,
            COMMITS_WITHOUT_CHECKPOINT + 1,
            spec.num_files // COMMITS_WITHOUT_CHECKPOINT,
            0,
        )
    old = np.random.default_rng([spec.seed, 200]).permutation(start)
    commits: list[Commit] = []
    for number in range(count):
        adds = np.arange(start + number * size, start + (number + 1) * size)
        removes = np.zeros(0, dtype=np.int64)
        if number % 3 == 2 or number == count - 1:
            if checkpointed:
                older = old[number // 3 * TAIL_OLD_REMOVES : (number // 3 + 1) * TAIL_OLD_REMOVES]
            else:
                older = commits[number // 2].adds[-1:]
            removes = np.append(older, adds[0] - size)
        commits.append(Commit(first + number, adds, removes))
    return commits


def _write_commit(path: Path, commit: Commit, files: Files, first: list[dict[str, Any]]) -> None:
    info = {
        "timestamp": commit.modified_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": '["date"]'},
        "isolationLevel": "Serializable",
        "isBlindAppend": len(commit.removes) == 0,
        "operationMetrics": {"numFiles": str(len(commit.adds))},
        "engineInfo": "headwater-benchmarks",
    }
    lines = [json.dumps(action, separators=(",", ":")) for action in ({"commitInfo": info}, *first)]
    lines += remove_lines(files.take(commit.removes))
    lines += add_lines(files.take(commit.adds))
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, ns=(commit.modified_ms * 1_000_000,) * 2)


def _write_checkpoint(spec: TableSpec, log: Path, files: Files, actions: list[dict[str, Any]]) -> None:
    tombstones = synthesise_files(
        max(spec.num_files // 100, 1),
        files_per_date=-(-spec.num_files // spec.num_partitions),
        seed=spec.seed + 1,
    )
    content = CheckpointContent(
        version=CHECKPOINT_VERSION,
        files=files.take(slice(0, spec.num_files)).followed_by(tombstones),
        num_adds=spec.num_files,
        non_file_actions=actions,
        stats=spec.stats,
        order=spec.order,
        row_group_rows=spec.row_group_rows,
        modified_ms=CREATED_MS + CHECKPOINT_VERSION * MINUTE_MS,
    )
    parts = max(-(-spec.num_files // FILES_PER_PART), 2)
    if spec.layout == "classic":
        write_classic(log, content)
    elif spec.layout == "multi-part":
        write_multi_part(log, content, parts)
    else:
        write_v2(log, content, parts, spec.seed)


def _write_checksum(
    log: Path,
    commit: Commit,
    files: Files,
    live: np.ndarray,
    protocol: dict[str, Any],
    metadata: dict[str, Any],
) -> None:
    checksum = {
        "tableSizeBytes": int(files.size_bytes[live].sum()),
        "numFiles": int(live.sum()),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": metadata,
        "protocol": protocol,
    }
    path = log / f"{commit.version:020}.crc"
    path.write_text(json.dumps(checksum, separators=(",", ":")))
    os.utime(path, ns=(commit.modified_ms * 1_000_000,) * 2)


def _truth(spec: TableSpec, files: Files, live: np.ndarray, commits: list[Commit]) -> Truth:
    *made, upcoming = commits
    # Filters go where a file has been removed: a reader that forgets the newest commits is found out.
    removed = np.concatenate([commit.removes for commit in made])
    width = max(spec.num_files // 1_000, 1)
    next_live = live.copy()
    next_live[upcoming.adds], next_live[upcoming.removes] = True, False
    return Truth(
        version=made[-1].version,
        columns=["id", "value", "name", "ts", "date"],
        live=_file_set(files, live),
        by_partition=[_in_partition(files, live, removed[at]) for at in (0, len(removed) // 2)],
        by_statistics=[_in_range(files, live, removed[len(removed) * k // 4], width) for k in (1, 3)],
        next_live=_file_set(files, next_live),
        next_by_partition=_in_partition(files, next_live, upcoming.removes[0]),
    )


def _in_partition(files: Files, live: np.ndarray, row: int) -> Selection:
    date = files.date[row]
    return Selection(f"date = '{date}'", _file_set(files, live & (files.date == date)))


def _in_range(files: Files, live: np.ndarray, row: int, width: int) -> Selection:
    low, high = files.id_min[row], files.id_max[min(row + width, len(files) - 1)]
    chosen = live & (files.id_max >= low) & (files.id_min <= high)
    return Selection(f"id >= {low} and id <= {high}", _file_set(files, chosen))


def _file_set(files: Files, chosen: np.ndarray) -> FileSet:
    return FileSet(
        num_files=int(chosen.sum()),
        num_records=int(files.num_records[chosen].sum()),
        size_bytes=int(files.size_bytes[chosen].sum()),
        digest=digest_of_rows(files.path[chosen]),
    )
