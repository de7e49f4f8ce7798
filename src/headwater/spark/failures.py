"""Errors of Spark in our own words, mapped once, where PySpark turns Java exceptions into Python's.

A scan runs when the user calls an action, long after our code has returned, so the place to map is PySpark's
own conversion. Three kinds are ours: a data file that is gone, one that Spark cannot read as the table's schema says,
and what our file index raised while a query was planned.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headwater.errors import HeadwaterError, StorageError, StorageRefusedError, UnreadableDataFileError
from headwater.spark.worker_errors import from_traceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

_MISSING_FILE = re.compile(r"reading file (\S.*?)\. File does not exist")
_UNREAD_FILE = re.compile(
    r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (?P<file>\S.*?)\. (?P<why>.*?)\s*SQLSTATE", re.S
)
_LAST_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.*)$", re.MULTILINE)
_DISK_FAILURE = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|Too many open files|Input/output error"
)
_MAX_LINE = 300
_MAX_TABLES = 1_000
_MAX_ERRORS = 16
_MAX_DIRECTORIES = 100


class DataFileNotFoundError(StorageError):
    """A data file that the log names does not exist.

    Attributes:
        file: the path of the file.
        version: the version that was read.
    """

    def __init__(self, message: str, file: str = "", version: int = -1) -> None:
        super().__init__(message)
        self.file = file
        self.version = version


class _Scans:
    """What is remembered of recent scans, to explain their failures. Bounded, and shared by all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._versions: OrderedDict[str, int] = OrderedDict()
        self._raised: deque[HeadwaterError] = deque(maxlen=_MAX_ERRORS)
        self._installed: set[Callable[[], None]] = set()

    def remember(self, root: str, version: int, install: Callable[[], None] | None) -> None:
        with self._lock:
            self._versions[root] = version
            self._versions.move_to_end(root)
            if len(self._versions) > _MAX_TABLES:
                self._versions.popitem(last=False)
            if install is not None and install not in self._installed:
                install()
                self._installed.add(install)

    def raised(self, error: HeadwaterError) -> None:
        with self._lock:
            self._raised.append(error)

    def explain(self, text: str) -> HeadwaterError | None:
        """Our error for the text of a Java exception with all its causes."""
        with self._lock:
            raised = next((e for e in self._raised if str(e) and str(e) in text), None)
            versions = dict(self._versions)
        if raised is not None and "Py4JException" in text:
            return raised
        missing = _MISSING_FILE.search(text)
        if missing is None:
            return from_traceback(text) or _explain_unread(text, versions)
        file = unquote(missing[1])
        root = _root_of(file, versions)
        if root is None:
            return None
        return DataFileNotFoundError(
            f"the data file {file} is gone, and version {versions[root]} of the table {root} needs it. "
            "Probably VACUUM removed it, because a newer version does not need it: read a newer one. If "
            "the newest version needs it too, something other than the table's commands deleted it.",
            file,
            versions[root],
        )


def _root_of(file: str, roots: Iterable[str]) -> str | None:
    """The table, of those that were read, to which a file belongs."""
    plain = re.sub("^file:/+", "file:/", file)
    return max((root for root in roots if plain.startswith(root + "/")), key=len, default=None)


def _explain_unread(text: str, versions: Mapping[str, int]) -> HeadwaterError | None:
    """Our error for a file that Spark's Parquet reader has refused."""
    found = _UNREAD_FILE.search(text)
    file = "" if found is None else unquote(found["file"])
    root = _root_of(file, versions)
    if found is None or root is None:
        return None
    causes = _LAST_CAUSE.findall(text)
    why = found["why"].strip() or (causes[-1].strip() if causes else "Spark does not say why.")
    return UnreadableDataFileError(
        f"the data file {file} of version {versions[root]} of the table {root} cannot be read as the table's schema "
        f"says: {why} Another writer made it, or it is damaged: write its rows again, or remove it from the table.",
        file,
    )


_SCANS = _Scans()


def remember_scan(root: str, version: int, install: Callable[[], None] | None = None) -> None:
    """Note that a table is being read, so that a missing file of it can be explained.

    Args:
        root: the table's location, in the spelling of Hadoop's `Path`.
        version: the version that is read.
        install: makes errors of the session come here first, once; by default those of classic PySpark.
    """
    _SCANS.remember(root, version, install or _install)


def remember_files(uris: pa.ChunkedArray, root: str, version: int) -> None:
    """Note the directories of files that a scan reads and that are not below the table, as those of a shallow clone.

    Args:
        uris: of the files, as Hadoop spells them.
        root: the table's location, in the same spelling.
        version: the version that is read.
    """
    import pyarrow.compute as pc

    outside = uris.filter(pc.invert(pc.starts_with(uris, root + "/")))
    if len(outside):
        parents = pc.unique(pc.replace_substring_regex(outside, "/[^/]*$", ""))
        for parent in parents.slice(0, _MAX_DIRECTORIES).to_pylist():
            _SCANS.remember(unquote(parent), version, None)


def explain_failure(text: str) -> HeadwaterError | None:
    """Our error for the text of one of Spark's; None if it is not about a table of ours."""
    return _SCANS.explain(text)


@contextmanager
def explained_failures(doing: str = "run a job of Spark") -> Iterator[None]:
    """Errors of ours that come back from executors as the text of Spark's, and those of the disks of the executors.

    Args:
        doing: what the job does, for a message: "could not {doing}".
    """
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        ours = explain_failure(str(error)) or _disk_failure(str(error), doing)
        if ours is None:
            raise
        raise ours from error


def _disk_failure(text: str, doing: str) -> StorageError | None:
    """The error for a disk that an executor could not write to, or not read from: what the system said is enough."""
    found = _DISK_FAILURE.search(text)
    if found is None:
        return None
    line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0].strip()
    return StorageRefusedError(
        f"could not {doing}: {found[0]} ({line[:_MAX_LINE]}). Nothing was committed; look after the disks of the "
        "executors (the table's own, spark.local.dir and the directory of temporary files)."
    )


def remember_error(error: HeadwaterError) -> None:
    """Note what the file index raised: Java hands it on as mere text."""
    _SCANS.raised(error)


def _install() -> None:
    """Look at Java exceptions before PySpark converts them; those that are not ours it converts as ever."""
    from pyspark.errors.exceptions import captured

    convert: Callable[[Any], Exception] = captured.convert_exception

    def convert_or_explain(exception: Any) -> Exception:
        return _explain_java(exception) or convert(exception)

    captured.convert_exception = convert_or_explain


def _explain_java(exception: Any) -> HeadwaterError | None:
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    if jvm is None:
        return None
    text: str = jvm.org.apache.spark.util.Utils.exceptionString(exception)
    return _SCANS.explain(text)
