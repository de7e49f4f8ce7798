"""The work for long texts, many hits and giant tokens grows with their size, not with its square.

Nothing here looks at a clock: what is counted is how often something is looked at.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SearchQueryError
from headwater.log.filters import expressions as sql
from headwater.log.schema import LONG, STRING
from headwater.search.config import FieldConfig, IndexConfig
from headwater.search.engine.match import row_numbers
from headwater.search.engine.rank import row_statistics, term_statistics, top
from headwater.search.engine.snippets import _window, snippets
from headwater.search.query.parse import parse_query
from headwater.search.query.sql import index_filter
from headwater.search.query.tree import Boolean, FieldPath, Prefix, Term, TermSet
from headwater.search.rows.evaluate import matches, scores
from headwater.search.rows.tokens import _fits, within_edits
from headwater.search.split.reader import Split
from support.search.built_splits import schema_of, split_of

CONFIG = IndexConfig(
    (
        FieldConfig("message", "message", "text", STRING, tokenizer="default"),
        FieldConfig("host", "host", "string", STRING),
        FieldConfig("attrs", "attrs", "json", STRING, tokenizer="default"),
    )
)


class Watched(list[Any]):
    """A list that counts how many of its elements were looked at."""

    looked_at = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looked_at += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Any:
        for item in super().__iter__():
            self.looked_at += 1
            yield item


# --- snippets -----------------------------------------------------------------------------------------


def window_cost(count: int) -> int:
    hits = Watched((9 * i, 9 * i + 4) for i in range(count))
    _window("word1234 " * count, hits, 150)
    return hits.looked_at


def test_the_best_window_is_found_in_one_go_over_the_hits() -> None:
    assert window_cost(20_000) < 2.1 * window_cost(10_000) < 2.1 * 10 * 10_000


def naive_window(text: str, hits: list[tuple[int, int]], size: int) -> tuple[int, int]:
    best = (0, 0, 0)
    for i, (start, _) in enumerate(hits):
        inside = [end for _, end in hits[i:] if end - start <= size]
        if len(inside) > best[0]:
            best = (len(inside), start, inside[-1])
    count, start, end = best
    if len(text) <= size:
        return 0, len(text)
    if not count:
        return 0, size
    left = max(0, min(start - (size - (end - start)) // 2, len(text) - size))
    return left, left + size


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), max_size=20), st.integers(0, 60), st.integers(1, 60))
def test_the_window_is_the_one_with_the_most_hits(gaps: list[tuple[int, int]], rest: int, size: int) -> None:
    hits, at = [], 0
    for gap, length in gaps:
        hits.append((at + gap, at + gap + length))
        at += gap + length
    text = "x" * (at + rest)
    assert _window(text, hits, size) == naive_window(text, hits, size)


def test_a_text_of_nothing_but_hits_has_a_snippet() -> None:
    rows = pa.table({"message": ["disk " * 100_000]})
    (found,) = snippets(parse_query("disk", CONFIG), rows, CONFIG, "message").to_pylist()
    assert found.count("<b>disk</b>") == 30


# --- words, phrases, names ----------------------------------------------------------------------------


def naive_near(word: str, other: str, distance: int) -> bool:
    table = [[max(i, j) if not i or not j else 0 for j in range(len(other) + 1)] for i in range(len(word) + 1)]
    for i in range(1, len(word) + 1):
        for j in range(1, len(other) + 1):
            best = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (word[i - 1] != other[j - 1]))
            if i > 1 and j > 1 and word[i - 1] == other[j - 2] and word[i - 2] == other[j - 1]:
                best = min(best, table[i - 2][j - 2] + 1)
            table[i][j] = best
    return table[-1][-1] <= distance


@given(st.text("ab", max_size=7), st.text("ab", max_size=7), st.integers(0, 3))
def test_edits_are_counted_as_in_the_whole_table(word: str, other: str, distance: int) -> None:
    assert within_edits(word, other, distance) == naive_near(word, other, distance)


def test_giant_words_are_compared_along_the_diagonal_only() -> None:
    giant = "ab" * 40_000
    assert within_edits(giant, giant[:-1] + "x", 1)
    assert not within_edits(giant, "x" + giant[:-2] + "y", 1)


def test_a_phrase_with_slop_in_a_text_of_repetitions_looks_at_few_places() -> None:
    def cost(count: int) -> int:
        places = {0: Watched(range(0, 2 * count, 2)), 1: Watched(range(10 * count, 12 * count, 2))}
        assert not _fits(places, [0, 1], 3)
        return places[0].looked_at + places[1].looked_at

    assert cost(4_000) < 2.5 * cost(2_000)


def test_a_name_of_many_parts_is_not_looked_up_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    find = IndexConfig.find
    monkeypatch.setattr(IndexConfig, "find", lambda self, name: (asked.append(name), find(self, name))[1])
    assert parse_query("attrs." + "a." * 20_000 + "b:x", CONFIG).on.path[-1] == "b"  # type: ignore[union-attr]
    assert sum(map(len, asked)) < 1_000


def test_long_prefixes_and_lists_are_asked_of_rows() -> None:
    long = "x" * 60_000
    rows = pa.table({"host": [long + "y", "x", None], "message": ["", "", ""], "attrs": ["{}"] * 3})
    assert matches(Prefix(FieldPath("host"), long), rows, CONFIG).to_pylist() == [True, False, False]
    many = TermSet(FieldPath("host"), (*map(str, range(100_000)), "x"))
    assert matches(many, rows, CONFIG).to_pylist() == [False, True, False]


def test_filters_nested_deeply_are_left_to_those_who_read_rows() -> None:
    leaf: sql.Expression = sql.Compare("=", sql.column("host"), sql.Literal("a"))
    nested = leaf
    for level in range(5_000):
        nested = (sql.And if level % 2 else sql.Or)((nested, leaf))
    query, exact = index_filter(nested, CONFIG)
    assert not exact
    assert _depth(query) <= 60
    while isinstance(nested, sql.And | sql.Or):  # a deep tree is taken down from its top, or Python is
        nested = nested.operands[0]


def _depth(query: Any) -> int:
    if not isinstance(query, Boolean):
        return 1
    return 1 + max(map(_depth, (*query.must, *query.should, *query.must_not)))


@pytest.mark.parametrize("factor", ["9" * 400, "1" * 40])
def test_a_boost_that_makes_scores_infinite_is_refused(factor: str) -> None:
    with pytest.raises(SearchQueryError, match="boost"):
        parse_query(f"disk^{factor}", CONFIG)


# --- giant tokens -------------------------------------------------------------------------------------

GIANT = "g" * 70_000
WORDS = ["error", "disk", "full", "web", "the"]


def logs(count: int, giant_at: int | None) -> list[dict[str, Any]]:
    chance = random.Random(7)
    rows = [{"message": " ".join(chance.choices(WORDS, k=chance.randint(1, 9))), "n": n} for n in range(count)]
    if giant_at is not None:
        rows[giant_at]["message"] += f" error {GIANT}"
    return rows


@pytest.fixture
def with_giant(tmp_path: Path) -> Split:
    return split_of(tmp_path, schema_of(message=STRING, n=LONG), logs(600, 300), types={"message": "text"})


@pytest.mark.parametrize("query", ["error", "disk OR full", "error AND NOT web", '"disk full"', "error^3 disk"])
def test_one_giant_token_does_not_make_a_scored_search_read_all_rows(
    with_giant: Split, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    tree = parse_query(query, with_giant.config)
    everywhere = term_statistics(with_giant, tree)
    numbers = row_numbers(with_giant, tree)
    expected = scores(tree, with_giant.rows(numbers), with_giant.config, everywhere)
    ranked = sorted(zip(expected.to_pylist(), numbers.to_pylist(), strict=True), key=lambda pair: (-pair[0], pair[1]))

    read: list[int] = []
    rows = Split.rows
    monkeypatch.setattr(
        Split,
        "rows",
        lambda self, n=None, c=None: (read.append(self.num_records if n is None else len(n)), rows(self, n, c))[1],
    )
    found = top(with_giant, tree, 20)

    assert sum(read) <= 2, "only the row with the giant token is read: to decide, and to score"
    assert found.scores.to_pylist() == pytest.approx([score for score, _ in ranked[:20]], rel=1e-5)
    everything = top(with_giant, tree, None)
    assert sorted(everything.row_numbers.to_pylist()) == numbers.to_pylist()


def test_scores_beside_a_giant_token_are_those_of_all_splits_together(with_giant: Split, tmp_path: Path) -> None:
    other = split_of(tmp_path / "other", schema_of(message=STRING, n=LONG), logs(50, None), types={"message": "text"})
    tree = parse_query("error disk", with_giant.config)
    from headwater.search.engine.scoring import merge_statistics

    everywhere = merge_statistics([term_statistics(with_giant, tree), term_statistics(other, tree)])
    numbers = row_numbers(with_giant, tree)
    by_rows = scores(tree, with_giant.rows(numbers), with_giant.config, everywhere)
    found = top(with_giant, tree, 10, everywhere)
    best = sorted(by_rows.to_pylist(), reverse=True)[:10]
    assert found.scores.to_pylist() == pytest.approx(best, rel=1e-5)
    assert row_statistics(tree, other.rows(), other.config).num_rows == 50


def test_terms_of_any_length_are_found(with_giant: Split) -> None:
    assert row_numbers(with_giant, Term(FieldPath("message"), GIANT)).to_pylist() == [300]
    assert row_numbers(with_giant, Term(FieldPath("message"), GIANT[:-1])).to_pylist() == []


def test_json_of_any_depth_and_length_is_written_and_searched(tmp_path: Path) -> None:
    texts = [
        '{"a": 1}',
        "[" * 100_000 + "]" * 100_000,
        '{"a": {"b": ' + "[" * 300 + "7" + "]" * 300 + "}}",
        '{"a":' * 90 + "1" + "}" * 90,
        '{"a":' * 200 + "1" + "}" * 200,
        "{" + ",".join(f'"k{i}": {i}' for i in range(5_000)) + "}",
    ]
    split = split_of(tmp_path, schema_of(attrs=STRING), [{"attrs": text} for text in texts], types={"attrs": "json"})

    def found(query: str) -> list[int]:
        tree = parse_query(query, split.config)
        numbers: list[int] = row_numbers(split, tree).to_pylist()
        assert [n for n, hit in enumerate(matches(tree, split.rows(), split.config).to_pylist()) if hit] == numbers
        return numbers

    assert found("attrs.a:1") == [0]
    assert found("attrs.a:[0 TO 5]") == [0]
    assert found("attrs.a.b:7") == [2]
    assert found("attrs.k4999:4999") == [5]
    assert found("attrs." + "a." * 89 + "a:1") == [3]
    assert found("attrs." + "a." * 199 + "a:1") == [4]
    assert found("attrs.a:*") == [0, 2, 3, 4]
