"""List what is below a table's root, and claim a place for a new table.

Directories are listed in parallel, each into columns of its own, so that a million files are a few arrays and not a
million objects. The caller says which directories to enter.

A new table has its place to itself. Files that are there already would be invisible in it, and the first VACUUM would
delete them; two tables in one place would delete each other's. A writer claims the place by a hidden file while it
writes data files before the first commit. Who creates the same table at that time, or tries again after having been
killed, then knows that these files are the table's.
"""

from __future__ import annotations

import re
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import InvalidCommitError, StorageError, TableAlreadyExistsError
from headwater.log.delta.dialect import DELTA
from headwater.log.files.arrow import binaries, int64s
from headwater.log.indextables.dialect import INDEXTABLES
from headwater.log.segment import list_log
from headwater.storage.base import Directory, DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headwater.log.context import LogContext
    from headwater.log.dialect import LogDialect
    from headwater.storage.base import ObjectMeta, ObjectStore

TREE_SCHEMA = pa.schema([("key", pa.binary()), ("size_bytes", pa.int64()), ("modified_ms", pa.int64())])
"""Keys are bytes: a disk may have names that are not text."""
DIALECTS: tuple[LogDialect, ...] = (DELTA, INDEXTABLES)
"""The kinds of tables that may be in one place."""
_LOCAL_PARALLEL = 4
_REMOTE_PARALLEL = 32
INCOMPLETE = r"incomplete-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""A regular expression for directories that our interrupted writes leave."""
_CLAIM = "_creating-"
"""The name of a claim begins so, then come the kind of the table and an id: readers and VACUUM take it for hidden."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What is below a store's root.

    Attributes:
        objects: of `TREE_SCHEMA`.
        directories: the prefixes of the directories that were listed, the root's (an empty text) included.
        closed: the prefixes of those that were not.
        temporary: files of writers that were killed, or are still writing.
    """

    objects: pa.Table
    directories: tuple[str, ...]
    closed: tuple[str, ...]
    temporary: pa.Table = field(default_factory=TREE_SCHEMA.empty_table)


def list_tree(store: ObjectStore, enters: Callable[[str], bool], seen: Callable[[int], None] | None = None) -> Tree:
    """List everything below the root.

    Args:
        store: the store.
        enters: whether to look into the directory with a prefix (it ends with `/`).
        seen: called with the number of objects that were found since the last call.

    Raises:
        StorageError: a directory could not be listed.
    """
    if not isinstance(store, DirectoryStore):
        return _tree_of(store.list_from("", recursive=True), enters, seen)
    parallel = _LOCAL_PARALLEL if store.uri.startswith("file:") else _REMOTE_PARALLEL
    tables: list[pa.Table] = []
    directories: list[str] = []
    closed: list[str] = []
    temporary: list[ObjectMeta] = []
    with ThreadPoolExecutor(parallel, "headwater-listing") as pool:
        waiting: dict[Future[Directory], str] = {pool.submit(store.list_directory, ""): ""}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    directories.append(waiting.pop(future))
                    found = future.result()
                    tables.append(columns_of(found.objects))
                    temporary += found.temporary
                    if seen is not None:
                        seen(len(found.objects))
                    entered = {d for d in found.directories if enters(d)}
                    closed += [d for d in found.directories if d not in entered]
                    waiting |= {pool.submit(store.list_directory, d): d for d in entered}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    objects = pa.concat_tables(tables)
    return Tree(objects, tuple(sorted(directories)), tuple(sorted(closed)), columns_of(temporary))


def columns_of(metas: Sequence[ObjectMeta]) -> pa.Table:
    """Return objects as columns of `TREE_SCHEMA`."""
    if not metas:
        return TREE_SCHEMA.empty_table()
    keys, sizes, times = zip(*metas, strict=True)
    encoded = [key.encode("utf-8", "surrogateescape") for key in keys]
    return pa.table([binaries(encoded).cast(pa.binary()), int64s(sizes), int64s(times)], schema=TREE_SCHEMA)


