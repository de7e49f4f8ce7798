"""What must not be shown of storage options, in messages or anywhere else: everything but what is known to be harmless.

The names of options that may be shown are listed, those of secrets are not: an unforeseen option is hidden.
Texts that come from elsewhere (a store's answer, an error of the client) are cleaned of the values of all other options
and environment variables, of user names and passwords in URLs, of queries, which hold signatures, and of headers.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

HIDDEN: Final = "***"
_PREFIXES: Final = ("aws_", "azure_storage_", "azure_", "google_")
_HARMLESS: Final = frozenset(
    {
        "account_name",
        "allow_http",
        "allow_invalid_certificates",
        "bucket",
        "bucket_name",
        "checksum_algorithm",
        "conditional_put",
        "connect_timeout",
        "container_name",
        "copy_if_not_exists",
        "credentials",  # for another root: "same" or "environment"
        "default_content_type",
        "default_region",
        "disable_bulk_delete",
        "disable_tagging",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_max_frame_size",
        "http2_only",
        "imdsv1_fallback",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_excludes",
        "randomize_addresses",
        "read_timeout",
        "region",
        "request_payer",
        "s3_express",
        "server_side_encryption",
        "skip_signature",
        "sse_bucket_key_enabled",
        "timeout",
        "unsigned_payload",
        "use_azure_cli",
        "use_emulator",
        "use_fabric_endpoint",
        "virtual_hosted_style_request",
    }
)
_URLS: Final = frozenset(
    {
        "authority_host",
        "base_url",
        "endpoint",
        "endpoint_url",
        "endpoint_url_s3",
        "endpoint_url_sts",
        "metadata_endpoint",
        "msi_endpoint",
        "identity_endpoint",
        "proxy_url",
        "sts_endpoint",
    }
)
"""Options that are shown without what a URL can hide."""
_SHORTEST_SECRET: Final = 6
"""Shorter values are not looked for in texts: they would be found everywhere."""
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^\s/?#'\"<>]*)@")
_WITH_CONTAINER: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes in which a container stands where others have a user."""
_QUERY = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://[^\s?#'\"<>)]*)\?[^\s'\"<>)]*")
_SIGNED = re.compile(
    r"(?i)\b(sig|signature|x-amz-[a-z-]+|x-goog-[a-z-]+|accountkey|sharedaccesskey|sharedaccesssignature|credential)"
    r"(\s*[=:]\s*)[^&\s,'\"<>]+"
)
_HEADER = re.compile(r"(?i)\b(bearer|basic|sharedkey|aws4-hmac-sha256)\s+[^\s'\"<>]+")


def is_harmless(name: str) -> bool:
    """Tell whether the value of an option may be shown.

    >>> is_harmless("AWS_REGION"), is_harmless("aws_secret_access_key"), is_harmless("fs.s3a.secret.key")
    (True, False, False)
    """
    return _bare(name) in _HARMLESS


def shown_options(options: Mapping[str, object] | None) -> dict[str, str]:
    """Return the options as they may be shown.

    >>> shown_options({"region": "eu", "token": "abc", "endpoint": "https://me:secret@host/path?sig=1"})
    {'region': 'eu', 'token': '***', 'endpoint': 'https://***@host/path?***'}
    """
    return {redacted(str(name)): _shown(str(name), str(value)) for name, value in (options or {}).items()}


def secrets_in(options: Mapping[str, object] | None) -> list[str]:
    """Return the values of options, and of environment variables that stand for options, that must not be shown."""
    found: set[str] = set()
    for name, value in (*(options or {}).items(), *_environment()):
        if not is_harmless(str(name)):
            found.update(_parts(_bare(str(name)), str(value)))
    long = {text for text in found if len(text) >= _SHORTEST_SECRET and not text.isdigit()}
    return sorted(long, key=len, reverse=True)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without secrets.

    >>> redacted("GET https://me:pw@host/key?sv=1&sig=abc failed: Bearer abc.def", ["key-of-mine"])
    'GET https://***@host/key?*** failed: Bearer ***'
    >>> redacted("abfss://raw@lake.dfs.core.windows.net/events")
    'abfss://raw@lake.dfs.core.windows.net/events'
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    text = _USER_INFO.sub(_without_user, text)
    text = _QUERY.sub(rf"\1?{HIDDEN}", text)
    text = _SIGNED.sub(rf"\1\2{HIDDEN}", text)
    return _HEADER.sub(rf"\1 {HIDDEN}", text)


def shortened(text: str, most: int = 200) -> str:
    """Return a text that fits on a screen: its beginning, if it is too long.

    >>> shortened("abcdef", 3)
    'abc... (6 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def _without_user(found: re.Match[str]) -> str:
    is_container = found[1].lower() in _WITH_CONTAINER and ":" not in found[2] and "@" not in found[2]
    return found[0] if is_container else f"{found[1]}://{HIDDEN}@"


def _bare(name: str) -> str:
    """Return the name of an option without its provider, and without the root of a store."""
    bare = name.rpartition("/")[2].lower()
    for prefix in _PREFIXES:
        if bare.startswith(prefix):
            return bare.removeprefix(prefix)
    return bare


def _shown(name: str, value: str) -> str:
    if is_harmless(name):
        return value
    is_url = _bare(name) in _URLS and re.fullmatch(r"https?://\S+", value) is not None
    return redacted(value, _parts(_bare(name), value)) if is_url else HIDDEN


def _environment() -> Iterator[tuple[str, str]]:
    from headwater.storage.option_names import known_names

    known = known_names()
    for name, value in os.environ.items():
        if name.lower().startswith(_PREFIXES) and _bare(name) in known:
            yield name, value


def _parts(bare: str, value: str) -> Iterator[str]:
    """What of the value of an option is secret: all of it, or of a URL the user, the password and the query."""
    texts = [value]
    if "://" in value and bare in _URLS:
        user = value.partition("://")[2].rpartition("@")[0]
        query = _split(value)
        texts = [text for text in (user, user.partition(":")[2], query, *_query_values(query)) if text]
    else:
        texts += _query_values(value)
    for text in texts:
        yield from (text, quote(text, safe=""), quote(text), unquote(text))


def _split(url: str) -> str:
    try:
        return urlsplit(url).query
    except ValueError:
        return ""


def _query_values(text: str) -> list[str]:
    """Return the long values in a query, such as the signature of a shared access token."""
    pairs = parse_qsl(text.lstrip("?")) if "=" in text else []
    return [value for name, value in pairs if name.lower() in ("sig", "se", "skoid", "sktid") or len(value) > 20]
