"""The log of a search table: opening and creating it, and what is done to it beside data (spec 002).

All of it is the kernel of `headwater.log` in the dialect of these tables: commits are made by a `Transaction`, as they
are on Delta tables, and checkpoints and cleanup follow from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.errors import ConcurrentWriteException, InvalidCommitError
from headwater.log.actions import Format, Metadata, Protocol
from headwater.log.context import LogContext
from headwater.log.draft import Operation
from headwater.log.log_options import LogOptions
from headwater.log.opening import open_snapshot
from headwater.log.segment import list_log
from headwater.log.split_format import INDEXTABLES
from headwater.log.transaction import Transaction
from headwater.log.tree import claimed
from headwater.search.log_protocol import (
    PROVIDER,
    READER_VERSION,
    WRITER_VERSION,
    check_readable,
    check_writable,
    split_log_rule,
)
from headwater.storage import open_store
from headwater.storage.elsewhere import OtherStores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime
    from os import PathLike

    from headwater.log.cleanup_by_age import CleanedUp
    from headwater.log.log_cache import LogCache
    from headwater.log.schema import StructType
    from headwater.log.snapshot import Snapshot
    from headwater.storage import ObjectStore

SearchOptions: TypeAlias = LogOptions
"""The options of a table's log; see `headwater.log.log_options`."""

_Options: TypeAlias = "LogOptions | Mapping[str, Any] | None"
"""Or a mapping with names such as `spark.indextables.checkpoint.interval`, among any others."""


def search_log(
    uri: str | PathLike[str], storage_options: Mapping[str, str] | None = None, *, options: _Options = None
) -> LogContext:
    """The log of a search table as the kernel sees it; whether there is a table is not looked at.

    Args:
        uri: a path or URI, as for `headwater.open_log`.
        storage_options: options of the object store, by the names that deltalake uses.
        options: of the log; they overrule the table's configuration.

    Raises:
        WriteOptionError: an option of the log does not exist, or its value does not fit.
    """
    from headwater.search.log_caches import cache_of
    from headwater.search.parallel_reads import parallel_reads

    chosen = _chosen(options)
    settings = chosen.over({})
    store = open_store(uri, storage_options)
    cache = cache_of(store.uri, storage_options, chosen)
    parallel = parallel_reads(store, settings.read_parallelism, settings.read_timeout_s)
    elsewhere = OtherStores(store.uri, storage_options)
    return search_context(parallel, chosen, cache=cache, open_absolute=elsewhere.locate)


def search_context(
    store: ObjectStore, options: _Options = None, *, cache: LogCache | None = None, **parts: Any
) -> LogContext:
    """The log of a search table in a store; `parts` are further fields of `LogContext` (clock, ids, ...)."""
    return LogContext(
        store=store,
        check_readable=check_readable,
        check_writable=check_writable,
        commit_rules=(split_log_rule,),
        format=INDEXTABLES,
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
    """The snapshot of a version, of a point in time, or the newest one, by what the cache knows already."""
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
    """Write version 0 of a search table, unless there is one: to do it twice changes nothing.

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
    """Let the table ask for more of readers and writers, from its next version on (spec 002: "Migration and Upgrades").

    Versions never go down, and features are never lost. A table that asks for all of it already is returned as it is.

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
    """Write a checkpoint by hand; the same version, which starts from it. Raises `StorageError`."""
    from headwater.log.json_checkpoint import write_json_checkpoint

    written = write_json_checkpoint(snapshot)
    if snapshot.ctx.cache is not None:
        snapshot.ctx.cache.invalidate_all()
    return written


def clean_up(snapshot: Snapshot) -> CleanedUp:
    """Delete log files that a checkpoint stands for and that are older than their retention.

    Raises:
        LogCleanupError: one could not be deleted, and `spark.indextables.cleanup.failurePolicy` is `fail`.
    """
    from headwater.log.cleanup_by_age import clean_up_by_age

    return clean_up_by_age(snapshot.refresh())


def invalidate_cache(uri: str | PathLike[str] | None = None) -> None:
    """Forget what this process knows of a table's log; of all tables' by default."""
    from headwater.search.log_caches import invalidate

    invalidate(None if uri is None else open_store(uri).uri)


def is_search_table(uri: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> bool:
    """Whether there is a log of a search table at the location."""
    return bool(open_store(uri, storage_options).list_from(INDEXTABLES.directory))
