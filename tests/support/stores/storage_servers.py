"""Servers for the storage tests: moto's S3 and Azurite, on free loopback ports, with made-up credentials."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import http.client
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

AZURITE_PACKAGE = "azurite@3"
INSTALL_TIMEOUT_S = 240
START_TIMEOUT_S = 60

# S3 tests `If-None-Match` and stores in one step. Moto does both one after the other, in threads: so one PUT at a time.
_MOTO = """
import sys
import threading
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
puts = threading.Lock()
put = S3Response._key_response_put
def put_alone(*args, **kwargs):
    with puts:
        return put(*args, **kwargs)
S3Response._key_response_put = put_alone
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


class Unavailable(Exception):
    """A server cannot be had on this machine; the reason is the message."""


class Endpoint(NamedTuple):
    """A bucket or container, and the options to open stores in it."""

    root: str
    options: dict[str, str]


@contextmanager
def moto_server() -> Iterator[Endpoint]:
    """An S3 bucket on moto, in a process of its own so that our strict warnings do not reach it."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MOTO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            line = process.stdout.readline()
            if not line.strip():
                raise Unavailable("moto's server did not start")
            port = int(line)
            _request(port, "PUT", "/headwater-test", {"Content-Length": "0"})
            options = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "made-up",
                "AWS_SECRET_ACCESS_KEY": "made-up",
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
            }
            yield Endpoint("s3://headwater-test", options)
        finally:
            process.terminate()


@contextmanager
def azurite_server() -> Iterator[Endpoint]:
    """An Azure container on Azurite, which npm installs into a per-user cache at the first use."""
    program = _installed_azurite()
    account, key = "headwatertest", base64.b64encode(secrets.token_bytes(32)).decode()
    command = [
        *(program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence"),
        *("--skipApiVersionCheck", "--disableTelemetry"),
    ]
    # It logs every request: into a file, because a pipe that nobody reads would stop it.
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "AZURITE_ACCOUNTS": f"{account}:{key}"},
        ) as process,
    ):
        try:
            port = _announced_port(process, log)
            _create_container(port, account, key, "headwater-test")
            options = {
                "azure_storage_account_name": account,
                "azure_storage_account_key": key,
                "azure_endpoint": f"http://127.0.0.1:{port}/{account}",
                "allow_http": "true",
            }
            yield Endpoint("az://headwater-test", options)
        finally:
            process.terminate()


def _installed_azurite() -> str:
    """The program's path; one process installs it, the others wait for the lock."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("Azurite needs node and npm")
    cache = Path(tempfile.gettempdir()) / f"headwater-test-cache-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise Unavailable(f"{cache} belongs to somebody else")
    target = cache / AZURITE_PACKAGE
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _install(npm, cache, target)
    return str(target / "node_modules" / ".bin" / "azurite-blob")


def _install(npm: str, cache: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        work = Path(scratch) / "install"
        work.mkdir()
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(work), AZURITE_PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, cwd=work)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"npm did not install Azurite within {INSTALL_TIMEOUT_S} s") from error
        if done.returncode != 0:
            raise Unavailable(f"npm cannot install Azurite: {done.stderr.strip()[-300:]}")
        work.rename(target)


def _announced_port(process: subprocess.Popen[bytes], log: IO[str]) -> int:
    """The port that Azurite chose, from the line that says where it listens."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        log.seek(0)
        if found := re.search(r"successfully listens on http://127\.0\.0\.1:(\d+)\n", log.read()):
            return int(found[1])
        time.sleep(0.05)
    raise Unavailable("Azurite did not start")


def _create_container(port: int, account: str, key: str, container: str) -> None:
    """The one request that obstore does not know, signed with the account's key."""
    stamp, version = formatdate(usegmt=True), "2021-12-02"
    to_sign = "\n".join(
        [
            *("PUT", *[""] * 11, f"x-ms-date:{stamp}", f"x-ms-version:{version}"),
            *(f"/{account}/{account}/{container}", "restype:container"),
        ]
    )
    digest = hmac.new(base64.b64decode(key), to_sign.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": stamp,
        "x-ms-version": version,
        "Authorization": f"SharedKey {account}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    _request(port, "PUT", f"/{account}/{container}?restype=container", headers)


def _request(port: int, method: str, path: str, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status >= 300:
            raise Unavailable(f"the server answered {response.status}: {body[:200]!r}")
    finally:
        connection.close()
