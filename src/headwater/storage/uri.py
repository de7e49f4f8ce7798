"""Table locations: paths and URIs parsed once into a frozen value that says which store, and where in it.

A plain path is taken literally. Anything with a scheme is a URI (RFC 3986): its path is percent-decoded once,
so `s3://b/a%20b` and `s3://b/a b` are the same table, and a literal `%20` in a key is written `%2520`.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, unquote

from headwater.errors import InvalidUriError
from headwater.storage.redaction import redacted

StoreKind = Literal["local", "memory", "s3", "azure", "gcs"]

_KINDS: Final[dict[str, StoreKind]] = {
    "file": "local",
    "memory": "memory",
    "s3": "s3",
    "s3a": "s3",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "gs": "gcs",
}
_INSTEAD: Final = {
    "http": "a table cannot be read over plain HTTP: use the store's own scheme",
    "https": "a table cannot be read over plain HTTP: use the store's own scheme",
    "wasb": "use abfs://container@account.dfs.core.windows.net/path",
    "wasbs": "use abfss://container@account.dfs.core.windows.net/path",
    "adl": "use abfss://container@account.dfs.core.windows.net/path",
    "azure": "use az://container/path",
    "gcs": "use gs://bucket/path",
    "s3n": "use s3://bucket/path",
}
# Two letters at least, as in every scheme we know; a lone letter before a colon is part of a plain path.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?")
_ACCOUNT_HOST = re.compile(r"[A-Za-z0-9\-]+\.(?:dfs|blob)\.[A-Za-z0-9.\-]+")
_PATH_SAFE: Final = "/!$&'()*+,;=:@~"


@dataclass(frozen=True, slots=True)
class StoreUri:
    """Where a table is.

    Attributes:
        scheme: as the user spelled it, in lower case: Spark tells `s3` from `s3a`.
        bucket: the bucket, container or memory store; empty on a local disk.
        path: decoded. Absolute on a local disk, elsewhere without leading and trailing `/`.
        account_host: of `abfs(s)://container@account_host/path`, else empty.
    """

    scheme: str
    bucket: str
    path: str
    account_host: str = ""

    @property
    def kind(self) -> StoreKind:
        """Which kind of store serves this scheme."""
        return _KINDS[self.scheme]

    @property
    def account(self) -> str:
        """The Azure storage account that the URI names, or an empty string."""
        return self.account_host.partition(".")[0]

    @property
    def uri(self) -> str:
        """The canonical, percent-encoded spelling; parsing it gives this value again.

        >>> parse_uri("s3a://bucket/my events/").uri
        's3a://bucket/my%20events'
        """
        path = quote(self.path, safe=_PATH_SAFE, errors="surrogateescape")
        if self.kind == "local":
            return f"file://{path}"
        authority = f"{self.bucket}@{self.account_host}" if self.account_host else self.bucket
        return f"{self.scheme}://{authority}/{path}" if path else f"{self.scheme}://{authority}"


def parse_uri(location: str | os.PathLike[str]) -> StoreUri:
    """Parse a path or URI.

    Args:
        location: a path (relative to the working directory, or from `~`), a `pathlib.Path`, or a URI with one
            of the schemes file, memory, s3, s3a, az, abfs, abfss, gs.

    >>> parse_uri("abfss://raw@lake.dfs.core.windows.net/events").account
    'lake'

    Raises:
        InvalidUriError: it is none of these; the message says what is wrong with it.
    """
    try:
        text = os.fspath(location)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidUriError(f"a table location is a string or a path, not {type(location).__name__}")
    if not text.strip():
        raise InvalidUriError("the table location is empty: give a path or a URI such as s3://bucket/table")
    if "\0" in text:
        raise InvalidUriError(f"the table location {text!r} contains a NUL character")
    match = _SCHEME.fullmatch(text) if isinstance(location, str) else None
    if match is None or not (match[1].lower() in _KINDS or match[2].startswith("/")):
        return StoreUri("file", "", _absolute(os.path.expanduser(text)))
    scheme, rest = match[1].lower(), match[2]
    if scheme not in _KINDS:
        raise InvalidUriError(_unsupported(scheme))
    for mark, code in (("?", "%3F"), ("#", "%23")):
        if mark in rest:
            raise InvalidUriError(
                f"a table URI has no query or fragment; write a {mark!r} that belongs to the path as {code}"
            )
    return _parse_file(text, rest) if scheme == "file" else _parse_remote(scheme, rest)


def _absolute(path: str) -> str:
    """Absolute, without `.`, `..` and doubled slashes (POSIX allows two at the start; it is one root)."""
    absolute = os.path.abspath(path)
    return absolute[1:] if absolute.startswith("//") else absolute


def _unsupported(scheme: str) -> str:
    close = difflib.get_close_matches(scheme, _KINDS, n=1)
    hint = _INSTEAD.get(scheme) or (f"did you mean {close[0]}://?" if close else "")
    known = ", ".join(_KINDS)
    because = f": {hint}" if hint else ""
    return f"the scheme {scheme!r} is not supported{because} (supported: {known}, and plain paths)"


def _decode(path: str) -> str:
    decoded = unquote(path, errors="surrogateescape")
    if "\0" in decoded:
        raise InvalidUriError(f"the path {path!r} contains an encoded NUL character")
    return decoded


def _parse_file(text: str, rest: str) -> StoreUri:
    """`file:/p`, `file:///p` and `file://localhost/p`."""
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, after = rest[2:].partition("/")
        path = slash + after
    if host not in ("", "localhost"):
        raise InvalidUriError(f"{redacted(text)!r} names a host: an absolute path needs three slashes, file:///")
    if not path.startswith("/"):
        raise InvalidUriError(f"{redacted(text)!r} has no absolute path: write file:///path, or a plain path")
    return StoreUri("file", "", _absolute(_decode(path)))


def _parse_remote(scheme: str, rest: str) -> StoreUri:
    """`scheme://bucket/path`, and for Azure `scheme://container@account.dfs.core.windows.net/path`."""
    example = "memory://name/table" if scheme == "memory" else f"{scheme}://bucket/table"
    if not rest.startswith("//"):
        raise InvalidUriError(f"a {scheme} location starts with {scheme}://, as in {example}")
    authority, _, path = rest[2:].partition("/")
    bucket, at, host = authority.partition("@")
    if at and (scheme not in ("abfs", "abfss") or ":" in bucket):
        # The authority may hold a secret: it is not repeated in the message.
        raise InvalidUriError(f"credentials do not belong in a {scheme} URI: pass them as storage_options")
    if not bucket:
        raise InvalidUriError(f"{redacted(f'{scheme}:{rest}')} names no bucket or container, as in {example}")
    if not _BUCKET.fullmatch(bucket):
        shown = "what stands before the colon" if ":" in bucket else repr(bucket)  # a secret may come after it
        raise InvalidUriError(f"{shown} is not the name of a bucket or container, as in {example}")
    if at and not _ACCOUNT_HOST.fullmatch(host):
        raise InvalidUriError(
            f"{host.rpartition('@')[2]!r} is not an Azure account host: write {scheme}://{bucket}@account.dfs.core.windows.net/path"
        )
    segments = [segment for segment in _decode(path).split("/") if segment]
    if "." in segments or ".." in segments:
        raise InvalidUriError(f"{scheme}:{rest} has a '.' or '..' segment: object stores have no parent to go to")
    return StoreUri(scheme, bucket, "/".join(segments), host.lower())
