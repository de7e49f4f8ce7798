"""The actions of the log as typed values (spec: "Actions").

Python objects exist only for the few actions of a commit; the live files of a table are Arrow columns.
Unknown actions and unknown fields are ignored, as the protocol demands ("Protocol Evolution").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from headwater.storage.redaction import shortened

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The spec's numbers: what does not fit is not a valid action."""

if TYPE_CHECKING:
    _Configuration = dict[str, str]
else:
    _Configuration = dict[str, str | None]  # as it is decoded; `Metadata` drops what is null


class _Action(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """Base of all actions: camelCase in JSON, snake_case here."""


class Format(_Action, frozen=True):
    """How data files are encoded; always Parquet in practice."""

    provider: str = "parquet"
    options: dict[str, str | None] = {}


class Protocol(_Action, frozen=True):
    """What a client must implement to read or write the table."""

    min_reader_version: Int
    min_writer_version: Int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    def supports(self, feature: str) -> bool:
        """Tell whether the feature is listed by name (legacy versions imply features without listing them)."""
        return feature in (self.reader_features or ()) or feature in (self.writer_features or ())


class Metadata(_Action, frozen=True):
    """The `metaData` action: schema, partition columns and configuration."""

    id: str
    schema_string: str = ""
    """JSON text; empty when the action has none, which only matters if it is the one in force."""
    format: Format = Format()
    partition_columns: tuple[str, ...] = ()
    configuration: _Configuration = {}
    name: str | None = None
    description: str | None = None
    created_time: Long | None = None

    def __repr__(self) -> str:
        schema, properties = shortened(self.schema_string), shortened(str(self.configuration))
        columns = shortened(str(list(self.partition_columns)))
        return f"Metadata(id={self.id!r}, schema_string={schema!r}, partition_columns={columns}, {properties})"

    def __post_init__(self) -> None:
        # Early versions of delta-rs wrote properties without a value as null.
        decoded = cast("dict[str, str | None]", self.configuration)
        if None in decoded.values():
            present = {name: value for name, value in decoded.items() if value is not None}
            msgspec.structs.force_setattr(self, "configuration", present)


class DeletionVector(_Action, frozen=True):
    """The deletion vector descriptor (spec: "Deletion Vector Descriptor Schema")."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Int
    cardinality: Long
    offset: Int | None = None

    @property
    def unique_id(self) -> str:
        """Identifies the vector: `<storageType><pathOrInlineDv>[@<offset>]`."""
        unique = self.storage_type + self.path_or_inline_dv
        return unique if self.offset is None else f"{unique}@{self.offset}"


class Add(_Action, frozen=True):
    """A logical file that is part of the table from this version on."""

    path: str
    size: Long
    partition_values: dict[str, str | None] = {}
    modification_time: Long | None = None
    data_change: bool = True
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None


class Remove(_Action, frozen=True):
    """A tombstone: the logical file is no longer part of the table."""

    path: str
    data_change: bool = True
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


class AddCdcFile(_Action, frozen=True):
    """The `cdc` action: a file with the row-level changes of its version."""

    path: str
    partition_values: dict[str, str | None] = {}
    size: Long = 0
    data_change: bool = False
    tags: dict[str, str | None] | None = None


class Txn(_Action, frozen=True):
    """An application's progress (spec: "Transaction Identifiers")."""

    app_id: str
    version: Long
    last_updated: Long | None = None


class DomainMetadata(_Action, frozen=True):
    """A named configuration; `removed` ones only suppress older ones."""

    domain: str
    configuration: str = ""
    removed: bool = False


class CheckpointMetadata(_Action, frozen=True):
    """Marks a checkpoint that follows the V2 spec."""

    version: Long
    tags: dict[str, str] | None = None


class Sidecar(_Action, frozen=True):
    """Names a Parquet file that holds file actions of a V2 checkpoint."""

    path: str
    size_in_bytes: Long
    modification_time: Long = 0
    tags: dict[str, str] | None = None


class FileActionLine(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One line of a commit, decoded for its file actions only."""

    add: Add | None = None
    remove: Remove | None = None
    cdc: AddCdcFile | None = None


class TableActionLine(
    msgspec.Struct, rename={"meta_data": "metaData", "domain_metadata": "domainMetadata"}, frozen=True
):
    """One line of a commit, decoded for everything but file actions (cheap: those are skipped over)."""

    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    txn: Txn | None = None
    domain_metadata: DomainMetadata | None = None


class CheckpointLine(
    TableActionLine,
    frozen=True,
    rename={
        "meta_data": "metaData",
        "domain_metadata": "domainMetadata",
        "checkpoint_metadata": "checkpointMetadata",
    },
):
    """One line of a V2 checkpoint in JSON, decoded for everything but file actions."""

    checkpoint_metadata: CheckpointMetadata | None = None
    sidecar: Sidecar | None = None


class CommitInfoLine(msgspec.Struct, rename={"commit_info": "commitInfo"}, frozen=True):
    """One line of a commit, decoded for its provenance only."""

    commit_info: dict[str, Any] | None = None


class CheckpointOnlyLine(msgspec.Struct, rename="camel", frozen=True):
    """One line of a commit, decoded for what only a checkpoint may hold."""

    sidecar: Any = None
    checkpoint_metadata: Any = None
