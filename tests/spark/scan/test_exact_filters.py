"""Partition filters that Arrow evaluates: the same rows as Spark's own evaluation, value by value, nulls included."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.log.filters.expressions import Compare, Constant, Expression, In, Literal, Not, Or, Unknown, column
from headwater.spark.scan import file_index
from headwater.spark.scan.catalyst import exact_rows
from headwater.spark.scan.read import read
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

VALUES: dict[str, list[str | None]] = {
    "byte": ["-128", "0", "1", "127", None],
    "integer": ["-2147483648", "-1", "0", "1", "2147483647", None],
    "long": ["-9223372036854775808", "0", "1", "9223372036854775807", None],
    "date": ["0001-01-01", "1582-10-04", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31", None],
    "string": ["a", "B", "ab", "a b", "ä", "z", "😀", "\uffff", "1", None],
    "boolean": ["true", "false", None],
    "double": ["NaN", "-0.0", "0.0", "1.5", None],
    "decimal(10,2)": ["1.00", "-1.50", None],
}
LITERALS = {
    "byte": ["1", "300"],
    "integer": ["1", "-2147483648", "5000000000"],
    "long": ["1", "9223372036854775807", "-9223372036854775808"],
    "date": ["date'1970-01-01'", "date'1582-10-04'"],
    "string": ["'a'", "'ä'", "'\uffff'", "''", "'😀'"],
    "boolean": ["true"],
    "double": ["0.0D", "double('NaN')"],
    "decimal(10,2)": ["1.0"],
}


def conditions(type_: str) -> list[str]:
    found = ["p is null", "p is not null", "p is null or p is not null"]
    for literal in LITERALS[type_]:
        found += [f"p {op} {literal}" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
        found += [f"not (p > {literal})", f"not (p <=> {literal})", f"p = {literal} or p is null"]
    several = ", ".join(LITERALS[type_])
    found += [f"p in ({several})", f"p not in ({several})", f"p in ({several}) and p > {LITERALS[type_][0]}"]
    if type_ == "string":
        found += ["p like 'a%'", "not (p like 'a%')", "startswith(p, '')"]
    return found


@pytest.mark.spark
@pytest.mark.parametrize("type_", VALUES)
def test_files_are_those_that_spark_itself_would_keep(
    spark: SparkSession, tmp_path: Path, type_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable(tmp_path / "t", field("id", "long"), field("p", type_), partition_columns=("p",))
    files = [
        table.file(pa.table({"id": pa.array([n], pa.int64())}), partitionValues={"p": text})
        for n, text in enumerate(VALUES[type_])
    ]
    table.commit(*files)
    by_arrow = read(spark, table.path)
    found = {sql: _ids(by_arrow.where(sql)) for sql in conditions(type_)}
    monkeypatch.setattr(file_index, "exact_rows", lambda *_: None)
    by_spark = read(spark, table.path)
    for sql, ids in found.items():
        assert ids == _ids(by_spark.where(sql)), sql


def _ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


@pytest.mark.parametrize(
    "condition",
    [
        Unknown("upper(n) = 'A'"),
        Or((Compare("=", column("n"), Literal(1)), Unknown("f(n)"))),
        Not(Unknown("f(n)")),
        Compare("=", column("n"), column("n")),
        Or((Compare("=", column("n"), Literal(1)), Not(Compare("<=>", column("n"), column("s"))))),
        Constant(None),
        Compare("=", column("n"), Literal(Decimal(1))),
        Compare("=", column("n"), Literal(True)),
        Compare("=", column("n"), Literal(None)),
        Compare("=", column("f"), Literal(1.0)),
        Compare("=", column("d"), Literal(datetime.datetime(2024, 1, 1))),
        Compare("=", column("s"), Literal("\ufffd")),
        In(column("n"), (Literal(1), Literal(None))),
        In(column("n"), ()),
        Compare("=", column("elsewhere"), Literal(1)),
    ],
    ids=str,
)
def test_what_is_not_certain_is_left_to_spark(condition: Expression) -> None:
    day = datetime.date(2024, 1, 1)
    rows = pa.table({"n": [1, None], "f": [1.0, None], "d": [day, None], "s": ["a", None]})
    names = {column(name): name for name in rows.schema.names}
    assert exact_rows(rows, condition, names) is None
