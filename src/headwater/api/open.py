"""Open a table's log by its path or URI, and refuse table names, which need a catalog.

A name may have a path in it: ``delta.`/data/events` ``. What refuses a name says what to write instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import InvalidUriError, TableNotFoundError
from headwater.features.context import TableRef
from headwater.log.opening import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime
    from os import PathLike

    from headwater.log.snapshot import Snapshot

_PATH_IN_NAME = re.compile(r"\s*(?P<format>\w+)\.`(?P<path>(?:[^`]|``)+)`\s*")
_LATER = "names come with the catalog, in a later release"


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
    table = TableRef(path, storage_options)
    try:
        return open_snapshot(table.context(trust_checksum=trust_checksum), version=version, timestamp=timestamp)
    except TableNotFoundError:
        from headwater.search.table_log import is_search_table, open_search_log

        if not is_search_table(path, storage_options):
            raise
        return open_search_log(path, version, timestamp, storage_options)


def open_delta_log(table: TableRef) -> Snapshot:
    """Open the newest version of a Delta table.

    Raises:
        TableNotFoundError: there is no Delta table; the message says so if there is a search table.
    """
    try:
        return table.snapshot()
    except TableNotFoundError as error:
        from headwater.search.table_log import is_search_table

        if is_search_table(table.location, table.storage_options):
            raise TableNotFoundError(
                f"{table.location} is a search table, not a Delta table: take SearchTable.forPath (or open_log, for "
                "its log)."
            ) from error
        raise


def path_in(name: str) -> tuple[str, str] | None:
    """Return the format, in lower case, and the path of a name that has a path in it; None for any other name.

    Raises:
        InvalidUriError: it is not a text.

    >>> path_in("parquet.`/data/events`")
    ('parquet', '/data/events')
    >>> path_in("db.events")
    """
    if not isinstance(name, str):
        raise InvalidUriError(f"the name of a table is a text, not {type(name).__name__}")
    found = _PATH_IN_NAME.fullmatch(name)
    return None if found is None else (found["format"].lower(), found["path"].replace("``", "`"))


def refusal(name: str, what: str, advice: str) -> str:
    """Say why a name cannot be used, and what to do instead; with the path, if it is in the name.

    Args:
        name: the name.
        what: what cannot be done, about "the name".
        advice: what to do instead, with `{}` for the path.

    >>> refusal("delta.`/data/events`", "a table cannot be opened by", "Take forPath({})").rpartition(". ")[2]
    "Take forPath('/data/events')."
    """
    match path_in(name):
        case ("delta", path):
            place = repr(path)
        case _:
            place = "path"
    return f"{what} the name {name!r} yet: {_LATER}. {advice.format(place)}."


def literal_path(location: str | PathLike[str], call: str) -> str | PathLike[str]:
    """Return a path or URI as it is given, unless it is a name that has a path in it.

    Args:
        location: the path or URI.
        call: what to call with the path alone, with `{}` for it.

    Raises:
        InvalidUriError: it is such a name. It would be taken for the path of a directory called ``delta.` ``.
    """
    found = path_in(location) if isinstance(location, str) else None
    if found is None:
        return location
    raise InvalidUriError(f"{location!r} is a name, and a path is needed: write {call.format(repr(found[1]))}.")


def path_to_convert(name: str) -> str:
    """Return the path in ``parquet.`/data/events` ``.

    Raises:
        InvalidUriError: it is another name, or a path alone.

    >>> path_to_convert("parquet.`/data/events`")
    '/data/events'
    """
    match path_in(name):
        case ("parquet" | "delta", path):
            return path
        case (other, _):
            raise InvalidUriError(f"only Parquet can be converted to Delta, not {other} ({name})")
        case _:
            raise InvalidUriError(
                f"{name!r} does not say what to convert: write parquet.`/path/to/directory`. Tables of a catalog "
                f"cannot be converted by name yet: {_LATER}."
            )
