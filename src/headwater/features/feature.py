"""A table feature as one value, and the questions that the modules of features ask of schemas and commits.

A feature is supported when the protocol lists it or, for old ones, implies it by version. It is enabled when it is
supported and, where a table property switches it on, that property does (spec: "Active Features").
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from headwater.log.actions.decode import file_key
from headwater.log.schema import ArrayType, MapType, StructType
from headwater.log.schema.mapping import COLUMN_ID_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from headwater.log.actions.model import DomainMetadata, Protocol
    from headwater.log.commit.draft import Attempt, CommitRule, Draft
    from headwater.log.configuration import TableConfiguration
    from headwater.log.configuration.properties import Property
    from headwater.log.schema import DataType, StructField

TABLE_FEATURES_READER_VERSION = 3
TABLE_FEATURES_WRITER_VERSION = 7

INVARIANTS_KEY = "delta.invariants"
GENERATION_KEY = "delta.generationExpression"
DEFAULT_KEY = "CURRENT_DEFAULT"
IDENTITY_PREFIX = "delta.identity."


class Kind(Enum):
    """Who must understand a feature."""

    WRITER = "writer"
    READER_WRITER = "reader and writer"


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """Everything about a table feature. A new one is a value like this, and a line in the registry."""

    name: str
    kind: Kind
    legacy_reader_version: int | None = None
    """The reader version that implies the feature without listing it."""
    legacy_writer_version: int | None = None
    """The writer version from which on the feature is implied without being listed (up to 6)."""
    requires: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names that real tables list (a preview, or the spec's text)."""
    same_as: str | None = None
    """For an alias: the main name."""
    reads_log: bool = True
    """Whether the files of such a table are found correctly from its log."""
    writes: bool = True
    """Whether everything the feature demands of a writer is done."""
    reason: str = ""
    """Why it is not supported, for the message."""

    # What makes use of it.
    enabled: Callable[[Mapping[str, str]], bool] | None = None
    """Tells whether table properties use the feature."""
    column_keys: tuple[str, ...] = ()
    """Column metadata that writers only heed where the feature is supported."""
    types: tuple[DataType, ...] = ()
    """Column types that need the feature."""

    # What it demands.
    check_definition: Callable[[TableConfiguration], None] | None = None
    """Raises `InvalidCommitError` for a table that the feature forbids, before data is written."""
    check_commit: CommitRule | None = None
    complete_commit: CommitRule | None = None
    """Runs after all checks, and adds to the commit."""

    # How it is dropped.
    properties: tuple[Property[Any], ...] = ()
    """Table properties that go with the feature."""
    in_use: str = ""
    """Why it cannot be dropped while the table makes use of it."""
    drop_domains: Callable[[Mapping[str, str]], tuple[DomainMetadata, ...]] | None = None
    """Returns the domains to remove with the feature, or raises `InvalidCommitError`."""
    leaves_no_trace: bool = False
    """Whether it can be dropped although readers must know it: no version depends on it."""

    @property
    def is_legacy(self) -> bool:
        return self.legacy_writer_version is not None

    @property
    def for_readers(self) -> bool:
        return self.kind is Kind.READER_WRITER

    def is_implied(self, reader: int, writer: int) -> bool:
        """Tell whether legacy versions imply the feature."""
        return (
            self.legacy_writer_version is not None
            and self.legacy_writer_version <= writer < TABLE_FEATURES_WRITER_VERSION
            and (self.legacy_reader_version or 1) <= reader
        )

    def is_supported(self, protocol: Protocol) -> bool:
        """Tell whether a protocol lists the feature under any of its names, or implies it by version."""
        if protocol.min_writer_version < TABLE_FEATURES_WRITER_VERSION:
            return self.is_implied(protocol.min_reader_version, protocol.min_writer_version)
        return any(map(protocol.supports, (self.name, *self.aliases)))

    def is_enabled(self, table: TableConfiguration) -> bool:
        """Tell whether the feature is supported and, where a table property switches it on, switched on."""
        return self.is_supported(table.protocol) and (self.enabled is None or self.enabled(table.properties))

    def is_demanded(
        self, properties: Mapping[str, str], column_keys: Collection[str], types: Collection[DataType]
    ) -> bool:
        """Tell whether other writers would not heed these properties and columns without the feature."""
        return (
            (self.enabled is not None and self.enabled(properties))
            or any(key in column_keys for key in self.column_keys)
            or any(type_ in types for type_ in self.types)
        )


Path = tuple[str, ...]
"""Names from the top; `element`, `key` and `value` lead into arrays and maps."""


def fields_by_path(type_: DataType, path: Path = ()) -> Iterator[tuple[Path, StructField]]:
    """Return every field inside a type with the path to it."""
    match type_:
        case StructType(fields=fields):
            for field in fields:
                here = (*path, field.name)
                yield here, field
                yield from fields_by_path(field.type, here)
        case ArrayType(element_type=element):
            yield from fields_by_path(element, (*path, "element"))
        case MapType(key_type=key, value_type=value):
            yield from fields_by_path(key, (*path, "key"))
            yield from fields_by_path(value, (*path, "value"))


def all_types(type_: DataType) -> Iterator[DataType]:
    """Return a type and every type inside it."""
    yield type_
    match type_:
        case StructType(fields=fields):
            for field in fields:
                yield from all_types(field.type)
        case ArrayType(element_type=element):
            yield from all_types(element)
        case MapType(key_type=key, value_type=value):
            yield from all_types(key)
            yield from all_types(value)


def same_columns(before: StructType, after: StructType) -> Iterator[tuple[Path, StructField, StructField]]:
    """Columns that two schemas share, with the path in the second: by id, or by name where there are no ids."""
    by_path = dict(fields_by_path(before))
    by_id = {field.metadata[COLUMN_ID_KEY]: field for field in by_path.values() if COLUMN_ID_KEY in field.metadata}
    for path, field in fields_by_path(after):
        old = by_id.get(field.metadata.get(COLUMN_ID_KEY)) if by_id else by_path.get(path)
        if old is not None:
            yield path, old, field


BRINGS_BACK = ("RESTORE", "CLONE")
"""Operations that commit files together with the metaData under which they were written."""


def replaces_all_files(draft: Draft, attempt: Attempt) -> bool:
    """Tell whether no file that is live now stays in the table, so that nothing binds new files to old rules.

    What stays when a table is restored or cloned belonged to the new metaData before: that binds nothing either.
    Every removed file is live when the commit happens (another writer who removed it too would have been a conflict),
    so it is enough to count.
    """
    if attempt.snapshot is None or draft.operation.name in BRINGS_BACK:
        return True
    removed = {file_key(remove) for remove in draft.removes}
    live = attempt.snapshot.num_files
    return len(removed) == live and not {path for path, _ in removed} & {file_key(add)[0] for add in draft.adds}


def schema_after(draft: Draft, attempt: Attempt) -> StructType:
    """Return the schema in force with the commit."""
    return attempt.configuration.changed(None, draft.metadata).schema
