"""Tables around what `write_files` wrote: the log is made by hand, so that nothing else of ours takes part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from headwater.log.actions.model import Add
from headwater.log.schema import StructType
from headwater.parquet.plan import WriteTarget
from headwater.spark.write.files import write_files
from support.tables.delta_tables import DeltaTable


def target_of(path: Path | str, df: Any, **named: Any) -> WriteTarget:
    """A target for all columns of a DataFrame."""
    return WriteTarget(**{"uri": str(path), "schema": StructType.from_spark(df.schema), **named})


def table_of(path: Path, target: WriteTarget, *adds: Add, features: tuple[str, ...] = ()) -> DeltaTable:
    """A table of one commit that adds these files."""
    fields = target.schema.to_dict()["fields"]
    properties = dict(target.properties)
    if target.mapping_mode != "none":
        properties["delta.columnMapping.mode"] = target.mapping_mode
        features = (*features, "columnMapping")
    table = DeltaTable(
        path, *fields, partition_columns=target.partition_columns, configuration=properties, features=features
    )
    table.commit(*({"add": {"dataChange": True, "partitionValues": {}, **msgspec.to_builtins(add)}} for add in adds))
    return table


def write_table(path: Path, df: Any, *, features: tuple[str, ...] = (), **named: Any) -> list[Add]:
    """Write a DataFrame, and a log that names its files."""
    target = target_of(path, df, **named)
    adds = write_files(df, target)
    table_of(path, target, *adds, features=features)
    return adds


def data_files(path: Path) -> list[str]:
    """Everything below a table but its log, relative to it."""
    found = (str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return sorted(name for name in found if not name.startswith("_delta_log/"))
