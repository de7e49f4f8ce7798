"""A list of files made by somebody else, such as a bucket's inventory report, in place of a listing.

The columns are those that delta-spark asks for: `path` (an absolute URI or path), `length`, `isDir` and
`modificationTime` (milliseconds). Rows outside the table do not count.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SchemaError
from headwater.log.tree import TREE_SCHEMA, Tree
from headwater.maintenance.table_keys import keys_below

COLUMNS = {"path": pa.string(), "length": pa.int64(), "isDir": pa.bool_(), "modificationTime": pa.int64()}

_ABNORMAL = r"[^:/]//|^//|/\.\.?(?:/|$)"
"""A path with an empty segment behind its scheme, or with one that is `.` or `..`."""


def checked_inventory(inventory: pa.Table) -> pa.Table:
    """The inventory with just the columns that count, in their types.

    Raises:
        SchemaError: a column is missing or has another type.
    """
    try:
        return pa.table({name: inventory.column(name).cast(type_) for name, type_ in COLUMNS.items()})
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        wanted = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
        raise SchemaError(f"an inventory needs the columns {wanted}: {error}") from error


def tree_of_inventory(inventory: pa.Table, uri: str) -> Tree:
    """What the inventory says is below a table. Of an object that is there twice, the newest counts."""
    checked = checked_inventory(inventory)
    paths = checked.column("path")
    keys = keys_below(_as_log_paths(paths), uri)
    # A key such as `d//f` is another object than `d/f` on an object store, whose age is not known then.
    keys = pc.if_else(pc.match_substring_regex(paths, _ABNORMAL), pa.scalar(None, pa.binary()), keys)
    below = checked.append_column("key", keys).filter(keys.is_valid())
    directories = below.filter(below.column("isDir")).num_rows
    objects = below.filter(pc.invert(below.column("isDir")))
    newest = objects.group_by("key").aggregate([("length", "max"), ("modificationTime", "max")])
    columns = [newest.column("key"), newest.column("length_max"), newest.column("modificationTime_max")]
    # Only their number is known: directories of an inventory are not removed.
    return Tree(pa.table(columns, schema=TREE_SCHEMA), ("",) * (directories + 1), ())


def _as_log_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Inventories do not escape, the log does: a percent sign stands for itself."""
    return pc.replace_substring(paths, pattern="%", replacement="%25")
