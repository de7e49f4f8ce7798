"""What the writer says of a split: the fields of the log's `add` (spec 002), bounds that are never too narrow."""

from __future__ import annotations

import datetime as dt
import errno
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SearchConfigError, StorageError
from headwater.log.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DecimalType,
)
from headwater.search.choices import index_config
from headwater.search.split.build import ColumnBounds, SplitWriter
from headwater.search.split.bundle import read_footer
from support.search.built_splits import batch_of, build, opened, rows_with, schema_of

LOGS = schema_of(id=LONG, message=STRING, host=STRING, at=TIMESTAMP)
ROWS = [
    {"id": 10, "message": "b", "host": "web-1", "at": dt.datetime(2024, 10, 1, tzinfo=dt.UTC)},
    {"id": 9, "message": "a", "host": None, "at": dt.datetime(2024, 10, 1, 23, 59, 59, 5, dt.UTC)},
]


def test_the_add_of_a_split_has_every_field_of_the_specification(tmp_path: Path) -> None:
    built = build(tmp_path, LOGS, ROWS, types={"message": "text"})

    add = built.to_add("a/b.split", {"day": "1"}, modified_ms=5, tags={"source": "x"}, split_tags=("production",))

    data = Path(built.path).read_bytes()
    assert (add.path, add.partition_values, add.size, add.modification_time) == (
        "a/b.split",
        {"day": "1"},
        len(data),
        5,
    )
    assert (add.data_change, add.tags, add.split_tags) == (True, {"source": "x"}, ("production",))
    assert add.num_records == 2
    assert add.min_values == {"id": "9", "host": "web-1", "at": "2024-10-01T00:00:00Z"}
    assert add.max_values == {"id": "10", "host": "web-1", "at": "2024-10-01T23:59:59.000005Z"}
    assert (add.time_range_start, add.time_range_end) == ("2024-10-01T00:00:00Z", "2024-10-01T23:59:59.000005Z")
    assert (add.has_footer_offsets, add.footer_end_offset) == (True, len(data))
    assert add.hotcache_start_offset + add.hotcache_length + 4 == len(data)
    assert add.doc_mapping_json == opened(built).config.to_json()
    assert add.uncompressed_size_bytes > 0
    assert (add.delete_opstamp, add.num_merge_ops) == (0, 0)
    footer = read_footer(lambda start, length: data[start : start + length], len(data), "x", add.footer_start_offset)
    assert footer == built.footer


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        (LONG, [10, 9, None], ("9", "10")),
        (DOUBLE, [1.5, -2.0], ("-2.0", "1.5")),
        (DOUBLE, [float("-inf"), 1e300], ("-Infinity", "1e+300")),
        (DOUBLE, [1.0, float("nan")], None),
        (DecimalType(38, 10), [Decimal("0.0000000001"), Decimal("-5")], ("-5.0000000000", "0.0000000001")),
        (BOOLEAN, [True, False], ("false", "true")),
        (DATE, [dt.date(2024, 1, 2), dt.date(1, 1, 1)], ("0001-01-01", "2024-01-02")),
        (TIMESTAMP_NTZ, [dt.datetime(2024, 1, 2, 3, 4, 5, 6)] * 2, ("2024-01-02T03:04:05.000006",) * 2),
        (STRING, ["b", "ab", ""], ("", "b")),
        (STRING, ["z" * 100], ("z" * 64, "z" * 64 + "\U0010ffff")),
        (STRING, ["\U0010ffff" * 66], None),
        (LONG, [None, None], None),
        (LONG, [], None),
        (ArrayType(LONG), [[1]], None),
    ],
)
def test_bounds_are_text_by_the_type_of_the_column(type_: Any, values: list[Any], expected: Any) -> None:
    schema = schema_of(c=type_)
    bounds = ColumnBounds(schema, index_config(schema))

    for value in values:
        bounds.add(batch_of(schema, [{"c": value}]))

    least, greatest = bounds.texts()
    assert (least, greatest) == (({}, {}) if expected is None else ({"c": expected[0]}, {"c": expected[1]}))


@given(values=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=100), min_size=1))
def test_no_string_lies_outside_its_bounds(values: list[str]) -> None:
    schema = schema_of(c=STRING)
    bounds = ColumnBounds(schema, index_config(schema))
    bounds.add(batch_of(schema, [{"c": value} for value in values]))

    least, greatest = bounds.texts()

    if least:
        assert all(least["c"].encode() <= value.encode() <= greatest["c"].encode() for value in values)


def test_text_has_no_bounds_unless_it_is_a_string_too() -> None:
    for types, expected in (({"message": "text"}, {}), ({"message": "text,string"}, {"message": "a"})):
        schema = schema_of(message=STRING)
        bounds = ColumnBounds(schema, index_config(schema, types=types))
        bounds.add(batch_of(schema, [{"message": "a"}]))
        assert bounds.texts()[0] == expected


def test_a_split_knows_its_nulls_and_its_bounds_itself(tmp_path: Path) -> None:
    built = build(tmp_path, LOGS, ROWS)

    metadata = opened(built).metadata

    assert metadata.null_counts == {"id": 0, "message": 0, "host": 1, "at": 0}
    assert (metadata.min_values, metadata.max_values) == (built.min_values, built.max_values)


def test_a_configuration_for_other_columns_is_refused(tmp_path: Path) -> None:
    config = index_config(LOGS)

    with pytest.raises(SearchConfigError, match="no such column"):
        SplitWriter(config, schema_of(id=LONG), str(tmp_path))
    with pytest.raises(SearchConfigError, match="'id' is for a column of type bigint"):
        SplitWriter(config, schema_of(id=STRING, message=STRING, host=STRING, at=TIMESTAMP), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_small_heap_gives_the_same_answers(tmp_path: Path) -> None:
    schema = schema_of(n=LONG, s=STRING)
    rows = [{"n": n, "s": f"{n * 2_654_435_761 % 2**32:x} " * 30} for n in range(12_000)]
    with SplitWriter(index_config(schema, types={"s": "text"}), schema, str(tmp_path), heap_bytes=15_000_000) as writer:
        for start in range(0, len(rows), 1000):
            writer.add(batch_of(schema, rows[start : start + 1000]))
        split = opened(writer.finish())

    assert split.searcher.num_docs == len(rows)
    for n in (0, 1, 5_000, 11_999):
        assert rows_with(split, "n", n) == [n]


def test_a_disk_that_does_not_take_the_split_is_an_error_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("headwater.search.split.build.assemble", full)
    with SplitWriter(index_config(LOGS), LOGS, str(tmp_path)) as writer:
        writer.add(batch_of(LOGS, ROWS))
        with pytest.raises(StorageError, match=r"could not write the split .*\.split: .*No space left"):
            writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_abandoned_at_work_leaves_nothing(tmp_path: Path) -> None:
    schema = schema_of(n=LONG, s=STRING)
    rows = batch_of(schema, [{"n": n, "s": f"word{n} " * 50} for n in range(2000)])
    for _ in range(5):
        with SplitWriter(
            index_config(schema, types={"s": "text"}), schema, str(tmp_path), heap_bytes=15_000_000
        ) as writer:
            for _ in range(4):
                writer.add(rows)
        assert list(tmp_path.iterdir()) == []
