from __future__ import annotations

import copy
import pickle

import pytest

from headwater.errors import ColumnNotFoundError, SchemaError
from headwater.log.schema import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
)

ADDRESS = StructType([StructField("City", STRING), StructField("geo", StructType([StructField("lat.lon", LONG)]))])
PEOPLE = StructType(
    [
        StructField("userId", LONG, nullable=False),
        StructField("address", ADDRESS),
        StructField("tags", ArrayType(ADDRESS)),
        StructField("Name", STRING),
        StructField("name", STRING),
    ]
)


def test_a_field_is_found_by_its_exact_name_before_others() -> None:
    assert PEOPLE.field("name") is PEOPLE.fields[4]
    assert PEOPLE.field("Name") is PEOPLE.fields[3]


def test_a_field_is_found_in_another_case_if_it_is_the_only_one() -> None:
    assert PEOPLE.field("USERID").name == "userId"
    with pytest.raises(ColumnNotFoundError, match="NAME is ambiguous: it may mean Name, name"):
        PEOPLE.field("NAME")


def test_nested_fields_are_resolved_through_structs() -> None:
    assert [f.name for f in PEOPLE.resolve(("ADDRESS", "city"))] == ["address", "City"]
    assert [f.name for f in PEOPLE.resolve(["address", "geo", "lat.lon"])] == ["address", "geo", "lat.lon"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["usrId"], "there is no column usrId. Did you mean userId?"),
        (["zzz"], "The columns are: userId, address, tags, Name, name."),
        (["address", "ctiy"], "there is no column address.ctiy. Did you mean City?"),
        (["address", "geo", "a.b", "x"], "there is no column address.geo.`a.b`"),
        (
            ["userId", "x"],
            "there is no column userId.x: userId is of type bigint, and only the fields of structs",
        ),
        (["tags", "City"], "tags is of type array<struct<"),
        ([], "the path is empty"),
    ],
)
def test_a_missing_column_is_an_error_with_a_suggestion(parts: list[str], message: str) -> None:
    with pytest.raises(ColumnNotFoundError) as caught:
        PEOPLE.resolve(parts)

    assert message in str(caught.value)
    assert isinstance(caught.value, SchemaError)


def test_only_some_names_of_a_wide_table_are_shown() -> None:
    wide = StructType(StructField(f"c{i}", LONG) for i in range(1000))

    with pytest.raises(ColumnNotFoundError, match=r"c0, .*, c9 and 990 more\."):
        wide.field("völlig anders")
    with pytest.raises(ColumnNotFoundError, match="no columns at all"):
        StructType().field("x")


def test_a_schema_is_a_sequence_of_fields() -> None:
    assert len(PEOPLE) == 5
    assert [f.name for f in PEOPLE] == list(PEOPLE.names) == ["userId", "address", "tags", "Name", "name"]


def test_types_show_as_spark_sql_shows_them() -> None:
    schema = StructType(
        [
            StructField("a", INTEGER),
            StructField("b", MapType(STRING, DecimalType(10, 2))),
            StructField("c", ArrayType(PrimitiveType("varchar(5)"))),
            StructField("d", PrimitiveType("geometry(OGC:CRS84)")),
        ]
    )
    assert str(schema) == ("struct<a:int,b:map<string,decimal(10,2)>,c:array<varchar(5)>,d:geometry(OGC:CRS84)>")


def test_the_tree_is_the_one_of_the_spec() -> None:
    schema = StructType(
        [
            StructField("a", INTEGER, nullable=False),
            StructField("b", StructType([StructField("d", INTEGER, nullable=False)])),
            StructField("e", ArrayType(StructType([StructField("d", INTEGER, nullable=False)]))),
            StructField("f", MapType(STRING, STRING)),
        ]
    )
    # "Example Table Schema" of the spec, as printSchema indents it.
    assert schema.tree() == (
        "root\n"
        " |-- a: integer (nullable = false)\n"
        " |-- b: struct (nullable = true)\n"
        " |    |-- d: integer (nullable = false)\n"
        " |-- e: array (nullable = true)\n"
        " |    |-- element: struct (containsNull = true)\n"
        " |    |    |-- d: integer (nullable = false)\n"
        " |-- f: map (nullable = true)\n"
        " |    |-- key: string\n"
        " |    |-- value: string (valueContainsNull = true)"
    )


def test_names_with_line_breaks_stay_on_one_line_of_the_tree() -> None:
    assert StructType([StructField("a\nb\tc", LONG)]).tree() == "root\n |-- a\\nb\\tc: long (nullable = true)"


def test_schemas_are_values() -> None:
    one = StructType([StructField("a", ArrayType(LONG), metadata={"comment": "x"})])
    same = StructType([StructField("a", ArrayType(LONG), metadata={"comment": "x"})])
    other = StructType([StructField("a", ArrayType(LONG), metadata={"comment": "y"})])

    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert UserDefinedType(LONG, {"class": "A"}) != UserDefinedType(LONG, {"class": "B"})
    with pytest.raises(AttributeError):
        one.fields = ()  # type: ignore[misc]


def test_schemas_can_be_sent_to_other_processes() -> None:
    PEOPLE.field("userId")  # fills what is looked up once

    assert pickle.loads(pickle.dumps(PEOPLE)) == PEOPLE
    assert copy.deepcopy(PEOPLE) == PEOPLE
