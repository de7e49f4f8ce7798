"""The log of a search table: opening, creating and maintaining it (spec 002).

Commits are made by a `Transaction` of `headwater.log`, as on Delta tables, in the dialect of search tables; checkpoints
and cleanup follow from them. Protocol versions 1 to 3 are understood, with the features that the specification names. A
table's schema never changes; version 0 is `protocol` and `metaData`, and no later version has a `metaData`.

This process keeps a log cache for each table that it has opened ("Cache Invalidation"), and reads log files with
several threads within a time limit ("Parallel I/O"). The threads are daemons: a store that never answers holds up
neither the caller after the limit nor the end of the process.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headwater.errors import (
    ConcurrentWriteException,
    InvalidCommitError,
    MissingCommitError,
    StorageTimeoutError,
    UnsupportedProtocolError,
)
from headwater.log.actions.model import Format, Metadata, Protocol
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext, now_ms
from headwater.log.files.listing import claimed
from headwater.log.indextables.cache import LogCache
from headwater.log.indextables.dialect import INDEXTABLES
from headwater.log.indextables.options import LogOptions
from headwater.log.opening import open_snapshot
from headwater.log.segment import list_log
from headwater.storage import open_store
from headwater.storage.base import ForwardingStore
from headwater.storage.elsewhere import OtherStores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date, datetime
    from os import PathLike

    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.configuration import TableConfiguration
    from headwater.log.indextables.cleanup import CleanedUp
    from headwater.log.schema import StructType
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import Directory, DirectoryStore, ObjectStore

    _Result = tuple[int, bytes | BaseException]


_Options: TypeAlias = "LogOptions | Mapping[str, Any] | None"
"""Options of the log, or a mapping with names such as `spark.indextables.checkpoint.interval`, among any others."""


def search_log(
    uri: str | PathLike[str], storage_options: Mapping[str, str] | None = None, *, options: _Options = None
) -> LogContext:
    """Return the context of a search table's log; whether there is a table is not checked.

    Options of the log overrule the table's configuration.

    Raises:
        WriteOptionError: an option of the log does not exist, or its value does not fit.
    """

    chosen = _chosen(options)
    settings = chosen.over({})
    store = open_store(uri, storage_options)
    cache = cache_of(store.uri, storage_options, chosen)
    parallel = parallel_reads(store, settings.read_parallelism, settings.read_timeout_s)
    elsewhere = OtherStores(store.uri, storage_options)
    plain = None if storage_options is None else dict(storage_options)
    return search_context(parallel, chosen, cache=cache, open_absolute=elsewhere.locate, storage_options=plain)


def search_context(
    store: ObjectStore, options: _Options = None, *, cache: LogCache | None = None, **parts: Any
) -> LogContext:
    """Return the context of a log in a store; `parts` are further fields of `LogContext` (clock, ids, ...)."""
    return LogContext(
        store=store,
        check_readable=check_readable,
        check_writable=check_writable,
        commit_rules=(split_log_rule,),
        dialect=INDEXTABLES,
        options=_chosen(options),
        cache=cache,
        **parts,
    )


def _chosen(options: _Options) -> LogOptions:
    return options if isinstance(options, LogOptions) else LogOptions.parse(options or {})


def open_search_log(
    uri: str | PathLike[str],
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    options: _Options = None,
) -> Snapshot:
    """Open a search table's log, without Spark.

    The arguments are those of `headwater.open_log`; `options` those of `search_log`.

    Raises:
        TableNotFoundError: there is no search table.
        VersionNotFoundError: the version or timestamp is outside what the log can reconstruct.
        UnsupportedProtocolError: the table needs a newer protocol.
        CorruptLogError: version 0, or another log file that is needed, is lost or damaged.
    """
    return open_in(search_log(uri, storage_options, options=options), version, timestamp)


def open_in(
    ctx: LogContext, version: int | None = None, timestamp: str | datetime | date | int | None = None
) -> Snapshot:
    """Open a version, a point in time, or the newest version, using what the cache knows already."""
    if ctx.cache is None or version is not None or timestamp is not None:
        return open_snapshot(ctx, version=version, timestamp=timestamp)
    known = ctx.cache.newest(ctx)
    if known is not None:
        return known
    snapshot = open_snapshot(ctx)
    ctx.cache.keep_newest(snapshot)
    return snapshot


def create_search_log(
    uri: str | PathLike[str],
    schema: StructType,
    *,
    partition_columns: Iterable[str] = (),
    configuration: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: _Options = None,
) -> bool:
    """Write version 0 of a search table, unless there is one.

    Returns:
        Whether the table was created; False when there was one already, which stays as it is.

    Raises:
        TableAlreadyExistsError: there is a Delta table.
        InvalidCommitError: there are splits that belong to no table.
        UnsupportedProtocolError: there is a table that needs a newer protocol.
        CorruptLogError: there is a table, and its version 0 is lost or damaged.
    """
    ctx = search_log(uri, storage_options, options=options)
    metadata = Metadata(
        ctx.new_id(),
        schema.to_json(),
        Format(PROVIDER, {}),
        tuple(schema.field(column).name for column in partition_columns),
        dict(configuration or {}),
        name,
        description,
        ctx.clock_ms(),
    )
    if list_log(ctx).latest is not None:
        return initialise(ctx, metadata)
    with claimed(ctx, ending=".split"):
        return initialise(ctx, metadata)


def initialise(ctx: LogContext, metadata: Metadata) -> bool:
    """Write version 0 (spec 002: "Initialization"); see `create_search_log`."""
    if ctx.cache is not None:
        ctx.cache.invalidate_all()
    transaction = Transaction(ctx, None)
    transaction.set_protocol(Protocol(READER_VERSION, WRITER_VERSION))
    transaction.set_metadata(metadata)
    try:
        transaction.commit(Operation("CREATE TABLE"))
    except ConcurrentWriteException:
        open_snapshot(ctx)  # whatever is there has to be a table that can be used
        return False
    return True


def upgrade_protocol(
    snapshot: Snapshot,
    min_reader_version: int,
    min_writer_version: int,
    *,
    reader_features: Iterable[str] = (),
    writer_features: Iterable[str] = (),
) -> Snapshot:
    """Raise what the table requires of readers and writers (spec 002: "Migration and Upgrades").

    Versions never go down, and features are never lost. A table that requires all of it already is returned unchanged.

    Raises:
        InvalidCommitError: features are listed by protocol version 3 only.
        UnsupportedProtocolError: Headwater itself could not use the table any more.
    """
    before = snapshot.protocol
    reader = (*(before.reader_features or ()), *reader_features)
    writer = (*(before.writer_features or ()), *writer_features)
    wanted = Protocol(
        max(before.min_reader_version, min_reader_version),
        max(before.min_writer_version, min_writer_version),
        tuple(dict.fromkeys(reader)) or before.reader_features,
        tuple(dict.fromkeys(writer)) or before.writer_features,
    )
    for kind, features, version in (
        ("reader", wanted.reader_features, wanted.min_reader_version),
        ("writer", wanted.writer_features, wanted.min_writer_version),
    ):
        if features and version < 3:
            raise InvalidCommitError(f"{snapshot.uri}: {kind} features need {kind} version 3, not {version}.")
    if wanted == before:
        return snapshot
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_protocol(wanted)
    parameters = {"minReaderVersion": wanted.min_reader_version, "minWriterVersion": wanted.min_writer_version}
    return transaction.commit(Operation("UPGRADE PROTOCOL", parameters)).snapshot


def write_checkpoint(snapshot: Snapshot) -> Snapshot:
    """Write a checkpoint, and return the same version read from it."""
    from headwater.log.indextables.checkpoint import write_json_checkpoint

    written = write_json_checkpoint(snapshot)
    if snapshot.ctx.cache is not None:
        snapshot.ctx.cache.invalidate_all()
    return written


def clean_up(snapshot: Snapshot) -> CleanedUp:
    """Delete log files that a checkpoint replaces and that are older than their retention.

    Raises:
        LogCleanupError: one could not be deleted, and `spark.indextables.cleanup.failurePolicy` is `fail`.
    """
    from headwater.log.indextables.cleanup import clean_up_by_age

    return clean_up_by_age(snapshot.refresh())


def invalidate_cache(uri: str | PathLike[str] | None = None) -> None:
    """Forget what this process knows of a table's log, however it was opened; of all tables' by default."""
    known = None if uri is None else open_store(uri).uri
    with _LOCK:
        chosen = [cache for (opened, _, _), cache in _CACHES.items() if known in (None, opened)]
    for cache in chosen:
        cache.invalidate_all()


def is_search_table(uri: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
    """Say whether there is a log of a search table at the location."""
    return bool(open_store(uri, storage_options).list_from(INDEXTABLES.directory))


_MOST_TABLES = 128
_LOCK = threading.Lock()
_CACHES: OrderedDict[tuple[str, frozenset[tuple[str, str]], LogOptions], LogCache] = OrderedDict()


def cache_of(uri: str, storage_options: Mapping[str, str] | None, options: LogOptions) -> LogCache | None:
    """Return the cache of a table's log; None where the options switch it off."""
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


