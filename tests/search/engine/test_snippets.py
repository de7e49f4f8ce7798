"""Snippets show the piece of a text in which a query found something."""

from __future__ import annotations

import html
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SearchQueryError
from headwater.log.schema import LONG, STRING
from headwater.search.choices import index_config
from headwater.search.engine.snippets import snippets
from headwater.search.query.parse import parse_query
from support.search.built_splits import schema_of
from support.search.query_corpus import words_of

CONFIG = index_config(schema_of(m=STRING, host=STRING, n=LONG), types={"m": "text"})


def snippet(text: str, query: str, field: str = "m", size: int = 150) -> str | None:
    rows = pa.table({"m": [text], "host": [text]})
    found = snippets(parse_query(query, CONFIG), rows, CONFIG, field, size).to_pylist()
    return found[0]  # type: ignore[no-any-return]


def test_what_was_found_is_marked() -> None:
    assert snippet("Disk full on disk-1", "disk") == "<b>Disk</b> full on <b>disk</b>-1"
    assert snippet("Disk full", '"disk full"') == "<b>Disk</b> <b>full</b>"
    assert snippet("timeouts and times", "time*") == "<b>timeouts</b> and <b>times</b>"
    assert snippet("fxo", "fox~1") == "<b>fxo</b>"
    assert snippet("a b", "a -b") == "<b>a</b> b"
    assert snippet("a b", "n:5") == "a b"
    assert snippet("web-1", "host:web-1", "host") == "<b>web-1</b>"


def test_html_in_the_text_is_only_text() -> None:
    assert snippet("<script> & error", "error") == "&lt;script&gt; &amp; <b>error</b>"


def test_a_long_text_is_cut_around_the_hits() -> None:
    text = "x " * 500 + "error here" + " y" * 500
    found = snippet(text, "error")
    assert found is not None
    assert "<b>error</b>" in found
    assert found.startswith("…")
    assert found.endswith("…")
    assert len(re.sub("</?b>|…", "", found)) == 150


def test_a_row_without_a_hit_shows_its_beginning() -> None:
    assert snippet("abc def", "nowhere", size=3) == "abc…"


def test_fields_that_are_no_text_have_none() -> None:
    rows = pa.table({"m": ["a"], "n": [1]})
    with pytest.raises(SearchQueryError, match="not a text"):
        snippets(parse_query("a", CONFIG), rows, CONFIG, "n")
    with pytest.raises(SearchQueryError, match="no field"):
        snippets(parse_query("a", CONFIG), rows, CONFIG, "nowhere")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["error", "Disk", "a<b", "ü-1", "x" * 30, "&"]), max_size=30), st.integers(10, 80))
def test_a_snippet_is_a_piece_of_the_text(words: list[str], size: int) -> None:
    text = " ".join(words)
    found = snippet(text, "error disk", size=size)
    assert found is not None
    plain = html.unescape(re.sub("</?b>", "", found)).strip("…")
    assert plain in text
    assert len(plain) <= size
    marked = [word for piece in re.findall("<b>(.*?)</b>", found) for word in words_of(html.unescape(piece))]
    assert set(marked) <= {"error", "disk"}
    if {"error", "disk"} & set(words_of(text)):
        assert marked
