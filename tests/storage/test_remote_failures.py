"""Throttling, lost answers and refusals on an object store: what is repeated, and what the caller learns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headwater.errors import (
    InvalidUriError,
    ObjectAlreadyExistsError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    StorageRefusedError,
    StorageThrottledError,
    WriteStateUnknownError,
)
from headwater.storage import open_store, parse_uri
from headwater.storage.errors import RetryPolicy, from_obstore_error
from headwater.storage.remote import RemoteStore, open_backend
from support.stores.scripted_s3 import ScriptedS3, scripted_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.stores.scripted_s3 import Trouble

THROTTLED: list[Trouble] = [
    (503, "SlowDown"),
    (429, ""),
    (500, "InternalError"),
    (502, ""),
    (504, ""),
    (400, "RequestTimeout"),
    "drop before",
    "hang",
]


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with scripted_s3_server() as state:
        yield state


@pytest.fixture
def pauses_s() -> list[float]:
    return []


def options(server: ScriptedS3, **more: object) -> dict[str, object]:
    return {
        "endpoint": f"http://127.0.0.1:{server.port}",
        "access_key_id": "made-up",
        "secret_access_key": "made-up",
        "allow_http": True,
        "timeout": "500ms",
        **more,
    }


@pytest.fixture
def store(server: ScriptedS3, pauses_s: list[float]) -> RemoteStore:
    location = parse_uri("s3://bucket/t")
    policy = RetryPolicy(max_attempts=4, sleep=pauses_s.append, jitter=lambda: 1.0)
    return RemoteStore(open_backend(location, options(server)), location, policy)


# --- repetition -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [*THROTTLED, "half a body"], ids=str)
def test_read_is_repeated_until_it_works(
    server: ScriptedS3, store: RemoteStore, pauses_s: list[float], trouble: Trouble
) -> None:
    server.objects["t/x"] = b"data"
    server.troubles[:] = [trouble, (503, "SlowDown")]
    assert store.get("x") == b"data"
    assert len(server.requests) == 3
    assert pauses_s == [0.1, 0.2]


def test_all_operations_are_repeated(server: ScriptedS3, store: RemoteStore) -> None:
    server.objects["t/x"] = b"data"
    for act in (
        lambda: store.get_range("x", 0, 4),
        lambda: store.head("x"),
        lambda: store.list_from(""),
        lambda: store.list_from("", recursive=True),
        lambda: store.put("y", b"data"),
        lambda: store.put_if_absent("z", b"data"),
        lambda: store.delete_many(["x"]),
    ):
        server.requests.clear()
        # The deletion is answered with 404 in the end, which is fine: there is nothing left to delete.
        server.troubles[:] = [(503, "SlowDown"), (503, "SlowDown")]
        act()
        assert len(server.requests) >= 3


def test_repetition_ends(server: ScriptedS3, store: RemoteStore, pauses_s: list[float]) -> None:
    server.troubles[:] = [(503, "SlowDown")] * 100
    with pytest.raises(StorageThrottledError, match=r"s3://bucket/t/x.*503 SlowDown.*after 4 attempts"):
        store.get("x")
    assert len(server.requests) == 4
    assert pauses_s == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ((403, "AccessDenied"), StoragePermissionError),
        ((401, ""), StoragePermissionError),
        ((400, "ExpiredToken"), StoragePermissionError),
        ((404, "NoSuchKey"), ObjectNotFoundError),
        ((404, "NoSuchBucket"), StorageRefusedError),
        ((400, "InvalidRequest"), StorageRefusedError),
        ((501, "NotImplemented"), StorageError),
    ],
    ids=str,
)
def test_answer_that_will_not_change_is_not_repeated(
    server: ScriptedS3, store: RemoteStore, trouble: Trouble, error: type[StorageError]
) -> None:
    server.troubles[:] = [trouble]
    with pytest.raises(StorageError, match="s3://bucket/t/x") as caught:
        store.get("x")
    assert type(caught.value) is error
    assert len(server.requests) == 1


def test_missing_bucket_is_named_as_the_reason(server: ScriptedS3, store: RemoteStore) -> None:
    for act in (lambda: store.get("x"), lambda: store.list_from("d/"), lambda: store.delete_many(["x"])):
        server.troubles[:] = [(404, "NoSuchBucket")] * 10
        with pytest.raises(StorageError, match="bucket or container does not exist") as caught:
            act()
        assert not isinstance(caught.value, ObjectNotFoundError)


def test_refused_listing_is_a_permission_error(server: ScriptedS3, store: RemoteStore) -> None:
    for recursive in (False, True):
        server.troubles[:] = [(403, "AccessDenied")]
        with pytest.raises(StoragePermissionError):
            store.list_from("d/", recursive=recursive)


def test_failure_says_what_the_store_said_in_one_line(server: ScriptedS3, store: RemoteStore) -> None:
    server.troubles[:] = [(400, "InvalidRequest")]
    with pytest.raises(StorageError) as caught:
        store.get("d/x")
    expected = "could not read s3://bucket/t/d/x: the store answered 400 InvalidRequest (as scripted)"
    assert str(caught.value) == expected


# --- put-if-absent with unclear answers -----------------------------------------------------------------


def test_create_is_a_conditional_put(server: ScriptedS3, store: RemoteStore) -> None:
    store.put_if_absent("x", b"data")
    ((method, path, _, headers),) = server.requests
    assert (method, path, headers["if-none-match"]) == ("PUT", "/bucket/t/x", "*")


@pytest.mark.parametrize("trouble", THROTTLED, ids=str)
def test_create_that_did_not_happen_is_repeated(server: ScriptedS3, store: RemoteStore, trouble: Trouble) -> None:
    server.troubles[:] = [trouble]
    store.put_if_absent("x", b"ours")
    assert server.objects == {"t/x": b"ours"}
    assert len(server.requests) == 2


def test_create_whose_answer_was_lost_is_a_conflict_that_may_be_our_own(server: ScriptedS3, store: RemoteStore) -> None:
    server.troubles[:] = ["drop after"]
    with pytest.raises(ObjectAlreadyExistsError, match="may be this writer's own"):
        store.put_if_absent("x", b"ours")
    assert server.objects == {"t/x": b"ours"}


def test_conflict_at_the_first_attempt_is_somebody_elses(server: ScriptedS3, store: RemoteStore) -> None:
    server.objects["t/x"] = b"theirs"
    with pytest.raises(ObjectAlreadyExistsError) as caught:
        store.put_if_absent("x", b"ours")
    assert "own" not in str(caught.value)
    assert server.objects == {"t/x": b"theirs"}
    assert len(server.requests) == 1


def test_create_that_never_gets_an_answer_is_unknown(server: ScriptedS3, store: RemoteStore) -> None:
    server.troubles[:] = ["drop after", (503, "SlowDown"), (503, "SlowDown"), (503, "SlowDown")]
    with pytest.raises(StorageThrottledError, match="not known whether the object was written"):
        store.put_if_absent("x", b"ours")
    assert server.objects == {"t/x": b"ours"}


@pytest.mark.parametrize(
    "refusal",
    [(403, "AccessDenied"), (401, ""), (400, "ExpiredToken"), (400, "BadRequest"), (404, "NoSuchBucket"), (404, "")],
    ids=str,
)
@pytest.mark.parametrize("lost", ["drop after", "hang"])
def test_refusal_after_a_lost_answer_does_not_say_that_nothing_was_written(
    server: ScriptedS3, store: RemoteStore, lost: Trouble, refusal: Trouble
) -> None:
    server.troubles[:] = [lost, refusal]
    with pytest.raises(WriteStateUnknownError, match="may have been written"):
        store.put_if_absent("x", b"ours")
    assert server.objects == ({"t/x": b"ours"} if lost == "drop after" else {})


@pytest.mark.parametrize("refusal", [(403, "AccessDenied"), (400, "BadRequest"), (404, "NoSuchBucket")], ids=str)
def test_refusal_of_the_first_attempt_says_that_nothing_was_written(
    server: ScriptedS3, store: RemoteStore, refusal: Trouble
) -> None:
    server.troubles[:] = [refusal]
    with pytest.raises(StorageRefusedError):
        store.put_if_absent("x", b"ours")
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_collision_of_two_conditional_puts_is_no_conflict_yet(
    server: ScriptedS3, store: RemoteStore, code: str
) -> None:
    # S3 answers 409 when another conditional put is in flight: that one may still fail.
    server.troubles[:] = [(409, code)]
    store.put_if_absent("x", b"ours")
    assert server.objects == {"t/x": b"ours"}


def test_other_409_is_neither_success_nor_conflict(server: ScriptedS3, store: RemoteStore) -> None:
    server.troubles[:] = [(409, "BucketAlreadyOwnedByYou")]
    with pytest.raises(StorageError, match="409 BucketAlreadyOwnedByYou") as caught:
        store.put_if_absent("x", b"ours")
    assert not isinstance(caught.value, ObjectAlreadyExistsError)


def test_store_without_conditional_puts_is_an_error(server: ScriptedS3) -> None:
    store = open_store("s3://bucket/t", options(server, aws_conditional_put="disabled"))
    with pytest.raises(StorageError, match="conditional put is disabled"):
        store.put_if_absent("x", b"ours")
    assert server.requests == []


def test_google_creates_with_generation_zero_only(server: ScriptedS3) -> None:
    given = {
        "google_base_url": f"http://127.0.0.1:{server.port}",
        "bearer_token": "made-up",
        "allow_http": "1",
    }
    store = open_store("gs://bucket/t", given)
    store.put_if_absent("x", b"ours")
    (request,) = server.requests
    assert request[3]["x-goog-if-generation-match"] == "0"
    server.troubles[:] = [(412, "")]
    with pytest.raises(ObjectAlreadyExistsError):
        store.put_if_absent("x", b"ours")


# --- listings -------------------------------------------------------------------------------------------


def test_listing_goes_on_after_a_failed_page(server: ScriptedS3, store: RemoteStore) -> None:
    names = [f"d/{number:04}" for number in range(2500)]
    server.objects.update({f"t/{name}": b"" for name in names})
    server.troubles[:] = [None, None, (503, "SlowDown"), None]
    assert [meta.key for meta in store.list_from("d/", recursive=True)] == names
    starts = [query.get("start-after", [""])[0] for _, _, query, _ in server.requests]
    # The last request starts where the pages before it ended, not at the beginning.
    assert starts[-1].startswith("t/d/")


def test_listing_starts_at_the_offset(server: ScriptedS3, store: RemoteStore) -> None:
    server.objects.update({f"t/_delta_log/{version:020}.json": b"" for version in range(5)})
    after = f"_delta_log/{2:020}.json"
    assert len(store.list_from("_delta_log/", after)) == 2
    assert server.requests[-1][2]["start-after"] == [f"t/{after}"]


def test_listing_does_not_trust_order_and_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    store = open_store("memory://unordered/t")
    for key in ("a", "b", "c", "d"):
        store.put(f"x/{key}", b"")
    real = obstore.list

    def unordered(backend: object, prefix: str, *, offset: str | None, chunk_size: int) -> list[list[object]]:
        found = real(backend, prefix).collect()
        return [list(found)[::-1], list(found)]

    monkeypatch.setattr(obstore, "list", unordered)
    assert [meta.key for meta in store.list_from("x/", "x/b")] == ["x/c", "x/d"]


# --- setup ----------------------------------------------------------------------------------------------


def test_endpoint_without_tls_needs_the_option_and_is_told_so(server: ScriptedS3) -> None:
    store = open_store("s3://bucket/t", options(server, allow_http=False))
    with pytest.raises(StorageError, match="allow_http"):
        store.get("x")


def test_environment_variables_are_used(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    server.objects["t/x"] = b"data"
    # An option of the HTTP client must not switch off the one from the environment.
    assert open_store("s3://bucket/t", {"timeout": "5s"}).get("x") == b"data"
    assert "from-the-environment" in server.requests[0][3]["authorization"]


def test_options_win_over_the_environment(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    server.objects["t/x"] = b"data"
    assert open_store("s3a://bucket/t", options(server)).get("x") == b"data"
    assert "made-up" in server.requests[0][3]["authorization"]


def test_account_of_the_uri_may_not_contradict_the_options() -> None:
    with pytest.raises(InvalidUriError, match=r"'lake'.*'other'"):
        open_store("abfss://raw@lake.dfs.core.windows.net/t", {"azure_storage_account_name": "other"})


def test_account_of_the_uri_signs_the_requests(server: ScriptedS3) -> None:
    given = {
        "azure_storage_account_key": "bWFkZS11cA==",
        "azure_endpoint": f"http://127.0.0.1:{server.port}",
        "allow_http": True,
    }
    server.troubles[:] = [(404, "BlobNotFound")]
    with pytest.raises(ObjectNotFoundError):
        open_store("abfss://raw@lake.dfs.core.windows.net/t", given).get("x")
    assert server.requests[0][1] == "/raw/t/x"
    assert "lake:" in server.requests[0][3]["authorization"]


@pytest.mark.parametrize(
    ("uri", "given", "reason"),
    [
        ("az://container/t", {}, "[Aa]ccount"),
        ("s3://bucket/t", {"aws_access_key_id": "made-up"}, "SecretAccessKey"),
        ("s3://bucket/t", {"aws_virtual_hosted_style_request": "perhaps"}, "perhaps"),
        ("az://container/t", {"account_name": "a", "account_key": "?"}, "Access Key"),
        ("gs://bucket/t", {"google_service_account_key": "{}"}, "private_key"),
    ],
)
def test_options_that_make_no_store_are_refused(uri: str, given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidUriError, match=reason) as caught:
        open_store(uri, given)
    assert uri in str(caught.value)
    assert "Debug source" not in str(caught.value)


# --- texts that no test server can provoke --------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Error performing PUT http://169.254.169.254/latest/api/token - status code: 403 Forbidden: denied",
        "Error performing PUT http://169.254.169.254/latest/api/token - HTTP error: error sending request",
        "Error performing token request: Error performing GET http://h/ - HTTP error: error sending request",
    ],
)
def test_missing_credentials_are_a_permission_error(text: str) -> None:
    error = from_obstore_error(Exception(text), "read", "s3://bucket/x")
    assert isinstance(error, StoragePermissionError)
    assert "No credentials were found" in str(error)


def test_long_answer_is_cut() -> None:
    error = from_obstore_error(Exception("x" * 10_000 + "\n\nDebug source:\nsecret"), "read", "s3://bucket/x")
    assert len(str(error)) < 700
