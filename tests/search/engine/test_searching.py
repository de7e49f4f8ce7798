"""Searching a split: what the index cannot say is never guessed, cut off or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from headwater.errors import SearchQueryError
from headwater.log.schema import BINARY, DOUBLE, LONG, STRING, ArrayType, StructField, StructType
from headwater.search.choices import index_config
from headwater.search.engine.compile import compile_query
from headwater.search.engine.match import count, row_numbers
from headwater.search.engine.rank import top
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import (
    All,
    Exists,
    FieldPath,
    Fuzzy,
    Nothing,
    Phrase,
    Prefix,
    Range,
    Regex,
    Term,
    TermSet,
    none_of,
)
from headwater.search.rows.evaluate import matches
from headwater.search.split.build import merge_splits
from headwater.search.split.reader import Split
from support.search.built_splits import opened, schema_of, split_of
from support.search.query_corpus import CHOICES, SCHEMA, Predicate, corpus_split, queries, random_rows

ROWS = [random_rows(seed, 60) for seed in (21, 22, 23)]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Split:
    directory = tmp_path_factory.mktemp("merged")
    parts = [corpus_split(tmp_path_factory.mktemp("part"), rows) for rows in ROWS]
    return opened(merge_splits(parts, str(directory)))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=queries())
def test_a_merged_split_answers_as_its_parts_did(merged: Split, query: tuple[str, Predicate]) -> None:
    text, predicate = query
    rows = [row for part in ROWS for row in part]
    wanted = [i for i, row in enumerate(rows) if predicate(row)]
    tree = parse_query(text, index_config(SCHEMA, **CHOICES), ["message"])
    assert row_numbers(merged, tree).to_pylist() == wanted
    assert count(merged, tree) == len(wanted)


MESSAGE = FieldPath("message")
TEXT: dict[str, Any] = {"types": {"message": "text"}}


def test_there_is_no_cap_on_rows(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(message=STRING), [{"message": f"same w{i}"} for i in range(12_000)], **TEXT)
    assert len(row_numbers(split, Term(MESSAGE, "same"))) == 12_000
    assert len(row_numbers(split, All())) == 12_000
    assert len(row_numbers(split, Prefix(MESSAGE, "w"))) == 12_000
    assert len(top(split, Term(MESSAGE, "same"), None).scores) == 12_000
    terms = tuple(f"w{i}" for i in range(0, 12_000, 2))
    assert count(split, TermSet(MESSAGE, terms)) == 6_000


@pytest.mark.parametrize("size", [39, 40, 1_000, 65_530, 65_531, 200_000])
def test_long_words_are_found_whatever_their_length(tmp_path: Path, size: int) -> None:
    schema = schema_of(message=STRING, host=STRING)
    rows = [{"message": f"a {'x' * size} b", "host": "y" * size}, {"message": "a b", "host": "y"}]
    split = split_of(tmp_path, schema, rows, **TEXT)
    assert row_numbers(split, Term(MESSAGE, "x" * size)).to_pylist() == [0]
    assert row_numbers(split, Term(FieldPath("host"), "y" * size)).to_pylist() == [0]
    assert row_numbers(split, Phrase(MESSAGE, ("a", "b"))).to_pylist() == [1]
    assert row_numbers(split, Prefix(MESSAGE, "x" * 30)).to_pylist() == [0]
    assert row_numbers(split, Prefix(MESSAGE, "x" * size)).to_pylist() == [0]
    assert row_numbers(split, Phrase(MESSAGE, ("a", "x" * size, "b"))).to_pylist() == [0]
    assert row_numbers(split, none_of(Term(MESSAGE, "x" * size))).to_pylist() == [1]
    assert count(split, Range(FieldPath("host"), "yy", None)) == 1


def test_numbers_that_are_not_finite_have_their_place(tmp_path: Path) -> None:
    rows = [{"x": x} for x in (1.0, float("nan"), float("inf"), float("-inf"), None, -0.0)]
    split = split_of(tmp_path, schema_of(x=DOUBLE), rows)
    x = FieldPath("x")
    assert row_numbers(split, Range(x, 0.5, None)).to_pylist() == [0, 1, 2]
    assert row_numbers(split, Range(x, None, 0.5)).to_pylist() == [3, 5]
    assert row_numbers(split, Term(x, 0.0)).to_pylist() == [5]
    assert row_numbers(split, Exists(x)).to_pylist() == [0, 1, 2, 3, 5]
    assert row_numbers(split, none_of(Range(x, None, 0.5))).to_pylist() == [0, 1, 2, 4]


def test_what_is_only_indexed_answers_or_says_why_not(tmp_path: Path) -> None:
    rows = [{"message": "disk full"}, {"message": "full disk"}, {"message": None}]
    split = split_of(tmp_path, schema_of(message=STRING), rows, **TEXT, indexed_only=["message"])
    assert row_numbers(split, Phrase(MESSAGE, ("disk", "full"))).to_pylist() == [0]
    assert row_numbers(split, Phrase(MESSAGE, ("disk", "full"), 2)).to_pylist() == [0, 1]
    assert row_numbers(split, Exists(MESSAGE)).to_pylist() == [0, 1]
    with pytest.raises(SearchQueryError, match="'message' is only indexed"):
        row_numbers(split, Phrase(MESSAGE, ("disk", "full", "disk"), 2))


def test_what_is_not_indexed_is_read(tmp_path: Path) -> None:
    rows = [{"host": "a", "n": 1}, {"host": "b", "n": 2}, {"host": None, "n": None}]
    split = split_of(tmp_path, schema_of(host=STRING, n=LONG), rows, stored_only=["host", "n"])
    assert not compile_query(Term(FieldPath("host"), "b"), split).exact
    assert row_numbers(split, Term(FieldPath("host"), "b")).to_pylist() == [1]
    assert row_numbers(split, Range(FieldPath("n"), 1, None, False)).to_pylist() == [1]
    assert row_numbers(split, none_of(Exists(FieldPath("n")))).to_pylist() == [2]


def test_a_column_that_is_newer_than_the_split_is_null_in_it(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(host=STRING), [{"host": "a"}, {"host": "b"}])
    newer = Term(FieldPath("level"), "ERROR")
    assert count(split, newer) == 0
    assert row_numbers(split, none_of(Exists(FieldPath("level")))).to_pylist() == [0, 1]
    assert len(top(split, newer, 5).scores) == 0


def test_a_field_that_the_split_lacks_of_a_column_it_has_is_an_error(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(message=STRING), [{"message": "a"}])
    with pytest.raises(SearchQueryError, match=r"no field 'message\.raw'"):
        count(split, Term(FieldPath("message.raw"), "a"))


def test_large_expressions_are_answered_all_the_same(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(message=STRING), [{"message": "abc"}, {"message": "x1"}], **TEXT)
    assert row_numbers(split, parse_query("/[a-z]{1,900}/", split.config)).to_pylist() == [0]


def test_long_fuzzy_words_are_answered_all_the_same(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(message=STRING), [{"message": "x" * 999}, {"message": "x" * 997}], **TEXT)
    assert row_numbers(split, Fuzzy(MESSAGE, "x" * 1000, 2)).to_pylist() == [0]


def test_an_empty_split_has_nothing(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(message=STRING), [], **TEXT)
    for query in (All(), Nothing(), Term(MESSAGE, "a"), none_of(Term(MESSAGE, "a"))):
        assert count(split, query) == 0
        assert row_numbers(split, query).to_pylist() == []


def test_whole_numbers_beyond_doubles_are_told_apart(tmp_path: Path) -> None:
    inner = StructType([StructField("n", LONG)])
    rows = [{"n": 2**62 + i, "doc": f'{{"n": {2**62 + i}}}', "attrs": {"n": 2**62 + i}} for i in range(3)]
    schema = schema_of(n=LONG, doc=STRING, attrs=inner)
    split = split_of(tmp_path, schema, rows, types={"doc": "json"})
    for name in ("n", "doc.n", "attrs.n"):
        assert row_numbers(split, parse_query(f"{name}:{2**62 + 1}", split.config)).to_pylist() == [1]
        assert row_numbers(split, parse_query(f"{name}:>{2**62}", split.config)).to_pylist() == [1, 2]


def test_json_that_keeps_its_strings_whole(tmp_path: Path) -> None:
    rows = [{"tags": ["web-1", "2024-01-01T00:00:00Z"]}, {"tags": ["Web-1", None]}, {"tags": []}, {"tags": None}]
    split = split_of(tmp_path, schema_of(tags=ArrayType(STRING)), rows, tokenizers={"tags": "raw"})

    def found(text: str) -> list[int]:
        return row_numbers(split, parse_query(text, split.config)).to_pylist()  # type: ignore[no-any-return]

    assert found("tags:web-1") == [0]
    assert found("tags:[Web TO web]") == [1]
    assert found("tags:2024-01-01T00:00:00Z") == [0]
    assert found("tags:?eb-1") == [0, 1]
    assert found("tags:*") == [0, 1, 2]


def test_only_rows_with_gaps_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"x": float(i)} for i in range(500)] + [{"x": float("nan")}, {"x": None}]
    split = split_of(tmp_path, schema_of(x=DOUBLE), rows)
    read: list[int] = []
    original = Split.rows

    def counted(self: Split, numbers: Any = None, columns: Any = None) -> Any:
        read.append(len(numbers))
        return original(self, numbers, columns)

    monkeypatch.setattr(Split, "rows", counted)
    assert count(split, Range(FieldPath("x"), 100.0, None)) == 401
    assert row_numbers(split, none_of(Range(FieldPath("x"), 100.0, None))).to_pylist() == [*range(100), 501]
    assert read == [1, 1]


@pytest.mark.parametrize(
    "query",
    [
        Phrase(FieldPath("host"), ("a", "b")),
        Prefix(FieldPath("n"), "1"),
        Fuzzy(FieldPath("n"), "1", 1),
        Regex(MESSAGE, "(a"),
        Term(FieldPath("attrs"), "x"),
        Term(FieldPath("host", ("x",)), "x"),
        Term(FieldPath("blob"), "x"),
    ],
    ids=str,
)
def test_trees_that_ask_the_impossible_are_refused_alike(tmp_path: Path, query: Any) -> None:
    inner = StructType([StructField("n", LONG)])
    schema = schema_of(message=STRING, host=STRING, n=LONG, attrs=inner, blob=BINARY)
    row = {"message": "a", "host": "a", "n": 1, "attrs": {"n": 1}, "blob": b"x"}
    split = split_of(tmp_path, schema, [row], **TEXT)
    with pytest.raises(SearchQueryError):
        row_numbers(split, query)
    with pytest.raises(SearchQueryError):
        matches(query, split.rows(), split.config)


# --- one query, many splits ------------------------------------------------------------------------------


def test_splits_that_are_not_alike_are_not_asked_alike(tmp_path: Path) -> None:
    """One query for all: a plan for one of them must not serve another that lacks values, fields or columns."""
    text = schema_of(message=STRING)
    long_word = "x" * 70_000
    kinds = {
        "plain": (text, [{"message": "a b"}, {"message": "b"}], TEXT),
        "alike": (text, [{"message": "a"}, {"message": "a"}, {"message": "c"}], TEXT),
        "with a gap": (text, [{"message": f"a {long_word}"}, {"message": long_word}], TEXT),
        "no words": (text, [{"message": "a"}, {"message": "a b"}], {"types": {"message": "string"}}),
        "empty": (text, [], TEXT),
        "without the column": (schema_of(other=LONG), [{"other": 1}], {}),
    }
    splits = {}
    for number, (name, (schema, rows, choices)) in enumerate(kinds.items()):
        (tmp_path / str(number)).mkdir()
        splits[name] = split_of(tmp_path / str(number), schema, rows, **choices)

    for query, expected in (
        (Term(MESSAGE, "a"), [1, 2, 1, 1, 0, 0]),
        (Term(MESSAGE, long_word), [0, 0, 2, 0, 0, 0]),
        (none_of(Term(MESSAGE, "a")), [1, 1, 1, 1, 0, 1]),
        (All(), [2, 3, 2, 2, 0, 1]),
    ):
        for _ in range(2):
            assert [count(split, query) for split in splits.values()] == expected
            assert [len(row_numbers(split, query)) for split in splits.values()] == expected


def test_equal_queries_of_different_types_are_different_queries(tmp_path: Path) -> None:
    split = split_of(tmp_path, schema_of(n=LONG, x=DOUBLE), [{"n": 1, "x": 1.0}, {"n": 2, "x": 2.5}])
    field = FieldPath("n")
    assert count(split, Term(field, 1)) == 1
    assert Term(field, 1) == Term(field, 1.0)
    with pytest.raises(SearchQueryError):
        count(split, Term(field, 1.0))
