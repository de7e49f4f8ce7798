"""The one tree of errors: everything Headwater raises is a `HeadwaterError`.

Foreign exceptions (object stores, Arrow, Spark) are mapped into this tree once, at the boundary where
they appear. A message says what happened, to which table, version or file, and what to do about it.
"""

from __future__ import annotations


class HeadwaterError(Exception):
    """The root of everything Headwater raises.

    >>> issubclass(TableNotFoundError, HeadwaterError)
    True
    """


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


class VersionNotFoundError(HeadwaterError):
    """The wanted version or timestamp is outside the range that the log can still reconstruct."""


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


class SchemaMismatchError(SchemaError):
    """The columns or types of a DataFrame do not fit the table's; the message shows where, column by column."""


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


# --- writing ------------------------------------------------------------------------------------------


class WriteOptionError(HeadwaterError, ValueError):
    """An option of a write is unknown, contradicts another, or does not fit the table."""


class TableAlreadyExistsError(HeadwaterError):
    """There is a table already where one was to be created."""


class ConstraintViolationError(HeadwaterError):
    """A row breaks a rule of the table: NOT NULL, CHECK, a generated column, a length. Nothing was committed."""


DeltaInvariantViolationException = ConstraintViolationError
"""The name under which Delta users know it."""


class InvalidMergeError(HeadwaterError, ValueError):
    """The clauses of a MERGE do not go together, or do not fit the table and the source."""


class MultipleSourceRowsError(HeadwaterError):
    """Several rows of a MERGE's source want to change the same row of the table. Nothing was committed.

    Delta users know it as DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE.
    """


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


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Files were added where this transaction had read."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """A file that this transaction had read was removed."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """A file that this transaction removes was removed by another one."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """The progress of the same application, or the same metadata domain, was recorded by another transaction."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """The table's schema, partitioning or properties were changed."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """The table's protocol was changed."""


# --- maintenance --------------------------------------------------------------------------------------


class LogCleanupError(HeadwaterError):
    """A log file that is not needed any more could not be deleted, and the table's options make that an error."""


class RetentionError(HeadwaterError, ValueError):
    """A retention of VACUUM that is negative, or so short that readers and writers at work could lose files."""


class MissingFilesError(HeadwaterError):
    """Files of the version to restore are not in the store any more.

    Attributes:
        paths: which, as keys of the table or absolute paths.
    """

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.paths = paths


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
