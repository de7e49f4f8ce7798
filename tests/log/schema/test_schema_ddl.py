"""Types as SQL writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SchemaError
from headwater.log.schema import (
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from headwater.log.schema.spark import parse_type

_ATOMS = st.sampled_from(
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "variant",
        "decimal(10,2)",
        "decimal(38,38)",
        "varchar(5)",
        "char(1)",
    ]
)
_TYPES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda two: f"map<{two[0]},{two[1]}>"),
        st.lists(inner, max_size=3).map(lambda all_: f"struct<{','.join(f'f{i}:{t}' for i, t in enumerate(all_))}>"),
    ),
    max_leaves=6,
)


@given(_TYPES)
def test_the_sql_name_of_a_type_is_read_back(text: str) -> None:
    assert str(parse_type(text)) == text
    assert str(parse_type(f" {text.upper().replace('F', 'f')} ")).lower() == text.lower()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LONG", LONG),
        ("integer", INTEGER),
        ("dec", DecimalType(10, 0)),
        ("numeric(5)", DecimalType(5, 0)),
        ("timestamp_ltz", TIMESTAMP),
        ("Timestamp_NTZ", TIMESTAMP_NTZ),
        ("character(3)", PrimitiveType("char(3)")),
        ("map<string,array<int>>", MapType(STRING, ArrayType(INTEGER))),
        (
            "struct<`a b`: int NOT NULL COMMENT 'it''s', c string>",
            StructType([StructField("a b", INTEGER, False, {"comment": "it's"}), StructField("c", STRING)]),
        ),
        ("struct<>", StructType()),
    ],
)
def test_types_by_all_their_names(text: str, expected: DataType) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name of a type is expected where it ends"),
        ("strnig", "Did you mean string?"),
        ("array<int", "'>' is expected where it ends"),
        ("map<int>", "',' is expected where there is '>'"),
        ("int)", "the end is expected"),
        ("int; drop table", "is not understood"),
        ("decimal(40,2)", "is not possible"),
        ("char(0)", "at least 1"),
        ("varchar", r"'\(' is expected"),
        ("struct<a int b>", "',' or '>' is expected"),
        ("struct<int>", "the name of a type is expected"),
        ("array<" * 200 + "int" + ">" * 200, "nested"),
    ],
)
def test_what_is_no_type_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_type(text)
