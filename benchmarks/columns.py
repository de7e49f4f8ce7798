"""Columns of synthetic data files: paths, sizes, partition values and statistics of up to millions of files.

Everything is a numpy column, drawn from generators seeded per column: the same seed gives the same table, and
no Python loop runs over files. The fields are those of the spec's `add` action and its per-file statistics.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

FIRST_DATE = "2022-01-01"
DAY_MS = 86_400_000
TASKS_PER_JOB = 200
"""Spark names the files of a job after the task: `part-00000` to `part-00199` here."""

_DATE_AT = 5
_TASK_AT = 21
_UUID_AT = 27
_PATH_TEMPLATE = b"date=0000-00-00/part-00000-00000000-0000-4000-8000-000000000000-c000.snappy.parquet"
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Files:
    """Data files, one row each, in the order in which the table received them."""

    date: np.ndarray
    """datetime64[D]: the partition value."""
    path: np.ndarray
    """One row of bytes per file; all paths have the same length."""
    size_bytes: np.ndarray
    modified_ms: np.ndarray
    num_records: np.ndarray
    id_min: np.ndarray
    id_max: np.ndarray
    value_min: np.ndarray
    value_max: np.ndarray
    value_nulls: np.ndarray
    name_min: np.ndarray
    name_max: np.ndarray
    name_nulls: np.ndarray
    ts_min_ms: np.ndarray
    ts_max_ms: np.ndarray

    def __len__(self) -> int:
        return len(self.date)

    def take(self, rows: np.ndarray | slice) -> Files:
        """The chosen files, in the order of `rows`."""
        return Files(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def followed_by(self, other: Files) -> Files:
        """These files and then the others."""
        return Files(**{f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)})

    def paths(self) -> pa.Array:
        """The paths as an Arrow string array, without a copy through Python strings."""
        return fixed_width_strings(self.path)


def synthesise_files(count: int, *, files_per_date: int, seed: int) -> Files:
    """`count` files: dates fill up one after the other, `id` and `ts` are clustered by file, the rest is not.

    Files have between 900 and 1,100 records; `id` runs on without gaps from file to file.
    """
    rng = [np.random.default_rng([seed, column]) for column in range(8)]
    index = np.arange(count, dtype=np.int64)
    date = np.datetime64(FIRST_DATE, "D") + (index // files_per_date).astype("timedelta64[D]")
    date_ms = date.astype("datetime64[ms]").astype(np.int64)
    ts_step_ms = max(DAY_MS // files_per_date, 1)
    ts_min_ms = date_ms + (index % files_per_date) * ts_step_ms
    ts_max_ms = ts_min_ms + rng[0].integers(ts_step_ms // 2 + 1, ts_step_ms + 1, count)
    num_records = rng[1].integers(900, 1101, count)
    id_end = np.cumsum(num_records)
    return Files(
        date=date,
        path=_paths(date, index % TASKS_PER_JOB, rng[2]),
        size_bytes=num_records * rng[3].integers(20_000, 120_000, count),
        modified_ms=ts_max_ms + 60_000,
        num_records=num_records,
        id_min=id_end - num_records,
        id_max=id_end - 1,
        value_min=rng[4].integers(0, 50_000, count) / 1000,
        value_max=rng[5].integers(950_000, 1_000_000, count) / 1000,
        value_nulls=rng[4].integers(0, 20, count),
        name_min=rng[6].integers(0, 2_000, count),
        name_max=rng[6].integers(998_000, 1_000_000, count),
        name_nulls=rng[7].integers(0, 5, count),
        ts_min_ms=ts_min_ms,
        ts_max_ms=ts_max_ms,
    )


def _paths(date: np.ndarray, task: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`date=2022-01-01/part-00000-<uuid>-c000.snappy.parquet` as a matrix of bytes."""
    template = np.frombuffer(_PATH_TEMPLATE, dtype=np.uint8)
    path = np.repeat(template[np.newaxis, :], len(date), axis=0)
    distinct, position = np.unique(date, return_inverse=True)
    text = np.array([str(day).encode() for day in distinct], dtype="S10")
    path[:, _DATE_AT : _DATE_AT + 10] = text.view(np.uint8).reshape(-1, 10)[position]
    for digit in range(5):
        path[:, _TASK_AT + digit] = ord("0") + task // 10 ** (4 - digit) % 10
    fixed = (8, 13, 14, 18, 19, 23)  # the dashes, the version and the variant of a UUID
    hex_at = [_UUID_AT + i for i in range(36) if i not in fixed]
    path[:, hex_at] = _HEX[rng.integers(0, 16, (len(date), len(hex_at)), dtype=np.uint8)]
    return path


def fixed_width_strings(rows: np.ndarray) -> pa.Array:
    """A matrix of UTF-8 bytes as an Arrow string array, one string per row."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def spark_hash(rows: np.ndarray) -> np.ndarray:
    """Spark's `hash()` (Murmur3, seed 42, bytes of the tail mixed one by one) of each row of bytes, as int32.

    delta-spark distributes file actions by it, and the spec demands it of multi-part checkpoints.
    """
    count, width = rows.shape
    whole = width // 4 * 4
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    tail = rows[:, whole:].view(np.int8).astype(np.int32).view(np.uint32)
    state = np.full(count, 42, dtype=np.uint32)
    for block in (words, tail):
        for column in range(block.shape[1]):
            mixed = _rotate_left(block[:, column] * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            state = _rotate_left(state ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(width)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (state ^ (state >> np.uint32(16))).view(np.int32)


def _rotate_left(values: np.ndarray, bits: int) -> np.ndarray:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def digest_of_rows(rows: np.ndarray) -> str:
    """SHA-256 of the sorted paths, one per line: what `digest_of_paths` says of the same paths as strings."""
    width = rows.shape[1]
    ordered = np.sort(np.ascontiguousarray(rows).view(f"S{width}").ravel())
    lines = np.full((len(ordered), width + 1), ord("\n"), dtype=np.uint8)
    lines[:, :width] = ordered.view(np.uint8).reshape(-1, width)
    return hashlib.sha256(lines.tobytes()).hexdigest()
