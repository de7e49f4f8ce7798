"""Delta tables with data, for benchmarks of scans: Parquet by pyarrow, log and deletion vectors by hand.

A `ScanSpec` says everything about a table; what is true of each query on it is worked out with Arrow while the
rows are made. Data files lie in directories that plain `spark.read.parquet` can read as well (`data/`, or hive-style
`p=1/`), so all peers read the same bytes. Tables are made once and kept in the cache, as in `tables.py`.

    python -m benchmarks.scan_tables --rows 1000000 --files 10 --deleted 10
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import os
import struct
import subprocess
import sys
import tempfile
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.tables import CACHE_VARIABLE, PROJECT, TableSpec, cache_directory, digest_of_paths, make_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

GENERATOR = 1
"""Part of every cache key: raise it when the same spec gives other bytes."""
SEED = 20_240_101
TRUTH_FILE = "_scan_truth.json"
PATHS_FILE = "_scan_paths.json"
MODIFIED_MS = 1_735_689_600_000
LINKS_PER_FILE = 10_000
"""File systems allow some ten thousand names for one file."""

COLUMNS = {
    "id": "long",
    "quantity": "integer",
    "cents": "long",
    "value": "double",
    "ratio": "double",
    "name": "string",
    "category": "string",
    "code": "string",
    "ts": "timestamp",
    "flag": "boolean",
}
"""`id` ascends from file to file; all others lie at random."""
ANSWER = {
    "rows": "count(*)",
    "quantity": "sum(quantity)",
    "cents": "sum(cents)",
    "name": "max(name)",
    "value": "max(value)",
    "code": "min(code)",
}


@dataclass(frozen=True, slots=True)
class ScanSpec:
    """A table of `num_rows` rows in `num_files` files.

    Partitioned: each file is a partition, by the integer `p`. Deleted: a percentage of the rows of each file is
    in deletion vectors, at random.
    """

    num_rows: int
    num_files: int
    partitioned: bool = False
    deleted_percent: int = 0

    @property
    def name(self) -> str:
        """A directory name, different for every spec."""
        kind = "partitions" if self.partitioned else "files"
        deleted = f"-deleted-{self.deleted_percent}" if self.deleted_percent else ""
        return f"scan-{GENERATOR}-{self.num_rows}-{self.num_files}-{kind}{deleted}"

    @property
    def rows_per_file(self) -> int:
        """Files are equally long."""
        return self.num_rows // self.num_files

    @property
    def filters(self) -> dict[str, str | None]:
        """The filters of the queries on this table, by the query's name."""
        if self.partitioned:
            first = self.num_files // 10
            last = first + self.num_files // 20 - 1
            return {"partition": f"p = {self.num_files // 2}", "partitions": f"p between {first} and {last}"}
        # One per cent of all ids, around the middle of a file and so within it.
        first = self.num_rows // 2 + self.rows_per_file // 2 - self.num_rows // 200
        last = first + self.num_rows // 100 - 1
        return {
            "aggregate": None,
            "clustered": f"id between {first} and {last}",
            "unclustered": "quantity = 17 and category = 'c07'",
        }

    @property
    def schema(self) -> dict[str, str]:
        """Name and type of all columns."""
        return {**COLUMNS, **({"p": "integer"} if self.partitioned else {})}


@dataclass(frozen=True, slots=True)
class ScanTable:
    """A table in the cache."""

    path: Path
    spec: ScanSpec
    truth: dict[str, dict[str, Any]]
    """The answer of each query."""


# --- making them --------------------------------------------------------------------------------------


def make_scan_table(spec: ScanSpec, cache: Path) -> ScanTable:
    """The table of this spec, made now if the cache does not have it yet."""
    path = cache / spec.name
    if not path.exists():
        source = make_scan_table(replace(spec, deleted_percent=0), cache) if spec.deleted_percent else None
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as making:
            _build(spec, Path(making) / spec.name, source)
            (Path(making) / spec.name).rename(path)
    return ScanTable(path, spec, json.loads((path / TRUTH_FILE).read_text()))


