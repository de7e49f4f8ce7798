"""Pruning the splits of a search table: typed partition values, and bounds that are text in the log (spec 002)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ConcurrentAppendException, CorruptLogError
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.filters.sql import parse_filter
from headwater.log.indextables.checkpoint import write_json_checkpoint
from headwater.log.opening import open_snapshot
from support.log.split_logs import append, lines, live, put_version, split, table


def kept(snapshot: Any, where: str) -> list[str]:
    return sorted(snapshot.files(where, ["path"]).column("path").to_pylist())


def partitioned(*values: str | None) -> Any:
    _, _, snapshot = table()
    for value in values:
        snapshot = append(snapshot, f"{value}.split", partition_values={"part": value})
    return snapshot


@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_partition_values_are_numbers_where_the_column_is_one(from_checkpoint: bool) -> None:
    """Users of other implementations see "10" < "2"."""
    snapshot = partitioned("2", "9", "10", "100", None)
    if from_checkpoint:
        snapshot = open_snapshot(write_json_checkpoint(snapshot).ctx)
    assert kept(snapshot, "part < 10") == ["2.split", "9.split"]
    assert kept(snapshot, "part >= 10") == ["10.split", "100.split"]
    assert kept(snapshot, "part = 2") == ["2.split"]
    assert kept(snapshot, "part in (9, 100)") == ["100.split", "9.split"]
    assert kept(snapshot, "part is null") == ["None.split"]
    assert kept(snapshot, "part between 3 and 50") == ["10.split", "9.split"]


def test_the_example_of_partition_pruning() -> None:
    store, ctx, _ = table()
    add = {"size": 1, "modificationTime": 0, "dataChange": True}
    for month in ("9", "10"):
        version = int(month) - 8
        put_version(store, version, {"add": {**add, "path": month, "partitionValues": {"part": month}}})
    assert kept(open_snapshot(ctx), "part = 10") == ["10"]


def test_a_partition_value_that_is_no_number_is_an_error() -> None:
    with pytest.raises(CorruptLogError, match="partition value of column 'part'"):
        kept(partitioned("ten"), "part = 10")


def test_an_empty_text_is_not_null_in_a_partition_column_of_text() -> None:
    store, ctx, _ = table()
    actions = lines(store, 0)
    actions[1]["metaData"]["partitionColumns"] = ["content"]
    put_version(store, 0, *actions)
    snapshot = open_snapshot(ctx)
    for value in ("", None, "x"):
        snapshot = append(snapshot, f"{value}.split", partition_values={"content": value})
    assert kept(snapshot, "content = ''") == [".split"]
    assert kept(snapshot, "content is null") == ["None.split"]
    assert kept(snapshot, "content is not null") == [".split", "x.split"]


def test_bounds_in_text_are_compared_by_the_type_of_their_column() -> None:
    _, _, snapshot = table()
    snapshot = append(snapshot, "low.split", min_values={"id": "1"}, max_values={"id": "9"})
    snapshot = append(snapshot, "high.split", min_values={"id": "10"}, max_values={"id": "1000"})
    assert kept(snapshot, "id = 5") == ["low.split"]
    assert kept(snapshot, "id > 9") == ["high.split"]
    assert kept(snapshot, "id = 2000") == []
    assert kept(snapshot, "id < 10 or id is null") == ["high.split", "low.split"]


def test_bounds_of_timestamps_are_those_of_the_example() -> None:
    _, _, snapshot = table()
    day = {"min_values": {"ts": "2024-10-01T00:00:00Z"}, "max_values": {"ts": "2024-10-01T23:59:59Z"}}
    snapshot = append(snapshot, "day.split", **day)
    assert kept(snapshot, "ts >= timestamp '2024-10-01 12:00:00Z'") == ["day.split"]
    assert kept(snapshot, "ts > timestamp '2024-10-02 00:00:00Z'") == []
    assert kept(snapshot, "ts < timestamp '2024-10-01 00:00:00Z'") == []


def test_bounds_may_be_in_stats_as_well_and_in_neither() -> None:
    _, _, snapshot = table()
    stats = '{"numRecords":1000,"minValues":{"id":1},"maxValues":{"id":1000}}'
    snapshot = append(snapshot, "stats.split", stats=stats)
    snapshot = append(snapshot, "maps.split", min_values={"id": "2000"}, max_values={"id": "3000"})
    snapshot = append(snapshot, "neither.split")
    snapshot = append(snapshot, "nonsense.split", stats="{...}")
    snapshot = append(snapshot, "half.split", min_values={"id": "5000"}, max_values={"content": "x"})
    assert kept(snapshot, "id = 500") == ["neither.split", "nonsense.split", "stats.split"]
    assert kept(snapshot, "id = 2500") == ["maps.split", "neither.split", "nonsense.split"]
    assert kept(snapshot, "id = 6000") == ["half.split", "neither.split", "nonsense.split"]


def test_bounds_are_of_columns_not_of_what_is_inside_them() -> None:
    """A column may be called `a.b`, and another one be a struct `a` with a field `b`."""
    store, ctx, _ = table()
    actions = lines(store, 0)
    inner = {"name": "b", "type": "long", "nullable": True, "metadata": {}}
    fields = [{**inner, "name": "a", "type": {"type": "struct", "fields": [inner]}}, {**inner, "name": "a.b"}]
    schema = {"type": "struct", "fields": [*fields, {**inner, "name": "part"}]}
    actions[1]["metaData"]["schemaString"] = json.dumps(schema)
    put_version(store, 0, *actions)
    snapshot = append(open_snapshot(ctx), "x.split", min_values={"a.b": "1"}, max_values={"a.b": "5"})
    assert kept(snapshot, "`a.b` = 9") == []
    assert kept(snapshot, "a.b = 9") == ["x.split"]


@pytest.mark.parametrize("bound", ["NaN", "many", "", None])
def test_bounds_that_cannot_be_understood_keep_the_split(bound: str | None) -> None:
    _, _, snapshot = table()
    snapshot = append(snapshot, "a.split", min_values={"id": "1"}, max_values={"id": bound})
    assert kept(snapshot, "id = 500") == ["a.split"]


def test_the_greatest_number_may_be_nan() -> None:
    store, ctx, _ = table()
    raw = store.objects["_transaction_log/" + "0" * 20 + ".json"]
    store.objects["_transaction_log/" + "0" * 20 + ".json"] = raw.replace(b'\\"long\\"', b'\\"double\\"')
    snapshot = append(open_snapshot(ctx), "a.split", min_values={"id": "3.0"}, max_values={"id": "NaN"})
    assert kept(snapshot, "id = 3.0") == ["a.split"]
    assert kept(snapshot, "id > 1000000.0") == ["a.split"]
    assert kept(snapshot, "id < 2.0") == []


_NUMBERS = st.integers(-(2**40), 2**40)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(_NUMBERS, _NUMBERS, st.integers(-20, 120)), min_size=1, max_size=6),
    _NUMBERS,
    st.integers(-20, 120),
    st.sampled_from(["<", "<=", "=", ">", ">="]),
)
def test_no_split_with_a_match_is_ever_left_out(
    files: list[tuple[int, int, int]], number: int, part: int, op: str
) -> None:
    """Each split holds two ids; pruning may keep too many splits, but never lose one."""
    _, _, snapshot = table()
    epoch = datetime(2024, 1, 1, tzinfo=UTC)
    for name, (first, second, value) in enumerate(files):
        low, high = sorted((first, second))
        times = [(epoch + timedelta(microseconds=each)).isoformat().replace("+00:00", "Z") for each in (low, high)]
        snapshot = append(
            snapshot,
            str(name),
            partition_values={"part": str(value)},
            min_values={"id": str(low), "ts": times[0]},
            max_values={"id": str(high), "ts": times[1]},
        )
    compare = {"<": int.__lt__, "<=": int.__le__, "=": int.__eq__, ">": int.__gt__, ">=": int.__ge__}[op]
    moment = (epoch + timedelta(microseconds=number)).isoformat()
    for where, matches in (
        (f"id {op} {number}", lambda a, b, _: compare(a, number) or compare(b, number)),
        (f"ts {op} timestamp '{moment}'", lambda a, b, _: compare(a, number) or compare(b, number)),
        (f"part {op} {part}", lambda _a, _b, p: compare(p, part)),
    ):
        found = kept(snapshot, where)
        assert set(found) >= {str(i) for i, file in enumerate(files) if matches(*file)}
        if where.startswith("part"):
            assert set(found) == {str(i) for i, file in enumerate(files) if matches(*file)}


def test_an_append_where_another_transaction_has_looked_is_a_conflict_and_elsewhere_is_none() -> None:
    _, ctx, snapshot = table()
    snapshot = append(snapshot, "a.split", partition_values={"part": "1"})
    for part, conflicts in (("2", False), ("1", True)):
        transaction = Transaction(ctx, snapshot)
        transaction.read_files(parse_filter("part = 1"), ["path"])
        transaction.add([split(f"new-{part}.split", partition_values={"part": "1"})])
        newer = append(snapshot, f"other-{part}.split", partition_values={"part": part})
        if conflicts:
            with pytest.raises(ConcurrentAppendException, match=r"other-1\.split"):
                transaction.commit(Operation("WRITE"))
        else:
            snapshot = transaction.commit(Operation("WRITE")).snapshot
            assert snapshot.version == newer.version + 1
    assert "new-2.split" in live(snapshot)
