"""Translate errors of Spark into errors of Headwater.

A scan runs when the user calls an action, long after our code has returned. So the place to translate is where PySpark
turns Java exceptions (or the errors of a Connect server) into Python's. Translated are: a data file that is gone or
that Spark cannot read by the table's schema, errors of our file index during planning, errors of ours in Python workers
(which arrive as the text of a traceback), full or broken disks of executors, and rows that break a rule of the table.

Rules are expressions in the projection that makes the rows, so they need no second pass. Marks in the message tell ours
from the stack trace around it, and name the error that it becomes.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headwater import errors
from headwater.errors import (
    ConstraintViolationError,
    DataFileNotFoundError,
    ExecutorSetupError,
    HeadwaterError,
    StorageError,
    StorageRefusedError,
    UnreadableDataFileError,
    ValueConversionError,
)
from headwater.spark.functions import functions, translate_errors

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import Column, SparkSession


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


_LOCK = Lock()
_VERSIONS: OrderedDict[str, int] = OrderedDict()
"""Recently read versions, by the locations of their tables: failures are explained by them."""
_RAISED: deque[HeadwaterError] = deque(maxlen=_MAX_ERRORS)
"""Recent errors of file indexes: Java passes them on as mere text."""


def explain_failure(text: str) -> HeadwaterError | None:
    """Return our error for the text of one of Spark's, with all its causes; None if it is not about a table of ours."""
    with _LOCK:
        raised = next((e for e in _RAISED if str(e) and str(e) in text), None)
        versions = dict(_VERSIONS)
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
    """Return the table, of those that were read, to which a file belongs."""
    plain = re.sub("^file:/+", "file:/", file)
    return max((root for root in roots if plain.startswith(root + "/")), key=len, default=None)


def _explain_unread(text: str, versions: Mapping[str, int]) -> HeadwaterError | None:
    """Return our error for a file that Spark's Parquet reader has refused."""
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


def _remember(root: str, version: int) -> None:
    with _LOCK:
        _VERSIONS[root] = version
        _VERSIONS.move_to_end(root)
        if len(_VERSIONS) > _MAX_TABLES:
            _VERSIONS.popitem(last=False)


def remember_scan(spark: SparkSession, root: str, version: int) -> None:
    """Note that a session reads a version of a table, so that a missing file of it can be explained.

    `root` is the table's location, in the spelling of Hadoop's `Path`.
    """
    _remember(root, version)
    translate_errors(spark, explain_failure, _explain_on_connect)


def remember_files(uris: pa.ChunkedArray, root: str, version: int) -> None:
    """Note the directories of files outside the table that a scan reads, as those of a shallow clone.

    `uris` and `root` are in Hadoop's spelling.
    """
    import pyarrow.compute as pc

    outside = uris.filter(pc.invert(pc.starts_with(uris, root + "/")))
    if len(outside):
        parents = pc.unique(pc.replace_substring_regex(outside, "/[^/]*$", ""))
        for parent in parents.slice(0, _MAX_DIRECTORIES).to_pylist():
            _remember(unquote(parent), version)


@contextmanager
def explained_failures(doing: str = "run a job of Spark") -> Iterator[None]:
    """Translate errors of a job: ours that come back from executors as text, and those of the executors' disks.

    `doing` completes the message "could not ...".
    """
    with _translated(lambda text: explain_failure(text) or _disk_failure(text, doing)):
        yield


@contextmanager
def _translated(explain: Callable[[str], HeadwaterError | None]) -> Iterator[None]:
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        ours = explain(str(error))
        if ours is None:
            raise
        raise ours from error


def _disk_failure(text: str, doing: str) -> StorageError | None:
    found = _DISK_FAILURE.search(text)
    if found is None:
        return None
    line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n", 1)[0].strip()
    return StorageRefusedError(
        f"could not {doing}: {found[0]} ({line[:_MAX_LINE]}). Nothing was committed; look after the disks of the "
        "executors (the table's own, spark.local.dir and the directory of temporary files)."
    )


def remember_error(error: HeadwaterError) -> None:
    """Note what a file index raised."""
    with _LOCK:
        _RAISED.append(error)


_TRANSLATORS: list[Callable[[Any], Exception | None]] = []


def translate_failures(translate: Callable[[Any], Exception | None]) -> None:
    """Let a function look at the Java exceptions of classic PySpark first; it returns the error to raise, or None."""
    if not _TRANSLATORS:
        _install_translators()
    _TRANSLATORS[:] = [translate]


