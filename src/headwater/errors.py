"""The one tree of errors: everything Headwater raises is a `HeadwaterError`.

Foreign exceptions (object stores, Arrow, Spark) are mapped into this tree once, at the boundary where
they appear. A message says what happened, to which table, version or file, and what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class HeadwaterError(Exception):
    """The root of everything Headwater raises.

    Attributes:
        condition: Delta's name for what went wrong, such as `DELTA_TABLE_NOT_FOUND`; None where Delta has none.
        parameters: what the message is about, by Delta's names for it.

    >>> issubclass(TableNotFoundError, HeadwaterError)
    True
    """

    condition: str | None = None
    parameters: Mapping[str, str] = {}

    def __new__(cls, *arguments: object, condition: str | None = None, **_: Any) -> HeadwaterError:
        """Make an error; once a session is enabled, of a class that is an exception of PySpark too."""
        chosen = cls if _spark_class is None else _spark_class(cls, condition or cls.condition)
        return super().__new__(chosen, *arguments)

    def __init__(
        self, *arguments: object, condition: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(*arguments)
        if condition is not None:
            self.condition = condition
        if parameters is not None:
            self.parameters = dict(parameters)


_spark_class: Callable[[type[HeadwaterError], str | None], type[HeadwaterError]] | None = None
"""Chooses a class that is an exception of PySpark as well (`headwater.sql.conditions`); None while none is wanted."""


def raise_as_spark_does(choose: Callable[[type[HeadwaterError], str | None], type[HeadwaterError]]) -> None:
    """From now on let every error be of the class that a function chooses, a subclass of its own."""
    global _spark_class
    _spark_class = choose


# --- storage -----------------------------------------------------------------------------------------


class StorageError(HeadwaterError):
    """An object store could not do what it was asked to do."""


class ObjectNotFoundError(StorageError):
    """There is no object with this key."""


class ObjectAlreadyExistsError(StorageError):
    """A put-if-absent found the object already there: somebody else was first."""


class StorageRefusedError(StorageError):
    """The store said no, and did nothing: no space is left, there is no such bucket, the name cannot be."""


class StoragePermissionError(StorageRefusedError):
    """The store refused access to the object."""


class ForeignLocationError(StoragePermissionError):
    """A log names a file in a store that was not opened, and no options are given for it: no credentials go there."""


class StorageThrottledError(StorageError):
    """The store asked to slow down (or did not answer), and kept doing so through every bounded retry."""


class StorageTimeoutError(StorageError):
    """Reading took longer than its time limit allows."""


class WriteStateUnknownError(StorageError):
    """A write was sent, and the store did not say whether it happened: read the object before writing again."""


class WriteNotDurableError(WriteStateUnknownError):
    """An object is there and can be seen, but the disk refused to keep it: a power failure may take it away again."""


class InvalidUriError(StorageError, ValueError):
    """The table location or its storage options cannot be understood."""


# --- the log ------------------------------------------------------------------------------------------


class TableNotFoundError(HeadwaterError):
    """The location holds no table: no log directory, or a log without a single commit or checkpoint."""

    condition = "DELTA_TABLE_NOT_FOUND"


class VersionNotFoundError(HeadwaterError):
    """The wanted version or timestamp is outside the range that the log can still reconstruct."""

    condition = "DELTA_VERSION_NOT_FOUND"


class VersionCleanedUpError(VersionNotFoundError):
    """The log files of a version were deleted by log cleanup after it was opened: open the table again."""


class CorruptLogError(HeadwaterError):
    """A log file contradicts the protocol or cannot be decoded. The message names the file."""


class MissingCommitError(CorruptLogError):
    """The commits after the newest usable checkpoint are not contiguous."""


class UnsupportedProtocolError(HeadwaterError):
    """The table needs a protocol version or a table feature that Headwater does not support.

    Attributes:
        features: the names of the table features that are missing, if features are the reason.
    """

    def __init__(self, message: str, features: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.features = features


class SchemaError(HeadwaterError):
    """A schema cannot be parsed, converted or resolved."""


class ColumnNotFoundError(SchemaError):
    """A filter or projection names a column that the table does not have."""

    condition = "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"


class SchemaMismatchError(SchemaError):
    """The columns or types of a DataFrame do not fit the table's; the message shows where, column by column."""

    condition = "DELTA_METADATA_MISMATCH"


class UnreadableDataFileError(HeadwaterError):
    """A data file cannot be read, or does not hold what the table's schema says of it.

    Attributes:
        file: the path of the file, where it is known.
    """

    def __init__(self, message: str, file: str = "") -> None:
        super().__init__(message)
        self.file = file


class FilterError(HeadwaterError, ValueError):
    """A filter text cannot be parsed."""


class ChangeDataError(HeadwaterError):
    """The change data of a range cannot be read: it was not recorded, or the schema changed on the way."""


class TimeTravelError(HeadwaterError, ValueError):
    """The wanted version is given twice, or cannot be understood."""


class ReadOptionError(HeadwaterError, ValueError):
    """An option of a read is unknown, or contradicts another."""


class RowTrackingDisabledError(HeadwaterError):
    """Row ids were asked for, and the table does not have them."""


class UnreadableInPythonError(UnreadableDataFileError):
    """A data file holds something that only Spark's own reader understands."""


class SessionError(HeadwaterError):
    """A Spark session cannot be made to understand Delta: something is in the way."""


