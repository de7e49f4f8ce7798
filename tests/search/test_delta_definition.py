"""The definition of a Delta table's search index: what it survives, and what makes other splits of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from headwater.errors import ColumnNotFoundError, CorruptLogError, SearchConfigError, SearchIndexNotFoundError
from headwater.log.schema import (
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    MappingMode,
    MapType,
    StructField,
    StructType,
)
from headwater.log.schema.mapping import COLUMN_ID_KEY, PHYSICAL_NAME_KEY
from headwater.search.delta_index import (
    DOMAIN,
    SearchDefinition,
    bind,
    define,
    definition_of,
    fingerprint_of,
    required_definition,
)
from headwater.search.query.tree import FieldPath, Nothing, Term, all_of


@dataclass(frozen=True)
class Table:
    """What a definition asks of a snapshot."""

    schema: StructType
    mapping_mode: MappingMode = "none"
    uri: str = "memory://table"
    domain_metadata: dict[str, str] | None = None


def mapped(name: str, number: int, type_: Any = STRING) -> StructField:
    return StructField(name, type_, metadata={PHYSICAL_NAME_KEY: f"col-{number}", COLUMN_ID_KEY: number})


PLAIN = Table(StructType([StructField("id", LONG), StructField("message", STRING), StructField("host", STRING)]))
COLUMNS = {"message": ("text", "string"), "host": "string", "id": None}


def test_a_definition_goes_to_the_log_and_back() -> None:
    definition = define(PLAIN, COLUMNS, {"message": "en_stem"})

    again = SearchDefinition.from_json(definition.to_json())

    assert again == definition
    assert definition_of(replace(PLAIN, domain_metadata={DOMAIN: definition.to_json()})) == definition
    assert [f.name for f in bind(again, PLAIN).shown.fields] == ["id", "message", "message.raw", "host"]
    assert bind(again, PLAIN).shown.field("message").tokenizer == "en_stem"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"formatVersion":1,"columns":[{}]}', '{"formatVersion":1}'])
def test_a_text_that_is_no_definition_is_an_error_that_names_the_domain(text: str) -> None:
    with pytest.raises(CorruptLogError, match=DOMAIN):
        SearchDefinition.from_json(text)


def test_a_definition_of_a_newer_format_is_an_error() -> None:
    with pytest.raises(CorruptLogError, match="newer"):
        SearchDefinition.from_json('{"formatVersion":2,"columns":[]}')


def test_a_table_without_a_definition_says_how_to_make_one() -> None:
    with pytest.raises(SearchIndexNotFoundError, match=r"headwater\.search_index"):
        required_definition(replace(PLAIN, domain_metadata={}))


def test_columns_that_cannot_be_indexed_are_refused() -> None:
    with pytest.raises(ColumnNotFoundError, match="mesage"):
        define(PLAIN, {"mesage": "text"})
    with pytest.raises(SearchConfigError):
        define(PLAIN, {"id": "text"})
    with pytest.raises(SearchConfigError, match="at least one column"):
        define(PLAIN, {})
    with pytest.raises(SearchConfigError, match="host"):
        define(PLAIN, {"message": "text"}, {"host": "en_stem"})


def test_splits_stay_the_same_when_other_things_change() -> None:
    definition = define(PLAIN, COLUMNS)
    first = bind(definition, PLAIN).fingerprint
    commented = [StructField(f.name, f.type, True, {"comment": "new"}) for f in PLAIN.schema.fields]

    more = Table(StructType([StructField("added", LONG), *reversed(commented)]))

    assert bind(definition, more).fingerprint == first


def test_other_columns_types_tokenizers_or_kinds_make_other_splits() -> None:
    def fingerprint(columns: dict[str, Any], tokenizers: dict[str, str] | None = None, table: Table = PLAIN) -> str:
        return bind(define(table, columns, tokenizers), table).fingerprint

    wider = Table(StructType([StructField("id", DOUBLE), *PLAIN.schema.fields[1:]]))
    found = [
        fingerprint({"message": "text"}),
        fingerprint({"message": "string"}),
        fingerprint({"message": "text"}, {"message": "whitespace"}),
        fingerprint({"message": "text", "host": "string"}),
        fingerprint({"message": "text", "id": None}),
        fingerprint({"message": "text", "id": None}, table=wider),
    ]

    assert len(set(found)) == len(found)


def test_a_renamed_column_is_asked_by_its_new_name_and_found_by_its_old_one() -> None:
    before = Table(StructType([mapped("message", 1), mapped("host", 2)]), "name")
    after = Table(StructType([mapped("text", 1), mapped("message", 2)]), "name")
    definition = define(before, {"message": "text"})

    bound = bind(definition, after)

    assert bound.fingerprint == bind(definition, before).fingerprint
    assert [f.name for f in bound.shown.fields] == ["text"]
    assert bound.stored_query(Term(FieldPath("text"), "error")) == Term(FieldPath("col-1"), "error")


def test_fields_inside_structs_are_found_by_the_names_of_data_files() -> None:
    inner = StructType([mapped("user", 2), mapped("tags", 3, MapType(STRING, StructType([mapped("n", 4, INTEGER)])))])
    table = Table(StructType([mapped("payload", 1, inner), mapped("list", 5, ArrayType(inner))]), "name")
    bound = bind(define(table, {"payload": None, "list": None}), table)

    query = all_of(
        Term(FieldPath("payload", ("user",)), "ann"),
        Term(FieldPath("payload", ("tags", "any key", "n")), 1),
        Term(FieldPath("list", ("user",)), "bob"),
    )

    assert bound.stored_query(query) == all_of(
        Term(FieldPath("col-1", ("col-2",)), "ann"),
        Term(FieldPath("col-1", ("col-3", "any key", "col-4")), 1),
        Term(FieldPath("col-5", ("col-2",)), "bob"),
    )
    # The name in data files is no name of the table's.
    assert bound.stored_query(Term(FieldPath("payload", ("col-2",)), "ann")) == Nothing()


def test_a_column_that_is_gone_stays_in_splits_and_cannot_be_asked_for() -> None:
    before = Table(StructType([mapped("message", 1), mapped("host", 2)]), "name")
    after = Table(StructType([mapped("message", 1)]), "name")
    definition = define(before, {"message": "text", "host": "string"})

    bound = bind(definition, after)

    assert bound.fingerprint == bind(definition, before).fingerprint
    assert bound.stored_schema.names == ("col-1", "col-2")
    assert [f.name for f in bound.shown.fields] == ["message"]


def test_a_definition_from_before_column_mapping_still_finds_its_columns() -> None:
    definition = define(PLAIN, {"message": "text", "host": "string"})
    upgraded = Table(
        StructType([StructField("renamed", STRING, metadata={PHYSICAL_NAME_KEY: "message", COLUMN_ID_KEY: 1})]), "name"
    )

    bound = bind(definition, upgraded)

    assert bound.stored_query(Term(FieldPath("renamed"), "x")) == Term(FieldPath("message"), "x")
    assert [f.metadata[PHYSICAL_NAME_KEY] for f in bound.stored_schema.fields] == ["message", "host"]


def test_a_column_that_was_replaced_by_one_that_cannot_be_indexed_so_has_no_fingerprint() -> None:
    domain = {DOMAIN: define(PLAIN, {"message": "text"}).to_json()}
    replaced = Table(StructType([StructField("message", LONG)]), domain_metadata=domain)

    assert fingerprint_of(replace(PLAIN, domain_metadata=domain)) is not None
    assert fingerprint_of(replaced) is None
    with pytest.raises(SearchConfigError, match="message"):
        bind(required_definition(replaced), replaced)
