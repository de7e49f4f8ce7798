from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_schema_json import schema_strings

from headwater.errors import SchemaError
from headwater.log.schema import (
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    may_be_padded,
    strings_for_chars,
)
from support.corpus import CORPUS, MISSING, tables
from support.log.schema_strategies import schemas, simple_types

T = pytest.importorskip("pyspark.sql.types")

CHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"


@pytest.mark.parametrize(
    ("data_type", "spark_type"),
    [
        (LONG, T.LongType()),
        (DecimalType(10, 2), T.DecimalType(10, 2)),
        (PrimitiveType("timestamp_ntz"), T.TimestampNTZType()),
        (PrimitiveType("void"), T.NullType()),
        (VARIANT, T.VariantType()),
        (ArrayType(INTEGER, contains_null=False), T.ArrayType(T.IntegerType(), False)),
        (MapType(STRING, DOUBLE), T.MapType(T.StringType(), T.DoubleType(), True)),
        (PrimitiveType("interval year to month"), T.YearMonthIntervalType()),
    ],
    ids=str,
)
def test_types_map_both_ways(data_type: DataType, spark_type: Any) -> None:
    schema = StructType([StructField("x", data_type, nullable=False, metadata={"comment": "c"})])
    spark_schema = T.StructType([T.StructField("x", spark_type, False, {"comment": "c"})])

    assert schema.to_spark() == spark_schema
    assert StructType.from_spark(spark_schema) == schema


@given(schemas(simple_types | st.just(VARIANT)))
def test_every_schema_survives_spark(schema: StructType) -> None:
    spark_schema = schema.to_spark()

    assert StructType.from_spark(spark_schema) == schema
    assert spark_schema.jsonValue() == schema.to_dict()


@given(schemas(simple_types))
def test_text_forms_are_those_of_spark(schema: StructType) -> None:
    spark_schema = schema.to_spark()

    assert str(schema) == spark_schema.simpleString()
    assert schema.tree() + "\n" == spark_schema.treeString()


def test_collations_are_those_of_the_spark_type() -> None:
    metadata = {"__COLLATIONS": {"a": "icu.UNICODE_CI"}, "comment": "c"}
    schema = StructType([StructField("a", STRING, metadata=metadata)])

    spark_schema = schema.to_spark()

    assert spark_schema["a"].dataType == T.StringType("UNICODE_CI")
    assert StructType.from_spark(spark_schema) == schema
    assert schema.field("a").metadata["__COLLATIONS"] == {"a": "icu.UNICODE_CI"}


# --- char and varchar -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_type", "spark_type", "declared"),
    [
        (PrimitiveType("char(3)"), T.StringType(), "char(3)"),
        (ArrayType(PrimitiveType("varchar(9)")), T.ArrayType(T.StringType()), "array<varchar(9)>"),
        (
            MapType(PrimitiveType("char(1)"), LONG),
            T.MapType(T.StringType(), T.LongType()),
            "map<char(1),bigint>",
        ),
    ],
    ids=str,
)
def test_chars_are_strings_for_spark_with_the_declared_type_in_the_metadata(
    data_type: DataType, spark_type: Any, declared: str
) -> None:
    """DataFrames accept no CharType; this is what Spark's own catalog makes of such columns."""
    schema = StructType([StructField("x", data_type)])

    assert schema.to_spark() == T.StructType([T.StructField("x", spark_type, True, {CHAR_KEY: declared})])


def test_a_declared_varchar_is_written_to_the_log_as_spark_writes_it() -> None:
    """The expected schema is what Spark 4.3 stores for `CREATE TABLE ... (c struct<x: char(3)>)`."""
    declared = T.StructType([T.StructField("c", T.StructType([T.StructField("x", T.CharType(3))]))])

    schema = StructType.from_spark(declared)

    assert schema.to_dict()["fields"] == [
        {
            "name": "c",
            "type": {
                "type": "struct",
                "fields": [{"name": "x", "type": "string", "nullable": True, "metadata": {}}],
            },
            "nullable": True,
            "metadata": {CHAR_KEY: "struct<x:char(3)>"},
        }
    ]
    assert StructType.from_spark(schema.to_spark()) == schema
    assert strings_for_chars(schema) == schema