def _tree_of(metas: list[ObjectMeta], enters: Callable[[str], bool], seen: Callable[[int], None] | None) -> Tree:
    """Return the tree of a store that can only list everything."""
    known: dict[str, bool] = {"": True}

    def is_entered(prefix: str) -> bool:
        if prefix not in known:
            parent = prefix[: prefix.rstrip("/").rfind("/") + 1]
            known[prefix] = is_entered(parent) and enters(prefix)
        return known[prefix]

    kept = [meta for meta in metas if is_entered(meta.key[: meta.key.rfind("/") + 1])]
    if seen is not None:
        seen(len(kept))
    entered = tuple(sorted(prefix for prefix, is_open in known.items() if is_open))
    return Tree(columns_of(kept), entered, tuple(sorted(known.keys() - set(entered))))


# --- a place for a new table --------------------------------------------------------------------------


def check_vacant(ctx: LogContext, *, ending: str = "") -> None:
    """Raise unless a new table can have its place to itself.

    Args:
        ctx: the log of the table that does not exist yet.
        ending: only files with this ending would be taken for the table's own.

    Raises:
        TableAlreadyExistsError: there is a table of the other kind.
        InvalidCommitError: there are files that belong to no table.
    """
    check_no_other_log(ctx)
    found = _first_visible(ctx.store, ending)
    if found is None or _is_claimed(ctx):
        return
    raise InvalidCommitError(
        f"no table can be created at {ctx.uri}: there are files that belong to no table, such as {found!r}. They would "
        f"not be part of the table, and would be deleted as garbage sooner or later. {ctx.dialect.occupied_advice}"
    )


def check_no_other_log(ctx: LogContext) -> None:
    """Raise `TableAlreadyExistsError` if there is a search table where a Delta table is created, or the reverse."""
    for other in DIALECTS:
        if other is not ctx.dialect and (ctx.store.list_from(other.directory) or _claims(ctx.store, other)):
            raise TableAlreadyExistsError(
                f"no {ctx.dialect.title} can be created at {ctx.uri}: there is a {other.title}, or what is left of one "
                f"({other.directory} or {_CLAIM}*). Each would delete the files of the other. Choose another place."
            )


@contextmanager
def claimed(ctx: LogContext, *, ending: str = "") -> Iterator[None]:
    """Claim the place of a new table while its data files are written and until its first commit.

    A process that is killed leaves its claim, so the next attempt knows that the files are of that table. Of a Delta
    table and a search table that are created at the same time, at least one is refused, as each looks for the other
    after its own claim.

    Raises:
        TableAlreadyExistsError, InvalidCommitError: the place is not free; see `check_vacant`.
    """
    check_vacant(ctx, ending=ending)
    key = f"{_CLAIM}{ctx.dialect.name}-{ctx.new_id()}"
    ctx.store.put(key, b"")
    try:
        check_no_other_log(ctx)
        yield
    except BaseException:
        with suppress(StorageError):  # what went wrong is the thing to report
            if list_log(ctx).latest is not None or _first_visible(ctx.store, ending) is None:
                ctx.store.delete_many([key])
        raise
    with suppress(StorageError):
        # There is a table now, so no claim has a meaning any more.
        ctx.store.delete_many(_claims(ctx.store, ctx.dialect))


def _claims(store: ObjectStore, dialect: LogDialect) -> list[str]:
    """Return the claims of a place for a table of one kind."""
    return [meta.key for meta in store.list_from("") if meta.key.startswith(f"{_CLAIM}{dialect.name}-")]


def _is_claimed(ctx: LogContext) -> bool:
    """Say whether the table is being created, or has been created meanwhile."""
    return bool(_claims(ctx.store, ctx.dialect)) or list_log(ctx).latest is not None


def _first_visible(store: ObjectStore, ending: str = "") -> str | None:
    """Return the first file found below a root that is not hidden; None if there is none."""
    if not isinstance(store, DirectoryStore):
        keys = (meta.key for meta in store.list_from("", recursive=True) if meta.key.endswith(ending))
        return next((key for key in keys if all(map(_is_visible, key.split("/")))), None)
    pending = [""]
    while pending:
        found = store.list_directory(pending.pop())
        for meta in found.objects:
            if meta.key.endswith(ending) and _is_visible(meta.key.rpartition("/")[2]):
                return meta.key
        pending += [d for d in found.directories if _is_visible(d.rstrip("/").rpartition("/")[2])]
    return None


def _is_visible(name: str) -> bool:
    """Say whether a name may belong to a table's data: directories of partitions may begin with an underscore."""
    is_hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not is_hidden and not re.fullmatch(INCOMPLETE, name)
