"""Where the splits that a log names are: the store and the key for a path (spec 002: paths are absolute).

A path below the table is opened through the table's own store, whatever its spelling; any other as it stands.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from headwater.log.paths import canonical
from headwater.storage import open_store
from headwater.storage.elsewhere import OtherStores
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.search.split import Split
    from headwater.storage import ObjectStore


class SplitRef(NamedTuple):
    """A split as the log names it."""

    path: str
    size_bytes: int
    num_records: int | None = None
    footer_start: int | None = None


class SplitPlaces:
    """The splits of one table."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None) -> None:
        self._store = open_store(uri, storage_options)
        self._elsewhere = OtherStores(uri, storage_options)
        self._root = canonical(self._store.uri).rstrip("/") + "/"

    def place(self, path: str) -> tuple[ObjectStore, str]:
        """The store and the key of a split.

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
        """
        key = _key_below(path, self._root)
        return (self._store, key) if key is not None else self._elsewhere.locate(canonical(path))

    def open(self, ref: SplitRef) -> Split:
        """Open a split, or take the one that this process has open.

        Raises:
            ObjectNotFoundError: there is no such split.
            CorruptSplitError: it is damaged.
        """
        from headwater.search.split import open_split

        store, key = self.place(ref.path)
        return open_split(store, key, size_bytes=ref.size_bytes, footer_start=ref.footer_start)


@lru_cache(maxsize=8_192)
def _key_below(path: str, root: str) -> str | None:
    """The key of a split in the table's store; None if it is elsewhere."""
    plain = canonical(path)
    if plain.startswith(root):
        return plain[len(root) :]
    return plain if "://" not in plain and not plain.startswith("/") else None


def absolute_path(uri: str, key: str) -> str:
    """The path of a split as the log has it: absolute, percent-encoded.

    >>> absolute_path("/data/my logs", "day=a%2Fb/part-0.split")
    'file:///data/my%20logs/day=a%252Fb/part-0.split'
    """
    location = parse_uri(uri)
    if location.kind == "local":
        return f"file://{quote(location.path.rstrip('/'), safe='/=')}/{quote(key, safe='/=')}"
    return f"{location.uri.rstrip('/')}/{quote(key, safe='/=')}"