@pytest.mark.parametrize(
    ("field", "parts", "expected"),
    [
        (StructField("a", STRING, metadata={CHAR_KEY: "char(3)"}), ["a"], True),
        (StructField("a", PrimitiveType("char(3)")), ["a"], True),
        (
            StructField("a", StructType([StructField("x", STRING)]), metadata={CHAR_KEY: "struct<x:char(3)>"}),
            ["a", "x"],
            True,
        ),
        (StructField("a", STRING, metadata={CHAR_KEY: "varchar(3)"}), ["a"], False),
        (StructField("a", PrimitiveType("varchar(3)")), ["a"], False),
        (StructField("a", STRING), ["a"], False),
    ],
)
def test_only_char_is_padded(field: StructField, parts: list[str], expected: bool) -> None:
    assert may_be_padded(StructType([field]).resolve(parts)) is expected


# --- user-defined types -----------------------------------------------------------------------------------


def test_the_user_defined_types_of_pyspark_come_back() -> None:
    from pyspark.ml.linalg import VectorUDT

    spark_schema = T.StructType([T.StructField("v", VectorUDT())])

    schema = StructType.from_spark(spark_schema)

    assert isinstance(schema.field("v").type, UserDefinedType)
    assert schema.to_spark() == spark_schema
    assert json.loads(schema.to_json())["fields"][0]["type"]["pyClass"] == "pyspark.ml.linalg.VectorUDT"


def test_a_table_cannot_make_spark_import_a_module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hw_not_to_be_imported.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    foreign = UserDefinedType(ArrayType(DOUBLE), {"pyClass": "hw_not_to_be_imported.Evil"})
    schema = StructType([StructField("a", ArrayType(StructType([StructField("b", foreign)])))])

    spark_schema = schema.to_spark()

    assert spark_schema["a"].dataType.elementType["b"].dataType == T.ArrayType(T.DoubleType())
    assert "hw_not_to_be_imported" not in sys.modules


@pytest.mark.parametrize("python_class", ["pyspark.sql.types.Nothing", "pyspark.nothing.X", "pyspark.ml.linalg.Other"])
def test_a_table_cannot_make_spark_unpickle_a_class(python_class: str) -> None:
    properties = {"pyClass": python_class, "serializedClass": "Y29zCnN5c3RlbQooUyd0cnVlJwp0Ui4="}
    schema = StructType([StructField("a", UserDefinedType(LONG, properties))])

    assert schema.to_spark()["a"].dataType == T.LongType()


# --- errors -----------------------------------------------------------------------------------------------


def test_a_type_that_pyspark_does_not_know_is_an_error_that_names_the_column() -> None:
    schema = StructType([StructField("ok", LONG), StructField("odd", PrimitiveType("quaternion"))])

    with pytest.raises(SchemaError, match="column odd: PySpark cannot represent type quaternion"):
        schema.to_spark()


@pytest.mark.parametrize("bad", [None, "a long", {"type": "struct"}, T.LongType()], ids=repr)
def test_only_a_spark_schema_is_accepted(bad: object) -> None:
    with pytest.raises(SchemaError, match=r"expected a pyspark\.sql\.types\.StructType"):
        StructType.from_spark(bad)


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.types", None)

    with pytest.raises(SchemaError, match=r"pip install \"headwater\[spark\]\""):
        StructType([]).to_spark()


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_schemas_of_the_corpus_survive_spark() -> None:
    assert CORPUS is not None
    converted = 0
    for entry in tables():
        for text in schema_strings(CORPUS / entry["path"]):
            if "geography" in text:
                continue  # PySpark 4.3 does not accept the spelling of that table
            schema = StructType.from_json(text)
            assert StructType.from_spark(schema.to_spark()) == schema
            converted += 1
    assert converted > 200
