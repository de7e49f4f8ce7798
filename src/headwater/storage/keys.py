"""Which strings are keys: relative, `/`-separated names that cannot leave the store's root.

Delta paths are turned into keys by the log (decoded once, relative to the table); a key that still climbs out
of the root or has an empty segment is refused here, for every store alike, before any I/O. Keys of data files are not
inside a log directory either, of this table or of one below it: whatever a log says, only the log code writes there.
"""

from __future__ import annotations

import os
import re
from typing import Final

from headwater.errors import StorageError

MAX_BYTES_VARIABLE: Final = "HEADWATER_MAX_OBJECT_BYTES"
"""The environment variable that says how large an object may be that is read as a whole."""
_DEFAULT_MAX_BYTES: Final = 4 * 2**30

# A segment of no, one or two dots: the empty key, a leading, doubled or trailing slash, `.` and `..`.
_BAD_SEGMENTS = frozenset({"", ".", ".."})

LOG_DIRECTORIES = ("_delta_log", "_transaction_log")
"""Where the logs of Delta tables and of search tables are, below the root of a table."""
LOG_KEY = rf"(?i)(?:^|/)(?:{'|'.join(LOG_DIRECTORIES)})(?:/|$)"
"""A regular expression, for `re` and for Arrow. Some disks do not tell upper from lower case."""
_LOG_KEY = re.compile(LOG_KEY)


def check_key(key: str) -> str:
    """The key itself, if it names an object below the root.

    >>> check_key("_delta_log/00000000000000000000.json")
    '_delta_log/00000000000000000000.json'

    Raises:
        StorageError: the key is empty, absolute, ends with `/`, has an empty, `.` or `..` segment, a NUL
            or a lone surrogate.
    """
    if not _BAD_SEGMENTS.isdisjoint(key.split("/")) or "\0" in key:
        raise StorageError(f"{key!r} is not a key: keys are relative to the table, without empty, '.' or '..' segments")
    if not key.isascii():
        try:
            os.fsencode(key)
        except UnicodeEncodeError as error:
            raise StorageError(f"{key!r} is not a key: it holds half of a surrogate pair") from error
    return key


def check_data_key(key: str) -> str:
    """The key itself, if it names an object below the root that is in no log directory.

    >>> check_data_key("day=2024-01-31/part-0.parquet")
    'day=2024-01-31/part-0.parquet'

    Raises:
        StorageError: it is not a key, or it is one of a log.
    """
    if _LOG_KEY.search(check_key(key)):
        raise StorageError(f"{key!r} is inside a table's log, where no data file is ever written or deleted")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself, if it names a directory: empty (the root), or a key followed by one `/`.

    >>> check_prefix("_delta_log/")
    '_delta_log/'

    Raises:
        StorageError: the prefix does not end with `/`, or what is before it is not a key.
    """
    if prefix:
        if not prefix.endswith("/"):
            raise StorageError(f"{prefix!r} is not a directory prefix: it has to end with '/'")
        check_key(prefix[:-1])
    return prefix


def check_range(key: str, start: int, length: int) -> None:
    """Refuse a byte range that no object can have.

    Raises:
        StorageError: `start` or `length` is negative.
    """
    if start < 0 or length < 0:
        raise StorageError(f"cannot read {length} bytes from offset {start} of {key!r}: both must be >= 0")


def max_object_bytes() -> int:
    """How large an object may be that is read as a whole: 4 GiB, or what HEADWATER_MAX_OBJECT_BYTES says.

    Log files are read so, data files and deletion vectors are not. It is far above what any log has.
    """
    text = os.environ.get(MAX_BYTES_VARIABLE)
    if text is None:
        return _DEFAULT_MAX_BYTES
    if not text.isdecimal() or len(text) > 18:
        raise StorageError(f"the environment variable {MAX_BYTES_VARIABLE} must be a number of bytes, not {text!r}")
    return int(text)


def check_size(what: str, size_bytes: int) -> int:
    """The size itself, if an object of that size may be read as a whole.

    Raises:
        StorageError: it is too large.
    """
    if size_bytes > max_object_bytes():
        raise StorageError(
            f"could not read {what}: it has {size_bytes} bytes, and at most {max_object_bytes()} are read at once. "
            f"No log file should be so large; if this one is, set the environment variable {MAX_BYTES_VARIABLE}"
        )
    return size_bytes
