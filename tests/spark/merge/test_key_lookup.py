"""Keys looked up by Arrow and NumPy, against plain dictionaries."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.schema import STRING
from headwater.parquet.plan import PartitionColumn
from headwater.spark.dml.in_place import NEW_ROWS, RowPacker, gathered
from headwater.spark.merge.lookup import JoinLookup, NumberLookup, Pairs, lookup_of, pairs_of_found
from headwater.spark.scan.columns import FILE_COLUMN, ROW_COLUMN
from headwater.spark.workers import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = st.one_of(st.none(), st.integers(-4, 9), st.sampled_from([-(2**63), 2**63 - 1]))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "A", "ä", "\U0001f600"]))
DAYS = st.one_of(st.none(), st.dates(dt.date(1582, 1, 1), dt.date(1582, 1, 6)))
KINDS = {
    "number": (st.tuples(NUMBERS), [pa.int64()]),
    "date": (st.tuples(DAYS), [pa.date32()]),
    "text": (st.tuples(TEXTS), [pa.string()]),
    "both": (st.tuples(NUMBERS, TEXTS), [pa.int64(), pa.string()]),
}


def table_of(keys: list[tuple[Any, ...]], types: list[pa.DataType]) -> pa.Table:
    columns = zip(*keys, strict=True) if keys else ([] for _ in types)
    arrays = [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.table(dict(zip("kl", arrays, strict=False)))


def located(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """Rows of files of that many rows each, as a task reads them."""
    places = np.arange(rows.num_rows)
    files = rows.append_column(FILE_COLUMN, pa.array((places // size).astype(np.int32)))
    yield from files.append_column(ROW_COLUMN, pa.array(places % size)).to_batches(max_chunksize=3)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_each_row_of_the_source_finds_the_row_with_its_key(kind: str, data: st.DataObject) -> None:
    strategy, types = KINDS[kind]
    coming = data.draw(st.lists(strategy, max_size=8))
    there = data.draw(st.lists(strategy, max_size=12))
    sources = np.arange(len(coming), dtype=np.int64) * 2**33  # as if each row were in a partition of its own

    lookup = lookup_of(table_of(coming, types), sources)

    own = [key for key in coming if None not in key]
    if len(set(own)) < len(own):
        assert lookup is None
        return
    assert lookup is not None
    if not own:
        assert not len(lookup.places)
        return
    assert isinstance(lookup.keys, NumberLookup if kind in ("number", "date") else JoinLookup)
    batches = list(located(table_of(there, types), 5))
    half = len(batches) // 2
    found = [row for part in (batches[:half], batches[half:]) for row in lookup.keys.found(iter(part)).to_pylist()]
    pairs = pairs_of_found(found, lookup)

    expected = {
        (int(source), place // 5, place % 5)
        for source, key in zip(sources, coming, strict=True)
        for place, other in enumerate(there)
        if None not in key and key == other
    }
    if len({source for source, _, _ in expected}) < len(expected):
        assert pairs is None
    else:
        assert pairs is not None
        assert set(found_by(pairs, sources)) == expected
        assert pairs.count == len(expected)


def found_by(pairs: Pairs, sources: Any) -> list[tuple[int, int, int]]:
    files, rows = pairs.matched(sources)
    found = zip(sources.tolist(), files.tolist(), rows.tolist(), strict=True)
    return [one for one in found if one[1] >= 0]


@given(
    st.dictionaries(st.integers(0, 3 * 2**33), st.none() | st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**40))),
    st.lists(st.integers(-1, 4 * 2**33)),
)
def test_rows_that_match_are_told_from_others(told: dict[int, tuple[int, int] | None], others: list[int]) -> None:
    # Runs of consecutive numbers, as the rows of a partition have.
    told |= {2**33 + n: (n, 7) for n in range(len(told))}
    sources = np.array(sorted(told), np.int64)
    files, rows = (np.array([(told[s] or (-1, 0))[n] for s in sources.tolist()], np.int64) for n in range(2))

    pairs = Pairs.of(sources, files, rows)

    asked = np.array([*sources.tolist(), *others], np.int64)
    expected = [(n, *pair) for n in asked.tolist() if (pair := told.get(n)) is not None]
    assert found_by(pairs, asked) == expected
    assert len(pairs.starts) == sum(n - 1 not in told for n in told)


def test_small_numbers_travel_in_few_bytes() -> None:
    numbers = np.arange(1_000, dtype=np.int64)
    pairs = Pairs.of(numbers, numbers % 60, numbers)
    assert sum(part.nbytes for part in (pairs.starts, pairs.places, pairs.files, pairs.rows)) < 5 * len(numbers)


@pytest.mark.parametrize("step", [1, -1, 7_919])
def test_keys_are_found_in_whatever_order_they_come(step: int) -> None:
    """In order, in reverse, and mixed: they are sorted in two ways."""
    keys = (np.arange(5_000) * step) % 7_907
    lookup = lookup_of(pa.table({"k": keys}), np.arange(5_000))
    assert lookup is not None
    assert isinstance(lookup.keys, NumberLookup)
    assert np.all(np.diff(lookup.keys.values) > 0)
    assert np.array_equal(keys[lookup.places], lookup.keys.values)


def test_rows_are_packed_for_the_task_that_has_their_file() -> None:
    packer = RowPacker(np.array([2, 5, 8], np.int32), num_tasks=2, num_new_tasks=1)
    rows = pa.table({"row": [9, 1, 4, 0], "v": ["a", "b", "c", "d"]})

    packs = list(packer.update_packs(np.array([8, 2, 8, 5], np.int32), rows))

    found = {
        (pack["task"][0].as_py(), pack["file"][0].as_py()): unpacked(pack["rows"][0].as_py()).to_pylist()
        for pack in packs
    }
    # Tasks with new rows come first; files are dealt out by their place, not by their number.
    assert found == {
        (1, 2): [{"row": 1, "v": "b"}],
        (2, 5): [{"row": 0, "v": "d"}],
        (1, 8): [{"row": 9, "v": "a"}, {"row": 4, "v": "c"}],
    }


def test_new_rows_of_a_partition_come_to_one_task_together() -> None:
    packer = RowPacker(np.array([0], np.int32), 1, num_new_tasks=3, partitions=(PartitionColumn("p", "p", STRING),))
    rows = pa.table({"id": [1, 2, 3, 4, 5], "p": ["b", "a", None, "b", "a"]})

    packs = [pack for turn in (0, 1) for pack in packer.insert_packs(rows, turn)]

    assert {pack["file"][0].as_py() for pack in packs} == {NEW_ROWS}
    by_partition: dict[str, list[int]] = {}
    for pack in packs:
        found = unpacked(pack["rows"][0].as_py())
        assert len(set(found["p"].to_pylist())) == 1
        by_partition.setdefault(pack["partition"][0].as_py(), []).append(pack["task"][0].as_py())
    assert len(by_partition) == 3
    assert all(len(set(tasks)) == 1 for tasks in by_partition.values())


@pytest.mark.parametrize("pack_bytes", [1, 100, 1_000, 10**6])
def test_packs_are_not_larger_than_they_may_be(monkeypatch: pytest.MonkeyPatch, pack_bytes: int) -> None:
    monkeypatch.setattr("headwater.spark.dml.in_place._PACK_BYTES", pack_bytes)
    partition = (PartitionColumn("p", "p", STRING),)
    packer = RowPacker(np.arange(3, dtype=np.int32), 2, num_new_tasks=1, partitions=partition)
    rows = pa.table({"row": range(300), "p": [f"{n % 3}" for n in range(300)], "v": ["x" * 20] * 300})

    for packs in (packer.update_packs(np.arange(300) % 3, rows), packer.insert_packs(rows, 0)):
        tables = [unpacked(pack["rows"][0].as_py()) for pack in packs]
        assert sorted(row for table in tables for row in table["row"].to_pylist()) == list(range(300))
        assert all(table.num_rows == 1 or table.nbytes <= 1.2 * pack_bytes for table in tables)
        assert len(tables) >= 3


def test_batches_are_gathered_until_they_are_worth_a_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.spark.dml.in_place._PACK_BYTES", 100)
    batches = [pa.record_batch({"n": list(range(5))}) for _ in range(7)]
    sizes = [table.num_rows for table in gathered(iter(batches))]
    assert sizes == [15, 15, 5]
