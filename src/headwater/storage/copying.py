"""Copying data files from one store to another, without ever having one in memory as a whole, and deleting them.

Within one bucket the store copies by itself; from a disk a file is uploaded; everything else passes through a
temporary file. The copy is complete and has the right size, or there is an error. All data files that maintenance
writes or deletes pass through here, and none of them is inside a table's log, however it is spelled: names come from
logs, which may be damaged or hostile.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING

from headwater.errors import StorageError
from headwater.storage.local import LocalStore
from headwater.storage.uri import LOG_KEY, check_data_key, parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.storage.base import ObjectMeta, ObjectStore
    from headwater.storage.remote import RemoteStore


def copy_object(
    source: ObjectStore, source_key: str, target: ObjectStore, target_key: str, size_bytes: int | None = None
) -> ObjectMeta:
    """Copy a data file, replacing any earlier one.

    Returns:
        What the target says of the copy.

    Raises:
        ObjectNotFoundError: there is no such object.
        StorageError: the copy failed, does not have the size it should have, or would be inside a log.
    """
    check_data_place(target, [target_key])
    if isinstance(source, LocalStore):
        source.head(source_key)  # a missing file is the source's fault, and not the target's
        _uploads(target).upload(target_key, source.local_path(source_key))
    elif not isinstance(target, LocalStore) and _remote(target).shares_backend(_remote(source)):
        _remote(target).copy_from(_remote(source), source_key, target_key)
    else:
        _copy_by_file(_remote(source), source_key, _uploads(target), target_key)
    copied = target.head(target_key)
    if size_bytes is not None and copied.size_bytes != size_bytes:
        delete_data(target, [target_key])
        raise StorageError(
            f"the copy of {source.uri}/{source_key} to {target.uri}/{target_key} has {copied.size_bytes} bytes, and "
            f"the log says {size_bytes}: the source is damaged, or was changed meanwhile"
        )
    return copied


def delete_data(store: ObjectStore, keys: Iterable[str]) -> None:
    """Delete data files; missing ones are ignored.

    Raises:
        StorageError: a key is not below the store's root or is inside a table's log: then nothing is deleted.
    """
    doomed = list(keys)
    check_data_place(store, doomed)
    store.delete_many(doomed)


def check_data_place(store: ObjectStore, keys: Iterable[str]) -> None:
    """Raise unless data files may be written to, or deleted from, these keys."""
    parents = {check_data_key(key).rpartition("/")[0] for key in keys}
    for parent in sorted(parents):
        real = real_directory(store.uri, parent)
        if re.search(LOG_KEY, real):
            raise StorageError(f"{store.uri}/{parent} is a link into a table's log ({real}): no data file goes there")


def real_directory(uri: str, directory: str) -> str:
    """Where a directory below a root really is: links are resolved on a disk, and only there.

    Below the root it is relative to it again; where links lead out of the root it is absolute.
    """
    location = parse_uri(uri)
    if location.kind != "local" or not directory:
        return directory
    root = os.path.realpath(location.path)
    real = os.path.realpath(os.path.join(root, directory))
    return os.path.relpath(real, root) if real.startswith(root.rstrip("/") + "/") else real


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
