"""Files of a table that are not below it, and the credentials for them: shallow clones name files by absolute paths.

A path in a log is written by anyone who can write to the table, and it names a host. So the options that a table was
opened with, and those of the environment, go to the place that was opened and to no other: the same bucket of S3 or
Google Cloud Storage, the same account of Azure. A place elsewhere needs options of its own, which are named by its
root: `{"s3://other/aws_region": "eu-north-1"}`. The word `credentials` instead of an option's name says it for all of
them: `same` as the table's, or those of the `environment`.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from headwater.errors import ForeignLocationError, InvalidUriError
from headwater.storage.options import NamedRoot, option_value, root_options, table_options
from headwater.storage.uri import StoreUri, parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.storage.base import ObjectStore

_FILE_SCHEME = re.compile(r"file:/+", re.IGNORECASE)
_AZURE_CLOUD = "core.windows.net"
_AZURE_HOST = re.compile(r"([a-z0-9\-]+)\.(?:dfs|blob)\.([a-z0-9.\-]+)")
_SAFE = "/!$&'()*+,;=:@~"


class OtherStores:
    """The stores of the files of one table that lie elsewhere; they are opened once."""

    def __init__(self, uri: str, storage_options: Mapping[str, object] | None) -> None:
        self._table = parse_uri(uri)
        self._options = storage_options
        self._stores: dict[tuple[str, str], ObjectStore] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"OtherStores({self._table.uri!r})"

    def __reduce__(self) -> tuple[type[OtherStores], tuple[str, Mapping[str, object] | None]]:
        return type(self), (self._table.uri, self._options)

    def locate(self, path: str) -> tuple[ObjectStore, str]:
        """Return the store and the key of a file, by its absolute and decoded path.

        >>> store, key = OtherStores("/data/events", None).locate("/data/old events/part-0.parquet")
        >>> store.uri, key
        ('file:///data/old%20events', 'part-0.parquet')

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
            InvalidUriError: it is not the path of a file.
        """
        local = _FILE_SCHEME.match(path)
        if local is not None:
            return self.open(StoreUri("file", "", f"/{path[local.end() :]}"))
        if path.startswith("/"):  # on the table's own filesystem
            location = replace(self._table, path=path if self._table.kind == "local" else path.strip("/"))
            return self.open(location)
        scheme, _, rest = path.partition("://")
        authority, _, inside = rest.partition("/")
        return self.open(parse_uri(f"{scheme}://{authority}/{quote(inside, safe=_SAFE, errors='surrogateescape')}"))

    def locate_uri(self, uri: str) -> tuple[ObjectStore, str]:
        """Return the same, by its absolute and percent-encoded URI, or by a path on the table's own filesystem.

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
            InvalidUriError: it is not the path of a file.
        """
        if uri.startswith("/"):
            from urllib.parse import unquote

            return self.locate(unquote(uri, errors="surrogateescape"))
        return self.open(parse_uri(uri))

    def open(self, location: StoreUri) -> tuple[ObjectStore, str]:
        """Return the store and the key of a file."""
        from headwater.storage import store_at

        if location.kind == "local":
            parent, _, name = location.path.rpartition("/")
            root = replace(location, path=parent or "/")
        elif location.path:
            root, name = replace(location, path=""), location.path
        else:
            raise InvalidUriError(f"{self._table.uri}: the log names {location.uri}, which is not a file")
        found = root_options(location, self._options)
        key = root.uri, "" if found is None else found.root.uri
        with self._lock:
            store = self._stores.get(key)
            if store is None:
                store = self._stores[key] = store_at(*self._allowed(root, found))
        return store, name

    def _allowed(self, root: StoreUri, found: NamedRoot | None) -> tuple[StoreUri, Mapping[str, object]]:
        """Return a root with the options that may go to it."""
        if root.kind in ("local", "memory"):
            return root, {}
        own = table_options(self._options)
        if found is not None:
            return root, found.chosen(own)
        if not _is_same_place(self._table, root, own):
            raise ForeignLocationError(
                f"{self._table.uri}: the log names files in {root.uri}, and the storage options of the table go to no "
                f"other place than its own. If you trust it, give options for it: storage_options with names such as "
                f"'{root.uri}/{_EXAMPLES[root.kind]}', or '{root.uri}/credentials' with the value 'same' (as the "
                "table's) or 'environment'."
            )
        if root.kind == "azure" and not root.account_host:
            root = replace(root, scheme=self._table.scheme, account_host=self._table.account_host)
        return root, own


_EXAMPLES = {
    "s3": "aws_access_key_id",
    "azure": "azure_storage_sas_token",
    "gcs": "google_service_account",
}


def _is_same_place(table: StoreUri, other: StoreUri, options: Mapping[str, object]) -> bool:
    """Tell whether the options of a table may go to another location.

    Of S3 and Google Cloud Storage a URI names the bucket and nothing else, so requests go to the endpoint of the
    options in any case. Azure's name the account, and with it the host that gets the token.
    """
    if table.kind != other.kind:
        return False
    if table.kind != "azure":
        return table.bucket == other.bucket
    return not other.account_host or _azure_account(other) == _azure_account(table, options)


def _azure_account(location: StoreUri, options: Mapping[str, object] | None = None) -> tuple[str, str]:
    """The account and the cloud that a location is in, by its host or else by the options and the environment."""
    host = _AZURE_HOST.fullmatch(location.account_host)
    if host is not None:
        return host[1], host[2]
    account = option_value("azure", "account_name", options) or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    endpoint = option_value("azure", "endpoint", options) or os.environ.get("AZURE_STORAGE_ENDPOINT", "")
    found = _AZURE_HOST.fullmatch((urlsplit(endpoint).hostname or "").lower())
    return account.lower(), _AZURE_CLOUD if found is None else found[2]
