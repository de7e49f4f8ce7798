"""Do the columns of some data fit a table? Every difference is named, column by column."""

from __future__ import annotations

import pytest

from headwater.errors import SchemaError, SchemaMismatchError
from headwater.log.schema import INTEGER, LONG, STRING, ArrayType, DataType, MapType, StructField, StructType
from headwater.spark.write.schema import check_fits, differences


def struct(nullable: bool = True, **types: DataType) -> StructType:
    return StructType(StructField(name, type_, nullable) for name, type_ in types.items())


def problems(data: StructType, table: StructType, *filled: str) -> list[tuple[str, str, str]]:
    return [(d.column, d.table_type, d.data_type) for d in differences(data, table, filled)]


def test_columns_match_by_name_in_any_case_and_order() -> None:
    assert problems(struct(NAME=STRING, Id=INTEGER), struct(id=LONG, name=STRING)) == []


def test_missing_columns_may_be_null() -> None:
    assert problems(struct(id=LONG), struct(id=LONG, name=STRING)) == []


def test_missing_columns_that_may_not_be_null() -> None:
    table = struct(nullable=False, id=LONG, name=STRING)
    assert problems(struct(id=LONG), table) == [("name", "string", "-")]
    assert problems(struct(id=LONG), table, "Name") == []


def test_every_difference_at_every_level_is_found() -> None:
    table = struct(
        id=LONG, a=struct(b=LONG, c=struct(d=INTEGER)), items=ArrayType(struct(x=LONG)), m=MapType(STRING, LONG)
    )
    data = struct(
        id=STRING,
        a=struct(b=LONG, c=struct(d=STRING, e=LONG)),
        items=ArrayType(struct(x=STRING)),
        m=MapType(STRING, struct(q=LONG)),
        more=LONG,
    )
    assert problems(data, table) == [
        ("id", "bigint", "string"),
        ("a.c.d", "int", "string"),
        ("a.c.e", "-", "bigint"),
        ("items.element.x", "bigint", "string"),
        ("m.value", "bigint", "struct<q:bigint>"),
        ("more", "-", "bigint"),
    ]


def test_the_message_is_a_table_of_differences() -> None:
    with pytest.raises(SchemaMismatchError) as raised:
        check_fits(struct(id=STRING, extra=LONG), struct(id=LONG), (), "file:///t")
    assert isinstance(raised.value, SchemaError)
    assert str(raised.value).splitlines() == [
        "the DataFrame does not fit the table file:///t:",
        "  column  table   data    problem",
        "  id      bigint  string  string cannot be stored as bigint",
        "  extra   -       bigint  the table has no such column",
        "Set merge_schema=True to add new columns to the table, or drop them from the DataFrame.",
    ]


def test_a_message_is_never_endless() -> None:
    data = struct(**{f"c{i}": LONG for i in range(100)})
    with pytest.raises(SchemaMismatchError, match=r"\.\.\. and 80 more"):
        check_fits(data, struct(id=LONG), (), "t")
