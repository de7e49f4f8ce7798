"""Are the file actions of a Parquet file what the spec's "Checkpoint Schema" says, by type and by number?

Writers differ in widths (`int` or `long`, `string` or `large_string`), and columns may be missing. But a column of
another family (a path that is a number) means that the file is damaged, and reading on would lose files silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.parquet import ParquetObject


def check_file_actions(source: ParquetObject, action: str, types: Mapping[str, pa.DataType]) -> None:
    """Raise unless the column of a file action, if there is one, is a struct with children of the right families.

    Raises:
        CorruptLogError: naming the file and the column.
    """
    index = source.schema.get_field_index(action)
    if index < 0:
        return
    expected = pa.struct(list(types.items()))
    wrong = _first_difference(action, source.schema.field(index).type, expected)
    if wrong is not None:
        raise CorruptLogError(f"{source.meta.key} is not a valid checkpoint: its column {wrong}.")
    if action == "add":
        _check_counts(source)


def _check_counts(source: ParquetObject) -> None:
    """Every add has a path and a size. Files are counted by the footer, which has no checksum: so look twice."""
    for group in range(source.num_row_groups):
        paths, sizes = source.null_count(group, "add.path"), source.null_count(group, "add.size")
        if None not in (paths, sizes) and paths != sizes:
            raise CorruptLogError(
                f"{source.meta.key} is damaged: in row group {group} its footer counts {paths} rows without a path, "
                f"but {sizes} without a size."
            )


def _first_difference(name: str, found: pa.DataType, expected: pa.DataType) -> str | None:
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return None
    if _family(found) != _family(expected):
        return f"{name} has the type {found}, not {expected}"
    if pa.types.is_map(found):
        pairs = [("key", found.key_type, expected.key_type), ("value", found.item_type, expected.item_type)]
        return next(filter(None, (_first_difference(f"{name}.{n}", f, e) for n, f, e in pairs)), None)
    if pa.types.is_struct(found):
        known = [field for field in expected if found.get_field_index(field.name) >= 0]
        children = (_first_difference(f"{name}.{f.name}", found.field(f.name).type, f.type) for f in known)
        return next(filter(None, children), None)
    return None


def _family(type_: pa.DataType) -> str:
    is_ = pa.types
    families = {
        "text": (is_.is_string, is_.is_large_string, is_.is_string_view, is_.is_binary, is_.is_large_binary),
        "integer": (is_.is_integer,),
        "boolean": (is_.is_boolean,),
        "map": (is_.is_map,),
        "struct": (is_.is_struct,),
    }
    return next((name for name, tests in families.items() if any(test(type_) for test in tests)), str(type_))
