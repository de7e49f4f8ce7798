"""Analysers: what the index does with a text, and that `tokens` says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SearchConfigError
from headwater.log.schema import STRING
from headwater.search.analysis import MAX_TERM_BYTES, TOKENIZERS, ip_text, register_tokenizers, tokens
from support.search.built_splits import rows_with, schema_of, split_of


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        ("default", "GET /a_b?x=1 Straße", ["get", "a", "b", "x", "1", "straße"]),
        ("default", "", []),
        ("raw", "Disk Full", ["Disk Full"]),
        ("raw", "", [""]),
        ("whitespace", " a-B\tC\n", ["a-B", "C"]),
        ("en_stem", "Running connections", ["run", "connect"]),
        ("default", "x" * 100, ["x" * 100]),
    ],
)
def test_the_terms_of_a_text(tokenizer: str, text: str, expected: list[str]) -> None:
    assert tokens(tokenizer, text) == expected


def test_an_unknown_tokenizer_is_refused() -> None:
    with pytest.raises(SearchConfigError, match="klingon"):
        tokens("klingon", "a")


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60), tokenizer=st.sampled_from(TOKENIZERS))
def test_the_index_has_exactly_the_tokens_of_a_text(text: str, tokenizer: str) -> None:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("t", tokenizer_name=tokenizer)
    index = tantivy.Index(builder.build())
    register_tokenizers(index)
    with index.writer(15_000_000, 1) as writer:
        writer.add_document(tantivy.Document(t=text))
    index.reload()

    terms = {term for term, _ in index.searcher().terms_with_prefix("t", "")}

    assert terms == set(tokens(tokenizer, text))


@pytest.mark.parametrize("length", [39, 40, 300, MAX_TERM_BYTES])
def test_long_tokens_are_found(tmp_path: Path, length: int) -> None:
    word = "x" * length

    split = split_of(tmp_path, schema_of(t=STRING), [{"t": f"a {word} b"}], types={"t": "text,string"})

    assert rows_with(split, "t", word) == [0]
    assert split.partial_fields == (frozenset() if length < 1000 else {"t.raw"})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:0DB8:0:0::1", "2001:db8::1"),
        ("010.0.0.1", None),
        ("fe80::1%eth0", None),
        ("10.0.0.1/8", None),
        (" 10.0.0.1", None),
        ("", None),
    ],
)
def test_an_ip_address_has_one_form(written: str, expected: str | None) -> None:
    assert ip_text(written) == expected
