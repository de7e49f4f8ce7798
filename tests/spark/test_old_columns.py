"""Which values of a file's column differ from new ones, to the last bit: only those are a reason to write it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from column_tables import Table, replaced
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_files import NAN, NEW, OLD, TYPES, VALUES, WRITERS, by_pyarrow, column, read, rows

from headwater.log.schema import StructType
from headwater.spark import old_columns


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
