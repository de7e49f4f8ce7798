"""Table locations and keys, parsed and checked once.

A plain path is taken literally. Anything with a scheme is a URI (RFC 3986): its path is percent-decoded once,
so `s3://b/a%20b` and `s3://b/a b` are the same table, and a literal `%20` in a key is written `%2520`.

A key is a relative, `/`-separated name that cannot leave the store's root; other strings are refused before any I/O.
Keys of data files are not inside a log directory, of this table or of one below it: only the log code writes there.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, unquote

from headwater.errors import InvalidUriError, StorageError
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


MAX_BYTES_VARIABLE: Final = "HEADWATER_MAX_OBJECT_BYTES"
"""The environment variable that says how large an object may be that is read as a whole."""
_DEFAULT_MAX_BYTES: Final = 4 * 2**30

# A segment of no, one or two dots: the empty key, a leading, doubled or trailing slash, `.` and `..`.
_BAD_SEGMENTS = frozenset({"", ".", ".."})

LOG_DIRECTORIES = ("_delta_log", "_transaction_log")
"""Where the logs of Delta tables and of search tables are, below the root of a table."""
LOG_KEY = rf"(?i)(?:^|/)(?:{'|'.join(LOG_DIRECTORIES)})(?:/|$)"
"""A regular expression, for `re` and for Arrow. Some disks do not tell upper from lower case."""
_LOG_KEY = re.compile(LOG_KEY)


def check_key(key: str) -> str:
    """Return the key itself, if it names an object below the root.

    >>> check_key("_delta_log/00000000000000000000.json")
    '_delta_log/00000000000000000000.json'
    """
    if not _BAD_SEGMENTS.isdisjoint(key.split("/")) or "\0" in key:
        raise StorageError(f"{key!r} is not a key: keys are relative to the table, without empty, '.' or '..' segments")
    if not key.isascii():
        try:
            os.fsencode(key)
        except UnicodeEncodeError as error:
            raise StorageError(f"{key!r} is not a key: it holds half of a surrogate pair") from error
    return key


def check_data_key(key: str) -> str:
    """Return the key itself, if it names an object below the root that is in no log directory.

    >>> check_data_key("day=2024-01-31/part-0.parquet")
    'day=2024-01-31/part-0.parquet'
    """
    if _LOG_KEY.search(check_key(key)):
        raise StorageError(f"{key!r} is inside a table's log, where no data file is ever written or deleted")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix itself, if it names a directory: empty (the root), or a key followed by one `/`.

    >>> check_prefix("_delta_log/")
    '_delta_log/'
    """
    if prefix:
        if not prefix.endswith("/"):
            raise StorageError(f"{prefix!r} is not a directory prefix: it has to end with '/'")
        check_key(prefix[:-1])
    return prefix


def check_range(key: str, start: int, length: int) -> None:
    """Refuse a byte range that no object can have."""
    if start < 0 or length < 0:
        raise StorageError(f"cannot read {length} bytes from offset {start} of {key!r}: both must be >= 0")


def max_object_bytes() -> int:
    """How large an object may be that is read as a whole: 4 GiB, or what HEADWATER_MAX_OBJECT_BYTES says.

    Log files are read so, data files and deletion vectors are not. It is far above what any log has.
    """
    text = os.environ.get(MAX_BYTES_VARIABLE)
    if text is None:
        return _DEFAULT_MAX_BYTES
    if not text.isdecimal() or len(text) > 18:
        raise StorageError(f"the environment variable {MAX_BYTES_VARIABLE} must be a number of bytes, not {text!r}")
    return int(text)


def check_size(what: str, size_bytes: int) -> int:
    """Return the size itself, if an object of that size may be read as a whole."""
    if size_bytes > max_object_bytes():
        raise StorageError(
            f"could not read {what}: it has {size_bytes} bytes, and at most {max_object_bytes()} are read at once. "
            f"No log file should be so large; if this one is, set the environment variable {MAX_BYTES_VARIABLE}"
        )
    return size_bytes
