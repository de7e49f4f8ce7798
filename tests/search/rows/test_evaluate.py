"""Queries on plain rows: whatever forms the rows come in, and with every analyser."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SearchQueryError
from headwater.log.schema import LONG, STRING
from headwater.search.analysis import TOKENIZERS, tokens
from headwater.search.choices import index_config
from headwater.search.config import IndexConfig
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import All, FieldPath, Nothing, Term, none_of
from headwater.search.rows.evaluate import BATCH_ROWS, columns_needed, matches
from headwater.search.rows.tokens import token_column
from support.search.built_splits import schema_of


def config(tokenizer: str = "default") -> IndexConfig:
    return index_config(schema_of(m=STRING, n=LONG), types={"m": "text"}, tokenizers={"m": tokenizer})


def found(text: str, rows: pa.Table, tokenizer: str = "default") -> list[int]:
    mask = matches(parse_query(text, config(tokenizer)), rows, config(tokenizer))
    return [i for i, hit in enumerate(mask.to_pylist()) if hit]


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.one_of(st.text(max_size=20), st.text(alphabet="aB 1-\n\tüΣİ日ſK̇²", max_size=20)), max_size=8),
    tokenizer=st.sampled_from(TOKENIZERS),
)
def test_columns_have_the_tokens_that_the_analysers_give(texts: list[str], tokenizer: str) -> None:
    column = token_column(pa.array(texts, pa.string()), pa.array(range(len(texts)), pa.int64()), tokenizer)
    got: list[list[str]] = [[] for _ in texts]
    for text, code in zip(column.texts.to_pylist(), column.codes.to_pylist(), strict=True):
        got[text].append(column.terms[code].as_py())
    assert got == [tokens(tokenizer, text) for text in texts]


def test_stems_are_searched_as_stems() -> None:
    rows = pa.table({"m": ["Connections failed", "connect!", "other", None]})
    assert found("connecting", rows, "en_stem") == [0, 1]
    assert found('"connected failing"', rows, "en_stem") == [0]
    assert found("connect*", rows, "en_stem") == [0, 1]


def test_whitespace_keeps_case_and_punctuation() -> None:
    rows = pa.table({"m": ["Web-1 up", "web-1, up", "WEB-1"]})
    assert found("Web-1", rows, "whitespace") == [0]
    assert found("web-1*", rows, "whitespace") == [1]
    assert found("/[Ww]eb-1.?/", rows, "whitespace") == [0, 1]


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["disk full"], ["fine", None]]),
        pa.chunked_array([pa.array(["disk full", "fine", None], pa.large_string())]),
        pa.chunked_array([pa.array(["disk full", "fine", None]).dictionary_encode()]),
    ],
)
def test_all_forms_of_strings_are_understood(column: pa.ChunkedArray) -> None:
    assert found("disk", pa.table({"m": column})) == [0]
    assert found("m:*", pa.table({"m": column})) == [0, 1]


def test_many_rows_are_evaluated_in_pieces() -> None:
    count = BATCH_ROWS + 10
    rows = pa.table({"m": ["error"] * count, "n": list(range(count))})
    assert matches(parse_query("error AND n:>=65536", config()), rows, config()).true_count == 10


def test_rows_without_columns_can_be_counted() -> None:
    rows = pa.table({"n": [1, 2, 3]}).select([])
    assert matches(All(), rows, config()).to_pylist() == [True, True, True]
    assert matches(Nothing(), rows, config()).to_pylist() == [False, False, False]
    assert matches(All(), pa.table({"n": pa.array([], pa.int64())}), config()).to_pylist() == []


def test_only_the_needed_columns_are_named() -> None:
    query = parse_query("error AND n:5", config())
    assert columns_needed(query, config()) == ["m", "n"]
    assert columns_needed(All(), config()) == []


@pytest.mark.parametrize("query", [Term(FieldPath("nowhere"), "x"), none_of(Term(FieldPath("nowhere"), "x"))])
def test_unknown_fields_are_an_error(query: Any) -> None:
    with pytest.raises(SearchQueryError, match="no field 'nowhere'"):
        matches(query, pa.table({"m": ["a"]}), config())


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(SearchQueryError, match="no column 'n'"):
        matches(parse_query("n:5", config()), pa.table({"m": ["a"]}), config())
