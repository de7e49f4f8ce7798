"""Tables that name a feature for writers alone, as real ones do: what the feature means for readers holds as well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from support.tables.delta_tables import DeltaTable, field, inline_vector, mapped

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MAPPED = [mapped("id", "long", "col-1", 1), mapped("name", "string", "col-2", 2)]
BY_NAME = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
PROTOCOLS: list[dict[str, Any]] = [
    {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["columnMapping"]},
    {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["columnMapping"]},
    {"minReaderVersion": 2, "minWriterVersion": 5},
    {"minReaderVersion": 1, "minWriterVersion": 5},
    {"minReaderVersion": 1, "minWriterVersion": 6},
]


def table_under(path: Path, protocol: dict[str, Any], *fields: dict[str, Any], **options: Any) -> DeltaTable:
    table = DeltaTable(path, *fields, **options)
    first = path / "_delta_log" / f"{0:020d}.json"
    first.write_text("\n".join(map(json.dumps, ({"protocol": protocol}, {"metaData": table.metadata}))))
    return table


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: f"{p['minReaderVersion']}-{p['minWriterVersion']}")
def test_columns_are_found_by_their_physical_names(
    spark: SparkSession, tmp_path: Path, protocol: dict[str, Any]
) -> None:
    table = table_under(tmp_path / "t", protocol, *MAPPED, configuration=BY_NAME)
    table.append(pa.table({"col-1": [1, 2, 3], "col-2": ["a", "b", "c"]}))
    table.append(pa.table({"col-1": [4], "col-2": ["d"]}))

    def rows() -> dict[int, str]:
        return {row.id: row.name for row in hw.read(spark, table.path).collect()}

    assert rows() == {1: "a", 2: "b", 3: "c", 4: "d"}
    assert hw.read(spark, table.path, where="id = 4").select("name").collect() == [("d",)]
    ours = hw.DeltaTable.forPath(spark, table.path)
    ours.update("id = 2", {"name": "'B'"})
    ours.delete("id = 1")
    ours.optimize().executeCompaction()
    assert rows() == {2: "B", 3: "c", 4: "d"}
    hw.write(spark.createDataFrame([(5, "e")], "id bigint, name string"), table.path, mode="append")
    assert rows() == {2: "B", 3: "c", 4: "d", 5: "e"}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: f"{p['minReaderVersion']}-{p['minWriterVersion']}")
def test_who_changes_the_table_tells_readers_too(spark: SparkSession, tmp_path: Path, protocol: dict[str, Any]) -> None:
    """Then those find the columns that go by the reader version and the readers' list alone."""
    table = table_under(tmp_path / "t", protocol, *MAPPED, configuration=BY_NAME)
    table.append(pa.table({"col-1": [1], "col-2": ["a"]}))
    hw.DeltaTable.forPath(spark, table.path).renameColumn("name", "title")
    after = hw.open_log(table.path).protocol
    assert after.min_reader_version == 2 or after.reader_features == ("columnMapping",)
    assert hw.read(spark, table.path).collect() == [(1, "a")]


def test_rows_that_a_vector_deletes_stay_deleted(spark: SparkSession, tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}
    table = table_under(tmp_path / "t", {**protocol, "writerFeatures": ["deletionVectors"]}, field("id", "long"))
    table.append(pa.table({"id": [1, 2, 3]}), deletionVector=inline_vector([1]))
    assert sorted(hw.read(spark, table.path).collect()) == [(1,), (3,)]
    hw.DeltaTable.forPath(spark, table.path).delete("id = 3")
    assert hw.read(spark, table.path).collect() == [(1,)]
