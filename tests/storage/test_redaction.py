"""No secret comes out: not in a message or what it was caused by, not in a `repr`, not in what a command prints."""

from __future__ import annotations

import ast
import base64
import dataclasses
import gc
import importlib
import io
import json
import pkgutil
import threading
import traceback
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest

import headwater
from headwater.cli.main import main
from headwater.errors import HeadwaterError, InvalidUriError
from headwater.features.context import TableRef
from headwater.storage import open_store, parse_uri
from headwater.storage.elsewhere import OtherStores
from headwater.storage.errors import RetryPolicy
from headwater.storage.options import obstore_config, options_for, root_options
from headwater.storage.redaction import is_harmless, redacted, secrets_in, shown_options

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "Canary+Sings/Loudly"
TEXT_CANARY = base64.b64encode(CANARY.encode()).decode()
STUBS = Path(obstore.__file__).parent / "_store"
FILES = {"s3": "_aws.pyi", "azure": "_azure.pyi", "gcs": "_gcs.pyi", "client": "_client.pyi"}
PREFIXES = {"s3": "aws_", "azure": "azure_storage_", "gcs": "google_", "client": ""}
URIS = {"s3": "s3://bucket/t", "azure": "az://bucket/t", "gcs": "gs://bucket/t"}


def known_to_obstore(kind: str) -> list[str]:
    """The names of the options that obstore documents."""
    tree = ast.parse((STUBS / FILES[kind]).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Config")]
    found = {
        item.target.id
        for node in classes
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    assert found
    return sorted(found)


def spellings(kind: str, name: str) -> list[str]:
    prefixed = name if name.startswith(PREFIXES[kind]) else PREFIXES[kind] + name
    return [name, name.upper(), prefixed, prefixed.upper(), f"s3://other/{name}", f"abfss://c@a.dfs.x.net/{prefixed}"]


# --- options ------------------------------------------------------------------------------------------------

SHOWN = {
    "account_name", "allow_http", "allow_invalid_certificates", "bucket", "checksum_algorithm", "conditional_put",
    "connect_timeout", "container_name", "copy_if_not_exists", "default_content_type", "default_region",
    "disable_bulk_delete", "disable_tagging", "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle", "http2_max_frame_size", "http2_only", "imdsv1_fallback", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_excludes", "randomize_addresses", "region", "request_payer", "s3_express",
    "server_side_encryption", "skip_signature", "sse_bucket_key_enabled", "timeout", "unsigned_payload",
    "use_azure_cli", "use_emulator", "use_fabric_endpoint", "virtual_hosted_style_request", "read_timeout",
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_the_value_of_every_option_is_hidden_unless_it_is_known_to_be_harmless(kind: str) -> None:
    for name in known_to_obstore(kind):
        bare = name.removeprefix("aws_").removeprefix("azure_storage_").removeprefix("azure_").removeprefix("google_")
        for spelled in spellings(kind, name):
            [(shown_name, shown)] = shown_options({spelled: CANARY}).items()
            assert shown_name == spelled
            assert (shown == CANARY) == (bare in SHOWN), spelled
            assert (CANARY in secrets_in({spelled: CANARY})) == (bare not in SHOWN), spelled


@pytest.mark.parametrize(
    "name",
    [
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "fs.azure.account.key.lake.dfs.core.windows.net",
        "fs.azure.account.oauth2.client.secret",
        "fs.gs.auth.service.account.private.key",
        "spark.hadoop.fs.s3a.session.token",
        "password",
        "an option that comes next year",
    ],
)
def test_unknown_names_and_those_of_hadoop_are_hidden(name: str) -> None:
    assert not is_harmless(name)
    assert shown_options({name: CANARY}) == {name: "***"}


@pytest.mark.parametrize(
    "value",
    [
        f"https://me:{CANARY.replace('/', '')}@host:9000/x",
        f"http://{CANARY.replace('/', '')}@host",
        f"https://host/x?sig={CANARY}",
        f"https://host/x?a=1&X-Amz-Signature={CANARY}#y",
        f"//{CANARY}",
        f"no url {CANARY}",
        f"https://a b:{CANARY}@host",
    ],
)
def test_urls_are_shown_without_what_they_hide(value: str) -> None:
    shown = shown_options({"aws_endpoint_url": value})["aws_endpoint_url"]
    for part in ("Canary", "Sings"):
        assert part not in shown


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("GET https://u:p@h/k?x=1 failed", "GET https://***@h/k?*** failed"),
        ("abfss://raw@lake.dfs.core.windows.net/t", "abfss://raw@lake.dfs.core.windows.net/t"),
        ("abfss://raw:pw@lake.dfs.core.windows.net/t", "abfss://***@lake.dfs.core.windows.net/t"),
        ("s3://key:secret@bucket/t", "s3://***@bucket/t"),
        ("authorization: Bearer abc.def-ghi", "authorization: Bearer ***"),
        ("AWS4-HMAC-SHA256 Credential=AKIA/2024, Signature=abc", "AWS4-HMAC-SHA256 *** Signature=***"),
        ("?sv=2024&sig=a%2Fb&se=1", "?sv=2024&sig=***&se=1"),
        ("plain text, day=2024-01-31/part-0.parquet", "plain text, day=2024-01-31/part-0.parquet"),
    ],
)
def test_texts_are_cleaned_without_knowing_the_secrets(text: str, clean: str) -> None:
    assert redacted(text) == clean


def test_secrets_of_the_environment_are_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("AWS_PROFILE", "default-profile")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    found = secrets_in({})
    assert CANARY in found
    assert not {"default-profile", "eu-north-1"} & set(found)


# --- errors -------------------------------------------------------------------------------------------------


class _Echo(BaseHTTPRequestHandler):
    """A store that says in its error whatever it was told: the worst that a store can do."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = f"{self.path} {' '.join(f'{name}: {value};' for name, value in self.headers.items())}"
        body = f"<Error><Code>InvalidArgument</Code><Message>{said}</Message></Error>".encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.storage.remote.RetryPolicy", lambda: RetryPolicy(max_attempts=1))


def everything_said(error: BaseException) -> str:
    """All that anybody may print of an error: itself, its causes and contexts, notes and traceback."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.append(each)
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
    parts = [f"{each} {each!r} {each.args!r} {getattr(each, '__notes__', '')}" for each in seen]
    return "\n".join([*parts, "".join(traceback.format_exception(error))])


def credentials(kind: str, address: str) -> list[dict[str, str]]:
    """Ways to open a store of a kind at the echo, each with the canary in all its secrets."""
    url, http = f"http://{address}", {"allow_http": "true"}
    match kind:
        case "s3":
            keys = {"aws_access_key_id": f"id{CANARY}", "aws_secret_access_key": CANARY, "aws_session_token": CANARY}
            keys |= {"aws_region": "us-east-1", **http}
            return [
                {**keys, "aws_endpoint_url": url},
                {**keys, "aws_endpoint_url": f"http://me:{CANARY.replace('/', '_')}@{address}"},
                {**keys, "aws_endpoint_url": f"{url}/?token={CANARY}"},
                {**keys, "aws_endpoint_url": url, "aws_sse_customer_key_base64": TEXT_CANARY},
                {**keys, "aws_endpoint_url": url, "user_agent": CANARY},
                {**keys, "aws_endpoint_url": url, "proxy_url": f"http://u:{CANARY.replace('/', '_')}@{address}"},
            ]
        case "azure":
            account = {"azure_storage_account_name": "lake", "azure_endpoint": f"{url}/lake", **http}
            return [
                {**account, "azure_storage_account_key": TEXT_CANARY},
                {**account, "azure_storage_token": CANARY.replace("/", "_")},
                {**account, "azure_storage_sas_token": f"sv=2024&sig={CANARY}&se=2030"},
                {**account, "azure_storage_sas_token": f"?sv=2024&sig={CANARY}"},
                {
                    **account,
                    "azure_client_id": "c",
                    "azure_client_secret": CANARY,
                    "azure_tenant_id": "t",
                    "azure_authority_host": url,
                },
            ]
        case _:
            return [{"google_base_url": url, "google_bearer_token": CANARY, **http} for _ in (1,)]


@pytest.mark.parametrize("kind", URIS)
def test_no_error_repeats_a_secret_not_even_one_that_the_store_says(echo: str, kind: str) -> None:
    for options in credentials(kind, echo):
        try:
            store: Any = open_store(URIS[kind], options)
            ctx = TableRef(URIS[kind], options).context()
        except InvalidUriError as error:
            assert_silent(everything_said(error))
            continue
        assert_silent(repr(store), repr(ctx), repr(ctx.open_absolute), str(vars(store).get("_uri")))
        for attempt in (
            lambda store=store: store.get("a b"),
            lambda store=store: store.head("a"),
            lambda store=store: store.put("a", b"x"),
            lambda store=store: store.put_if_absent("a", b"x"),
            lambda store=store: store.get_range("a", 0, 10),
            lambda store=store: store.list_from("_delta_log/"),
            lambda store=store: store.delete_many(["a", "b"]),
        ):
            with pytest.raises(HeadwaterError) as raised:
                attempt()
            assert_silent(everything_said(raised.value))


@pytest.mark.parametrize("kind", URIS)
def test_no_option_that_cannot_be_used_is_repeated(kind: str, tmp_path: Path) -> None:
    for name in known_to_obstore(kind) + known_to_obstore("client"):
        if is_harmless(name):
            continue
        for value in (CANARY, f"http://me:{CANARY}@host", f"{{{CANARY}", f"a={CANARY}"):
            try:
                open_store(URIS[kind], {name: value, "region": "x"} if kind == "s3" else {name: value})
                root_options(parse_uri(URIS[kind]), {f"{URIS[kind]}/{name}": value})
            except HeadwaterError as error:
                assert_silent(everything_said(error))


@pytest.mark.parametrize(
    "location",
    [
        f"s3://key:{CANARY}@bucket/t",
        f"s3://key:{CANARY.replace('/', '_')}/t",
        f"abfss://c:{CANARY}@lake.dfs.core.windows.net/t",
        f"abfss://c@me:{CANARY.replace('/', '_')}@lake.dfs.core.windows.net/t",
        f"file://me:{CANARY.replace('/', '_')}@host/t",
        f"https://lake.blob.core.windows.net/c?sig={CANARY}",
        f"s3://bucket/t?X-Amz-Signature={CANARY}",
        f"wasbs://c:{CANARY}@x/t",
    ],
)
def test_no_location_repeats_what_does_not_belong_into_it(location: str) -> None:
    for attempt in (
        lambda: parse_uri(location),
        lambda: open_store(location),
        lambda: headwater.open_log(location),
        lambda: options_for(parse_uri("s3://b"), {f"{location}/token": "x"}),
        lambda: OtherStores("/t", None).locate(location),
        lambda: OtherStores("/t", None).locate_uri(location),
    ):
        try:
            attempt()
        except HeadwaterError as error:
            assert_silent(everything_said(error))


def test_option_names_are_cleaned_too() -> None:
    with pytest.raises(InvalidUriError) as raised:
        obstore_config("s3", {f"https://me:{CANARY.replace('/', '_')}@host": "x"})
    assert_silent(everything_said(raised.value))


# --- commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("kind", URIS)
def test_commands_print_no_secret(echo: str, kind: str, as_json: bool) -> None:
    for options in credentials(kind, echo):
        pairs = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        said = _run("show", URIS[kind], *pairs, *(["--json"] if as_json else []))
        assert "error" in said
        assert_silent(said)
    assert_silent(_run("show", URIS[kind], "-o", CANARY), _run("show", URIS[kind], "-o", f"nope={CANARY}"))


def _run(*args: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert main(args) != 0
    return out.getvalue() + err.getvalue()


# --- values -------------------------------------------------------------------------------------------------


def test_no_value_of_ours_shows_its_storage_options() -> None:
    for module in pkgutil.walk_packages(headwater.__path__, "headwater."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    kinds = {
        kind for kind in gc.get_objects() if isinstance(kind, type) and str(kind.__module__).startswith("headwater.")
    }
    found = 0
    for kind in kinds:
        if not dataclasses.is_dataclass(kind):
            continue
        for field in dataclasses.fields(kind):
            if field.name.endswith("options") and "[str, str] | None" in str(field.type):
                found += 1
                assert not field.repr, f"repr({kind.__qualname__}) shows {field.name}"
    assert found > 5


def test_a_repr_fits_on_a_screen(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 50)
    fields = [
        {"name": f"column_{i}", "type": "long", "nullable": True, "metadata": {"comment": "c" * 50}}
        for i in range(3_000)
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    properties = {f"property.{i}": "x" * 100 for i in range(500)}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": properties}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [field["name"] for field in fields[:1_000]],
                "configuration": properties,
            }
        },
    ]
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    snapshot = headwater.open_log(path)
    values = [snapshot, snapshot.ctx, snapshot.schema, snapshot.metadata, snapshot.protocol, *snapshot.history()]
    for value in (*values, *snapshot.commits):
        assert len(repr(value)) < 3_000, type(value)
    assert repr(snapshot).startswith("Snapshot('file:///")
    assert "version=0" in repr(snapshot)


def assert_silent(*texts: str) -> None:
    for text in texts:
        for part in ("Canary", "Sings", "Loudly", TEXT_CANARY):
            assert part not in text, text
