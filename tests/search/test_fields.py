"""The fields of an index: defaults by type, choices by argument and by option, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ColumnNotFoundError, SchemaError, SearchConfigError
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from headwater.search.choices import index_config
from headwater.search.config import FieldConfig, IndexConfig
from support.search.built_splits import schema_of

LOGS = schema_of(id=LONG, message=STRING, host=STRING, took=DOUBLE, at=TIMESTAMP, tags=ArrayType(STRING), body=BINARY)
PREFIX = "spark.indextables.indexing."


@pytest.mark.parametrize(
    ("type_", "kind", "fast"),
    [
        (STRING, "string", True),
        (PrimitiveType("varchar(5)"), "string", True),
        (LONG, "i64", True),
        (INTEGER, "i64", True),
        (SHORT, "i64", True),
        (BYTE, "i64", True),
        (DATE, "i64", True),
        (TIMESTAMP, "i64", True),
        (TIMESTAMP_NTZ, "i64", True),
        (PrimitiveType("interval day to second"), "i64", True),
        (PrimitiveType("interval hour"), "i64", True),
        (PrimitiveType("time(6)"), "i64", True),
        (FLOAT, "f64", True),
        (DOUBLE, "f64", True),
        (BOOLEAN, "bool", True),
        (DecimalType(18, 2), "i64", True),
        (DecimalType(19, 2), "string", True),
        (ArrayType(STRING), "json", False),
        (MapType(STRING, LONG), "json", False),
        (StructType([StructField("a", LONG)]), "json", False),
        (BINARY, "stored", False),
        (VARIANT, "stored", False),
        (VOID, "stored", False),
    ],
)
def test_every_type_is_indexed_as_what_it_is(type_: Any, kind: str, fast: bool) -> None:
    (field,) = index_config(schema_of(c=type_)).fields

    assert (field.name, field.kind, field.fast, field.indexed, field.stored) == (
        "c",
        kind,
        fast,
        kind != "stored",
        True,
    )


def test_a_type_without_an_arrow_form_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"column c: .*interval year to month.*cast it first"):
        index_config(schema_of(c=PrimitiveType("interval year to month")))


def test_a_column_can_be_both_text_and_string() -> None:
    config = index_config(LOGS, types={"message": ("text", "string")})

    text, raw = config.fields_of("message")
    assert (text.name, text.kind, text.tokenizer, text.fast) == ("message", "text", "default", False)
    assert (raw.name, raw.kind, raw.tokenizer, raw.fast) == ("message.raw", "string", "raw", True)
    assert [field.name for field in config.text_fields] == ["message"]


def test_the_first_type_of_a_column_has_its_name() -> None:
    config = index_config(LOGS, types={"message": "string, text"})

    assert [(f.name, f.kind) for f in config.fields_of("message")] == [("message", "string"), ("message.text", "text")]


def test_options_have_the_names_that_users_know_and_spark_loses_their_case() -> None:
    config = index_config(
        schema_of(Message=STRING, Host=STRING, Ip=STRING, Took=DOUBLE, Secret=STRING, Body=STRING),
        options={
            PREFIX + "typemap.message": "text",
            PREFIX + "TypeMap.ip": "IP",
            PREFIX + "tokenizer.message": "en_stem",
            PREFIX + "fastfields": "message",
            PREFIX + "nonfastfields": "host , took",
            PREFIX + "storeonlyfields": "body",
            PREFIX + "indexonlyfields": "secret",
            "spark.indextables.checkpoint.interval": "10",
        },
    )

    shape = {f.name: (f.kind, f.tokenizer, f.fast, f.indexed, f.stored) for f in config.fields}
    assert shape == {
        "Message": ("text", "en_stem", True, True, True),
        "Host": ("string", "raw", False, True, True),
        "Ip": ("ip", "raw", True, True, True),
        "Took": ("f64", "raw", False, True, True),
        "Secret": ("string", "raw", True, True, False),
        "Body": ("string", "raw", False, False, True),
    }
    assert config.stored_schema(schema_of(Secret=STRING, Body=STRING)).names == ("Body",)


def test_arguments_win_over_options() -> None:
    options = {PREFIX + "typemap.message": "string", PREFIX + "nonfastfields": "host", PREFIX + "storeonlyfields": "id"}

    config = index_config(LOGS, options=options, types={"message": "text"}, fast=["host"], indexed_only=["id"])

    assert config.field("message").kind == "text"
    assert config.field("host").fast
    assert (config.field("id").indexed, config.field("id").stored) == (True, False)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"types": {"message": "texte"}}, "no type 'texte'"),
        ({"types": {"took": "text"}}, "only columns of strings can be text"),
        ({"types": {"message": "text,text"}}, "each of them once"),
        ({"types": {"message": ()}}, "each of them once"),
        ({"tokenizers": {"message": "klingon"}}, "no tokenizer 'klingon'"),
        ({"tokenizers": {"host": "en_stem"}}, "'host' is not tokenised"),
        ({"fast": ["host"], "not_fast": ["host"]}, "'host' cannot be fast and not fast"),
        ({"stored_only": ["host"], "indexed_only": ["host"]}, "only stored and only indexed"),
        ({"stored_only": ["host"], "fast": ["host"]}, "'host' is not indexed"),
        ({"indexed_only": ["body"]}, "'body' cannot be indexed"),
        ({"indexed_only": ["host"], "partition_columns": ["host"]}, "'host' is a partition column"),
        ({"options": {PREFIX + "fastfield": "host"}}, "did you mean '.*fastfields'"),
        ({"options": {PREFIX + "typemap": "text"}}, "there is no option"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchConfigError, match=message):
        index_config(LOGS, **choices)


@pytest.mark.parametrize(
    "choices",
    [{"types": {"nope": "text"}}, {"fast": ["nope"]}, {"stored_only": ["nope"]}, {"tokenizers": {"nope": "raw"}}],
)
def test_a_choice_about_a_column_that_is_not_there_is_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(ColumnNotFoundError, match="nope"):
        index_config(LOGS, **choices)


def test_names_that_the_index_needs_or_would_have_twice_are_refused() -> None:
    with pytest.raises(SearchConfigError, match="_hw_rid"):
        index_config(schema_of(_hw_rid=LONG))
    twice = StructType([StructField("a", STRING), StructField("a.raw", STRING)])
    with pytest.raises(SearchConfigError, match=r"'a\.raw'"):
        index_config(twice, types={"a": "text,string"})


def test_the_configuration_survives_its_json() -> None:
    nested = StructType([StructField("a", DecimalType(38, 10)), StructField("b", MapType(STRING, ArrayType(DATE)))])
    schema = schema_of(message=STRING, ip=STRING, n=nested, d=DecimalType(30, 3), took=PrimitiveType("interval day"))
    config = index_config(
        schema,
        types={"message": "text,string", "ip": "ip"},
        tokenizers={"message": "whitespace", "n": "raw"},
        not_fast=["d"],
        indexed_only=["ip"],
    )

    assert IndexConfig.from_json(config.to_json()) == config


def test_the_doc_mapping_of_the_specification_is_read() -> None:
    config = IndexConfig.from_json('{"fields":[{"name":"id","type":"i64"},{"name":"content","type":"text"}]}')

    assert config.fields == (
        FieldConfig("id", "id", "i64", LONG),
        FieldConfig("content", "content", "text", STRING, tokenizer="default"),
    )


@pytest.mark.parametrize(
    "text", ["", "[]", '{"fields":1}', '{"fields":[{"name":"a","type":"vector"}]}', '{"fields":[{"name":"a"}]}']
)
def test_what_is_no_doc_mapping_is_refused(text: str) -> None:
    with pytest.raises(SearchConfigError):
        IndexConfig.from_json(text)


def test_fields_are_found_in_any_case_and_missing_ones_are_named() -> None:
    config = index_config(schema_of(userId=LONG, a=STRING, A=STRING))

    assert config.field("USERID").name == "userId"
    assert (config.field("a").name, config.field("A").name) == ("a", "A")
    with pytest.raises(ColumnNotFoundError, match="did you mean 'userId'"):
        config.field("userID2")
    assert config.find("b") is None


@pytest.mark.parametrize("name", ["a b", "a.b", "-a", "Größe (cm)", 'say "x"', "a:b", "a\\b", "%2E", "a\nb", "🎉"])
def test_index_names_have_no_dots_and_no_dash_in_front_and_stay_distinct(name: str) -> None:
    field = FieldConfig(name, name, "string", STRING)

    assert "." not in field.index_name
    assert not field.index_name.startswith("-")
    assert field.index_name != FieldConfig("a%2Eb", "x", "string", STRING).index_name


def test_ranges_and_equality_are_right_only_where_the_index_orders_as_spark_does() -> None:
    config = index_config(
        schema_of(s=STRING, t=STRING, ip=STRING, n=LONG, f=DOUBLE, small=DecimalType(10, 2), large=DecimalType(38, 2)),
        types={"t": "text", "ip": "ip"},
    )

    assert [f.name for f in config.fields if f.ordered] == ["s", "n", "f", "small"]
    assert [f.name for f in config.fields if f.exact] == ["s", "n", "f", "small", "large"]
