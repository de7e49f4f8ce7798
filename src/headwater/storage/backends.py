"""Opening the obstore backend for a location: which class, which account, which endpoint.

The backends' own retries are switched off: `headwater.storage.retry` is the only place that repeats requests.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from headwater.errors import InvalidUriError
from headwater.storage.failures import from_setup_error, shown_cause
from headwater.storage.options import obstore_config, refuse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ObjectStore as Backend
    from obstore.store import RetryConfig

    from headwater.storage.uri import StoreUri

_NO_RETRIES: Final[RetryConfig] = {"max_retries": 0}
_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


def open_backend(location: StoreUri, options: Mapping[str, object] | None) -> Backend:
    """The backend that serves a location; no request is made yet.

    Raises:
        InvalidUriError: an option is unknown, or the options make no store.
    """
    if location.kind == "memory":
        refuse_options(location.uri, options)
        return _memory_store(location.bucket)
    config = obstore_config(location.kind, options)
    if location.kind == "azure":
        config = _with_account(location, config)
    try:
        if location.kind == "s3":
            return S3Store(location.bucket, config=config, retry_config=_NO_RETRIES)  # type: ignore[arg-type]
        if location.kind == "gcs":
            return GCSStore(location.bucket, config=config, retry_config=_NO_RETRIES)  # type: ignore[arg-type]
        return AzureStore(location.bucket, config=config, retry_config=_NO_RETRIES)  # type: ignore[arg-type]
    except (BaseError, ValueError) as error:
        failure, cause = from_setup_error(error, location.uri, config), shown_cause(error, config)
    raise failure from cause


def _memory_store(name: str) -> MemoryStore:
    """One store per name in this process: who opens the same name sees the same objects."""
    with _memory_lock:
        return _memory_stores.setdefault(name, MemoryStore())


def _with_account(location: StoreUri, config: dict[str, Any]) -> dict[str, Any]:
    """The account and endpoint that an `abfs(s)` URI names, which the options may not contradict."""
    if not location.account:
        return config
    if config.setdefault("account_name", location.account) != location.account:
        raise InvalidUriError(
            f"{location.uri} names the account {location.account!r}, "
            f"but the storage options name {config['account_name']!r}"
        )
    # Blob requests go to the blob host of the same cloud, whichever of the two hosts the URI names.
    cloud = location.account_host.split(".", 2)[2]
    config.setdefault("endpoint", f"https://{location.account}.blob.{cloud}")
    return config