def _build(spec: ScanSpec, path: Path, source: ScanTable | None) -> None:
    """Write the table; the data files are those of `source`, if there is one."""
    import numpy as np
    import pyarrow.parquet as pq

    (path / "_delta_log").mkdir(parents=True)
    vectors = VectorFile(path)
    adds, truths = [], []
    for i in range(spec.num_files):
        rows = _rows(spec, i)
        name = f"p={i}/part-0.parquet" if spec.partitioned else f"data/part-{i:05}.parquet"
        (path / name).parent.mkdir(exist_ok=True)
        if source:
            os.link(source.path / name, path / name)
        else:
            pq.write_table(rows, path / name, compression="snappy", row_group_size=1_000_000)
        add = {**_add(path, name, rows), "partitionValues": {"p": str(i)} if spec.partitioned else {}}
        if spec.deleted_percent:
            random = np.random.default_rng([SEED, i, spec.deleted_percent])
            count = rows.num_rows * spec.deleted_percent // 100
            deleted = np.sort(random.choice(rows.num_rows, count, replace=False))
            add["deletionVector"] = vectors.add(deleted)
            kept = np.ones(rows.num_rows, dtype=bool)
            kept[deleted] = False
            rows = rows.filter(kept)
        adds.append({"add": add})
        truths.append({query: _answer(rows, where, i) for query, where in spec.filters.items()})
    vectors.write()
    actions = [_protocol(spec), _metadata(spec), *adds]
    log = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    (path / "_delta_log" / f"{0:020}.json").write_text(log)
    truth = {query: _merged([one[query] for one in truths]) for query in spec.filters}
    (path / TRUTH_FILE).write_text(json.dumps(truth))


def _rows(spec: ScanSpec, file: int) -> pa.Table:
    """The rows of one file, without its partition value."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    count = spec.rows_per_file
    random = np.random.default_rng([SEED, file])
    categories = pa.array([f"c{i:02}" for i in range(20)])

    def numbered(prefix: str, numbers: np.ndarray, width: int) -> pa.Array:
        digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")
        return pc.binary_join_element_wise(prefix, digits, "")

    seconds = random.integers(1_600_000_000, 1_700_000_000, count)
    return pa.table(
        {
            "id": np.arange(file * count, (file + 1) * count, dtype=np.int64),
            "quantity": random.integers(0, 100, count, dtype=np.int32),
            "cents": random.integers(1, 10_000_000, count),
            "value": random.random(count).round(6),
            "ratio": random.normal(size=count),
            "name": numbered("name ", random.integers(0, 50_000, count), 5),
            "category": categories.take(pa.array(random.integers(0, 20, count))),
            "code": numbered("", random.integers(0, 10**12, count), 12),
            "ts": pa.array(seconds * 1_000_000).cast(pa.timestamp("us", "UTC")),
            "flag": random.random(count) < 0.5,
        }
    )


def _answer(rows: pa.Table, where: str | None, file: int) -> dict[str, Any]:
    """What the query gives on the rows of one file: `ANSWER`, in Arrow."""
    import pyarrow.compute as pc

    match where.split() if where else []:
        case ["id", "between", first, "and", last]:
            rows = rows.filter((pc.field("id") >= int(first)) & (pc.field("id") <= int(last)))
        case ["quantity", "=", quantity, "and", "category", "=", category]:
            rows = rows.filter((pc.field("quantity") == int(quantity)) & (pc.field("category") == category.strip("'")))
        case ["p", "=", number]:
            rows = rows if file == int(number) else rows.slice(0, 0)
        case ["p", "between", first, "and", last]:
            rows = rows if int(first) <= file <= int(last) else rows.slice(0, 0)
        case []:
            pass
        case _:
            raise ValueError(f"not a filter of these tables: {where!r}")
    return {
        "rows": rows.num_rows,
        "quantity": pc.sum(rows["quantity"]).as_py(),
        "cents": pc.sum(rows["cents"]).as_py(),
        "name": pc.max(rows["name"]).as_py(),
        "value": pc.max(rows["value"]).as_py(),
        "code": pc.min(rows["code"]).as_py(),
    }


def _merged(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer on all files, from those on each."""
    combine: dict[str, Any] = {"rows": sum, "quantity": sum, "cents": sum, "name": max, "value": max, "code": min}
    columns = {key: [answer[key] for answer in answers if answer[key] is not None] for key in combine}
    return {key: combine[key](values) for key, values in columns.items()}


# --- the log ------------------------------------------------------------------------------------------


def _protocol(spec: ScanSpec) -> dict[str, Any]:
    if not spec.deleted_percent:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    features = ["deletionVectors"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": features, "writerFeatures": features}}


def _metadata(spec: ScanSpec) -> dict[str, Any]:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in spec.schema.items()]
    return {
        "metaData": {
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, spec.name)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["p"] if spec.partitioned else [],
            "configuration": {"delta.enableDeletionVectors": "true"} if spec.deleted_percent else {},
            "createdTime": MODIFIED_MS,
        }
    }


def _add(path: Path, name: str, rows: pa.Table) -> dict[str, Any]:
    import pyarrow.compute as pc

    bounds = {c: pc.min_max(rows[c]).as_py() for c in ("id", "quantity", "cents", "name", "category", "code")}
    stats = {
        "numRecords": rows.num_rows,
        "minValues": {column: found["min"] for column, found in bounds.items()},
        "maxValues": {column: found["max"] for column, found in bounds.items()},
        "nullCount": dict.fromkeys(COLUMNS, 0),
        "tightBounds": False,
    }
    size = (path / name).stat().st_size
    facts = {"path": name, "size": size, "modificationTime": MODIFIED_MS, "dataChange": True}
    return {**facts, "stats": json.dumps(stats)}


