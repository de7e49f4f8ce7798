"""Where the splits of a Delta table are, and which data files they cover."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.search.delta_index import (
    SearchCoverage,
    coverage,
    existing_splits,
    split_keys,
    unneeded_splits,
    with_splits,
)
from headwater.storage import open_store


def files(**sizes: int) -> pa.Table:
    return pa.table({"path": list(sizes), "size": pa.array(list(sizes.values()), pa.int64())})


def keys(table: pa.Table, fingerprint: str = "f") -> list[str]:
    return [key.decode("utf-8", "surrogateescape") for key in split_keys(table, fingerprint).to_pylist()]


def test_a_split_is_named_after_its_data_file_and_the_files_size() -> None:
    table = pa.table({"path": ["part-0.parquet", "day=1/b%20c.parquet"], "size": [10, 20]})

    assert keys(table, "abc") == [
        "_search_index/abc/part-0.parquet.10.split",
        "_search_index/abc/day=1/b c.parquet.20.split",
    ]


def test_spellings_of_one_path_have_one_split() -> None:
    table = pa.table({"path": ["a b.parquet", "a%20b.parquet"], "size": [1, 1]})

    assert len(set(keys(table))) == 1


def test_files_elsewhere_and_files_with_long_names_are_called_by_a_hash() -> None:
    paths = ["/other/a.parquet", "file:///other/a.parquet", "s3://bucket/a.parquet", "x" * 240]
    table = pa.table({"path": paths, "size": [1, 1, 1, 1]})

    found = keys(table)

    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert all(key.startswith("_search_index/f/elsewhere/") and len(key) < 120 for key in found)


@given(st.lists(st.tuples(st.text("ab/%2 ", min_size=1, max_size=8), st.integers(0, 99)), unique=True, max_size=8))
def test_different_files_have_different_splits(named: list[tuple[str, int]]) -> None:
    from headwater.log.actions.paths import canonical

    distinct = {(canonical(path), size) for path, size in named}
    table = pa.table(
        {"path": pa.array([p for p, _ in named], pa.string()), "size": pa.array([s for _, s in named], pa.int64())}
    )

    assert len(set(keys(table))) == len(distinct)


def test_a_file_is_covered_when_its_split_is_there() -> None:
    store = open_store("memory://delta-index-covered")
    table = files(**{"a.parquet": 10, "b.parquet": 30})
    store.put("_search_index/f/a.parquet.10.split", b"12345")
    store.put("_search_index/f/b.parquet.31.split", b"of another size, so of another file")
    store.put("_search_index/g/b.parquet.30.split", b"of another definition")
    store.put("_search_index/f/b.parquet.30.split.tmp", b"not complete")

    found = with_splits(table, existing_splits(store, "f"), "f")

    assert found.column("split").to_pylist() == [b"_search_index/f/a.parquet.10.split", None]
    assert found.column("split_bytes").to_pylist() == [5, None]
    assert coverage(7, found) == SearchCoverage(7, 2, 1, 40, 10)


def test_no_files_and_no_splits_are_complete_coverage() -> None:
    none = files().cast(pa.schema([("path", pa.string()), ("size", pa.int64())]))

    found = coverage(0, with_splits(none, existing_splits(open_store("memory://delta-index-none"), "f"), "f"))

    assert found.is_complete
    assert found.share == 1.0
    assert str(found) == "version 0: 0 of 0 files are indexed"


@pytest.mark.parametrize(
    ("covered", "text"),
    [
        (SearchCoverage(1, 2, 2, 100, 100), "version 1: 2 of 2 files are indexed"),
        (
            SearchCoverage(1, 2, 1, 100, 40),
            "version 1: 1 of 2 files are indexed (40% of the bytes); the other one is searched row by row",
        ),
        (
            SearchCoverage(1, 1000, 0, 100, 0),
            "version 1: 0 of 1000 files are indexed (0% of the bytes); the other 1000 are searched row by row",
        ),
    ],
)
def test_coverage_tells_what_is_searched_how(covered: SearchCoverage, text: str) -> None:
    assert str(covered) == text


def test_only_old_splits_of_files_that_nobody_needs_are_unneeded() -> None:
    splits = pa.table(
        {
            "key": pa.array([b"old and needed", b"old", b"young"], pa.binary()),
            "size_bytes": [1, 2, 3],
            "modified_ms": [10, 10, 99],
        }
    )

    found = unneeded_splits(splits, pa.chunked_array([[b"old and needed"]], pa.binary()), cutoff_ms=50)

    assert found.column("key").to_pylist() == [b"old"]
