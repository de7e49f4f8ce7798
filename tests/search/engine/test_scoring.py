"""Scores over several splits are those of one big index, for every query and every number of rows."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tantivy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import SearchQueryError
from headwater.log.schema import LONG, STRING
from headwater.search.engine.match import count
from headwater.search.engine.rank import row_statistics, term_statistics, top
from headwater.search.engine.scoring import Statistics, merge_statistics, rounded_length
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import All, Boost, FieldPath, Term, filtered
from headwater.search.rows.evaluate import scores
from headwater.search.split.reader import Split
from support.search.built_splits import batch_of, schema_of, split_of
from support.search.query_corpus import words_of

SCHEMA = schema_of(message=STRING, title=STRING, host=STRING, n=LONG)
CHOICES: dict[str, Any] = {"types": {"message": "text", "title": "text"}}
VOCABULARY = ["error", "disk", "full", "web", "the", "the", "the", "a", "b", "c", "rare"]
LENGTHS = [(0, 4), (3, 12), (30, 120)]
"""Splits with short, middling and long texts: their mean lengths have nothing in common."""


def random_part(seed: int, shortest: int, longest: int, count: int = 60) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "message": " ".join(rng.choices(VOCABULARY, k=rng.randint(shortest, longest)))
            if rng.random() < 0.9
            else None,
            "title": " ".join(rng.choices(VOCABULARY, k=rng.randint(0, 3))),
            "host": rng.choice(["web-1", "web-2", None]),
            "n": rng.randint(0, 5),
        }
        for _ in range(count)
    ]


PARTS = [random_part(seed, *lengths) for seed, lengths in enumerate(LENGTHS)]
ALL_ROWS = [row for part in PARTS for row in part]


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[Split]:
    return [split_of(tmp_path_factory.mktemp("part"), SCHEMA, rows, **CHOICES) for rows in PARTS]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Split:
    return split_of(tmp_path_factory.mktemp("whole"), SCHEMA, ALL_ROWS, **CHOICES)


words = st.sampled_from(["error", "disk", "rare", "the", "web", "nowhere"])
leaf = st.one_of(
    words,
    words.map(lambda w: f"title:{w}"),
    st.sampled_from(['"error disk"', '"the the"', '"a b"~2', "host:web-1", "n:[2 TO 4]", "n:3", "err*", "host:*"]),
    st.builds(lambda w, f: f"{w}^{f}", words, st.sampled_from([2, 0.5, 10])),
)
texts = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda t: f"({' '.join(t)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda t: f"({' AND '.join(t)})"),
        st.builds(lambda a, b: f"(+{a} {b} -title:c)", inner, inner),
        st.builds(lambda a: f"({a})^3", inner),
    ),
    max_leaves=5,
)


@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts, k=st.one_of(st.none(), st.integers(1, 40)))
def test_scores_over_splits_are_those_of_one_index(splits: list[Split], whole: Split, text: str, k: int | None) -> None:
    query = parse_query(text, whole.config, ["message"])
    statistics = merge_statistics(term_statistics(split, query) for split in splits)
    found: list[tuple[float, int]] = []
    for i, split in enumerate(splits):
        best = top(split, query, k, statistics)
        numbers = [sum(map(len, PARTS[:i])) + n for n in best.row_numbers.to_pylist()]
        assert len(numbers) == (count(split, query) if k is None else min(k, count(split, query)))
        found += zip(best.scores.to_pylist(), numbers, strict=True)
    found.sort(key=lambda pair: (-pair[0], pair[1]))
    alone = top(whole, query, k)
    wanted = alone.scores.to_pylist()
    assert [score for score, _ in found[: len(wanted)]] == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    everything = top(whole, query, None)
    by_row = dict(zip(everything.row_numbers.to_pylist(), everything.scores.to_pylist(), strict=True))
    assert [score for score, _ in found] == pytest.approx([by_row[row] for _, row in found], rel=1e-5, abs=1e-6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
def test_plain_rows_get_the_same_scores(splits: list[Split], whole: Split, text: str) -> None:
    query = parse_query(text, whole.config, ["message"])
    tables = [pa.Table.from_batches([batch_of(SCHEMA, part)]) for part in PARTS]
    mixed = merge_statistics(
        [term_statistics(splits[0], query), *(row_statistics(query, table, whole.config) for table in tables[1:])]
    )
    everything = top(whole, query, None)
    wanted = dict(zip(everything.row_numbers.to_pylist(), everything.scores.to_pylist(), strict=True))
    plain = [s for table in tables for s in scores(query, table, whole.config, mixed).to_pylist()]
    assert plain == pytest.approx([wanted.get(row, 0.0) for row in range(len(ALL_ROWS))], rel=1e-5, abs=1e-6)


def test_one_index_scores_as_the_library_does(whole: Split) -> None:
    schema, name = whole.index.schema, whole.config.field("message").index_name
    term = tantivy.Query.term_query(schema, name, "error")
    phrase = tantivy.Query.phrase_query(schema, name, ["the", "the"])
    either = tantivy.Query.boolean_query([(tantivy.Occur.Should, term), (tantivy.Occur.Should, phrase)])
    for text, query in [("error", term), ('"the the"', phrase), ('error "the the"', either)]:
        hits = whole.searcher.search(query, limit=len(ALL_ROWS)).hits
        best = top(whole, parse_query(text, whole.config, ["message"]), None)
        assert best.scores.to_pylist() == pytest.approx([score for score, _ in hits], rel=1e-6)


def test_bm25_is_the_textbook_formula(whole: Split) -> None:
    documents = [words_of(row["message"]) for row in ALL_ROWS]
    mean = sum(map(len, documents)) / len(documents)
    having = sum("error" in document for document in documents)
    rarity = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))

    def score(document: list[str]) -> float:
        frequency = document.count("error")
        return rarity * 2.2 * frequency / (frequency + 1.2 * (0.25 + 0.75 * rounded_length(len(document)) / mean))

    wanted = sorted((score(d) for d in documents if "error" in d), reverse=True)
    assert top(whole, parse_query("error", whole.config, ["message"]), None).scores.to_pylist() == pytest.approx(wanted)


def test_a_filter_does_not_change_scores(whole: Split) -> None:
    query = parse_query("error", whole.config, ["message"])
    free = top(whole, query, None)
    kept = top(whole, filtered(query, parse_query("n:3", whole.config)), None)
    by_row = dict(zip(free.row_numbers.to_pylist(), free.scores.to_pylist(), strict=True))
    assert 0 < len(kept.row_numbers) < len(free.row_numbers)
    assert kept.scores.to_pylist() == pytest.approx([by_row[row] for row in kept.row_numbers.to_pylist()])


def test_many_equal_rows_are_all_there(tmp_path: Path) -> None:
    rows = [{"message": "same words here"}] * 3_000
    split = split_of(tmp_path, SCHEMA, rows, **CHOICES)
    query = parse_query("words", split.config, ["message"])
    elsewhere = merge_statistics([term_statistics(split, query), Statistics(50, {"message": 5_000}, {"message": {}})])
    assert len(top(split, query, 10, elsewhere).scores) == 10
    best = top(split, query, None, elsewhere)
    assert best.row_numbers.to_pylist() == list(range(3_000))
    assert len(set(best.scores.to_pylist())) == 1


def test_columns_that_are_only_indexed_are_scored_too(tmp_path: Path, whole: Split) -> None:
    hidden = split_of(tmp_path, SCHEMA, PARTS[1], **CHOICES, indexed_only=["message"])
    query = parse_query("error disk", whole.config, ["message"])
    everywhere = term_statistics(whole, query)
    best = top(hidden, query, 5, everywhere)
    all_rows = top(hidden, query, None, everywhere)
    assert all_rows.scores.to_pylist()[:5] == pytest.approx(best.scores.to_pylist(), rel=1e-5)
    with pytest.raises(SearchQueryError, match="only indexed"):
        top(hidden, parse_query('"error disk"~2', whole.config, ["message"]), 5)


def test_odd_numbers_of_rows(whole: Split, tmp_path: Path) -> None:
    query = Term(FieldPath("message"), "error")
    assert len(top(whole, query, 0).row_numbers) == 0
    with pytest.raises(ValueError, match="negative"):
        top(whole, query, -1)
    assert len(top(whole, All(), 10**12).row_numbers) == len(ALL_ROWS)
    assert set(top(whole, Boost(All(), 2.5), None).scores.to_pylist()) == {2.5}
    empty = split_of(tmp_path, SCHEMA, [], **CHOICES)
    assert len(top(empty, query, 3).scores) == 0
