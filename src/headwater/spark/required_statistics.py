"""Statistics that files must have whatever the table's properties say: of clustering columns, because the protocol asks
for them ("Writer Requirements for Clustered Table"), and of identity columns, which tell the last value given out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.log.indexed_columns import COLUMNS_PROPERTY
from headwater.log.schema import StructType, physical_path, to_physical
from headwater.spark.columns import quoted
from headwater.spark.indexed_columns import indexed_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headwater.log.actions import Metadata
    from headwater.log.schema import MappingMode

Path = tuple[str, ...]


def with_required_statistics(
    metadata: Metadata, schema: StructType, mode: MappingMode, required: Sequence[Path]
) -> dict[str, str]:
    """The table's properties, as a write must see them for some columns to have statistics.

    Args:
        metadata: of the table.
        schema: the columns of its files and its partition columns.
        mode: the table's column mapping.
        required: the columns, as paths of physical names.
    """
    properties = metadata.configuration
    if not required:
        return properties
    partitions = set(metadata.partition_columns)
    leaves = {physical_path(schema, path, mode): path for path in _leaves(schema, ()) if path[0] not in partitions}
    data = to_physical(StructType([f for f in schema.fields if f.name not in partitions]), mode)
    indexed = {leaf.path for leaf in indexed_leaves(schema, data, mode, properties)}
    if all(path in indexed for path in required):
        return properties
    wanted = [path for physical, path in leaves.items() if physical in indexed or physical in required]
    return {**properties, COLUMNS_PROPERTY: ", ".join(".".join(map(quoted, path)) for path in wanted)}


def _leaves(struct: StructType, parent: Path) -> Iterator[Path]:
    for field in struct.fields:
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, (*parent, field.name))
        else:
            yield (*parent, field.name)
