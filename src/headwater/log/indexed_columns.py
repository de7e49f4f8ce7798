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
    from headwater.log.schema import MappingMode

NUMBER_PROPERTY = "delta.dataSkippingNumIndexedCols"
COLUMNS_PROPERTY = "delta.dataSkippingStatsColumns"
DEFAULT_INDEXED_COLUMNS = 32
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_NAMES = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")


def indexed_leaves(shape: TableShape, configuration: Mapping[str, str]) -> list[Leaf]:
    """The leaves of the table's data columns that have statistics, with physical names.

    A leaf that is an array, a map or binary is among them: it has no bounds, but its nulls are counted.
    """
    data = StructType(field for field in shape.schema.fields if field.name not in shape.partition_columns)
    return [leaf for leaf in chosen_leaves(data, shape.mapping_mode, configuration) if _is_known(leaf)]


def chosen_leaves(data: StructType, mode: MappingMode, configuration: Mapping[str, str]) -> list[Leaf]:
    """The leaves that the table's properties choose, with physical names.

    A void is chosen like any other column, and counts as one: delta-spark does so too, though no file has it.

    Args:
        data: the logical schema without partition columns.
        mode: the table's column mapping.
        configuration: the table's properties.
    """
    wanted = _chosen([leaf.path for leaf in _leaves(data, ())], configuration)
    physical = _leaves(to_physical(data, mode), ())
    return [leaf for leaf, is_wanted in zip(physical, wanted, strict=True) if is_wanted]


def _leaves(struct: StructType, parent: tuple[str, ...]) -> Iterator[Leaf]:
    for field in struct.fields:
        path = (*parent, field.name)
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, path)
        else:
            yield Leaf.of(path, field)


def _is_known(leaf: Leaf) -> bool:
    return leaf.type != VOID and (not isinstance(leaf.type, PrimitiveType) or leaf.type.is_known)


def _chosen(paths: list[tuple[str, ...]], configuration: Mapping[str, str]) -> list[bool]:
    named = configuration.get(COLUMNS_PROPERTY)
    if named is not None:
        columns = {tuple(part.lower() for part in parts) for parts in column_names(named)}
        folded = [tuple(part.lower() for part in path) for path in paths]
        return [any(path[:depth] in columns for depth in range(1, len(path) + 1)) for path in folded]
    count = whole_number(configuration, NUMBER_PROPERTY, DEFAULT_INDEXED_COLUMNS)
    return [count < 0 or number < count for number in range(len(paths))]


def whole_number(configuration: Mapping[str, str], name: str, default: int) -> int:
    """A property that is a number; one that is none counts as not set.

    >>> whole_number({"a": "5", "b": "many"}, "a", 1), whole_number({"b": "many"}, "b", 1)
    (5, 1)
    """
    text = configuration.get(name, "")
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else default


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
