"""Bytes by key: object stores behind one small interface.

`open_store` turns a path or URI into an `ObjectStore`. Local tables need nothing but the standard library;
`obstore` is imported for the others only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.storage.base import ObjectMeta, ObjectStore
from headwater.storage.local import LocalStore
from headwater.storage.options import options_for, refuse_options
from headwater.storage.uri import StoreUri, parse_uri

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["LocalStore", "ObjectMeta", "ObjectStore", "StoreUri", "open_store", "parse_uri"]


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> ObjectStore:
    """Open the store at a location. Nothing is read or written yet, so the location need not exist.

    Args:
        uri: a path, or a URI with one of the schemes file, memory, s3, s3a, az, abfs, abfss, gs. `memory://name`
            lives as long as the process: who opens the same name sees the same objects.
        storage_options: credentials, region, endpoint and so on, by the names that deltalake and object_store
            use, such as `AWS_ENDPOINT_URL` or `azure_storage_account_name`. What is not given comes from the
            environment variables of the same names. An option for another store that the table names files in begins
            with the root of that store: `s3://other/aws_region`.

    >>> store = open_store("memory://docs/events")
    >>> store.put("a/b.txt", b"hello")
    >>> store.get_range("a/b.txt", 1, 3)
    b'ell'

    Raises:
        InvalidUriError: the location or an option cannot be understood.
    """
    location = parse_uri(uri)
    return store_at(location, options_for(location, storage_options))


def store_at(location: StoreUri, options: Mapping[str, object]) -> ObjectStore:
    """Open the store at a location with exactly these options.

    Raises:
        InvalidUriError: an option cannot be understood.
    """
    if location.kind == "local":
        refuse_options(location.uri, options)
        return LocalStore(location.path)
    from headwater.storage.remote import RemoteStore, open_backend

    return RemoteStore(open_backend(location, options), location, options=options)
