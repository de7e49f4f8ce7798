"""The log caches of this process: one for each table that it has opened (spec 002: "Cache Invalidation")."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from headwater.log.context import now_ms
from headwater.log.log_cache import LogCache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.log_options import LogOptions

_MOST_TABLES = 128
_LOCK = threading.Lock()
_CACHES: OrderedDict[tuple[str, frozenset[tuple[str, str]], LogOptions], LogCache] = OrderedDict()


def cache_of(uri: str, storage_options: Mapping[str, str] | None, options: LogOptions) -> LogCache | None:
    """The cache of a table; None where the options say that there is none."""
    settings = options.over({})
    if not settings.cache_enabled:
        return None
    key = uri, frozenset((storage_options or {}).items()), options
    with _LOCK:
        if key not in _CACHES:
            _CACHES[key] = LogCache(settings.cache_expiration_s, now_ms)
            while len(_CACHES) > _MOST_TABLES:
                _CACHES.popitem(last=False)
        _CACHES.move_to_end(key)
        return _CACHES[key]


def invalidate(uri: str | None = None) -> None:
    """Forget everything about the log of a table, however it was opened; of all tables by default."""
    with _LOCK:
        chosen = [cache for (known, _, _), cache in _CACHES.items() if uri in (None, known)]
    for cache in chosen:
        cache.invalidate_all()
