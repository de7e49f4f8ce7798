"""A few tables of the conformance corpus that have, together, every feature of all of them; and rows of any session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from support.corpus import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Entry = dict[str, Any]


def sample(*without: str) -> list[Entry]:
    """Tables that cover all features: again and again the one with most of those that are still missing.

    Args:
        without: features that no table of the sample may have.
    """
    readable = [
        t
        for t in tables()
        if t["expect"] == "ok"
        and t.get("data_files") != "absent"
        and not t.get("slow")
        and not t.get("setup")
        and not set(without) & set(t["features"])
    ]
    missing = {feature for t in readable for feature in t["features"]}
    chosen: list[Entry] = []
    while missing:
        best = max(readable, key=lambda t: len(missing & set(t["features"])))
        chosen.append(best)
        missing -= set(best["features"])
    return chosen


def to_arrow(frame: DataFrame, functions: Any) -> pa.Table:
    """The rows; a variant as its JSON text with sorted keys, which is how the manifest hashes it.

    Args:
        frame: of a classic session, or of Spark Connect.
        functions: the module of column functions for that kind of session.
    """
    columns, variants = [], []
    for position, field in enumerate(frame.schema.fields):
        column = functions.col("`" + field.name.replace("`", "``") + "`")
        if field.dataType.typeName() == "variant":
            variants.append(position)
            column = functions.to_json(column)
        elif "variant" in field.dataType.simpleString():
            column = column.cast(field.dataType.simpleString().replace("variant", "string"))
        columns.append(column.alias(field.name))
    table = frame.select(*columns).toArrow()
    for position in variants:
        texts = [None if text is None else json.loads(text) for text in table.column(position).to_pylist()]
        rows = [None if t is None else json.dumps(t, sort_keys=True, separators=(",", ":")) for t in texts]
        table = table.set_column(position, table.schema.names[position], pa.array(rows, pa.string()))
    return table