def _install_translators() -> None:
    from pyspark.errors.exceptions import captured

    convert: Callable[[Any], Exception] = captured.convert_exception

    def translate_or_convert(exception: Any) -> Exception:
        found = (translate(exception) for translate in _TRANSLATORS)
        return next((error for error in found if error is not None), None) or convert(exception)

    captured.convert_exception = translate_or_convert  # type: ignore[assignment]


_NO_SUCH_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (?P<path>.*?)\. SQLSTATE", re.DOTALL)
_MISSING = "while reading file {path}. File does not exist"
"""How Spark words it when a file vanishes while a query runs."""


def explained_connect_failures() -> AbstractContextManager[None]:
    """Translate what the server says when it looks for the files."""
    return _translated(_explain_on_connect)


def _explain_on_connect(text: str) -> HeadwaterError | None:
    found = _NO_SUCH_PATH.search(text)
    if found is None:
        return explain_failure(text)
    path = re.sub(r"\\(.)", r"\1", found["path"])  # the reader takes paths as patterns, which are escaped
    return explain_failure(_MISSING.format(path=path))


_MISSING_PACKAGE = re.compile(
    r"^ModuleNotFoundError: No module named '(headwater|pyarrow|obstore|msgspec|pyroaring)", re.M
)
_LAST_LINE = re.compile(r"^headwater\.errors\.(\w+): (.*)$", re.MULTILINE)


def from_traceback(text: str) -> HeadwaterError | None:
    """Return the error of ours that ends a traceback; None if there is none.

    >>> from_traceback("Traceback ...\\nheadwater.errors.StorageError: no such bucket")
    StorageError('no such bucket')
    """
    missing = _MISSING_PACKAGE.search(text)
    if missing is not None:
        return ExecutorSetupError(
            f"Spark's Python workers do not have the package {missing[1]}, and they must read or write the files of "
            "this table, for Spark has no filesystem for its store. Install headwater where the workers run, and let "
            "PYSPARK_PYTHON (in the environment, before the session starts) name a Python that has it."
        )
    found = _LAST_LINE.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, HeadwaterError) else None


_KINDS: dict[str, type[HeadwaterError]] = {"constraint": ConstraintViolationError, "conversion": ValueConversionError}
_MARKED = re.compile(r"<<headwater:(\w+):(.*?):headwater>>", re.DOTALL)
_SHOWN_CHARACTERS = 100
"""How much of a value a message shows."""


def violation(text: str, shown: Iterable[tuple[str, Column]] = ()) -> Column:
    """Return an expression that fails with `ConstraintViolationError`; `shown` are values of the row, by name."""
    return _raising("constraint", text, shown)


def conversion_failure(text: str, shown: Iterable[tuple[str, Column]] = ()) -> Column:
    """Return an expression that fails with `ValueConversionError`."""
    return _raising("conversion", text, shown)


@contextmanager
def explained_violations(uri: str) -> Iterator[None]:
    """Translate the error of a job that a rule of the table has stopped."""
    try:
        yield
    except Exception as error:
        found = _MARKED.search(str(error))
        if found is None:
            raise
        # Not chained: the rest is a stack trace of Java around the same message.
        raise _KINDS[found[1]](f"{uri}: {found[2]} Nothing was committed.") from None


def _raising(kind: str, text: str, shown: Iterable[tuple[str, Column]]) -> Column:
    sf = functions()
    parts: list[Any] = [sf.lit(f"<<headwater:{kind}:{text}")]
    for number, (name, value) in enumerate(shown):
        parts += [sf.lit(f"{' The row has ' if number == 0 else ', '}{name} = "), _text(value)]
    parts.append(sf.lit(":headwater>>" if len(parts) == 1 else ".:headwater>>"))
    return sf.raise_error(sf.concat(*parts))


def _text(value: Column) -> Column:
    sf = functions()
    return sf.coalesce(sf.substring(value.cast("string"), 1, _SHOWN_CHARACTERS), sf.lit("NULL"))


_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def quiet_analysis() -> Iterator[None]:
    """Raise errors of Spark's analyzer in this thread without logging them: expressions are tried out, and may fail."""
    from pyspark.logger import PySparkLogger

    thread = get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_another_thread)


def first_line(error: Exception) -> str:
    """Return what Spark says, without codes, places and plans."""
    return re.sub(r" SQLSTATE: .*|^\[[\w.]+\] ", "", str(error).strip().split("\n", 1)[0]).strip()
