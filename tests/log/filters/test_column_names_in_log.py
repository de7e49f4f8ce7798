"""Files are found by columns of any name: statistics and partition values, in commits and in checkpoints."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SchemaError
from headwater.log.actions.model import Add, Metadata
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.files import arrow as build
from headwater.log.filters.expressions import Column, Compare, Literal
from headwater.log.opening import open_snapshot
from headwater.log.schema import LONG, StructField, StructType
from headwater.log.schema.types import check_characters, hidden
from support.log.commit_tables import create, writer
from support.stores.log_store import DictStore

NAMES = [
    *("a.b", ".a", "[0]", "..", "a`b", "a'b", 'a"b', "a\\b", "%41", "a/b", "*", "\x01", "a\nb", "\N{GRINNING FACE}"),
    *(" ", "minValues", "numRecords", "path", "size", "stats", "stats_parsed", "add", "key_value", "f0", "values"),
]
NOT_KNOWN = {'a"b', "a\\b", "\x01", "a\nb"}
"""Names of which statistics as text tell nothing."""
SCHEMA = StructType(
    [
        *(StructField(name, LONG) for name in NAMES),
        StructField("a", StructType([StructField(name, LONG) for name in ["b", *NAMES]])),
        *(StructField(f"p{name}", LONG) for name in NAMES),
    ]
)
PATHS = [*((name,) for name in NAMES), *(("a", name) for name in ["b", *NAMES])]
PARTITIONS = [f"p{name}" for name in NAMES]


def file(number: int) -> Add:
    """A file in which every column has a value that it has in no other file, and no other column has."""
    bounds: dict[str, object] = {name: value(number, (name,)) for name in NAMES}
    bounds["a"] = {path[1]: value(number, path) for path in PATHS if len(path) == 2}
    nulls = dict.fromkeys(NAMES, 0) | {"a": {path[1]: 0 for path in PATHS if len(path) == 2}}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": nulls}
    partitions = {name: str(1000 * number + place) for place, name in enumerate(PARTITIONS)}
    return Add(f"f{number}", 1, partitions, modification_time=1, stats=json.dumps(stats))


def value(number: int, path: tuple[str, ...]) -> int:
    return 1000 * number + PATHS.index(path)


@pytest.mark.parametrize("checkpoint", [None, "as text", "as columns"])
def test_files_are_found_by_columns_of_any_name(checkpoint: str | None) -> None:
    store = DictStore()
    ctx = writer(store)
    configuration = {"delta.checkpoint.writeStatsAsStruct": str(checkpoint == "as columns").lower()}
    configuration |= {"delta.checkpoint.writeStatsAsJson": str(checkpoint != "as columns").lower()}
    configuration |= {"delta.dataSkippingNumIndexedCols": "-1"}
    metadata = Metadata("table", SCHEMA.to_json(), partition_columns=tuple(PARTITIONS), configuration=configuration)
    snapshot = create(ctx, *map(file, range(4)), metadata=metadata)
    if checkpoint is not None:
        write_checkpoint(snapshot)
        del store.objects[f"_delta_log/{0:020d}.json"]
        snapshot = open_snapshot(writer(store))

    for path in PATHS:
        found = snapshot.files(Compare("=", Column(path), Literal(value(2, path)))).column("path").to_pylist()
        assert found == ["f2"] if NOT_KNOWN.isdisjoint(path) else "f2" in found, path
    for place, name in enumerate(PARTITIONS):
        found = snapshot.files(Compare("=", Column((name,)), Literal(3000 + place))).column("path").to_pylist()
        assert found == ["f3"], name


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))), st.permutations([".a", "[0]"]))
def test_rows_are_told_apart_and_put_in_order_by_columns_of_any_name(
    rows: list[tuple[int, int]], names: list[str]
) -> None:
    table = pa.table([pa.array([row[place] for row in rows], pa.int64()) for place in range(2)], names=names)

    distinct = build.distinct_rows(table)
    ordered = table.take(build.order_of(table.columns))

    assert distinct.column_names == names
    assert sorted(tuple(row.values()) for row in distinct.to_pylist()) == sorted(set(rows))
    assert [tuple(row.values()) for row in ordered.to_pylist()] == sorted(rows)


def test_a_hidden_name_is_one_that_no_table_may_have() -> None:
    check_characters(["a", "__headwater_row"], "the table")
    with pytest.raises(SchemaError, match="the table has a column"):
        check_characters(["a", hidden("row")], "the table")
