"""Which types fit into which columns: nothing that Spark's own rules would refuse, and nothing that loses values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    DataType,
    DecimalType,
    PrimitiveType,
)
from headwater.spark.write.schema import Fit, fit, spark_type, widens

ATOMIC: list[DataType] = [BINARY, BOOLEAN, BYTE, DATE, DOUBLE, FLOAT, INTEGER, LONG, SHORT, STRING, TIMESTAMP]
ATOMIC += [TIMESTAMP_NTZ, DecimalType(3, 0), DecimalType(10, 2), DecimalType(20, 0), DecimalType(38, 18)]


@pytest.mark.parametrize(
    ("data", "table", "expected"),
    [
        (INTEGER, INTEGER, Fit.SAME),
        (STRING, PrimitiveType("varchar(3)"), Fit.SAME),
        (BYTE, SHORT, Fit.SAFE),
        (INTEGER, LONG, Fit.SAFE),
        (LONG, INTEGER, Fit.EXACT),
        (FLOAT, DOUBLE, Fit.SAFE),
        (DOUBLE, FLOAT, Fit.ROUNDED),
        (INTEGER, DOUBLE, Fit.SAFE),
        (LONG, DOUBLE, Fit.EXACT),
        (INTEGER, FLOAT, Fit.EXACT),
        (INTEGER, DecimalType(10, 0), Fit.SAFE),
        (INTEGER, DecimalType(10, 2), Fit.EXACT),
        (DecimalType(10, 2), DecimalType(12, 2), Fit.SAFE),
        (DecimalType(10, 2), DecimalType(10, 3), Fit.EXACT),
        (DecimalType(10, 2), LONG, Fit.EXACT),
        (DOUBLE, LONG, Fit.EXACT),
        (DATE, TIMESTAMP, Fit.SAFE),
        (DATE, TIMESTAMP_NTZ, Fit.SAFE),
        (TIMESTAMP, DATE, Fit.EXACT),
        (LONG, STRING, Fit.SAFE),
        (VOID, LONG, Fit.SAFE),
        (STRING, LONG, None),
        (BOOLEAN, INTEGER, None),
        (BINARY, STRING, None),
        (VARIANT, STRING, None),
        (LONG, TIMESTAMP, None),
    ],
)
def test_how_a_type_fits(data: DataType, table: DataType, expected: Fit | None) -> None:
    assert fit(data, table) == expected


@pytest.mark.parametrize(
    ("table", "data", "expected"),
    [
        (BYTE, LONG, True),
        (INTEGER, LONG, True),
        (LONG, INTEGER, False),
        (FLOAT, DOUBLE, True),
        (DATE, TIMESTAMP_NTZ, True),
        (DATE, TIMESTAMP, False),
        (DecimalType(5, 2), DecimalType(7, 3), True),
        (DecimalType(5, 2), DecimalType(5, 3), False),
        (INTEGER, DOUBLE, False),
    ],
)
def test_which_types_a_column_widens_to(table: DataType, data: DataType, expected: bool) -> None:
    assert widens(table, data) is expected


@pytest.mark.spark
def test_nothing_fits_that_spark_itself_would_refuse(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    cast = getattr(jvm.org.apache.spark.sql.catalyst.expressions, "Cast$")
    cast = getattr(cast, "MODULE$")

    def java(type_: DataType) -> Any:
        return jvm.org.apache.spark.sql.types.DataType.fromJson(spark_type(type_).json())

    accepted = [(a, b) for a, b in itertools.product(ATOMIC, ATOMIC) if fit(a, b) is not None]
    assert len(accepted) > 80
    refused = [(str(a), str(b)) for a, b in accepted if not cast.canANSIStoreAssign(java(a), java(b))]
    assert refused == []
