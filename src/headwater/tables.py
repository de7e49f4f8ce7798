"""Opening tables: the face of the log core. Wires a store, the protocol gate and the clock together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import TableNotFoundError
from headwater.features.context import table_context
from headwater.log.opening import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime
    from os import PathLike

    from headwater.log.snapshot import Snapshot

__all__ = ["open_delta_log", "open_log", "table_context"]


def open_log(
    path: str | PathLike[str],
    version: int | None = None,
    timestamp: str | datetime | date | int | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    trust_checksum: bool = False,
) -> Snapshot:
    """Open a table's log, without Spark: that of a Delta table or of a search table, whichever is there.

    Cheap whatever the size of the table: files and statistics are read when they are asked for. There is no session and
    so no time zone of its own: a timestamp that does not name its zone is UTC, in partition values as in filters.

    Args:
        path: a path or URI: `/data/events`, `file:///data/events`, `s3://bucket/events`, `az://...`, `gs://...`.
        version: a version to travel to; the newest by default.
        timestamp: or a point in time: ISO text, datetime, date (UTC unless they say otherwise) or milliseconds.
        storage_options: options of the object store, by the names that deltalake uses.
        trust_checksum: open from the version checksum (`.crc`) where its transaction id matches the commit's, without
            reading the checkpoint: faster on object stores. By default a checksum is only ever compared (`verify`).

    Returns:
        A `Snapshot`, which never changes; `snapshot.refresh()` gives the newest one.

    Raises:
        TableNotFoundError: there is neither a Delta table nor a search table.
        VersionNotFoundError: the version or timestamp is outside what the log can reconstruct.
        UnsupportedProtocolError: the table needs a feature that is not supported; the message names it.
        CorruptLogError: the log is damaged; the message names the file.

    Example:
        >>> import headwater as hw
        >>> snap = hw.open_log("examples/data/events")  # doctest: +SKIP
        >>> snap.version, snap.num_files  # doctest: +SKIP
        (3, 12)
    """
    ctx = table_context(path, storage_options, trust_checksum=trust_checksum)
    try:
        return open_snapshot(ctx, version=version, timestamp=timestamp)
    except TableNotFoundError:
        from headwater.search.table_log import is_search_table, open_search_log

        if not is_search_table(path, storage_options):
            raise
        return open_search_log(path, version, timestamp, storage_options)


def open_delta_log(path: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> Snapshot:
    """The newest version of a Delta table.

    Raises:
        TableNotFoundError: there is no Delta table; the message says so if there is a search table.
    """
    try:
        return open_snapshot(table_context(path, storage_options))
    except TableNotFoundError as error:
        from headwater.search.table_log import is_search_table

        if is_search_table(path, storage_options):
            raise TableNotFoundError(
                f"{path} is a search table, not a Delta table: take SearchTable.forPath (or open_log, for its log)."
            ) from error
        raise