class NotADeltaTableError(HeadwaterError):
    """A statement for Delta tables names a table of another kind."""

    condition = "DELTA_TABLE_ONLY_OPERATION"


class SqlSyntaxError(HeadwaterError, ValueError):
    """A statement begins as one of Delta's, and goes on as none."""

    condition = "PARSE_SYNTAX_ERROR"


# --- writing ------------------------------------------------------------------------------------------


class WriteOptionError(HeadwaterError, ValueError):
    """An option of a write is unknown, contradicts another, or does not fit the table."""


class TableAlreadyExistsError(HeadwaterError):
    """There is a table already where one was to be created."""

    condition = "DELTA_TABLE_ALREADY_EXISTS"


class ConstraintViolationError(HeadwaterError):
    """A row breaks a rule of the table: NOT NULL, CHECK, a generated column, a length. Nothing was committed."""


DeltaInvariantViolationException = ConstraintViolationError
"""The name under which Delta users know it."""


class PartitionValueError(HeadwaterError):
    """A value cannot be kept as a partition value: the log has no text for it."""


class InvalidMergeError(HeadwaterError, ValueError):
    """The clauses of a MERGE do not go together, or do not fit the table and the source."""


class MultipleSourceRowsError(HeadwaterError):
    """Several rows of a MERGE's source want to change the same row of the table. Nothing was committed.

    Delta users know it as DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE.
    """

    condition = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


class ValueConversionError(HeadwaterError):
    """A value of the data cannot be kept in the type of the table's column. Nothing was committed."""


class InvalidCommitError(HeadwaterError):
    """A transaction asks for something that the protocol, or a property of the table, forbids."""


class UntrustedExpressionError(InvalidCommitError):
    """A table wants SQL to be evaluated that is more than a value computed from the row: see docs/safety.md."""


class InvalidTablePropertyError(HeadwaterError, ValueError):
    """A table property does not exist, has a value that is not allowed, or cannot be changed by users."""


class CommitStateUnknownError(HeadwaterError):
    """The store did not say whether a commit was written, and could not be asked again. Look at the table's history."""


class DeltaConcurrentModificationException(HeadwaterError):
    """Another writer committed something that this transaction cannot be reconciled with. Start it again.

    Attributes:
        winner: the version of the commit that stands in the way, where one does.
    """

    def __init__(self, message: str, winner: int | None = None) -> None:
        super().__init__(message)
        self.winner = winner


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Other writers committed again and again, until this one gave up."""

    condition = "DELTA_CONCURRENT_WRITE"


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Files were added where this transaction had read."""

    condition = "DELTA_CONCURRENT_APPEND"


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """A file that this transaction had read was removed."""

    condition = "DELTA_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """A file that this transaction removes was removed by another one."""

    condition = "DELTA_CONCURRENT_DELETE_DELETE"


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """The progress of the same application, or the same metadata domain, was recorded by another transaction."""

    condition = "DELTA_CONCURRENT_TRANSACTION"


class MetadataChangedException(DeltaConcurrentModificationException):
    """The table's schema, partitioning or properties were changed."""

    condition = "DELTA_METADATA_CHANGED"


class ProtocolChangedException(DeltaConcurrentModificationException):
    """The table's protocol was changed."""

    condition = "DELTA_PROTOCOL_CHANGED"


# --- maintenance --------------------------------------------------------------------------------------


class LogCleanupError(HeadwaterError):
    """A log file that is not needed any more could not be deleted, and the table's options make that an error."""


class RetentionError(HeadwaterError, ValueError):
    """A retention of VACUUM that is negative, or so short that readers and writers at work could lose files."""

    condition = "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"


class MissingFilesError(HeadwaterError):
    """Files of the version to restore are not in the store any more.

    Attributes:
        paths: which, as keys of the table or absolute paths.
    """

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.paths = paths


class NotParquetError(HeadwaterError):
    """A file in a directory of Parquet files is not one."""


# --- search -------------------------------------------------------------------------------------------


class SearchQueryError(HeadwaterError, ValueError):
    """A search query that cannot be understood, or that asks something that the index cannot answer.

    Attributes:
        position: where in the query's text, counted in characters from 0; None when there is no text.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position

    def __reduce__(self) -> tuple[type[SearchQueryError], tuple[str, int | None]]:
        return type(self), (str(self), self.position)


class SearchConfigError(HeadwaterError, ValueError):
    """A field of a search index is configured in a way that is unknown, contradictory, or not for its column."""


class CorruptSplitError(HeadwaterError):
    """A split is damaged, cut off or no split at all. The message names the file and the part.

    Attributes:
        path: the split.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[type[CorruptSplitError], tuple[str, str]]:
        return type(self), (str(self), self.path)


class SearchIndexNotFoundError(HeadwaterError):
    """The Delta table has no search index."""


class SearchFunctionError(HeadwaterError):
    """The search functions of SQL cannot be had."""


# --- Spark ---------------------------------------------------------------------------------------------


class JavaNotFoundError(HeadwaterError):
    """No Java runtime that Spark could start was found.

    Attributes:
        tried: one line for each place that was looked at, saying why it did not serve.
    """

    def __init__(self, message: str, tried: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.tried = tried


class ExecutorSetupError(HeadwaterError):
    """The Python on the executors lacks what reading there needs."""


class FilesystemNotConfiguredError(StorageError):
    """Spark has no filesystem for the store that holds the table."""


class FileNameError(HeadwaterError):
    """The table has a data file with a name that Spark Connect cannot be asked for."""


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