class VectorFile:
    """One file with the deletion vectors of a table (spec: "Deletion Vector File Storage Format")."""

    def __init__(self, table: Path) -> None:
        self._id = uuid.uuid5(uuid.NAMESPACE_OID, table.name)
        self._path = table / f"deletion_vector_{self._id}.bin"
        self._content = bytearray(b"\x01")

    def add(self, rows: np.ndarray) -> dict[str, Any]:
        """Add the vector of these rows; its descriptor."""
        from pyroaring import BitMap64

        bitmap = BitMap64(rows)
        bitmap.run_optimize()
        data = struct.pack("<i", 1681511377) + bitmap.serialize()
        offset = len(self._content)
        self._content += struct.pack(">i", len(data)) + data + struct.pack(">I", binascii.crc32(data))
        return {
            "storageType": "u",
            "pathOrInlineDv": _z85(self._id.bytes),
            "offset": offset,
            "sizeInBytes": len(data),
            "cardinality": len(rows),
        }

    def write(self) -> None:
        """Write the file, unless there is no vector."""
        if len(self._content) > 1:
            self._path.write_bytes(self._content)


def _z85(data: bytes) -> str:
    """Z85 is Python's base85 with another alphabet.

    >>> _z85(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    python = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    zeromq = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return base64.b85encode(data).translate(bytes.maketrans(python, zeromq)).decode()


# --- tables for planning ------------------------------------------------------------------------------


def make_planning_table(num_files: int, cache: Path) -> Path:
    """A table of `log_open`'s with data files: all of them names of the same few, which is enough for planning.

    A file `PATHS_FILE` in it has the paths of the live files, checked against what the generator knows.
    """
    spec = TableSpec(num_files=num_files, num_partitions=min(num_files // 10, 1_000))
    path = cache / f"planning-{GENERATOR}-{spec.name}"
    if path.exists():
        return path
    import pyarrow as pa
    import pyarrow.parquet as pq

    import headwater as hw

    table = make_table(spec, cache)
    paths = hw.open_log(table.path).files(columns=["path"])["path"].to_pylist()
    if digest_of_paths(paths) != table.truth.live.digest:
        raise RuntimeError("the live paths are not those that the generator knows")
    rows = pa.table({"id": pa.array([1], pa.int64()), "value": [1.0], "name": ["a"]})
    with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as making:
        target = table.clone(Path(making))
        for directory in {name.rpartition("/")[0] for name in paths}:
            (target / directory).mkdir(parents=True, exist_ok=True)
        for i, name in enumerate(paths):
            if i % LINKS_PER_FILE == 0:
                source = target / name
                pq.write_table(rows, source)
            else:
                os.link(source, target / name)
        (target / PATHS_FILE).write_text(json.dumps([str(path / name) for name in paths]))
        target.rename(path)
    return path


def make_apart(order: dict[str, Any], cache: Path) -> Path:
    """Make a table in another process: the process that measures must stay small."""
    argv = [sys.executable, "-m", "benchmarks.scan_tables", "--cache", str(cache), "--order", json.dumps(order)]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    return Path(done.stdout.strip())


def scan_table_apart(spec: ScanSpec, cache: Path) -> ScanTable:
    """`make_scan_table` in a process of its own."""
    path = make_apart({"scan": asdict(spec)}, cache)
    return ScanTable(path, spec, json.loads((path / TRUTH_FILE).read_text()))


def planning_table_apart(num_files: int, cache: Path) -> Path:
    """`make_planning_table` in a process of its own."""
    return make_apart({"planning": num_files}, cache)


def main() -> None:
    """Make one table and print where it is."""
    parser = argparse.ArgumentParser(description="Make a Delta table with data.")
    parser.add_argument("--cache", help=f"directory of the tables (default: ${CACHE_VARIABLE})")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--partitioned", action="store_true")
    parser.add_argument("--deleted", type=int, default=0, metavar="PERCENT")
    parser.add_argument("--order", help="what to make as JSON; the other options are then ignored")
    given = parser.parse_args()
    cache = cache_directory(given.cache)
    fallback: dict[str, Any] = {"scan": asdict(ScanSpec(given.rows, given.files, given.partitioned, given.deleted))}
    order = json.loads(given.order) if given.order else fallback
    if "planning" in order:
        print(make_planning_table(order["planning"], cache))
    else:
        print(make_scan_table(ScanSpec(**order["scan"]), cache).path)


if __name__ == "__main__":
    main()
