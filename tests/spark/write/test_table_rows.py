"""From a DataFrame to rows of a table: conversions lose nothing, missing values are filled in, rules are checked."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from headwater.errors import ConstraintViolationError, InvalidCommitError, SchemaMismatchError, ValueConversionError
from headwater.features.definition import TableDefinition
from headwater.log.actions.model import Metadata, Protocol
from headwater.log.configuration import TableConfiguration
from headwater.log.schema import StructType
from headwater.spark.errors import explained_violations
from headwater.spark.write.rows import TableRows, table_rows
from support.tables.delta_tables import field, struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ALL = ("invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults", "identityColumns", "timestampNtz")


def table(*fields: dict[str, Any], **properties: str) -> TableDefinition:
    configuration = {name.replace("__", "."): text for name, text in properties.items()}
    metadata = Metadata("id", json.dumps(struct_of(*fields)), configuration=configuration)
    return TableDefinition(TableConfiguration(Protocol(3, 7, ("timestampNtz",), ALL), metadata))


def conform(df: DataFrame, definition: TableDefinition) -> TableRows:
    return table_rows(df, StructType.from_spark(df.schema), definition, "t")


def collect(df: DataFrame, definition: TableDefinition) -> list[tuple[Any, ...]]:
    with explained_violations("t"):
        return [tuple(row) for row in conform(df, definition).frame.collect()]


# --- conversions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "type_", "expected"),
    [
        ("1Y", "long", 1),
        ("-128L", "byte", -128),
        ("9007199254740992L", "double", 9007199254740992.0),
        ("1.5D", "float", 1.5),
        ("0.1D", "float", pytest.approx(0.1)),
        ("double('Infinity')", "float", float("inf")),
        ("2.0D", "integer", 2),
        ("0.1D", "decimal(10,1)", Decimal("0.1")),
        ("1.230BD", "decimal(10,2)", Decimal("1.23")),
        ("5", "decimal(3,2)", Decimal("5.00")),
        ("DATE'2024-02-29'", "timestamp_ntz", datetime.datetime(2024, 2, 29)),
        ("TIMESTAMP_NTZ'2024-02-29 00:00:00'", "date", datetime.date(2024, 2, 29)),
        ("17", "string", "17"),
        ("NULL", "integer", None),
        ("CAST(NULL AS BIGINT)", "byte", None),
        ("array(1L, NULL)", {"type": "array", "elementType": "byte", "containsNull": True}, [1, None]),
        (
            "map(1, 2L)",
            {"type": "map", "keyType": "long", "valueType": "short", "valueContainsNull": True},
            {1: 2},
        ),
    ],
)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_values_are_converted(spark: SparkSession, sql: str, type_: Any, expected: Any, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        assert collect(spark.sql(f"SELECT {sql} AS V"), table(field("v", type_))) == [(expected,)]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize(
    ("sql", "type_"),
    [
        ("128L", "byte"),
        ("9007199254740993L", "double"),
        ("16777217", "float"),
        ("1e300D", "float"),
        ("1.5D", "integer"),
        ("double('NaN')", "integer"),
        ("1.234BD", "decimal(10,2)"),
        ("100", "decimal(4,2)"),
        ("9223372036854775808BD", "long"),
        ("TIMESTAMP_NTZ'2024-02-29 00:00:01'", "date"),
        ("array(1L, 128L)", {"type": "array", "elementType": "byte", "containsNull": True}),
    ],
)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_values_that_would_change_are_refused(spark: SparkSession, sql: str, type_: Any, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(ValueConversionError, match="cannot be kept in column v"):
            collect(spark.sql(f"SELECT {sql} AS v"), table(field("v", type_)))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_structs_are_put_together_by_name(spark: SparkSession) -> None:
    inner = struct_of(field("a", "long"), field("b", "string"), field("c", "integer"))
    frame = spark.sql("SELECT named_struct('B', 'x', 'a', 1) AS s UNION ALL SELECT NULL")
    assert set(collect(frame, table(field("s", inner)))) == {((1, "x", None),), (None,)}


def test_names_with_dots_and_backticks(spark: SparkSession) -> None:
    inner = struct_of(field("x.y", "long"))
    frame = spark.sql("SELECT 1 AS `a.b`, 2 AS `c``d`, named_struct('x.y', 3) AS s")
    definition = table(field("a.b", "long"), field("c`d", "long", nullable=False), field("s", inner))
    assert collect(frame, definition) == [(1, 2, (3,))]


def test_data_that_does_not_fit_is_refused_before_any_job(spark: SparkSession) -> None:
    with pytest.raises(SchemaMismatchError, match="string cannot be stored as bigint"):
        conform(spark.sql("SELECT 'x' AS id"), table(field("id", "long")))


# --- lengths ----------------------------------------------------------------------------------------------


def test_char_is_padded_and_varchar_is_not(spark: SparkSession) -> None:
    definition = table(
        field("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)"),
        field("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)"),
        field(
            "a",
            {"type": "array", "elementType": "string", "containsNull": True},
            __CHAR_VARCHAR_TYPE_STRING="array<char(2)>",
        ),
    )
    frame = spark.sql("SELECT 'a' AS c, 'ab   ' AS v, array('x', NULL, 'yz ') AS a")
    assert collect(frame, definition) == [("a  ", "ab ", ["x ", None, "yz"])]


@pytest.mark.parametrize("declared", ["char(3)", "varchar(3)"])
def test_text_that_is_too_long_is_refused(spark: SparkSession, declared: str) -> None:
    definition = table(field("c", "string", __CHAR_VARCHAR_TYPE_STRING=declared))
    with pytest.raises(ConstraintViolationError, match=r"too long for column c, which is .*c = äbcd"):
        collect(spark.sql("SELECT 'äbcd' AS c"), definition)


# --- nulls ------------------------------------------------------------------------------------------------


NOT_NULL = [
    (field("a", "long", nullable=False), "CAST(NULL AS BIGINT)", "a"),
    (field("a", struct_of(field("b", "long", nullable=False))), "named_struct('b', CAST(NULL AS BIGINT))", "a.b"),
    (
        field("a", {"type": "array", "elementType": "long", "containsNull": False}),
        "array(1L, NULL)",
        "a.element",
    ),
    (
        field("a", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}),
        "map('k', CAST(NULL AS BIGINT))",
        "a.value",
    ),
    (
        field(
            "a", {"type": "array", "elementType": struct_of(field("b", "long", nullable=False)), "containsNull": True}
        ),
        "array(named_struct('b', CAST(NULL AS BIGINT)))",
        "a.element.b",
    ),
]


@pytest.mark.parametrize(("column", "sql", "path"), NOT_NULL)
def test_nulls_are_found_at_every_level(spark: SparkSession, column: dict[str, Any], sql: str, path: str) -> None:
    definition = table(field("id", "long"), column)
    with pytest.raises(ConstraintViolationError, match=rf"column {path} is NOT NULL.*id = 7"):
        collect(spark.sql(f"SELECT 7 AS id, {sql} AS a"), definition)


def test_nothing_is_missing_inside_of_what_is_null(spark: SparkSession) -> None:
    nullable_parents = [column for column, _, _ in NOT_NULL[1:]]
    for column in nullable_parents:
        definition = table(field("id", "long"), column)
        assert collect(spark.sql("SELECT 7 AS id, NULL AS a"), definition) == [(7, None)]


# --- CHECK and invariants -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "NULL"])
def test_a_check_must_be_true(spark: SparkSession, value: str) -> None:
    definition = table(field("id", "long"), field("x", "long"), delta__constraints__positive="X > 0")
    assert collect(spark.sql("SELECT 1 AS id, 1 AS x"), definition) == [(1, 1)]
    with pytest.raises(ConstraintViolationError, match=rf"CHECK constraint positive \(X > 0\).*x = {value}\."):
        collect(spark.sql(f"SELECT 1 AS id, {value} AS x"), definition)


def test_invariants_must_be_true(spark: SparkSession) -> None:
    invariant = {"delta.invariants": json.dumps({"expression": {"expression": "x > 3"}})}
    definition = table(field("x", "integer", **invariant))
    with pytest.raises(ConstraintViolationError, match=r"invariant of column x \(x > 3\)"):
        collect(spark.sql("SELECT 3 AS x"), definition)


def test_rules_count_only_where_the_protocol_supports_them(spark: SparkSession) -> None:
    definition = table(field("x", "integer"), delta__constraints__c="x > 3")
    old = TableDefinition(TableConfiguration(Protocol(1, 2), definition.metadata))
    assert collect(spark.sql("SELECT 1 AS x"), old) == [(1,)]


def test_rules_look_at_the_rows_that_are_written_and_at_no_others(spark: SparkSession) -> None:
    # A filter that checks would be pushed below the join, to rows that the join leaves out.
    left = spark.range(10).selectExpr("id", "id - 5 AS x")
    right = spark.range(8, 10)
    definition = table(field("id", "long"), field("x", "long"), delta__constraints__c="x > 0")
    assert len(collect(left.join(right, "id"), definition)) == 2


@pytest.mark.parametrize(
    "definition",
    [
        table(field("id", "long"), delta__constraints__c="nothing > 0"),
        table(field("id", "long"), field("g", "long", **{"delta.generationExpression": "nothing"})),
        table(field("id", "long"), field("d", "long", CURRENT_DEFAULT="nothing(")),
    ],
)
def test_expressions_that_spark_does_not_understand(spark: SparkSession, definition: TableDefinition) -> None:
    with pytest.raises(InvalidCommitError, match=r"cannot be evaluated.*nothing"):
        conform(spark.sql("SELECT 1 AS id"), definition)


# --- generated, default, identity ---------------------------------------------------------------------------


GENERATED = (field("at", "timestamp"), field("day", "date", **{"delta.generationExpression": "CAST(at AS DATE)"}))


def test_generated_columns_are_computed(spark: SparkSession) -> None:
    frame = spark.sql("SELECT TIMESTAMP'2024-01-31 12:00:00Z' AS at")
    assert collect(frame, table(*GENERATED))[0][1] == datetime.date(2024, 1, 31)


def test_generated_columns_that_are_given_must_be_right(spark: SparkSession) -> None:
    right = spark.sql("SELECT TIMESTAMP'2024-01-31 12:00:00Z' AS at, DATE'2024-01-31' AS day")
    assert len(collect(right, table(*GENERATED))) == 1
    for wrong in ("DATE'2024-01-30'", "NULL"):
        frame = spark.sql(f"SELECT TIMESTAMP'2024-01-31 12:00:00Z' AS at, {wrong} AS day")
        with pytest.raises(ConstraintViolationError, match=r"generated as \(CAST\(at AS DATE\)\)"):
            collect(frame, table(*GENERATED))


def test_defaults_are_for_columns_that_are_missing_not_for_nulls(spark: SparkSession) -> None:
    definition = table(field("id", "long"), field("x", "string", CURRENT_DEFAULT="'none'"))
    assert collect(spark.sql("SELECT 1 AS id"), definition) == [(1, "none")]
    assert collect(spark.sql("SELECT 1 AS id, NULL AS x"), definition) == [(1, None)]


def identity(step: int, explicit: bool = False, **more: int) -> dict[str, Any]:
    metadata = {"delta.identity.start": 1, "delta.identity.step": step, "delta.identity.allowExplicitInsert": explicit}
    return field("id", "long", nullable=False, **metadata, **{f"delta.identity.{k}": v for k, v in more.items()})


@pytest.mark.parametrize("step", [1, -3, 1000])
def test_identity_values_are_unique_and_in_the_series(spark: SparkSession, step: int) -> None:
    definition = table(identity(step), field("x", "long"))
    rows = conform(spark.range(0, 1000, 1, 7).withColumnRenamed("id", "x"), definition)
    values = [row.id for row in rows.frame.collect()]
    assert len(set(values)) == 1000
    assert all((value - 1) % step == 0 and (value - 1) // step >= 0 for value in values)
    assert rows.identities.keys() == {"id"}


def test_one_task_counts_without_gaps_from_the_mark(spark: SparkSession) -> None:
    definition = table(identity(2, highWaterMark=6), field("x", "long"))
    rows = conform(spark.range(0, 4, 1, 1).withColumnRenamed("id", "x"), definition)
    assert [row.id for row in rows.frame.collect()] == [7, 9, 11, 13]


def test_values_for_an_identity_column_are_refused_unless_allowed(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 5 AS ID, 6 AS x")
    with pytest.raises(ConstraintViolationError, match="GENERATED ALWAYS AS IDENTITY"):
        conform(frame, table(identity(1), field("x", "long")))
    assert collect(frame, table(identity(1, explicit=True), field("x", "long"))) == [(5, 6)]


def test_identity_values_that_do_not_fit_a_long(spark: SparkSession) -> None:
    frame = spark.range(0, 3, 1, 1).withColumnRenamed("id", "x")
    almost = table(identity(1, highWaterMark=2**63 - 3), field("x", "long"))
    with pytest.raises(ConstraintViolationError, match="run out of values"):
        collect(frame, almost)
    with pytest.raises(ConstraintViolationError, match="no value left"):
        conform(frame, table(identity(1, highWaterMark=2**63 - 1), field("x", "long")))
    assert [row[0] for row in collect(frame.limit(2), almost)] == [2**63 - 2, 2**63 - 1]
