"""Canonical paths: spellings of one file meet (spec: "Add File and Remove File")."""

from __future__ import annotations

from posixpath import normpath
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.errors import CorruptLogError
from headwater.log.actions.paths import canonical, canonical_array, file_uris
from support.log_settings import examined
from support.oracles.log_model import path_key

_NAMES = st.text(st.sampled_from("ab /%&+:=#?é😀~.25"), min_size=1, max_size=12)
_PIECES = (
    *("a", "/", "%", "%25", "%2", "%41", "%4", "1", "5", "41", "%C3%A9", "%c3", "%A9", "é", "%FF", "%f0%9f%98%80"),
    *("file:", "FILE:", "file%3A", "file://", "//", "s3://b/", " ", "+", "%2F", "%00", "\n", ":", "😀"),
    *(".", "..", "/./", "/../", "./", "../", "%2e", "%2E%2e/", "localhost/"),
)
_SPELLINGS = st.lists(st.sampled_from(_PIECES), max_size=8).map("".join)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/p/x.parquet", "file:/p/x.parquet"),
        ("/p/x.parquet", "file:///p/x.parquet"),
        ("/p/x.parquet", "FILE:///p/x.parquet"),
        ("a%20b.parquet", "a b.parquet"),
        ("caf%C3%A9", "café"),
        ("%f0%9f%98%80", "%F0%9F%98%80"),
        ("date=2024-01-01%2000%3A00/x", "date=2024-01-01 00:00/x"),
        ("/p/x.parquet", "file://localhost/p/x.parquet"),
        ("./x", "x"),
        ("d//x", "d/x"),
        ("d/./e/../x", "d/x"),
        ("%2E/d%2F%2Fx", "d/x"),
        ("d/%2e%2E/x", "x"),
        ("file:///p//./x", "/p/x"),
        ("s3://b//d/../x", "s3://b/x"),
    ],
)
def test_spellings_of_one_file_meet(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a%2520b", "a%20b"),  # decoded once: the first has a percent sign in its name
        ("a+b", "a b"),  # a plus sign is a plus sign in a path
        ("file%3A/p", "file:/p"),  # an escaped colon makes no scheme
        ("p", "/p"),
        ("s3://b/p", "/b/p"),
        ("A", "a"),
        ("../x", "x"),
        ("d/..x", "x"),
        (".x", "x"),
        ("d/...", "d"),
        ("s3://b/x", "s3:/b/x"),
    ],
)
def test_different_files_stay_apart(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_a_path_is_decoded_exactly_once() -> None:
    assert canonical("a%2520b") == "a%20b"
    assert canonical("%252541") == "%2541"


@examined
@given(_NAMES.filter(lambda name: not name.endswith("/")), st.data())
def test_any_mix_of_escaped_and_plain_characters_names_the_same_file(name: str, data: st.DataObject) -> None:
    def spelled() -> str:
        # A percent sign must be escaped, anything else may be.
        return "".join(quote(c, safe="") if c == "%" or data.draw(st.booleans()) else c for c in name)

    scheme = data.draw(st.sampled_from(["", "file:", "file://", "File:"]))
    assert canonical(f"{scheme}/data/{spelled()}") == canonical(f"/data/{spelled()}") == normpath(f"/data/{name}")


@examined
@given(st.lists(st.one_of(_SPELLINGS, st.none()), max_size=6))
@example(["%%34%31", "%41"])
@example(["%2%35", "%25"])
@example(["file%3A/a", "file:/b"])
@example(["%FF", "é%25", "%"])
@example([])
def test_the_array_form_equals_the_form_of_each_element(paths: list[str | None]) -> None:
    found = canonical_array(pa.array(paths, pa.string())).cast(pa.binary()).to_pylist()
    assert found == [None if p is None else canonical(p).encode("utf-8", "surrogateescape") for p in paths]


@examined
@given(_SPELLINGS)
def test_the_canonical_form_is_what_a_plain_reading_of_the_spec_gives(path: str) -> None:
    assert canonical(path).encode("utf-8", "surrogateescape") == path_key(path)


def test_a_slice_of_an_array_is_decoded_like_the_array() -> None:
    paths = pa.array(["x%20y", None, "a%41", "%zz", "b"])
    assert canonical_array(paths[2:]).cast(pa.binary()).to_pylist() == [b"aA", b"%zz", b"b"]


def test_an_array_that_is_canonical_already_is_not_copied() -> None:
    paths = pa.array(["a", "b"])
    assert canonical_array(paths) is paths


@pytest.mark.parametrize("path", ["d/%FF.parquet", "%C3(", "a%00b"])
def test_a_path_that_is_no_text_is_named_in_the_error(path: str) -> None:
    paths = pa.chunked_array([["fine.parquet", "also%20fine", path]])

    with pytest.raises(CorruptLogError, match="no text once it is decoded") as raised:
        file_uris(paths, "file:///data/events")

    assert repr(path) in str(raised.value)
