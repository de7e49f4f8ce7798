"""Schemas with one thing changed: pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands.alter.schema_edits import add_field, change_type, drop_field, locate, move_field, rename_field
from headwater.errors import ColumnNotFoundError, SchemaError
from headwater.log.schema import INTEGER, LONG, STRING, ArrayType, MapType, StructField, StructType

POINT = StructType([StructField("x", INTEGER), StructField("y", INTEGER)])
SCHEMA = StructType(
    [
        StructField("id", LONG),
        StructField("point", POINT),
        StructField("points", ArrayType(POINT)),
        StructField("by name", MapType(STRING, ArrayType(INTEGER))),
    ]
)


def test_a_column_is_found_in_any_case_and_at_any_depth() -> None:
    assert locate(SCHEMA, "POINT.X").path == ("point", "x")
    assert locate(SCHEMA, "points.element.Y").path == ("points", "element", "y")
    inside = locate(SCHEMA, "`by name`.value.element")
    assert (inside.field.name, inside.inner, inside.type) == ("by name", ("value", "element"), INTEGER)
    assert str(locate(SCHEMA, ["by name"])) == "by name"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nope", "there is no column nope"),
        ("point.z", "in point: there is no column z"),
        ("points.x", "Write .element"),
        ("`by name`.x", "Write .key or .value"),
        ("id.x", "id is of type bigint"),
        ([], "needs a name"),
    ],
)
def test_what_is_not_there_is_explained(path: str | list[str], message: str) -> None:
    with pytest.raises(ColumnNotFoundError, match=message):
        locate(SCHEMA, path)


@pytest.mark.parametrize(
    ("position", "expected"),
    [(None, ["x", "y", "z"]), ("FIRST", ["z", "x", "y"]), ("after X", ["x", "z", "y"]), ("AFTER `y`", ["x", "y", "z"])],
)
@pytest.mark.parametrize("parent", [("point",), ("points", "element")])
def test_a_field_is_added_where_it_shall_be(position: str | None, expected: list[str], parent: tuple[str]) -> None:
    changed = add_field(SCHEMA, parent, StructField("z", LONG), position)
    struct = locate(changed, parent).type
    assert isinstance(struct, StructType)
    assert list(struct.names) == expected


@pytest.mark.parametrize(
    ("position", "message"), [("BEFORE x", "no position"), ("AFTER", "no position"), ("AFTER q", "no column q")]
)
def test_a_position_that_makes_no_sense(position: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        add_field(SCHEMA, ("point",), StructField("z", LONG), position)


def test_names_are_taken_in_any_case() -> None:
    with pytest.raises(SchemaError, match=r"there is a column point\.x already"):
        add_field(SCHEMA, ("point",), StructField("X", LONG), None)
    with pytest.raises(SchemaError, match="there is a column id already"):
        rename_field(SCHEMA, ("point",), "ID")
    assert rename_field(SCHEMA, ("id",), "ID").names[0] == "ID"  # its own name in another case is free


def test_only_structs_have_fields() -> None:
    with pytest.raises(ColumnNotFoundError, match="only structs have fields"):
        add_field(SCHEMA, ("points",), StructField("z", LONG), None)


def test_the_last_field_stays() -> None:
    with pytest.raises(SchemaError, match="nothing would be left of point"):
        drop_field(drop_field(SCHEMA, ("point", "x")), ("point", "y"))


def test_a_type_inside_a_map_is_changed() -> None:
    changed = change_type(SCHEMA, ("by name", "value", "element"), lambda _: LONG)
    assert changed.field("by name").type == MapType(STRING, ArrayType(LONG))
    assert changed.fields[:3] == SCHEMA.fields[:3]


@given(st.permutations(["FIRST", "AFTER id", "AFTER points"]), st.sampled_from(["id", "point", "by name"]))
def test_moving_a_column_keeps_all_columns(positions: list[str], name: str) -> None:
    schema = SCHEMA
    for position in positions:
        if position != f"AFTER {name}":
            schema = move_field(schema, (name,), position)
    assert sorted(map(str, schema.fields)) == sorted(map(str, SCHEMA.fields))
