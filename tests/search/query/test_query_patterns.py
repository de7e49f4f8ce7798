"""Patterns mean the same to Python, to Arrow and to the index."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tantivy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.log.schema import STRING
from headwater.search.query.patterns import (
    UnsupportedPatternError,
    check_regex,
    literal_regex,
    prefix_regex,
    text_bound,
    wildcard_regex,
)
from headwater.search.rows.tokens import within_edits
from headwater.search.split.reader import Split
from support.search.built_splits import found, schema_of, split_of
from support.search.query_corpus import edits

VALUES = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "abc",
    "a\nb",
    "a.b",
    "a*b",
    "[a]",
    "a-b",
    "1",
    "12",
    "_",
    "ü",
    "日本",
    "A",
    "\U0010ffff",
    "a b",
    "\\",
]


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    return split_of(tmp_path_factory.mktemp("values"), schema_of(v=STRING), [{"v": value} for value in VALUES])


atoms = st.sampled_from(
    ["a", "b", ".", "ü", r"\d", r"\w", r"\s", r"\.", r"\*", "[ab]", "[^a]", "[a-c1]", r"[\w-]", r"\[", "日"]
)
regexes = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: f"(?:{a}|{b})", inner, inner),
        st.builds(lambda a, r: f"({a}){r}", inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{1,}"])),
    ),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=regexes)
def test_expressions_mean_the_same_in_all_engines(split: Split, pattern: str) -> None:
    checked = check_regex(pattern)
    python = [i for i, value in enumerate(VALUES) if re.fullmatch(pattern, value, re.ASCII)]
    arrow = pc.match_substring_regex(pa.array(VALUES), rf"\A(?:{checked})\z").to_pylist()
    assert [i for i, hit in enumerate(arrow) if hit] == python
    assert found(split, tantivy.Query.regex_query(split.index.schema, "v", checked)) == python


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=st.text(alphabet="ab*?.\\[ü", max_size=6).filter(lambda p: not re.search(r"(?<!\\)(\\\\)*\\$", p)))
def test_wildcards_mean_the_same_in_all_engines(split: Split, pattern: str) -> None:
    parts = re.findall(r"\\.|.", pattern, flags=re.DOTALL)
    python_pattern = "".join({"*": ".*", "?": "."}.get(p, re.escape(p[-1])) for p in parts)
    python = [i for i, value in enumerate(VALUES) if re.fullmatch(python_pattern, value, re.DOTALL)]
    assert found(split, tantivy.Query.regex_query(split.index.schema, "v", wildcard_regex(pattern))) == python


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bound=st.one_of(st.sampled_from(VALUES), st.text(max_size=16)), inclusive=st.booleans(), is_lower=st.booleans())
def test_bounds_of_text_are_bounds_of_its_bytes(split: Split, bound: str, inclusive: bool, is_lower: bool) -> None:
    if bound == "" and not is_lower and not inclusive:
        return  # nothing is below the empty text
    pattern, exact = text_bound(bound, inclusive, is_lower=is_lower)
    key = bound.encode()
    wanted = [
        i
        for i, value in enumerate(v.encode() for v in VALUES)
        if (inclusive and value == key) or (value > key if is_lower else value < key)
    ]
    assert exact
    assert found(split, tantivy.Query.regex_query(split.index.schema, "v", pattern)) == wanted


def test_a_long_bound_lets_more_through(tmp_path: Path) -> None:
    pattern, exact = text_bound("a" * 40, False, is_lower=True)
    assert not exact
    assert re.fullmatch(pattern, "a" * 30)


@settings(max_examples=80, deadline=None)
@given(text=st.text(max_size=8))
def test_literals_mean_themselves(text: str) -> None:
    assert pc.match_substring_regex(pa.array([text]), rf"\A(?:{literal_regex(text)})\z").to_pylist() == [True]
    assert pc.match_substring_regex(pa.array([text + "\nx"]), rf"\A(?:{prefix_regex(text)})\z").to_pylist() == [True]


@pytest.mark.parametrize(
    "pattern",
    ["a(?i)b", "(?P<n>a)", "a{3,2}", "a}", "]", "[", "[[:alpha:]]", r"\p{L}", r"\1", "a+?", "*", "|*", "(", ")", "a$"],
)
def test_what_the_engines_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        check_regex(pattern)


ALL_WORDS = ["".join(letters) for length in range(1, 6) for letters in itertools.product("abü", repeat=length)]


@pytest.fixture(scope="module")
def all_words(tmp_path_factory: pytest.TempPathFactory) -> Split:
    return split_of(tmp_path_factory.mktemp("words"), schema_of(v=STRING), [{"v": word} for word in ALL_WORDS])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(word=st.text(alphabet="abü", min_size=1, max_size=6), distance=st.integers(0, 2))
def test_edits_are_counted_as_the_index_counts_them(all_words: Split, word: str, distance: int) -> None:
    query = tantivy.Query.fuzzy_term_query(all_words.index.schema, "v", word, distance, True, False)
    assert found(all_words, query) == [i for i, other in enumerate(ALL_WORDS) if within_edits(word, other, distance)]
    assert all(within_edits(word, other, distance) == (edits(word, other) <= distance) for other in ALL_WORDS)
