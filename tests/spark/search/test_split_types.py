"""Every type that Spark gives in Arrow goes through a split and comes back as it was, whatever the settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headwater.log.schema import StructType
from headwater.search.choices import index_config
from headwater.search.config import IndexConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VALUES = """
    select 1Y byte, 2S short, 3 int, 4L long, float('nan') float, -0.0D double, true boolean, 'x' string,
        X'00FF' binary, date'0001-01-01' date, timestamp'2024-01-02 03:04:05.123456' timestamp,
        timestamp_ntz'2024-01-02 03:04:05.123456' ntz, 12345678901234567890123456.123456789012BD decimal,
        interval '1 02:03:04.123456' day to second took, parse_json('{"a":[1,"x"]}') variant,
        array(named_struct('t', timestamp'2024-01-01 00:00:00', 'm', map('k', 1.5BD))) nested, null void
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
"""


Batches = Iterator[pa.RecordBatch]
Mapped = Callable[[Batches], Batches]


def writing(doc_mapping: str, schema_json: str, directory: str) -> Mapped:
    def write(batches: Batches) -> Batches:  # inside, because workers cannot import a test
        from headwater.search.split.build import SplitWriter

        with SplitWriter(IndexConfig.from_json(doc_mapping), StructType.from_json(schema_json), directory) as writer:
            for batch in batches:
                writer.add(batch)
            yield pa.record_batch({"key": [os.path.basename(writer.finish().path)]})

    return write


def reading(directory: str) -> Mapped:
    def read(batches: Batches) -> Batches:
        from headwater.search.split.cache import SplitCache
        from headwater.search.split.reader import Split
        from headwater.storage import LocalStore

        for batch in batches:
            for key in batch.column("key").to_pylist():
                yield from Split.open(LocalStore(directory), key, cache=SplitCache(f"{directory}/cache")).iter_rows()

    return read


@pytest.mark.parametrize("large", [False, True])
def test_every_type_comes_back_from_a_split(spark: SparkSession, tmp_path: Path, large: bool) -> None:
    before = {name: spark.conf.get(name) for name in ("spark.sql.session.timeZone",)}
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", str(large).lower())
    try:
        frame = spark.sql(VALUES).coalesce(1)
        schema = StructType.from_spark(frame.schema)
        mapping = index_config(schema).to_json()
        built = frame.mapInArrow(writing(mapping, schema.to_json(), str(tmp_path)), "key string")
        keys = spark.createDataFrame(built.collect(), "key string")

        back = keys.mapInArrow(reading(str(tmp_path)), frame.schema)

        assert sorted(map(str, back.collect())) == sorted(map(str, frame.collect()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before["spark.sql.session.timeZone"])
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
