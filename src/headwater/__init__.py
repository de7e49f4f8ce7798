"""Headwater: Delta Lake and search tables for PySpark, in Python, with no JARs.

>>> import headwater as hw
>>> hw.__version__
'0.1.0'

Everything public is here; modules below this one may move.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater._version import __version__

if TYPE_CHECKING:
    from headwater.delta_table import DeltaTable
    from headwater.errors import (
        ColumnNotFoundError,
        CommitStateUnknownError,
        ConcurrentAppendException,
        ConcurrentDeleteDeleteException,
        ConcurrentDeleteReadException,
        ConcurrentTransactionException,
        ConcurrentWriteException,
        ConstraintViolationError,
        CorruptLogError,
        CorruptSplitError,
        DeltaConcurrentModificationException,
        FilterError,
        ForeignLocationError,
        HeadwaterError,
        InvalidCommitError,
        InvalidMergeError,
        InvalidTablePropertyError,
        LogCleanupError,
        MetadataChangedException,
        MissingCommitError,
        MissingFilesError,
        MultipleSourceRowsError,
        ProtocolChangedException,
        RetentionError,
        SchemaError,
        SchemaMismatchError,
        SearchConfigError,
        SearchQueryError,
        StorageError,
        TableAlreadyExistsError,
        TableNotFoundError,
        UnreadableDataFileError,
        UnsupportedProtocolError,
        UntrustedExpressionError,
        ValueConversionError,
        VersionCleanedUpError,
        VersionNotFoundError,
        WriteOptionError,
    )
    from headwater.identity_generator import IdentityGenerator
    from headwater.log.snapshot import Snapshot
    from headwater.merge_builder import DeltaMergeBuilder
    from headwater.optimize_builder import DeltaOptimizeBuilder
    from headwater.search.delta_index import SearchCoverage, SearchIndexed, SearchIndexNotFoundError
    from headwater.search_table import SearchTable
    from headwater.searched_table import search_index
    from headwater.spark.changes import read_changes
    from headwater.spark.explain import scans
    from headwater.spark.scan import read
    from headwater.spark.search.sql_functions import register_search_functions
    from headwater.spark.session import spark
    from headwater.spark.write import Written, write
    from headwater.table_builder import DeltaTableBuilder
    from headwater.tables import open_log

_HOMES = {
    "ColumnNotFoundError": "headwater.errors",
    "CommitStateUnknownError": "headwater.errors",
    "ConcurrentAppendException": "headwater.errors",
    "ConcurrentDeleteDeleteException": "headwater.errors",
    "ConcurrentDeleteReadException": "headwater.errors",
    "ConcurrentTransactionException": "headwater.errors",
    "ConcurrentWriteException": "headwater.errors",
    "ConstraintViolationError": "headwater.errors",
    "CorruptLogError": "headwater.errors",
    "CorruptSplitError": "headwater.errors",
    "DeltaConcurrentModificationException": "headwater.errors",
    "DeltaMergeBuilder": "headwater.merge_builder",
    "DeltaOptimizeBuilder": "headwater.optimize_builder",
    "DeltaTable": "headwater.delta_table",
    "DeltaTableBuilder": "headwater.table_builder",
    "FilterError": "headwater.errors",
    "ForeignLocationError": "headwater.errors",
    "HeadwaterError": "headwater.errors",
    "IdentityGenerator": "headwater.identity_generator",
    "InvalidCommitError": "headwater.errors",
    "InvalidMergeError": "headwater.errors",
    "InvalidTablePropertyError": "headwater.errors",
    "LogCleanupError": "headwater.errors",
    "MetadataChangedException": "headwater.errors",
    "MissingCommitError": "headwater.errors",
    "MissingFilesError": "headwater.errors",
    "MultipleSourceRowsError": "headwater.errors",
    "ProtocolChangedException": "headwater.errors",
    "RetentionError": "headwater.errors",
    "SchemaError": "headwater.errors",
    "SchemaMismatchError": "headwater.errors",
    "SearchConfigError": "headwater.errors",
    "SearchCoverage": "headwater.search.delta_index",
    "SearchIndexNotFoundError": "headwater.search.delta_index",
    "SearchIndexed": "headwater.search.delta_index",
    "SearchQueryError": "headwater.errors",
    "SearchTable": "headwater.search_table",
    "Snapshot": "headwater.log.snapshot",
    "StorageError": "headwater.errors",
    "TableAlreadyExistsError": "headwater.errors",
    "TableNotFoundError": "headwater.errors",
    "UnreadableDataFileError": "headwater.errors",
    "UnsupportedProtocolError": "headwater.errors",
    "UntrustedExpressionError": "headwater.errors",
    "ValueConversionError": "headwater.errors",
    "VersionCleanedUpError": "headwater.errors",
    "VersionNotFoundError": "headwater.errors",
    "WriteOptionError": "headwater.errors",
    "Written": "headwater.spark.write",
    "open_log": "headwater.tables",
    "read": "headwater.spark.scan",
    "read_changes": "headwater.spark.changes",
    "register_search_functions": "headwater.spark.search.sql_functions",
    "scans": "headwater.spark.explain",
    "search_index": "headwater.searched_table",
    "spark": "headwater.spark",
    "write": "headwater.spark.write",
}

__all__ = [
    "ColumnNotFoundError",
    "CommitStateUnknownError",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "ConstraintViolationError",
    "CorruptLogError",
    "CorruptSplitError",
    "DeltaConcurrentModificationException",
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "FilterError",
    "ForeignLocationError",
    "HeadwaterError",
    "IdentityGenerator",
    "InvalidCommitError",
    "InvalidMergeError",
    "InvalidTablePropertyError",
    "LogCleanupError",
    "MetadataChangedException",
    "MissingCommitError",
    "MissingFilesError",
    "MultipleSourceRowsError",
    "ProtocolChangedException",
    "RetentionError",
    "SchemaError",
    "SchemaMismatchError",
    "SearchConfigError",
    "SearchCoverage",
    "SearchIndexNotFoundError",
    "SearchIndexed",
    "SearchQueryError",
    "SearchTable",
    "Snapshot",
    "StorageError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "UnreadableDataFileError",
    "UnsupportedProtocolError",
    "UntrustedExpressionError",
    "ValueConversionError",
    "VersionCleanedUpError",
    "VersionNotFoundError",
    "WriteOptionError",
    "Written",
    "__version__",
    "open_log",
    "read",
    "read_changes",
    "register_search_functions",
    "scans",
    "search_index",
    "spark",
    "write",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use: a command line tool must not wait for Spark, Arrow or sqlglot."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    if name == "spark":  # the room and the function are one: see headwater/spark/__init__.py
        return import_module("headwater.spark")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