PROVIDER = "indextables"
READER_VERSION, WRITER_VERSION = 1, 2
"""What new tables require: basic reads; batch writes and merges."""
MAX_VERSION = 3
FEATURES = frozenset({"footerOffsets", "tantivy4java", "conditionalWrites", "checkpoints"})
"""The features that the specification names. None of them changes what the log says."""

_COLLATIONS = "__COLLATIONS"
"""The key in the metadata of a field by which Spark says that strings have a collation."""


def check_readable(configuration: TableConfiguration) -> None:
    """Raise `UnsupportedProtocolError` unless a table with this protocol can be read."""
    protocol, metadata = configuration.protocol, configuration.metadata
    _check("reader", "reads", protocol.min_reader_version, protocol.reader_features)
    if metadata.format.provider.lower() != PROVIDER:
        raise UnsupportedProtocolError(
            f"the table's files are {metadata.format.provider!r}; the files of a search table are {PROVIDER!r}."
        )
    if _COLLATIONS in metadata.schema_string:
        raise UnsupportedProtocolError(
            "a column of the search table has a collation, and the index compares strings byte by byte: it would miss "
            "rows. Cast the column to a plain STRING.",
            ("collations",),
        )


def check_writable(configuration: TableConfiguration) -> None:
    """Raise `UnsupportedProtocolError` unless a table with this protocol can be written."""
    check_readable(configuration)
    protocol = configuration.protocol
    _check("writer", "writes", protocol.min_writer_version, protocol.writer_features)


