"""Rows of a file get new values in some columns: those are written, and all other bytes are taken over."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import headwater as hw
from headwater.errors import UnreadableInPythonError
from headwater.features.definition import TableDefinition
from headwater.log.schema import STRING, StructField, StructType
from headwater.parquet.plan import plan_files
from headwater.parquet.splice import columns as column_files
from headwater.parquet.splice.columns import ColumnWriter, OldFile, plans_of_columns
from headwater.parquet.stats import changed_statistics
from headwater.spark.dml.target import write_target
from support.tables.column_tables import SCHEMA, Table, replaced
from support.tables.parquet_files import NEW, OLD, TYPES, WRITERS, by_pyarrow, by_readers, column, read, rows


def pages(file: bytes) -> dict[tuple[int, str], bytes]:
    """The bytes of each column of each row group."""
    found = {}
    metadata = pq.read_metadata(io.BytesIO(file))
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            found[group, chunk.path_in_schema] = file[start : start + chunk.total_compressed_size]
    return found


POSITIONS = {
    "one row": [200],
    "the first and the last": [0, 299],
    "one row group": list(range(128, 256)),
    "all rows": list(range(300)),
    "every third": list(range(0, 300, 3)),
}


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
@pytest.mark.parametrize("name", TYPES)
def test_rows_get_new_values_and_others_keep_theirs(name: str, positions: list[int], tmp_path: Path) -> None:
    table, file = Table(tmp_path), WRITERS["defaults"](OLD, tmp_path)
    new = {name: column(name, NEW, len(positions))}

    changed = table.write(file, positions, new)

    expected = replaced(OLD, positions, new)
    assert changed is not None
    assert (changed.columns, changed.num_rows) == ([name], 300)
    assert by_readers(table.read(changed), tmp_path) == {"pyarrow": expected, "DuckDB": expected}


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_every_writer_get_new_values(writer: str, tmp_path: Path) -> None:
    table, file = Table(tmp_path), WRITERS[writer](OLD, tmp_path)
    positions = [0, 1, 5, 8, 100]
    new = {name: column(name, NEW, len(positions)) for name in TYPES}
    expected = replaced(read(file), positions, new)
    assert rows(read(table.read(table.write(file, positions, new)))) == expected


def test_only_columns_that_change_are_written(tmp_path: Path) -> None:
    table = Table(tmp_path)
    file = WRITERS["page index"](OLD, tmp_path)
    positions = [3, 130, 299]
    plain = [name for name, type_ in TYPES.items() if not pa.types.is_nested(type_)]
    new = {name: OLD.column(name).take(pa.array(positions)).combine_chunks() for name in plain}
    new["day"] = pa.array([dt.date(2000, 1, day) for day in (1, 2, 3)])

    changed = table.write(file, positions, new)

    assert changed is not None
    assert changed.columns == ["day"]
    before, after = pages(file), pages(table.read(changed))
    assert before.keys() == after.keys()
    assert {key for key, data in after.items() if data != before[key]} == {(group, "day") for group in range(3)}


def test_columns_that_a_file_lacks_are_added_to_it(tmp_path: Path) -> None:
    held = OLD.select(["id", "pair", "text"])
    table, file = Table(tmp_path), by_pyarrow()(held, tmp_path)
    positions = [1, 127, 128, 290]
    new = {name: column(name, NEW, 4) for name in ("text", "number", "many")}

    changed = table.write(file, positions, new)

    assert changed is not None
    assert changed.columns == ["text", "number", "many"]
    expected = replaced(held, positions, new)
    assert by_readers(table.read(changed), tmp_path) == {"pyarrow": expected, "DuckDB": expected}


def test_columns_of_an_older_schema_become_those_of_now(tmp_path: Path) -> None:
    """Wider types, fields that were added, names in other letters."""
    before = pa.schema([("ID", pa.int32()), ("Pair", pa.struct([("x", pa.int16())])), ("number", pa.float32())])
    held = pa.table([[1, None, 3], [{"x": 1}, None, {"x": 3}], [0.5, -0.0, None]], before)
    table, file = Table(tmp_path), by_pyarrow(row_group_size=2)(held, tmp_path)
    new = {
        "id": pa.array([2**40]),
        "number": pa.array([0.1]),
        "pair": pa.array([{"x": 2**20, "y": "b"}], TYPES["pair"]),
    }

    found = read(table.read(table.write(file, [2], new)))

    assert found.schema.types == [TYPES["id"], TYPES["pair"], TYPES["number"]]
    assert found.column_names == ["id", "pair", "number"]
    assert [list(row.values()) for row in found.to_pylist()] == [
        [1, {"x": 1, "y": None}, 0.5],
        [None, None, -0.0],
        [2**40, {"x": 2**20, "y": "b"}, 0.1],
    ]
    assert table.write(file, [0], {"id": pa.array([1])}) is None


PAIR = pa.struct([("x", pa.int32()), ("y", pa.string())])


def mapped(name: str, number: int, type_: Any) -> dict[str, Any]:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": type_, "nullable": True, "metadata": keys}


def numbered(name: str, number: int, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})


def ids(fields: Iterable[pa.Field]) -> list[tuple[str, int]]:
    return [(field.name, int(field.metadata[b"PARQUET:field_id"])) for field in fields]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_keep_their_ids_and_get_their_names(mode: str, tmp_path: Path) -> None:
    below = {"type": "struct", "fields": [mapped("x", 3, "integer"), mapped("y", 4, "string")]}
    fields = [mapped("number", 1, "long"), mapped("pair", 2, below), mapped("late", 5, "string")]
    table = Table(tmp_path, StructType.from_json({"type": "struct", "fields": fields}), mapping_mode=mode)
    first, second = ("col-1", "col-2") if mode == "name" else ("any", "other")  # names in files mean nothing under ids
    inner = pa.struct([numbered("col-3", 3, pa.int32()), numbered("col-4", 4, pa.string())])
    schema = pa.schema([numbered(first, 1, pa.int64()), numbered(second, 2, inner)])
    old = pa.table([[1, 2, 3], [{"col-3": 1, "col-4": "a"}, None, {"col-3": 3, "col-4": "c"}]], schema)
    file = by_pyarrow()(old, tmp_path)

    numbers = table.write(file, [1], {"number": pa.array([7])})
    pairs = table.write(file, [1], {"pair": pa.array([{"x": 9, "y": None}], PAIR)})
    late = table.write(file, [1], {"late": pa.array(["new"])})

    changed = [one for one in (numbers, pairs, late) if one is not None]
    assert [one.columns for one in changed] == [["col-1"], ["col-2"], ["col-5"]]
    found = [read(table.read(one)) for one in changed]
    assert [ids(one.schema) for one in found] == [
        [("col-1", 1), (second, 2)],
        [(first, 1), ("col-2", 2)],
        [(first, 1), (second, 2), ("col-5", 5)],
    ]
    assert all(ids(one.schema.field(1).type.fields) == [("col-3", 3), ("col-4", 4)] for one in found)
    assert found[0].column(0).to_pylist() == [1, 7, 3]
    assert found[1].column(1).to_pylist()[1:] == [{"col-3": 9, "col-4": None}, {"col-3": 3, "col-4": "c"}]
    assert found[2].column(2).to_pylist() == [None, "new", None]


def test_new_files_are_where_files_of_their_partition_are(tmp_path: Path) -> None:
    table = Table(tmp_path, StructType([*SCHEMA.fields, StructField("p", STRING)]), partition_columns=("p",))
    old = table.old(by_pyarrow()(OLD, tmp_path), p="a b/c")
    changed = table.writer(["id"]).write(old, np.array([0]), pa.RecordBatch.from_pydict({"id": [7]}))
    assert changed is not None
    assert changed.file.partition_values == {"p": "a b/c"}
    assert changed.file.key.startswith("p=a b%2Fc/part-00000-")


def test_statistics_are_those_that_delta_rs_gives_to_such_rows(tmp_path: Path) -> None:
    held = OLD.select(["id", "text", "small", "pair"])
    write_deltalake(tmp_path / "t", held)
    log = hw.open_log(tmp_path / "t")
    plan = plan_files(write_target(log.ctx, TableDefinition(log.configuration), {}))
    [add] = log.files(columns=["path", "size", "stats"]).to_pylist()
    old = OldFile(f"file:{tmp_path}/t/{add['path']}", add["size"], {})
    new = {"small": pa.array([-3, None], pa.int16()), "pair": pa.array([None, {"x": 99, "y": "zz"}], TYPES["pair"])}

    writer = ColumnWriter(plan, plans_of_columns(plan, list(new)), "none", 0)
    changed = writer.write(old, np.array([0, 4]), pa.RecordBatch.from_pydict(new))

    assert changed is not None
    rewritten = pq.read_table(tmp_path / "t" / changed.file.key)
    write_deltalake(tmp_path / "expected", rewritten)
    [expected] = hw.open_log(tmp_path / "expected").files(columns=["stats"]).column("stats").to_pylist()
    found = changed_statistics(add["stats"], changed.file.stats, changed.columns)
    assert found is not None
    assert json.loads(found) == {**json.loads(expected), "tightBounds": True}


def test_a_table_without_statistics_gets_none(tmp_path: Path) -> None:
    table = Table(tmp_path, statistics=False)
    changed = table.write(by_pyarrow()(OLD, tmp_path), [0], {"id": pa.array([7])})
    assert changed is not None
    assert changed.file.stats is None


def test_columns_of_large_files_are_kept_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def noted(prefix: str) -> TemporaryDirectory[str]:
        directory = TemporaryDirectory(prefix=prefix)
        made.append(Path(directory.name))
        return directory

    monkeypatch.setattr(column_files, "_MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(column_files, "TemporaryDirectory", noted)
    table, file = Table(tmp_path), by_pyarrow()(OLD, tmp_path)
    new = {name: column(name, NEW, 2) for name in TYPES}

    found = table.read(table.write(file, [7, 200], new))

    assert rows(read(found)) == replaced(OLD, [7, 200], new)
    assert len(made) == len(new)
    assert not any(directory.exists() for directory in made)


def test_an_attempt_that_failed_leaves_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    old, writer = table.old(by_pyarrow()(OLD, tmp_path)), table.writer(["id"])
    for number in (7, 8):
        writer.write(old, np.array([0]), pa.RecordBatch.from_pydict({"id": [number]}))
    assert len(table.files()) == 3
    writer.abandon()
    assert table.files() == {"old.parquet"}


@pytest.mark.parametrize("note", [{"org.apache.spark.version": "3.0.1"}, {"org.apache.spark.legacyDateTime": ""}])
def test_files_of_the_old_calendar_are_left_to_spark(note: dict[str, str], tmp_path: Path) -> None:
    table = Table(tmp_path)
    file = by_pyarrow()(OLD.replace_schema_metadata(note), tmp_path)
    with pytest.raises(UnreadableInPythonError, match="calendar"):
        table.write(file, [0], {"id": pa.array([7])})


def test_files_that_cannot_be_spliced_are_left_to_spark(tmp_path: Path) -> None:
    """Under ids, a column of this file has the name that another one would get."""
    schema = StructType.from_json({"type": "struct", "fields": [mapped("a", 1, "long"), mapped("b", 9, "long")]})
    table = Table(tmp_path, schema, mapping_mode="id")
    file = by_pyarrow()(pa.table([[5]], pa.schema([numbered("col-1", 9, pa.int64())])), tmp_path)
    with pytest.raises(UnreadableInPythonError, match=r"old\.parquet.*same name"):
        table.write(file, [0], {"a": pa.array([7])})


def test_columns_that_are_not_the_tables_stay_behind(tmp_path: Path) -> None:
    """Row tracking may have kept commit versions in one of them, which rows with new values must not keep."""
    table = Table(tmp_path, StructType.from_arrow(pa.schema([("id", pa.int64()), ("text", pa.string())])))
    held = pa.table({"id": [1, 2], "_row-version": [3, 4], "text": ["a", "b"], "gone": [None, 1.5]})
    changed = table.write(by_pyarrow()(held, tmp_path), [1], {"text": pa.array(["c"])})
    found = pq.read_table(io.BytesIO(table.read(changed)))
    assert found.to_pydict() == {"id": [1, 2], "text": ["a", "c"]}


def test_a_file_that_a_scan_refuses_is_not_changed(tmp_path: Path) -> None:
    """Also if the column that contradicts the schema is not the one that gets new values."""
    table = Table(tmp_path, StructType.from_arrow(pa.schema([("id", pa.int64()), ("day", pa.date32())])))
    held = pa.table({"id": [1], "day": pa.array([0], pa.timestamp("us"))})
    with pytest.raises(UnreadableInPythonError, match=r"old\.parquet.*column day as timestamp"):
        table.write(by_pyarrow()(held, tmp_path), [0], {"id": pa.array([7])})
    assert table.files() == {"old.parquet"}


def test_files_that_are_not_on_a_disk_are_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInPythonError, match="not on a disk"):
        Table(tmp_path).writer(["id"]).write(
            OldFile("s3://bucket/f.parquet", 100, {}), np.array([0]), pa.RecordBatch.from_pydict({"id": [7]})
        )
