"""Merging splits: the rows of all, found as before, in one file; damaged and unlike splits are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptSplitError, SearchConfigError
from headwater.log.schema import DOUBLE, LONG, STRING
from headwater.search.choices import index_config
from headwater.search.split.build import merge_splits
from headwater.search.split.rows import new_first_id
from headwater.search.types import UNINDEXED_FIELD
from support.search.built_splits import build, opened, rows_with, schema_of

SCHEMA = schema_of(word=STRING, text=STRING, x=DOUBLE)
CONFIG = index_config(SCHEMA, types={"text": "text"})
WORDS = st.sampled_from(["red", "green", "blue", None])
PARTS = st.lists(
    st.lists(
        st.tuples(WORDS, WORDS, st.sampled_from([1.0, 2.0, float("nan"), None])).map(
            lambda values: dict(zip(("word", "text", "x"), values, strict=True))
        ),
        max_size=5,
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=8, deadline=None)
@given(parts=PARTS, again=st.integers(0, 3))
def test_a_merged_split_has_the_rows_and_the_answers_of_all(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[dict[str, Any]]], again: int
) -> None:
    directory = tmp_path_factory.mktemp("merge")
    splits = [opened(build(directory, SCHEMA, rows, CONFIG)) for rows in parts]
    if again:  # merged splits are merged again
        splits = [opened(merge_splits(splits[:again], str(directory))), *splits[again:]]

    built = merge_splits(splits, str(directory))

    merged = opened(built)
    rows = [row for part in parts for row in part]
    assert repr(merged.rows().to_pylist()) == repr(rows)
    assert merged.num_records == merged.searcher.num_docs == built.num_records == len(rows)
    for word in ("red", "green", "blue"):
        for column in ("word", "text"):
            assert rows_with(merged, column, word) == [n for n, row in enumerate(rows) if row[column] == word]
    assert rows_with(merged, "x", 1.0) == [n for n, row in enumerate(rows) if row["x"] == 1.0]
    nan = [n for n, row in enumerate(rows) if row["x"] is not None and row["x"] != row["x"]]
    assert rows_with(merged, UNINDEXED_FIELD, "x") == nan
    assert merged.partial_fields == ({"x"} if nan else frozenset())
    assert merged.metadata.null_counts["word"] == sum(row["word"] is None for row in rows)
    assert built.num_merge_ops == (2 if again else 1)
    if rows:
        alone = build(directory, SCHEMA, rows, CONFIG)
        assert (built.min_values, built.max_values) == (alone.min_values, alone.max_values)


def test_eight_segments_become_one(tmp_path: Path) -> None:
    splits = [opened(build(tmp_path, SCHEMA, [{"word": f"w{n}"}], CONFIG)) for n in range(8)]

    merged = opened(merge_splits(splits, str(tmp_path)))

    assert merged.searcher.num_segments == 1
    assert [rows_with(merged, "word", f"w{n}") for n in range(8)] == [[n] for n in range(8)]


def test_splits_of_different_configurations_are_indexed_anew(tmp_path: Path) -> None:
    one = opened(build(tmp_path, SCHEMA, [{"word": "a b"}], CONFIG))
    other = opened(build(tmp_path, SCHEMA, [{"word": "b c"}], types={"word": "text"}))

    merged = opened(merge_splits([one, other], str(tmp_path)))

    assert merged.config == other.config
    assert rows_with(merged, "word", "b") == [0, 1]
    assert merged.metadata.num_merge_ops == 1
    assert opened(merge_splits([other], str(tmp_path), config=CONFIG)).config == CONFIG


def test_splits_with_the_same_row_ids_are_indexed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_first_id()
    monkeypatch.setattr("headwater.search.split.build.new_first_id", lambda: first)
    splits = [opened(build(tmp_path, SCHEMA, [{"word": "a"}, {"word": f"w{n}"}], CONFIG)) for n in range(2)]

    merged = opened(merge_splits(splits, str(tmp_path)))

    assert rows_with(merged, "word", "a") == [0, 2]
    assert rows_with(merged, "word", "w1") == [3]


def test_columns_that_are_only_indexed_survive_a_merge(tmp_path: Path) -> None:
    schema = schema_of(id=LONG, secret=STRING)
    splits = [
        opened(build(tmp_path, schema, [{"id": n, "secret": f"s{n}"}], indexed_only=["secret"])) for n in range(2)
    ]

    merged = opened(merge_splits(splits, str(tmp_path)))

    assert rows_with(merged, "secret", "s1") == [1]
    assert merged.metadata.min_values == {"id": "0"}
    other = opened(build(tmp_path, schema, [{"id": 3, "secret": "x"}]))
    with pytest.raises(SearchConfigError, match="'secret' is only indexed"):
        merge_splits([*splits, other], str(tmp_path))


def test_a_damaged_split_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    good = opened(build(tmp_path, SCHEMA, [{"word": "a"}], CONFIG))
    built = build(tmp_path, SCHEMA, [{"word": "b"}], CONFIG)
    data = bytearray(Path(built.path).read_bytes())
    data[0] ^= 1
    Path(built.path).write_bytes(data)
    damaged = opened(built)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(CorruptSplitError) as raised:
        merge_splits([good, damaged], str(tmp_path))

    assert raised.value.path == damaged.path
    assert sorted(tmp_path.iterdir()) == before


def test_splits_of_different_tables_are_not_merged(tmp_path: Path) -> None:
    one = opened(build(tmp_path, SCHEMA, [], CONFIG))
    other = opened(build(tmp_path, schema_of(a=LONG), []))

    with pytest.raises(SearchConfigError, match="different columns"):
        merge_splits([one, other], str(tmp_path))
    with pytest.raises(SearchConfigError, match="no splits"):
        merge_splits([], str(tmp_path))