def _check(who: str, does: str, version: int, features: tuple[str, ...] | None) -> None:
    if not 1 <= version <= MAX_VERSION:
        raise UnsupportedProtocolError(
            f"the search table needs {who} version {version}; Headwater {does} versions 1 to {MAX_VERSION}."
        )
    missing = tuple(name for name in features or () if name not in FEATURES)
    if missing:
        raise UnsupportedProtocolError(
            f"the search table needs {who} features that Headwater does not know: {', '.join(missing)}.", missing
        )


def split_log_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Check what a version holds, and that it does not close a gap in the log. This is a commit rule."""
    if draft.cdc or draft.txns or draft.domains:
        raise InvalidCommitError("the log of a search table has no cdc, txn or domainMetadata actions.")
    if attempt.version == 0:
        if draft.adds or draft.removes or draft.skips or draft.protocol is None or draft.metadata is None:
            raise InvalidCommitError("version 0 of a search table holds one protocol and one metaData, nothing else.")
        return draft
    if draft.metadata is not None:
        raise InvalidCommitError(
            "the metaData of a search table, and with it its schema, cannot change: it stands in version 0. "
            "Write the rows to a new table."
        )
    assert attempt.snapshot is not None, "a version after 0 builds on another"
    ignored = attempt.snapshot.segment.unreachable
    if ignored:
        raise MissingCommitError(
            f"{attempt.snapshot.uri} cannot be written: version {attempt.version} is missing from its log, and "
            f"what stands behind it ({', '.join(map(str, ignored))}) would count again. "
            "Restore the missing version file, or move the files behind it away and accept the loss."
        )
    return draft


class ParallelReads(ForwardingStore):
    """A store that reads `parallelism` objects of another one at a time, within `timeout_s` for each call.

    >>> from headwater.storage import open_store
    >>> store = ParallelReads(open_store("memory://parallel-example"), parallelism=2, timeout_s=10)
    >>> store.put("a", b"1")
    >>> store.get_many(["a", "a", "a"])
    [b'1', b'1', b'1']
    """

    def __init__(self, inner: ObjectStore, parallelism: int, timeout_s: float) -> None:
        super().__init__(inner)
        self._parallelism = parallelism
        self._timeout_s = timeout_s

    def get(self, key: str) -> bytes:
        return self._read([key])[0]

    def get_many(self, keys: Sequence[str]) -> list[bytes]:
        return self._read(list(keys))

    def _read(self, keys: list[str]) -> list[bytes]:
        if not keys:
            return []
        results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        todo: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for item in enumerate(keys):
            todo.put(item)
        given_up = threading.Event()
        for number in range(min(self._parallelism, len(keys))):
            work = _worker(self._inner.get, todo, results, given_up)
            threading.Thread(target=work, name=f"headwater-log-read-{number}", daemon=True).start()
        try:
            return self._collect(keys, results)
        finally:
            given_up.set()

    def _collect(self, keys: list[str], results: queue.SimpleQueue[_Result]) -> list[bytes]:
        deadline = time.monotonic() + self._timeout_s
        found: dict[int, bytes] = {}
        while len(found) < len(keys):
            try:
                number, result = results.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                missing = next(key for number, key in enumerate(keys) if number not in found)
                raise StorageTimeoutError(
                    f"{self.uri}: reading {len(keys)} log files took longer than {self._timeout_s:g} s; "
                    f"{len(keys) - len(found)} are missing, such as {missing}. The limit is "
                    "spark.indextables.checkpoint.read.timeoutSeconds."
                ) from None
            if isinstance(result, BaseException):
                raise result
            found[number] = result
        return [found[number] for number in range(len(keys))]


class ParallelDirectoryReads(ParallelReads):
    def __init__(self, inner: DirectoryStore, parallelism: int, timeout_s: float) -> None:
        super().__init__(inner, parallelism, timeout_s)
        self._directories = inner

    def list_directory(self, prefix: str) -> Directory:
        return self._directories.list_directory(prefix)


def parallel_reads(inner: ObjectStore, parallelism: int, timeout_s: float) -> ParallelReads:
    """Return a store that reads in parallel, and lists directories if the inner store does."""
    if hasattr(inner, "list_directory"):  # a protocol would be asked method by method, for each opening of a table
        return ParallelDirectoryReads(cast("DirectoryStore", inner), parallelism, timeout_s)
    return ParallelReads(inner, parallelism, timeout_s)


def _worker(
    get: Callable[[str], bytes],
    todo: queue.SimpleQueue[tuple[int, str]],
    results: queue.SimpleQueue[_Result],
    given_up: threading.Event,
) -> Callable[[], None]:
    def work() -> None:
        while not given_up.is_set():
            try:
                number, key = todo.get_nowait()
            except queue.Empty:
                return
            try:
                results.put((number, get(key)))
            except BaseException as error:
                results.put((number, error))
                return

    return work
