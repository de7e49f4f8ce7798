"""Copying an object from one store to another, whatever the two are, without ever having it in memory as a whole.

Within one bucket the store copies by itself; from a disk a file is uploaded; everything else passes through a
temporary file. The copy is complete and has the right size, or there is an error.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from headwater.errors import StorageError
from headwater.storage.local import LocalStore

if TYPE_CHECKING:
    from headwater.storage.base import ObjectMeta, ObjectStore
    from headwater.storage.remote import RemoteStore


def copy_object(
    source: ObjectStore, source_key: str, target: ObjectStore, target_key: str, size_bytes: int | None = None
) -> ObjectMeta:
    """Copy an object, replacing any earlier one.

    Args:
        source: the store it is in.
        source_key: its key there.
        target: the store it goes to.
        target_key: its key there.
        size_bytes: how large it must be, if that is known.

    Returns:
        What the target says of the copy.

    Raises:
        ObjectNotFoundError: there is no such object.
        StorageError: the copy failed, or does not have the size it should have.
    """
    if isinstance(source, LocalStore):
        source.head(source_key)  # a missing file is the source's fault, and not the target's
        _uploads(target).upload(target_key, source.local_path(source_key))
    elif not isinstance(target, LocalStore) and _remote(target).shares_backend(_remote(source)):
        _remote(target).copy_from(_remote(source), source_key, target_key)
    else:
        _copy_by_file(_remote(source), source_key, _uploads(target), target_key)
    copied = target.head(target_key)
    if size_bytes is not None and copied.size_bytes != size_bytes:
        raise StorageError(
            f"the copy of {source.uri}/{source_key} to {target.uri}/{target_key} has {copied.size_bytes} bytes, and "
            f"the log says {size_bytes}: the source is damaged, or was changed meanwhile"
        )
    return copied


def _copy_by_file(source: RemoteStore, source_key: str, target: LocalStore | RemoteStore, target_key: str) -> None:
    descriptor, path = tempfile.mkstemp(prefix="headwater-")
    os.close(descriptor)
    try:
        source.download(source_key, path)
        target.upload(target_key, path)
    finally:
        os.unlink(path)


def _remote(store: ObjectStore) -> RemoteStore:
    from headwater.storage.remote import RemoteStore  # obstore is imported only where it is needed

    if not isinstance(store, RemoteStore):
        raise StorageError(f"{store.uri} is a store that cannot copy objects")
    return store


def _uploads(store: ObjectStore) -> LocalStore | RemoteStore:
    return store if isinstance(store, LocalStore) else _remote(store)
