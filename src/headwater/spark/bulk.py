"""Many values to the JVM in one step: an Arrow table becomes rows there, and rows become objects.

Rows cross as one Arrow stream, which Spark turns into a local relation, as `createDataFrame` does. An
expression that constructs objects then runs over them on the JVM, so 100,000 files need a dozen py4j calls,
not a million.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from headwater.spark.jvm import JavaObject, jvm_of, stored_types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_UTILS = "org.apache.spark.sql.api.python.PythonSQLUtils"
_MAX_CHUNK_BYTES = 32 * 2**20
"""A local relation has a largest size, which is set to twice this in our own session."""


def rows(spark: SparkSession, table: pa.Table, schema_json: str) -> JavaObject:
    """The rows of an Arrow table as a Scala `Seq[InternalRow]`.

    Args:
        spark: a classic session.
        table: its column types are those that Spark itself would use for the schema.
        schema_json: the Spark schema of the table, as JSON.
    """
    session = _private_session(spark)
    schema_json = stored_types(schema_json)
    chunk_count = 1 + table.nbytes // _MAX_CHUNK_BYTES
    step = -(-table.num_rows // chunk_count) or 1
    result = None
    for start in range(0, table.num_rows or 1, step):
        chunk = _rows_of_one_chunk(spark, session, table.slice(start, step), schema_json)
        result = chunk if result is None else result.concat(chunk)
    return result


def _rows_of_one_chunk(spark: SparkSession, session: JavaObject, table: pa.Table, schema_json: str) -> JavaObject:
    import pyarrow as pa

    jvm = jvm_of(spark)
    descriptor, path = tempfile.mkstemp(prefix="headwater-", suffix=".arrow")
    try:
        with os.fdopen(descriptor, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        batches = jvm.call(_UTILS, "readArrowStreamFromFile", path)
    finally:
        os.unlink(path)
    plan = jvm.call(_UTILS, "toDataFrame", batches, schema_json, session).queryExecution().analyzed()
    return plan.data()


def _private_session(spark: SparkSession) -> JavaObject:
    """A session of our own on the same context: what users set in theirs must not change the transport."""
    context = spark.sparkContext
    session = getattr(context, "_headwater_session", None)
    if session is None:
        session = spark._jsparkSession.newSession()
        session.conf().set("spark.sql.execution.arrow.localRelationThreshold", f"{2 * _MAX_CHUNK_BYTES}b")
        context._headwater_session = session
    return session
