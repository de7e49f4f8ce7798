"""Ids and physical names of columns (spec: "Writer Requirements for Column Mapping")."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidCommitError, SchemaError
from headwater.features.column_mapping import with_mapping
from headwater.features.feature import fields_by_path
from headwater.log.actions.model import Protocol
from headwater.log.schema import LONG, STRING, ArrayType, MapType, StructField, StructType, column_id, physical_name
from support.tables.feature_tables import (
    TWO_COLUMNS,
    alter,
    altered,
    append,
    create,
    definition,
    file,
    numbered,
    with_metadata,
)

BY_NAME = {"delta.columnMapping.mode": "name"}
NESTED = StructType(
    [
        StructField("a", LONG),
        StructField("s", StructType([StructField("x", LONG), StructField("y", STRING)])),
        StructField("list", ArrayType(StructType([StructField("x", LONG)]))),
        StructField("map", MapType(STRING, StructType([StructField("x", LONG)]))),
    ]
)


def ids(schema: StructType) -> dict[tuple[str, ...], int]:
    return {path: column_id(field) for path, field in fields_by_path(schema)}


def names(schema: StructType) -> dict[tuple[str, ...], str]:
    return {path: physical_name(field) for path, field in fields_by_path(schema)}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_every_column_of_a_new_table_gets_an_id_and_a_name_of_its_own(mode: str) -> None:
    table = definition(NESTED, properties={"delta.columnMapping.mode": mode})
    assert sorted(ids(table.schema).values()) == list(range(1, 9))
    assert len(set(names(table.schema).values())) == 8
    assert all(name.startswith("col-") for name in names(table.schema).values())
    assert table.metadata.configuration["delta.columnMapping.maxColumnId"] == "8"


def test_the_mapping_of_another_table_is_not_taken_over() -> None:
    foreign = definition(properties=BY_NAME).schema
    table = definition(StructType(reversed(foreign.fields)), properties=BY_NAME)
    assert ids(table.schema) == {("name",): 1, ("id",): 2}
    assert definition(foreign).schema == TWO_COLUMNS


def test_a_table_with_files_keeps_their_names(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path, schema=NESTED), file("f"))
    snapshot = alter(snapshot, delta__columnMapping__mode="name")
    assert snapshot.protocol == Protocol(2, 5)
    assert names(snapshot.schema) == {path: path[-1] for path, _ in fields_by_path(NESTED)}
    assert sorted(ids(snapshot.schema).values()) == list(range(1, 9))


def test_a_column_that_comes_with_the_mapping_has_a_new_name(tmp_path: Path) -> None:
    wider = StructType([*TWO_COLUMNS.fields, StructField("new", LONG)])
    snapshot = alter(create(tmp_path), wider, delta__columnMapping__mode="name")
    assert names(snapshot.schema) == {("id",): "id", ("name",): "name", ("new",): "col-v1-1"}


def test_new_columns_get_ids_above_all_that_were_given(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=BY_NAME)
    kept = snapshot.schema.fields[0]
    snapshot = alter(snapshot, StructType([kept]))  # drops column 2
    snapshot = alter(snapshot, StructType([kept, StructField("name", STRING)]))
    assert ids(snapshot.schema) == {("id",): 1, ("name",): 3}, "a dropped column's id is never given again"
    assert snapshot.properties["delta.columnMapping.maxColumnId"] == "3"


def test_columns_that_say_nothing_are_known_by_their_names(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=BY_NAME)
    wider = StructType([*TWO_COLUMNS.fields, StructField("new", LONG)])  # as a DataFrame has them
    after = altered(snapshot, wider).schema
    assert {k: v for k, v in ids(after).items() if k != ("new",)} == ids(snapshot.schema)
    assert ids(after)["new",] == 3


def test_a_renamed_column_keeps_its_id_and_name(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=BY_NAME)
    first, second = snapshot.schema.fields
    after = altered(snapshot, StructType([replace(first, name="key"), second])).schema
    assert ids(after) == {("key",): 1, ("name",): 2}
    assert physical_name(after.fields[0]) == physical_name(first)


def test_a_new_column_may_take_the_name_of_one_that_is_renamed(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=BY_NAME)
    first, second = snapshot.schema.fields
    after = altered(snapshot, StructType([replace(first, name="key"), second, StructField("id", LONG)])).schema
    assert ids(after) == {("key",): 1, ("name",): 2, ("id",): 3}


def test_a_copy_of_a_column_is_a_new_column(tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties=BY_NAME)
    first, second = snapshot.schema.fields
    # select("*", col("id").alias("twin")) carries the metadata of the column along.
    after = altered(snapshot, StructType([replace(first, name="twin"), first, second])).schema
    assert ids(after) == {("twin",): 3, ("id",): 1, ("name",): 2}


def test_columns_are_added_inside_structs_arrays_and_maps(tmp_path: Path) -> None:
    snapshot = create(tmp_path, schema=NESTED, properties=BY_NAME)
    before = ids(snapshot.schema)
    new = StructField("z", LONG)
    wider = StructType(
        [
            NESTED.fields[0],
            StructField("s", StructType([StructField("x", LONG), StructField("y", STRING), new])),
            StructField("list", ArrayType(StructType([StructField("x", LONG), new]))),
            StructField("map", MapType(STRING, StructType([StructField("x", LONG), new]))),
        ]
    )
    after = ids(alter(snapshot, wider).schema)
    assert {path: i for path, i in after.items() if path[-1] != "z"} == before
    assert sorted(i for path, i in after.items() if path[-1] == "z") == [9, 10, 11]


@pytest.mark.parametrize(
    ("old", "new"), [("none", "id"), ("name", "none"), ("name", "id"), ("id", "name"), ("id", "none")]
)
def test_other_changes_of_the_mode_are_refused(old: str, new: str, tmp_path: Path) -> None:
    snapshot = create(tmp_path, properties={"delta.columnMapping.mode": old})
    with pytest.raises(InvalidCommitError, match=f"from {old} to {new}"):
        altered(snapshot, delta__columnMapping__mode=new)


def test_unsetting_the_mode_is_a_change_of_mode(tmp_path: Path) -> None:
    with pytest.raises(InvalidCommitError, match="from name to none"):
        altered(create(tmp_path, properties=BY_NAME), delta__columnMapping__mode=None)


def test_a_commit_with_columns_without_ids_is_refused(tmp_path: Path) -> None:
    table = definition(properties=BY_NAME)
    bare = replace_schema(table.metadata, TWO_COLUMNS)
    with pytest.raises(InvalidCommitError, match="no physical name or no id"):
        create(tmp_path, with_metadata(table, bare))


@pytest.mark.parametrize("key", ["delta.columnMapping.id", "delta.columnMapping.physicalName"])
def test_a_commit_with_the_same_id_or_name_twice_is_refused(key: str, tmp_path: Path) -> None:
    table = definition(properties=BY_NAME)
    first, second = table.schema.fields
    twin = replace(second, metadata={**second.metadata, key: first.metadata[key]})
    with pytest.raises(InvalidCommitError, match="have the same"):
        create(tmp_path, with_metadata(table, replace_schema(table.metadata, StructType([first, twin]))))


def test_a_commit_with_an_id_above_the_maximum_is_refused(tmp_path: Path) -> None:
    table = definition(properties=BY_NAME)
    low = {**table.metadata.configuration, "delta.columnMapping.maxColumnId": "1"}
    with pytest.raises(InvalidCommitError, match="above"):
        create(tmp_path, with_metadata(table, replace_configuration(table.metadata, low)))


def test_without_mapping_columns_cannot_vanish_from_a_table_with_files(tmp_path: Path) -> None:
    snapshot = append(create(tmp_path), file("f"))
    with pytest.raises(InvalidCommitError, match="cannot be dropped or renamed"):
        alter(snapshot, StructType(TWO_COLUMNS.fields[:1]))


def replace_schema(metadata, schema: StructType):
    import msgspec

    return msgspec.structs.replace(metadata, schema_string=schema.to_json())


def replace_configuration(metadata, configuration: dict[str, str]):
    import msgspec

    return msgspec.structs.replace(metadata, configuration=configuration)


_names = st.sampled_from(["a", "b", "c", "d"])
_leaves = st.sampled_from([LONG, STRING])


def _structs(types):
    fields = st.lists(st.tuples(_names, types), min_size=1, max_size=4, unique_by=lambda pair: pair[0])
    return fields.map(lambda pairs: StructType([StructField(name, type_) for name, type_ in pairs]))


def _nested(types):
    maps = types.map(lambda value: MapType(STRING, value))
    return st.one_of(_structs(types), types.map(ArrayType), maps)


_schemas = _structs(st.recursive(_leaves, _nested, max_leaves=6))


@given(_schemas, st.lists(_schemas, max_size=4), st.booleans())
def test_whatever_follows_whatever_ids_stay_unique_and_are_never_given_again(
    first: StructType, later: list[StructType], nested: bool
) -> None:
    new_id = numbered()
    state = with_mapping(first, None, was_mapped=False, max_column_id=0, nested=nested, new_id=new_id)
    given_to: dict[int, tuple[str, ...]] = {}
    for schema in [None, *later]:
        if schema is not None:
            before = state
            state = with_mapping(
                schema,
                before.schema,
                was_mapped=True,
                max_column_id=before.max_column_id,
                nested=nested,
                new_id=new_id,
            )
            assert state.max_column_id >= before.max_column_id
        current = ids(state.schema)
        assert len(set(current.values())) == len(current)
        assert len(set(names(state.schema).values())) == len(current)
        assert max(current.values()) <= state.max_column_id
        for path, number in current.items():
            assert given_to.setdefault(number, path) == path, "the column of an id stays at its place"


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(SchemaError, match="needs a name"):
        definition(StructType([StructField("", LONG)]), properties=BY_NAME)
