"""Credentials go to the place that was opened and to no other, whatever paths a log names."""

from __future__ import annotations

import pickle
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headwater.commands.clone import Sources
from headwater.errors import ForeignLocationError, HeadwaterError, InvalidUriError, StorageError
from headwater.features.context import TableRef
from headwater.log.actions.model import DeletionVector
from headwater.parquet.read import DataFiles
from headwater.search.table_log import search_log
from headwater.spark.scan.deletion_vectors import VectorReader
from headwater.spark.search.splits import SplitPlaces
from headwater.storage import open_store
from headwater.storage.elsewhere import OtherStores
from headwater.storage.errors import RetryPolicy
from headwater.storage.options import obstore_config
from support.stores.scripted_s3 import scripted_s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "c2VjcmV0LWNhbmFyeQ=="
AZURE = "abfss://raw@lake.dfs.core.windows.net/events"
CREDENTIALS: dict[str, dict[str, str]] = {
    "token": {"azure_storage_token": SECRET},
    "key": {"azure_storage_account_key": SECRET},
    "sas": {"azure_storage_sas_token": f"sv=2024&sig={SECRET}"},
    "principal": {"azure_client_id": "c", "azure_client_secret": SECRET, "azure_tenant_id": "t"},
}
EVIL = [
    "abfss://raw@lake.dfs.evil.example/events/f.parquet",
    "abfss://raw@lake.blob.evil.example/events/f.parquet",
    "abfs://raw@lake.dfs.core.windows.net.evil.example/events/f.parquet",
    "abfss://raw@other.dfs.core.windows.net/events/f.parquet",
    "ABFSS://raw@LAKE.dfs.evil.example/events/f.parquet",
    "s3://bucket/f.parquet",
    "gs://bucket/f.parquet",
]


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is repeated: who was asked is all that counts here."""
    monkeypatch.setattr("headwater.storage.remote.RetryPolicy", lambda: RetryPolicy(max_attempts=1))


@contextmanager
def recording_proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that notes which hosts it is asked for, and reaches none of them."""
    server = socket.create_server(("127.0.0.1", 0))
    heads: list[str] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                heads.append(connection.recv(65_536).decode("latin-1"))
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", heads
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


@pytest.fixture
def proxy() -> Iterator[tuple[dict[str, str], list[str]]]:
    """Options that make every request pass a proxy on this machine, and what it has seen."""
    with recording_proxy() as (url, heads):
        yield {"proxy_url": url, "proxy_excludes": "nothing.example"}, heads


def read_by(how: str, table: str, path: str, options: dict[str, str]) -> object:
    """Read a file outside a table, on one of the ways that there are."""
    ways: dict[str, Callable[[], tuple[Any, str]]] = {
        "log": lambda: TableRef(table, options).context().open_absolute(path),
        "search log": lambda: search_log(table, options).open_absolute(path),
        "data files": lambda: DataFiles(table, options).locate(path),
        "clone": lambda: Sources(TableRef(table, options)).locate(path),
        "splits": lambda: SplitPlaces(table, options).place(path),
        "workers": lambda: pickle.loads(pickle.dumps(OtherStores(table, options))).locate(path),
    }
    if how == "vectors":
        vector = DeletionVector(storage_type="p", path_or_inline_dv=path, size_in_bytes=40, cardinality=1, offset=1)
        return VectorReader(open_store(table, options), options).read([vector])
    store, key = ways[how]()
    return store.get(key)


