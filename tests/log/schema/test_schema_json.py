from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given

from headwater.errors import SchemaError
from headwater.log.schema import (
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    is_char,
    is_string,
)
from support.corpus import CORPUS, MISSING, tables
from support.log.schema_strategies import all_types, schemas

if TYPE_CHECKING:
    from pathlib import Path

# The example of the spec, "Schema Serialization Format".
SPEC_EXAMPLE = """
{
  "type" : "struct",
  "fields" : [ {
    "name" : "a", "type" : "integer", "nullable" : false, "metadata" : { }
  }, {
    "name" : "b",
    "type" : {"type" : "struct", "fields" : [ {
        "name" : "d", "type" : "integer", "nullable" : false, "metadata" : { } } ] },
    "nullable" : true, "metadata" : { }
  }, {
    "name" : "c",
    "type" : { "type" : "array", "elementType" : "integer", "containsNull" : false },
    "nullable" : true, "metadata" : { }
  }, {
    "name" : "e",
    "type" : { "type" : "array", "elementType" : { "type" : "struct", "fields" : [ {
          "name" : "d", "type" : "integer", "nullable" : false, "metadata" : { } } ] },
      "containsNull" : true },
    "nullable" : true, "metadata" : { }
  }, {
    "name" : "f",
    "type" : { "type" : "map", "keyType" : "string", "valueType" : "string", "valueContainsNull" : true },
    "nullable" : true, "metadata" : { }
  } ]
}
"""


def of_one(type_json: str) -> DataType:
    return StructType.from_json(f'{{"type":"struct","fields":[{{"name":"x","type":{type_json}}}]}}').field("x").type


def test_reads_the_example_of_the_spec() -> None:
    schema = StructType.from_json(SPEC_EXAMPLE)

    d = StructField("d", INTEGER, nullable=False)
    assert schema == StructType(
        [
            StructField("a", INTEGER, nullable=False),
            StructField("b", StructType([d])),
            StructField("c", ArrayType(INTEGER, contains_null=False)),
            StructField("e", ArrayType(StructType([d]))),
            StructField("f", MapType(STRING, STRING)),
        ]
    )
    assert json.loads(schema.to_json()) == json.loads(SPEC_EXAMPLE)


def test_writes_json_as_compact_and_in_the_order_of_spark() -> None:
    schema = StructType([StructField("a", LONG, metadata={"comment": "Größe"})])

    assert schema.to_json() == (
        '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{"comment":"Größe"}}]}'
    )


@given(schemas(all_types, with_extra=True))
def test_every_schema_survives_json(schema: StructType) -> None:
    assert StructType.from_json(schema.to_json()) == schema
    assert StructType.from_json(schema.to_json().encode()) == schema
    assert StructType.from_json(schema.to_dict()) == schema
    assert StructType.from_json(json.dumps(schema.to_dict())) == schema


def test_metadata_and_unknown_keys_survive_as_they_are() -> None:
    field = {
        "name": "größe 🎉",
        "type": {"type": "array", "elementType": "string", "containsNull": True, "newKey": [1]},
        "nullable": False,
        "metadata": {
            "__COLLATIONS": {"größe 🎉.element": "icu.UNICODE"},
            "delta.identity.highWaterMark": 2**53 + 1,
            "big": 2**64 + 1,
            "delta.typeChanges": [{"fromType": "short", "toType": "integer"}],
            "nothing": None,
            "ratio": 1.0,
        },
        "fieldKey": {"a": "b"},
    }
    text = json.dumps({"type": "struct", "fields": [field], "topKey": "t"})

    schema = StructType.from_json(text)

    assert json.loads(schema.to_json()) == json.loads(text)
    assert type(json.loads(schema.to_json())["fields"][0]["metadata"]["ratio"]) is float


def test_a_changed_dict_does_not_change_the_schema() -> None:
    schema = StructType([StructField("a", LONG, metadata={"list": [1]})])

    schema.to_dict()["fields"][0]["metadata"]["list"].append(2)

    assert schema.field("a").metadata == {"list": [1]}


@pytest.mark.parametrize(
    ("type_json", "expected"),
    [
        ('"decimal"', DecimalType(10, 0)),
        ('"decimal(38,18)"', DecimalType(38, 18)),
        ('"decimal( 10 , 2 )"', DecimalType(10, 2)),
        ('"void"', VOID),
        ('"null"', VOID),
        ('"timestamp_ltz"', TIMESTAMP),
        ('"varchar( 10 )"', PrimitiveType("varchar(10)")),
        ('"char(3)"', PrimitiveType("char(3)")),
        ('"geography(OGC:CRS84, spherical)"', PrimitiveType("geography(OGC:CRS84, spherical)")),
        ('{"type":"array","elementType":"long"}', ArrayType(LONG, contains_null=True)),
        ('{"type":"map","keyType":"long","valueType":"long"}', MapType(LONG, LONG)),
        (
            '{"type":"udt","class":"org.X","pyClass":"x.Y","sqlType":{"type":"array","elementType":"boolean"}}',
            UserDefinedType(ArrayType(BOOLEAN), {"class": "org.X", "pyClass": "x.Y"}),
        ),
    ],
)
def test_reads_the_types_that_writers_use(type_json: str, expected: DataType) -> None:
    assert of_one(type_json) == expected


