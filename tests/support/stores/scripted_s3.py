"""A tiny S3 of one bucket whose failures are written down before: what happens to the n-th request."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Trouble = tuple[int, str] | Literal["drop before", "drop after", "hang", "half a body"] | None


@dataclass
class ScriptedS3:
    """The server's state.

    Attributes:
        port: where it listens.
        troubles: taken from the front, one per request; None is no trouble.
        requests: the method, path, query and lower-case headers of every request so far.
        objects: what is stored.
        page_size: how many names a listing returns at once.
        by_request: troubles of requests with one method and key, also taken from the front. One of them may be a pair:
            what happens first, and the trouble.
    """

    port: int = 0
    troubles: list[Trouble] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, list[str]], dict[str, str]]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    page_size: int = 1000
    by_request: dict[tuple[str, str], list[Trouble | tuple[Callable[[], None], Trouble]]] = field(default_factory=dict)

    def on_put(self, key: str, troubles: list[Trouble | tuple[Callable[[], None], Trouble]]) -> None:
        """Let the next puts of an object go wrong."""
        self.by_request["PUT", key] = troubles

    def on_get(self, key: str, troubles: list[Trouble | tuple[Callable[[], None], Trouble]]) -> None:
        """Let the next reads of an object go wrong."""
        self.by_request["GET", key] = troubles

    def next_trouble(self, method: str, key: str) -> Trouble:
        """What goes wrong with this request."""
        if self.troubles:
            return self.troubles.pop(0)
        waiting = self.by_request.get((method, key))
        if not waiting:
            return None
        trouble = waiting.pop(0)
        if isinstance(trouble, tuple) and callable(trouble[0]):
            trouble[0]()
            trouble = trouble[1]
        return trouble


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: ScriptedS3

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        path, query = unquote(url.path), parse_qs(url.query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.requests.append((self.command, path, query, headers))
        trouble = self.state.next_trouble(self.command, path.partition("/bucket/")[2])
        if trouble == "hang":
            time.sleep(2)
        if trouble in ("hang", "drop before"):
            self.close_connection = True
            return
        if isinstance(trouble, tuple):
            status, code = trouble
            text = f"<Error><Code>{code}</Code><Message>as scripted</Message></Error>" if code else ""
            self.answer(status, text.encode())
            return
        status, content = self.serve(path.partition("/bucket/")[2], query, headers, body)
        if trouble == "drop after":
            self.close_connection = True
            return
        self.answer(status, content, cut=trouble == "half a body")

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_request

    def serve(self, key: str, query: dict[str, list[str]], headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        objects = self.state.objects
        if self.command == "PUT":
            if key in objects and headers.get("if-none-match") == "*":
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
            objects[key] = body
            return 200, b""
        if "list-type" in query:
            return 200, self.listing(query)
        if key not in objects:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        if "range" in headers:
            first, last = map(int, headers["range"].removeprefix("bytes=").split("-"))
            return 206, objects[key][first : last + 1]
        return 200, objects[key]

    def listing(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = (query.get("continuation-token") or query.get("start-after") or [""])[0]
        names = sorted(key for key in self.state.objects if key.startswith(prefix) and key > after)
        page, rest = names[: self.state.page_size], names[self.state.page_size :]
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.state.objects[key])}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in page
        )
        return f"<ListBucketResult>{token}{entries}</ListBucketResult>".encode()

    def answer(self, status: int, content: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if status == 206:
            self.send_header("Content-Range", f"bytes 0-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut


@contextmanager
def scripted_s3_server() -> Iterator[ScriptedS3]:
    """The server on a free loopback port, in a thread."""
    state = ScriptedS3()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
