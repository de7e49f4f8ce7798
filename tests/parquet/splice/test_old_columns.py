"""Which values of a file's column differ from new ones, to the last bit: only those are a reason to write it again."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.schema import StructType
from headwater.parquet.splice import columns as old_columns
from support.tables.column_tables import Table, replaced
from support.tables.parquet_files import NAN, NEW, OLD, TYPES, VALUES, WRITERS, by_pyarrow, column, read, rows


@pytest.mark.parametrize("writer", ["defaults", "no dictionary", "odd row groups", "DuckDB"])
def test_nothing_is_written_where_rows_have_the_values_already(writer: str, tmp_path: Path) -> None:
    table, file = Table(tmp_path), WRITERS[writer](OLD, tmp_path)
    positions = list(range(0, 100, 7))
    held = read(file).take(pa.array(positions)).combine_chunks()
    same = {name: held.column(name).chunk(0) for name, type_ in TYPES.items() if not pa.types.is_nested(type_)}
    assert table.write(file, positions, same) is None
    assert table.files() <= {"old.parquet", "duck"}


def test_texts_are_compared_with_and_without_a_dictionary(tmp_path: Path) -> None:
    """Long texts that repeat are read as numbers of a dictionary."""
    long = pa.table({"text": [f"{number % 3}{'x' * 50}" for number in range(300)]})
    table = Table(tmp_path, StructType.from_arrow(long.schema))
    for options in ({"use_dictionary": True}, {"use_dictionary": False}, {"dictionary_pagesize_limit": 60}):
        file = by_pyarrow(**options)(long, tmp_path)
        same = long.column("text").slice(1, 200).combine_chunks()
        assert table.write(file, range(1, 201), {"text": same}) is None, options
        other = pa.array([*same.to_pylist()[:-1], None])
        changed = table.write(file, range(1, 201), {"text": other})
        assert rows(read(table.read(changed))) == replaced(long, range(1, 201), {"text": other}), options


OPTIONS: dict[str, dict[str, Any]] = {
    "dictionary": {},
    "many row groups": {"row_group_size": 70},
    "some texts beside the dictionary": {"dictionary_pagesize_limit": 300},
    "none": {"use_dictionary": False},
}


def with_empty_groups(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        for start, size in ((0, 0), (0, 120), (120, 0), (120, 180), (300, 0)):
            writer.write_table(table.slice(start, size), row_group_size=1_000)
    return sink.getvalue()


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_texts_may_be_in_files_with_row_groups_without_rows(use_dictionary: bool, tmp_path: Path) -> None:
    old = pa.table({"text": [f"{n % 9}{'x' * 60}" for n in range(300)]})
    file = with_empty_groups(old, use_dictionary=use_dictionary)
    assert pq.read_metadata(io.BytesIO(file)).num_row_groups == 5
    table = Table(tmp_path, StructType.from_arrow(old.schema))
    new = {"text": pa.array([f"new {n}{'y' * 60}" for n in range(3)])}
    changed = table.write(file, [0, 150, 299], new)
    assert rows(read(table.read(changed))) == replaced(old, [0, 150, 299], new)
    assert table.write(file, [7], {"text": pa.array([old.column("text")[7].as_py()])}) is None


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", ["known", "new", "null", "mixed", "all rows"])
def test_texts_of_a_dictionary_become_others(options: dict[str, Any], kind: str, tmp_path: Path) -> None:
    texts = [None if n % 11 == 0 else f"{n % 9}{'x' * 60}" for n in range(300)]
    old = pa.table({"text": texts})
    table, file = Table(tmp_path, StructType.from_arrow(old.schema)), by_pyarrow(**options)(old, tmp_path)
    positions = range(300) if kind == "all rows" else [0, 1, 69, 70, 200, 299]
    others: dict[str, list[str | None]] = {
        "known": [texts[5]],
        "new": [f"new {'y' * 60}", f"newer {'y' * 60}"],
        "null": [None],
        "mixed": [texts[4], None, f"new {'y' * 60}"],
        "all rows": [f"{n}{'z' * 60}" for n in range(4)],
    }
    new = {"text": pa.array([others[kind][n % len(others[kind])] for n in range(len(positions))], pa.string())}

    changed = table.write(file, positions, new)

    assert changed is not None
    found = table.read(changed)
    assert rows(read(found)) == replaced(old, positions, new)
    # Bounds are those of texts that are there, not of all that the dictionary has.
    left = [text for text in read(found).column("text").to_pylist() if text is not None]
    stats = json.loads(changed.file.stats or "")
    assert (stats["minValues"]["text"][:10], stats["maxValues"]["text"][:10]) == (min(left)[:10], max(left)[:10])
    assert stats["nullCount"]["text"] == 300 - len(left)
    footer = pq.read_metadata(pa.BufferReader(found))
    assert footer.num_row_groups == -(-300 // options.get("row_group_size", 128))
    for group in range(footer.num_row_groups):
        start = sum(footer.row_group(before).num_rows for before in range(group))
        own = read(found).column("text").slice(start, footer.row_group(group).num_rows)
        held = footer.row_group(group).column(0).statistics
        assert (held.min, held.max, held.null_count) == (*pc.min_max(own).as_py().values(), own.null_count)


def test_texts_of_a_dictionary_may_be_long(tmp_path: Path) -> None:
    old = pa.table({"text": [f"{n % 3}{'x' * 5_000}" for n in range(100)]})
    table, file = Table(tmp_path, StructType.from_arrow(old.schema)), by_pyarrow()(old, tmp_path)
    new = {"text": pa.array(["4" + "x" * 5_000])}
    changed = table.write(file, [0], new)
    assert rows(read(table.read(changed))) == replaced(old, [0], new)
    assert changed is not None
    stats = json.loads(changed.file.stats or "")
    assert (stats["minValues"]["text"][:2], stats["maxValues"]["text"][:2]) == ("0x", "4x")


def test_a_column_that_differed_in_one_file_may_be_the_same_in_the_next(tmp_path: Path) -> None:
    old = pa.table({"n": range(100), "text": ["same"] * 100, "many": [[1]] * 100})
    table, file = Table(tmp_path, StructType.from_arrow(old.schema)), by_pyarrow(row_group_size=30)(old, tmp_path)
    writer = table.writer(["n", "text"])
    written = []
    for number, (n, text) in enumerate([(7, "same"), (7, "other"), (50, "same"), (50, "same"), (7, "same")]):
        values = pa.RecordBatch.from_pydict({"n": [n], "text": [text]})
        changed = writer.write(table.old(file, f"{number}.parquet"), np.array([50]), values)
        written.append(set(changed.columns) if changed else None)
        if changed:
            new = {"n": pa.array([n]), "text": pa.array([text])}
            assert rows(read(table.read(changed))) == replaced(old, [50], new)
    assert written == [{"n"}, {"n", "text"}, None, None, {"n"}]


def test_values_that_differ_in_bits_are_changes(tmp_path: Path) -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    old = pa.table({"number": [0.0, nans[0], -0.0], "single": pa.array([0.0, NAN, -0.0], pa.float32())})
    table, file = Table(tmp_path, StructType.from_arrow(old.schema)), by_pyarrow()(old, tmp_path)

    def is_written(position: int, number: Any) -> bool:
        return table.write(file, [position], {"number": pa.array([number], pa.float64())}) is not None

    assert not is_written(0, 0.0)
    assert is_written(0, -0.0)
    assert is_written(2, 0.0)
    assert not is_written(1, nans[0])
    found = table.read(table.write(file, [1], {"number": pa.array(nans[1:])}))
    assert read(found).column("number").to_numpy().view(np.uint64).tolist() == [0, 0x7FF8000000000001, 1 << 63]
    assert table.write(file, [2], {"single": pa.array([0.0], pa.float32())}) is not None
    assert table.write(file, [2], {"single": pa.array([-0.0], pa.float32())}) is None


def test_a_name_with_a_dot_is_no_path(tmp_path: Path) -> None:
    old = pa.table({"a": [{"b": 1}, {"b": 2}], "a.b": ["x", "y"]})
    table, file = Table(tmp_path, StructType.from_arrow(old.schema)), by_pyarrow()(old, tmp_path)
    assert table.write(file, [0], {"a.b": pa.array(["x"])}) is None
    new = {"a.b": pa.array(["z"])}
    assert rows(read(table.read(table.write(file, [0], new)))) == replaced(old, [0], new)


def test_row_groups_may_be_read_in_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_columns, "batch_rows", lambda _file, _group: 50)
    table, file = Table(tmp_path), WRITERS["gzip, one row group"](OLD, tmp_path)
    positions = [3, 49, 50, 149, 299]
    new = {name: column(name, NEW, len(positions)) for name in TYPES}
    assert rows(read(table.read(table.write(file, positions, new)))) == replaced(OLD, positions, new)
    assert table.write(file, positions, {"id": pa.array(positions)}) is None
    assert table.write(file, positions, {"id": pa.array([*positions[:-1], 7])}) is not None


@settings(max_examples=40, derandomize=True)
@given(data=st.data())
def test_any_rows_of_any_file_get_any_values(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    def drawn(name: str, count: int) -> pa.Array:
        one = st.sampled_from([None, *VALUES[name][:5], *NEW[name][:5]])
        return pa.array(data.draw(st.lists(one, min_size=count, max_size=count)), TYPES[name])

    num_rows = data.draw(st.integers(1, 10))
    held = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3, unique=True))
    old = pa.table({name: drawn(name, num_rows) for name in held})
    options = {"row_group_size": data.draw(st.integers(1, num_rows)), "use_dictionary": data.draw(st.booleans())}
    positions = sorted(data.draw(st.sets(st.integers(0, num_rows - 1), min_size=1)))
    names = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3, unique=True))
    new = {name: drawn(name, len(positions)) for name in TYPES if name in names}
    table = Table(tmp_path_factory.mktemp("any"))
    file = by_pyarrow(**options)(old, Path())

    changed = table.write(file, positions, new)

    found = old if changed is None else read(table.read(changed))
    assert rows(found) == replaced(old, positions, new)
    plain = [name for name in held if name in new and not pa.types.is_nested(TYPES[name])]
    same = {name for name in plain if replaced(old, positions, {name: new[name]}) == rows(old)}
    assert set(changed.columns if changed else []) == new.keys() - same