def test_unknown_types_say_so() -> None:
    assert not PrimitiveType("geometry(OGC:CRS84)").is_known
    assert not PrimitiveType("interval year to month").is_known
    assert LONG.is_known
    assert PrimitiveType("varchar(10)").is_known


def test_chars_are_strings() -> None:
    assert is_string(STRING)
    assert is_string(PrimitiveType("char(3)"))
    assert is_char(PrimitiveType("varchar(3)"))
    assert not is_char(STRING)
    assert not is_string(LONG)


def test_missing_keys_have_the_defaults_of_spark() -> None:
    schema = StructType.from_json('{"type":"struct","fields":[{"name":"a","type":"long","metadata":null}]}')

    assert schema.fields == (StructField("a", LONG, nullable=True, metadata={}),)


def nested(bad: str) -> str:
    """A bad field `b` in the elements of the array column `a`."""
    return (
        '{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":'
        f'{{"type":"struct","fields":[{bad}]}}}}}}]}}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "a type is a name or an object"),
        ("null", "a type is a name or an object"),
        ('"string"', "a table's schema is a struct, this is of type string"),
        ('{"type":"array","elementType":"long"}', "a table's schema is a struct"),
        ("{}", "no key 'type'"),
        ('{"type":"struct"}', "the key 'fields' is missing"),
        ('{"type":"struct","fields":{}}', "'fields' is a list"),
        ('{"type":"struct","fields":[1]}', "field 0 is an object, not 1"),
        ('{"type":"struct","fields":[{"type":"long"}]}', "field 0 has no name"),
        ('{"type":"struct","fields":[{"name":1,"type":"long"}]}', "field 0: bad name 1"),
        (nested('{"name":"b"}'), "at a.element.b: the key 'type' is missing"),
        (nested('{"name":"b","type":5}'), "at a.element.b: a type is a name or an object, not 5"),
        (nested('{"name":"b","type":""}'), "at a.element.b: the name of the type is empty"),
        (nested('{"name":"b","type":"decimal(39,0)"}'), "at a.element.b: decimal"),
        (nested('{"name":"b","type":"decimal(5,6)"}'), "at a.element.b: decimal"),
        (nested('{"name":"b","type":"decimal(5,-1)"}'), "at a.element.b: decimal"),
        (nested('{"name":"b","type":{"type":"set"}}'), "at a.element.b: unknown type 'set'"),
        (
            nested('{"name":"b","type":{"type":"map","keyType":"long"}}'),
            "at a.element.b: the key 'valueType'",
        ),
        (
            nested('{"name":"b","type":"long","nullable":"yes"}'),
            "at a.element.b: 'nullable' is true or false",
        ),
        (nested('{"name":"b","type":"long","metadata":[]}'), "at a.element.b: 'metadata' is an object"),
        (nested('{"name":"x.y","type":""}'), "at a.element.`x.y`:"),
        ('{"type":' * 3000 + "1" + "}" * 3000, "nested too deeply"),
    ],
)
def test_a_bad_schema_is_an_error_that_says_where(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        StructType.from_json(text)

    assert message in str(caught.value)


def test_metadata_that_json_cannot_hold_is_an_error() -> None:
    with pytest.raises(SchemaError, match="JSON"):
        StructType([StructField("a", LONG, metadata={"x": object()})]).to_json()


# --- the schemas of real tables ------------------------------------------------------------------------


def spec_name(data_type: DataType) -> str:
    """The notation of the corpus: the spec's names, nested as in SQL."""
    match data_type:
        case StructType(fields=fields):
            return f"struct<{','.join(f'{f.name}:{spec_name(f.type)}' for f in fields)}>"
        case ArrayType(element_type=element):
            return f"array<{spec_name(element)}>"
        case MapType(key_type=key, value_type=value):
            return f"map<{spec_name(key)},{spec_name(value)}>"
        case _:
            return data_type.json_name


def schema_strings(table: Path) -> list[str]:
    """Every schema in the JSON files of a table's log."""
    found = []
    for file in sorted((table / "_delta_log").rglob("*.json")):
        for line in file.read_bytes().splitlines():
            try:
                action = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(action, dict) and isinstance(action.get("metaData"), dict):
                found.append(action["metaData"].get("schemaString"))
    return [text for text in found if text]


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_every_schema_of_the_corpus_survives() -> None:
    assert CORPUS is not None
    texts = [text for entry in tables() for text in schema_strings(CORPUS / entry["path"])]

    assert len(texts) > 200
    for text in texts:
        assert json.loads(StructType.from_json(text).to_json()) == json.loads(text)


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_schemas_of_the_corpus_are_read_as_other_readers_read_them() -> None:
    assert CORPUS is not None
    compared = 0
    for entry in tables():
        texts = schema_strings(CORPUS / entry["path"])
        log = sorted((CORPUS / entry["path"] / "_delta_log").glob("*.json"))
        if not texts or not entry.get("columns") or len(log) != entry["latest_version"] + 1:
            continue  # the last schema may be in a checkpoint
        schema = StructType.from_json(texts[-1])
        described = [{"name": f.name, "type": spec_name(f.type), "nullable": f.nullable} for f in schema]
        assert described == entry["columns"], entry["name"]
        compared += 1
    assert compared > 100
