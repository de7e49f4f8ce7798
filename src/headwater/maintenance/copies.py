"""Copying the files of a clone on this machine, many at a time.

Right where the bytes do not pass through it, or only from one disk to another: within one bucket the store copies by
itself. Between stores Spark's executors do it (`headwater.spark.maintenance.copies`).
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from headwater.errors import ObjectNotFoundError, StorageError
from headwater.log.paths import canonical
from headwater.maintenance.progress import Silence
from headwater.storage import open_store
from headwater.storage.copying import copy_object
from headwater.storage.elsewhere import OtherStores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.maintenance.clone_files import Copy
    from headwater.maintenance.progress import Progress
    from headwater.storage.base import ObjectStore

_PARALLEL = 16


class Sources:
    """The stores that the files of a clone's source are in: mostly one, the source's own."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None) -> None:
        self._root = canonical(uri).rstrip("/") + "/"
        self._table = open_store(uri, storage_options)
        self._elsewhere = OtherStores(uri, storage_options)

    def locate(self, uri: str) -> tuple[ObjectStore, str]:
        """The store and the key of a file, by its absolute, percent-encoded URI.

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
        """
        plain = canonical(uri)
        if plain.startswith(self._root):
            return self._table, plain[len(self._root) :]
        return self._elsewhere.locate(plain)


def copy_file(sources: Sources, target: ObjectStore, copy: Copy) -> int:
    """Copy one file; its size.

    Raises:
        StorageError: it could not be copied; the message names the file.
    """
    store, key = sources.locate(copy.source)
    try:
        return copy_object(store, key, target, copy.key, copy.size_bytes).size_bytes
    except ObjectNotFoundError as error:
        raise StorageError(
            f"{copy.source} cannot be cloned: the file is not there. Has VACUUM deleted it? Clone a newer version."
        ) from error


def copy_here(sources: Sources, target: ObjectStore, copies: Sequence[Copy], progress: Progress | None = None) -> None:
    """Copy files in threads of this process; all of them, or an error is raised."""
    progress = progress or Silence()
    progress.begin("Copying files", len(copies))

    def run(copy: Copy) -> None:
        copy_file(sources, target, copy)
        progress.advance()

    with ThreadPoolExecutor(_PARALLEL, "headwater-copies") as pool:
        try:
            done, _ = wait([pool.submit(run, copy) for copy in copies], return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
