"""What the log says about a table at one version, apart from its files: protocol, metaData, schema and properties."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from headwater.log.configuration.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
)
from headwater.log.schema import StructType, mapping_mode

if TYPE_CHECKING:
    from headwater.log.actions.model import Metadata, Protocol
    from headwater.log.configuration.properties import Property
    from headwater.log.schema import MappingMode

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class TableConfiguration:
    """The protocol and metaData of one version, and what follows from them; each is worked out once.

    >>> from headwater.log.actions.model import Metadata, Protocol
    >>> from headwater.log.configuration.properties import CHECKPOINT_POLICY
    >>> metadata = Metadata("1", '{"type":"struct","fields":[]}', configuration={"delta.checkpointPolicy": "V2"})
    >>> TableConfiguration(Protocol(1, 2), metadata)[CHECKPOINT_POLICY]
    'v2'
    """

    protocol: Protocol
    metadata: Metadata

    def __getitem__(self, wanted: Property[_Value]) -> _Value:
        """Read a table property, or its default.

        Raises:
            HeadwaterError: the property has a value that makes no sense, and no default can stand for it.
        """
        return wanted.read(self.metadata.configuration)

    @classmethod
    def after(
        cls, base: TableConfiguration | None, protocol: Protocol | None, metadata: Metadata | None
    ) -> TableConfiguration | None:
        """Return the configuration after a change; None if a new table lacks protocol or metaData."""
        if base is not None:
            return base.changed(protocol, metadata)
        return None if protocol is None or metadata is None else cls(protocol, metadata)

    def changed(self, protocol: Protocol | None, metadata: Metadata | None) -> TableConfiguration:
        """Return the configuration with another protocol or metaData, where they are given."""
        changed = TableConfiguration(protocol or self.protocol, metadata or self.metadata)
        return self if changed == self else changed

    @property
    def properties(self) -> dict[str, str]:
        """All table properties as the log has them."""
        return self.metadata.configuration

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @cached_property
    def schema(self) -> StructType:
        """The schema, with logical names.

        Raises:
            SchemaError: the text in the metaData is damaged.
        """
        return StructType.from_json(self.metadata.schema_string)

    @cached_property
    def mapping_mode(self) -> MappingMode:
        """How columns are found in data files: `none`, `name` or `id`."""
        return mapping_mode(self.protocol, self.metadata)

    @cached_property
    def has_in_commit_timestamps(self) -> bool:
        """Whether commits carry their own timestamps. The spec and real tables spell the feature differently."""
        listed = self.protocol.supports("inCommitTimestamp") or self.protocol.supports("inCommitTimestamps")
        return listed and self[ENABLE_IN_COMMIT_TIMESTAMPS]

    @property
    def first_in_commit_version(self) -> int | None:
        """The version from which on commits have in-commit timestamps; None when the table has none.

        Raises:
            CorruptLogError: the property that tells it is not a number.
        """
        return (self[IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION] or 0) if self.has_in_commit_timestamps else None
