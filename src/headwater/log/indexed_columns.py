"""Which columns of a table have statistics: the first 32, or those that a property names.

`delta.dataSkippingStatsColumns` names columns (a struct stands for all its fields);
`delta.dataSkippingNumIndexedCols` says how many of the first leaves, -1 for all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.log.schema import VOID, PrimitiveType, StructType, to_physical
from headwater.log.stats_decoder import Leaf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headwater.log.operands import TableShape

DEFAULT_INDEXED_COLUMNS = 32
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_NAMES = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")


def indexed_leaves(shape: TableShape, configuration: Mapping[str, str]) -> list[Leaf]:
    """The leaves of the table's data columns that have statistics, with physical names.

    A leaf that is an array, a map or binary is among them: it has no bounds, but its nulls are counted.
    """
    data = StructType(field for field in shape.schema.fields if field.name not in shape.partition_columns)
    logical = list(_leaves(data, ()))
    physical = list(_leaves(to_physical(data, shape.mapping_mode), ()))
    wanted = _chosen([leaf.path for leaf in logical], configuration)
    return [leaf for leaf, chosen in zip(physical, wanted, strict=True) if chosen and _is_known(leaf)]


def _leaves(struct: StructType, parent: tuple[str, ...]) -> Iterator[Leaf]:
    for field in struct.fields:
        path = (*parent, field.name)
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, path)
        else:
            yield Leaf(path, field.type)


def _is_known(leaf: Leaf) -> bool:
    return leaf.type != VOID and (not isinstance(leaf.type, PrimitiveType) or leaf.type.is_known)


def _chosen(paths: list[tuple[str, ...]], configuration: Mapping[str, str]) -> list[bool]:
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        columns = {tuple(part.lower() for part in parts) for parts in column_names(named)}
        folded = [tuple(part.lower() for part in path) for path in paths]
        return [any(path[:depth] in columns for depth in range(1, len(path) + 1)) for path in folded]
    declared = configuration.get("delta.dataSkippingNumIndexedCols", "")
    count = int(declared) if re.fullmatch(r"-?[0-9]{1,9}", declared) else DEFAULT_INDEXED_COLUMNS
    return [count < 0 or number < count for number in range(len(paths))]


def column_names(text: str) -> list[tuple[str, ...]]:
    """The columns in a list such as `id, address.city, `a.b``, each as the parts of its name.

    >>> column_names("id, address.city, `a,b.c`.d")
    [('id',), ('address', 'city'), ('a,b.c', 'd')]
    """
    return [
        tuple(quoted.replace("``", "`") or plain.strip() for quoted, plain in _NAME.findall(column.strip()))
        for column in _NAMES.findall(text)
        if column.strip()
    ]