WAYS = ["log", "search log", "data files", "clone", "splits", "workers", "vectors"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("path", EVIL)
def test_nothing_is_sent_to_a_place_that_was_not_opened(
    proxy: tuple[dict[str, str], list[str]], how: str, path: str
) -> None:
    options, heads = proxy
    with pytest.raises(HeadwaterError, match=r"names files in|names the account|supported"):
        read_by(how, AZURE, path, {**options, **CREDENTIALS["token"]})
    assert heads == []


@pytest.mark.parametrize("kind", CREDENTIALS)
@pytest.mark.parametrize("from_environment", [True, False])
def test_no_kind_of_azure_credentials_goes_there(
    proxy: tuple[dict[str, str], list[str]], monkeypatch: pytest.MonkeyPatch, kind: str, from_environment: bool
) -> None:
    options, heads = proxy
    if from_environment:
        for name, value in CREDENTIALS[kind].items():
            monkeypatch.setenv(name.upper(), value)
    else:
        options |= CREDENTIALS[kind]
    with pytest.raises(ForeignLocationError):
        read_by("data files", AZURE, EVIL[0], options)
    with pytest.raises(ForeignLocationError):
        read_by("data files", "az://raw/events", EVIL[0], options | {"azure_storage_account_name": "lake"})
    assert heads == []


def test_a_local_table_sends_the_environments_credentials_nowhere(
    proxy: tuple[dict[str, str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, heads = proxy
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", SECRET)
    monkeypatch.setenv("HTTPS_PROXY", options["proxy_url"])
    with pytest.raises(ForeignLocationError, match=r"lake\.dfs\.evil\.example/credentials'"):
        read_by("data files", "/data/events", EVIL[0], {})
    assert heads == []


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    "path",
    [
        "abfss://raw@lake.dfs.core.windows.net/other/f.parquet",
        "abfss://curated@lake.dfs.core.windows.net/f.parquet",
        "abfs://raw@LAKE.blob.core.windows.net/other/f.parquet",
        "az://raw/other/f.parquet",
    ],
)
def test_places_of_the_same_account_get_the_tables_credentials(
    proxy: tuple[dict[str, str], list[str]], how: str, path: str
) -> None:
    options, heads = proxy
    with pytest.raises(StorageError) as raised:
        read_by(how, AZURE, path, {**options, **CREDENTIALS["token"]})
    assert not isinstance(raised.value, ForeignLocationError)
    assert {head.split()[1] for head in heads} == {"lake.blob.core.windows.net:443"}


def test_a_place_with_options_of_its_own_gets_those_and_no_others(proxy: tuple[dict[str, str], list[str]]) -> None:
    with scripted_s3_server() as server, scripted_s3_server() as other:
        server.objects["table/f"] = b"ours"
        other.objects[""] = b"theirs"  # it knows one bucket, and takes no other name apart
        options = _s3(server.port, "ours") | {
            f"s3a://other/{name}": value for name, value in _s3(other.port, "theirs").items()
        }
        stores = OtherStores("s3://bucket/table", options)
        store, key = stores.locate("s3://bucket/table/f")
        assert store.get(key) == b"ours"
        store, key = stores.locate("s3://other/f")
        assert store.get(key) == b"theirs"
        assert "Credential=ours" in server.requests[-1][3]["authorization"]
        [request] = other.requests
        assert "Credential=theirs" in request[3]["authorization"]
        assert request[3]["x-amz-security-token"] == "token of theirs"
        assert all("/other/" not in path for _, path, _, _ in server.requests)


@pytest.mark.parametrize("how", WAYS)
def test_another_bucket_needs_options_of_its_own(how: str) -> None:
    with scripted_s3_server() as server:
        with pytest.raises(ForeignLocationError, match=r"s3://other/aws_access_key_id.*s3://other/credentials"):
            read_by(how, "s3://bucket/table", "s3://other/f", _s3(server.port, "ours"))
        assert server.requests == []


def test_the_word_credentials_says_it_for_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_s3_server() as server:
        server.objects["x/f"] = b"there"
        same = _s3(server.port, "ours") | {"s3://other/credentials": "same"}
        store, key = OtherStores("s3://bucket/table", same).locate("s3://other/x/f")
        with pytest.raises(HeadwaterError):
            store.get(key)  # the server has one bucket only; what counts is that it is asked
        assert server.requests[-1][1] == "/other/x/f"
        assert "Credential=ours" in server.requests[-1][3]["authorization"]
        for name, value in _s3(server.port, "environment").items():
            monkeypatch.setenv(name.upper(), value)
        other = {"s3://other/credentials": "environment"}
        store, key = OtherStores("/data/table", other).locate("s3://other/x/f")
        with pytest.raises(HeadwaterError):
            store.get(key)
        assert "Credential=environment" in server.requests[-1][3]["authorization"]


def test_the_longest_root_counts() -> None:
    options = {"s3://other/aws_region": "short", "s3://other/a/b/aws_region": "long", "aws_region": "own"}
    with pytest.raises(InvalidUriError, match="credentials"):
        open_store("s3://other/x", {**options, "s3://other/credentials": "same"})
    from headwater.storage import parse_uri
    from headwater.storage.options import options_for

    found = {uri: options_for(parse_uri(uri), options)["aws_region"] for uri in ("s3://b", "s3://other/a/bc")}
    assert found == {"s3://b": "own", "s3://other/a/bc": "short"}
    assert options_for(parse_uri("s3a://other/a/b/c"), options) == {"aws_region": "long"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("s3://other/aws_regoin", "x", "did you mean aws_region"),
        ("s3://other/credentials", "mine", "'same'"),
        ("s3://other", "x", "no option of it"),
        ("http://other/token", "x", "not supported"),
    ],
)
def test_options_for_a_root_are_checked_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidUriError, match=message):
        OtherStores("/data/t", {name: value}).locate("s3://other/f")


def test_paths_on_the_tables_own_filesystem_stay_there() -> None:
    with scripted_s3_server() as server:
        server.objects["etc/passwd"] = b"of the bucket"
        stores = OtherStores("s3://bucket/table", _s3(server.port, "ours"))
        store, key = stores.locate("/etc/passwd")
        assert store.get(key) == b"of the bucket"


def test_decoded_paths_are_not_decoded_twice() -> None:
    with scripted_s3_server() as server:
        server.objects["a%20b/c d%"] = b"found"
        stores = OtherStores("s3://bucket/table", _s3(server.port, "ours"))
        for store, key in (stores.locate("s3://bucket/a%20b/c d%"), stores.locate_uri("s3://bucket/a%2520b/c%20d%25")):
            assert store.get(key) == b"found"


def test_options_of_the_table_are_known_without_those_of_others() -> None:
    assert obstore_config("s3", {"aws_region": "eu"}) == {"region": "eu"}
    assert SECRET not in repr(OtherStores(AZURE, CREDENTIALS["token"]))
    assert SECRET not in repr(TableRef(AZURE, CREDENTIALS["token"]).context())


def _s3(port: int, name: str) -> dict[str, str]:
    return {
        "aws_endpoint_url": f"http://127.0.0.1:{port}",
        "aws_access_key_id": name,
        "aws_secret_access_key": SECRET,
        "aws_session_token": f"token of {name}",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
