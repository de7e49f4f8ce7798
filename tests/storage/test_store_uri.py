"""Locations: every spelling we accept, and a helpful answer to every other."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidUriError
from headwater.storage import LocalStore, StoreUri, open_store, parse_uri


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/events", "/data/events"),
        ("/data/events/", "/data/events"),
        ("//data//events/./x/../y", "/data/events/y"),
        ("/data/my events", "/data/my events"),
        ("/data/100%25/a%20b", "/data/100%25/a%20b"),
        ("/data/a#b?c", "/data/a#b?c"),
        (Path("/data/events"), "/data/events"),
        (PurePosixPath("/data/a:b"), "/data/a:b"),
        ("file:///data/events/", "/data/events"),
        ("file:/data/events", "/data/events"),
        ("FILE:///data/events", "/data/events"),
        ("file://localhost/data/events", "/data/events"),
        ("file:///data/my%20events/%25/%C3%A9", "/data/my events/%/é"),
        ("file:///data/my events", "/data/my events"),
        ("file:///data/100%", "/data/100%"),
        ("file:///", "/"),
        ("/", "/"),
    ],
)
def test_local_path(location: str | Path, path: str) -> None:
    assert parse_uri(location) == StoreUri("file", "", path)
    assert isinstance(open_store(location), LocalStore)


def test_relative_paths_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    here = os.getcwd()
    assert parse_uri("events").path == f"{here}/events"
    assert parse_uri(Path("a/../events")).path == f"{here}/events"
    assert parse_uri(".").path == here
    assert parse_uri("a:b/c").path == f"{here}/a:b/c"
    assert parse_uri("year:2024").path == f"{here}/year:2024"
    assert parse_uri("~/events").path == parse_uri(Path("~/events")).path == "/home/somebody/events"


@pytest.mark.parametrize(
    ("location", "expected", "kind"),
    [
        ("s3://bucket/a/b", StoreUri("s3", "bucket", "a/b"), "s3"),
        ("s3a://bucket/a/b/", StoreUri("s3a", "bucket", "a/b"), "s3"),
        ("S3://Bucket", StoreUri("s3", "Bucket", ""), "s3"),
        ("s3://my-bucket.v2/base//table", StoreUri("s3", "my-bucket.v2", "base/table"), "s3"),
        ("s3://bucket/a%20b/c d", StoreUri("s3", "bucket", "a b/c d"), "s3"),
        ("s3://bucket/a%2520b", StoreUri("s3", "bucket", "a%20b"), "s3"),
        ("gs://bucket/t", StoreUri("gs", "bucket", "t"), "gcs"),
        ("az://container/t", StoreUri("az", "container", "t"), "azure"),
        ("abfs://container/t", StoreUri("abfs", "container", "t"), "azure"),
        (
            "abfss://raw@lake.dfs.core.windows.net/t",
            StoreUri("abfss", "raw", "t", "lake.dfs.core.windows.net"),
            "azure",
        ),
        ("memory://name/t", StoreUri("memory", "name", "t"), "memory"),
        ("memory://name", StoreUri("memory", "name", ""), "memory"),
    ],
)
def test_remote_uri(location: str, expected: StoreUri, kind: str) -> None:
    assert parse_uri(location) == expected
    assert expected.kind == kind


def test_account_is_the_first_part_of_the_host() -> None:
    assert parse_uri("abfss://raw@lake.dfs.core.windows.net/t").account == "lake"
    assert parse_uri("az://container/t").account == ""


@pytest.mark.parametrize(
    ("location", "canonical"),
    [
        ("/data/my events/100%", "file:///data/my%20events/100%25"),
        ("file:/data/a", "file:///data/a"),
        ("s3a://bucket/my events/x=1", "s3a://bucket/my%20events/x=1"),
        ("s3://bucket/", "s3://bucket"),
        ("abfss://raw@lake.dfs.core.windows.net", "abfss://raw@lake.dfs.core.windows.net"),
        ("memory://name/ü", "memory://name/%C3%BC"),
    ],
)
def test_canonical_uri(location: str, canonical: str) -> None:
    assert parse_uri(location).uri == canonical


@pytest.mark.parametrize(
    ("location", "hint"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("http://host/t", "HTTP"),
        ("https://bucket.s3.amazonaws.com/t", "HTTP"),
        ("hdfs://host/t", "supported: file, memory, s3"),
        ("dbfs:/t", "'dbfs' is not supported"),
        ("s3n://bucket/t", "s3://bucket/path"),
        ("gcs://bucket/t", "gs://bucket/path"),
        ("wasbs://c@a.blob.core.windows.net/t", "abfss://container@account"),
        ("memroy://name/t", "did you mean memory"),
        ("s3://", "names no bucket"),
        ("s3:///key", "names no bucket"),
        ("memory://", "names no bucket"),
        ("s3:bucket/t", "starts with s3://"),
        ("s3:/bucket/t", "starts with s3://"),
        ("s3://bu cket/t", "'bu cket' is not the name"),
        ("s3://bucket:9000/t", "is not the name"),
        ("s3://bucket/a/../b", "'..' segment"),
        ("s3://bucket/a/%2e%2e/b", "'..' segment"),
        ("s3://bucket/a?version=1", "%3F"),
        ("s3://bucket/a#b", "%23"),
        ("abfss://raw@lake/t", "'lake' is not an Azure account host"),
        ("abfss://@lake.dfs.core.windows.net/t", "names no bucket or container"),
        ("file://data/events", "three slashes"),
        ("file://", "no absolute path"),
        ("file:events", "no absolute path"),
        ("file:///a%00b", "NUL"),
        ("/a\0b", "NUL"),
        (b"/data/events", "not bytes"),
        (None, "not NoneType"),
        (7, "not int"),
    ],
)
def test_what_is_no_location_is_refused_with_a_hint(location: object, hint: str) -> None:
    with pytest.raises(InvalidUriError) as caught:
        parse_uri(location)
    assert hint in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("location", ["s3://key:secret@bucket/t", "abfss://raw:secret@lake.dfs.x.net/t"])
def test_credentials_in_a_uri_are_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(InvalidUriError, match="storage_options") as caught:
        parse_uri(location)
    assert "secret" not in str(caught.value)


def test_location_is_a_value() -> None:
    assert hash(parse_uri("s3://bucket/t")) == hash(parse_uri("s3://bucket/t/"))
    with pytest.raises(AttributeError):
        parse_uri("s3://bucket/t").path = "x"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_canonical_uri_of_a_path_parses_to_the_same_place(text: str) -> None:
    location = parse_uri(f"/{text}")
    assert parse_uri(location.uri) == location


@given(st.lists(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)))
def test_canonical_uri_of_a_key_parses_to_the_same_place(segments: list[str]) -> None:
    path = "/".join(segment for segment in segments if segment not in (".", ".."))
    location = StoreUri("s3", "bucket", path)
    assert parse_uri(location.uri) == location


def test_memory_stores_of_one_name_are_one_store() -> None:
    open_store("memory://shared-name/t").put("x", b"1")
    assert open_store("memory://shared-name/t").get("x") == b"1"
    assert open_store("memory://shared-name").get("t/x") == b"1"
    assert open_store("memory://another-name/t").list_from("") == []
