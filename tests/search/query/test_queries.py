"""Every kind of query finds in the index, and on plain rows, what a naive predicate says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.search.choices import index_config
from headwater.search.engine.match import count, row_numbers
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import from_json, to_json
from headwater.search.rows.evaluate import matches
from headwater.search.split.reader import Split
from support.search.built_splits import batch_of
from support.search.query_corpus import CHOICES, SCHEMA, Predicate, corpus_split, leaf_queries, queries, random_rows

CONFIG = index_config(SCHEMA, **CHOICES)
ROWS = [random_rows(seed, 150) for seed in range(2)]
PLAIN = [pa.Table.from_batches([batch_of(SCHEMA, rows)]) for rows in ROWS]


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[Split]:
    return [corpus_split(tmp_path_factory.mktemp("split"), rows) for rows in ROWS]


def expected(predicate: Predicate, rows: list[dict[str, object]]) -> list[int]:
    return [i for i, row in enumerate(rows) if predicate(row)]


@settings(max_examples=130, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=leaf_queries())
def test_every_leaf_finds_what_a_naive_predicate_says(splits: list[Split], query: tuple[str, Predicate]) -> None:
    text, predicate = query
    tree = parse_query(text, CONFIG, ["message"])
    for split, rows, plain in zip(splits, ROWS, PLAIN, strict=True):
        wanted = expected(predicate, rows)
        assert row_numbers(split, tree).to_pylist() == wanted, text
        assert count(split, tree) == len(wanted)
        assert matches(tree, plain, CONFIG).to_pylist() == [i in set(wanted) for i in range(len(rows))], text


@settings(max_examples=90, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=queries())
def test_every_combination_finds_what_a_naive_predicate_says(splits: list[Split], query: tuple[str, Predicate]) -> None:
    text, predicate = query
    tree = from_json(to_json(parse_query(text, CONFIG, ["message"])))
    for split, rows, plain in zip(splits, ROWS, PLAIN, strict=True):
        wanted = expected(predicate, rows)
        assert row_numbers(split, tree).to_pylist() == wanted, text
        assert count(split, tree) == len(wanted)
        assert [i for i, hit in enumerate(matches(tree, plain, CONFIG).to_pylist()) if hit] == wanted, text


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), size=st.integers(0, 40), chosen=st.lists(queries(), min_size=5, max_size=10))
def test_new_documents_are_found_as_well(
    tmp_path: Path, seed: int, size: int, chosen: list[tuple[str, Predicate]]
) -> None:
    rows = random_rows(seed, size)
    directory = tmp_path / f"{seed}-{size}-{len(list(tmp_path.iterdir()))}"
    directory.mkdir()
    split = corpus_split(directory, rows)
    for text, predicate in chosen:
        tree = parse_query(text, CONFIG, ["message"])
        assert row_numbers(split, tree).to_pylist() == expected(predicate, rows), text
