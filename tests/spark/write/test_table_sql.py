"""SQL that a table brings along is evaluated only if it is a value computed from the row by Spark's own functions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

import headwater as hw
from headwater.errors import ConstraintViolationError, HeadwaterError, InvalidCommitError, UntrustedExpressionError
from headwater.log.schema import LONG, STRING, StructField, StructType
from headwater.spark.jvm import jvm_of
from headwater.spark.write.table_sql import (
    ROW_FUNCTIONS,
    SESSION_FUNCTIONS,
    TRUSTED_TABLES,
    TableSql,
    check_size,
    check_texts,
    check_words,
)
from support.tables.delta_tables import DeltaTable, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CANARY = "headwater.test.canary"
CALL = f"reflect('java.lang.System', 'setProperty', '{CANARY}', 'sung') IS NULL"
HOSTILE = [
    CALL,
    f"java_method('java.lang.System', 'setProperty', '{CANARY}', 'sung') IS NULL",
    f"try_reflect('java.lang.System', 'setProperty', '{CANARY}', 'sung') IS NULL",
    f"`reflect`('java.lang.System', 'setProperty', '{CANARY}', 'sung') IS NULL",
    f"IDENTIFIER('refl' || 'ect')('java.lang.System', 'setProperty', '{CANARY}', 'sung') IS NULL",
    f"exists(array(1), x -> {CALL})",
    f"'\\'' = s OR {CALL} OR s = ''",
    f"r'\\' = s OR {CALL} OR s = ''",
    "only_here(id) = 1",
    "EXISTS (SELECT * FROM range(3))",
    "id IN (SELECT id FROM range(3))",
    "(SELECT count(*) FROM text.`/etc/hostname`) > 0",
    "id = (TABLE somewhere)",
    "id IN (VALUES 1, 2)",
    "id = (FROM somewhere SELECT id)",
    "(WITH a AS (SELECT 1) SELECT * FROM a) = 1",
    "some_variable = 1",
    "session.some_variable = 1",
    "spark_catalog.default.f(id) = 1",
    "system.session.only_here(id) = 1",
    "s <> '${env:PATH}'",
    "s <> '${spark.app.name}'",
    "s <> input_file_name()",
    "rand() < 2",
    "uuid() <> s",
    "monotonically_increasing_id() >= 0",
    "spark_partition_id() >= 0",
    "raise_error('nothing works') IS NULL",
    "xpath_string(s, 'a') IS NULL",
    "from_xml(s, 'a INT') IS NULL",
    "from_protobuf(s, 'M', '/etc/passwd') IS NULL",
    "max(id) > 0",
    "sum(id) OVER () > 0",
    "explode(array(true))",
    "(" * 5_000 + "true" + ")" * 5_000,
    "id > 0 OR " * 10_000 + "true",
]
HARMLESS = [
    "id > 0",
    "abs(id) + 1 > 0 AND s NOT LIKE 'b(%'",
    "s RLIKE '^[a-z(]+$' OR s IS NULL OR s NOT IN ('x(', 'it\\'s (')",
    "exists(array(id), x -> x >= 0)",
    "aggregate(array(id), 0L, (sum, x) -> sum + x) >= 0",
    "CASE WHEN id > 1 THEN 'a' ELSE 'b' END <> ''",
    "length(trim(BOTH 'x' FROM s)) BETWEEN 0 AND 100 OR s IS NULL",
    "CAST(id AS DECIMAL(10, 2)) >= 0",
    "id::int >= 0",
    "EXTRACT(YEAR FROM TIMESTAMP'2024-01-31 00:00:00') = 2024",
    "DATE'2024-01-31' < current_date()",
    "timestamp'2024-01-31' + INTERVAL 1 DAY <= current_timestamp()",
    "named_struct('a', id).a >= 0",
    "map('a', id)['a'] >= 0",
    "get_json_object('{}', '$.a') IS NULL",
    "NOT (id < 0)",
    "`id` >= 0",
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.fixture(autouse=True)
def canary(spark: SparkSession) -> Iterator[Callable[[], bool]]:
    """Whether a hostile text was evaluated: it leaves a trace in the JVM."""
    system = spark._jvm.java.lang.System
    system.clearProperty(CANARY)
    spark.udf.register("only_here", lambda x: x, "long")
    spark.sql("DECLARE OR REPLACE VARIABLE some_variable INT DEFAULT 1")
    yield lambda: system.getProperty(CANARY) is not None
    assert system.getProperty(CANARY) is None, "nothing but a test that trusts a table evaluates hostile SQL"


def hostile_table(path: str, how: str, expression: str) -> DeltaTable:
    """A table of `id`, `s` and `extra` whose log holds an expression."""
    extra: dict[str, Any] = {}
    invariant: dict[str, str] = {}
    configuration = {}
    features = ("checkConstraints", "invariants", "generatedColumns", "allowColumnDefaults")
    match how:
        case "CHECK":
            configuration = {"delta.constraints.trap": expression}
        case "invariant":
            invariant = {"delta.invariants": json.dumps({"expression": {"expression": expression}})}
        case "generated":
            extra = {"delta.generationExpression": expression}
        case "default":
            extra = {"CURRENT_DEFAULT": expression}
    return DeltaTable(
        Path(path),
        field("id", "long", **invariant),
        field("s", "string"),
        field("extra", "boolean", **extra),
        configuration=configuration,
        writer_features=features,
    )


NAMED = {
    "CHECK": "CHECK constraint trap",
    "invariant": "the invariant of column id",
    "generated": "the generated column extra",
    "default": "the default of column extra",
}


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", HOSTILE, ids=lambda text: text[:40])
def test_hostile_expressions_are_not_evaluated(spark: SparkSession, path: str, expression: str) -> None:
    hostile_table(path, "CHECK", expression)
    with pytest.raises(InvalidCommitError, match="CHECK constraint trap") as raised:
        hw.write(spark.range(1).selectExpr("id", "'x' AS s"), path, mode="append")
    assert path in str(raised.value)
    assert hw.open_log(path).version == 0


@pytest.mark.parametrize("how", NAMED)
def test_every_kind_of_text_is_looked_at_by_every_writer(spark: SparkSession, path: str, how: str) -> None:
    table = hostile_table(path, how, CALL)
    source = spark.range(1).selectExpr("id", "'x' AS s")
    target = hw.DeltaTable.forPath(spark, path).alias("t")
    writes: list[Callable[[], object]] = [
        lambda: hw.write(source, path, mode="append"),
        lambda: hw.write(source, path, mode="overwrite", replace_where="id >= 0"),
        lambda: target.update(set={"s": "'y'"}),
        lambda: target.merge(source.alias("n"), "t.id = n.id").whenMatchedUpdate(set={"s": "n.s"}).execute(),
        lambda: target.merge(source.alias("n"), "t.id = n.id").whenNotMatchedInsert(values={"id": "n.id"}).execute(),
    ]
    for write in writes:
        with pytest.raises(UntrustedExpressionError, match=f"{NAMED[how]}.*calls reflect.*{TRUSTED_TABLES}"):
            write()
    assert hw.open_log(path).version == table.version


def test_a_function_of_the_session_under_a_built_in_name_is_not_called(spark: SparkSession, path: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.functionResolution.sessionOrder", "first")
    session.udf.register("abs", lambda _: 7, "long")
    if session.sql("SELECT abs(-1L)").first()[0] != 7:
        pytest.skip("this Spark always takes the built-in function")
    hostile_table(path, "CHECK", "abs(id) >= 0")
    with pytest.raises(UntrustedExpressionError, match="CHECK constraint trap"):
        hw.write(session.range(1), path, mode="append")


def test_a_default_sees_no_column_of_the_data(spark: SparkSession, path: str) -> None:
    hostile_table(path, "default", "id = 0")
    with pytest.raises(InvalidCommitError, match="the default of column extra"):
        hw.write(spark.range(1), path, mode="append")


@pytest.mark.parametrize("expression", ["reflect('a', 'b') = 'c'", "only_here(id) = 1", "id > (SELECT 1)"])
def test_such_texts_cannot_be_added_either(spark: SparkSession, path: str, expression: str) -> None:
    hw.write(spark.range(1), path)
    table = hw.DeltaTable.forPath(spark, path)
    table.addFeatureSupport("allowColumnDefaults")
    spark.conf.set(TRUSTED_TABLES, path)
    try:
        with pytest.raises(InvalidCommitError, match="constraint c"):
            table.addConstraint("c", expression)
        with pytest.raises(InvalidCommitError, match="default of column id"):
            table.setDefault("id", expression)
        builder = hw.DeltaTable.create(spark).location(path + "2").addColumn("id", "BIGINT")
        with pytest.raises(InvalidCommitError, match="generated column g"):
            builder.addColumn("g", "BOOLEAN", generatedAlwaysAs=expression).execute()
        builder = hw.DeltaTable.create(spark).location(path + "2").addColumn("id", "BIGINT")
        with pytest.raises(InvalidCommitError, match="constraint c"):
            builder.property("delta.constraints.c", expression).execute()
        builder = hw.DeltaTable.create(spark).location(path + "2").addColumn("id", "BIGINT")
        with pytest.raises(InvalidCommitError, match="default of column d"):
            builder.addColumns([T.StructField("d", T.BooleanType(), True, {"CURRENT_DEFAULT": expression})]).execute()
    finally:
        spark.conf.unset(TRUSTED_TABLES)
    with pytest.raises(InvalidCommitError, match="constraint c"):
        hw.write(spark.range(1), path + "3", properties={"delta.constraints.c": expression})
    with pytest.raises(hw.TableNotFoundError):
        hw.open_log(path + "3")


# --- what is evaluated --------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", HARMLESS)
def test_values_computed_from_the_row_are_fine(spark: SparkSession, path: str, expression: str) -> None:
    hostile_table(path, "CHECK", expression)
    hw.write(spark.range(1, 3).selectExpr("id", "'ab' AS s"), path, mode="append")
    assert hw.read(spark, path).count() == 2


def test_a_user_can_trust_one_table(spark: SparkSession, path: str, canary: Callable[[], bool]) -> None:
    hostile_table(path, "CHECK", f"length(coalesce({CALL.removesuffix(' IS NULL')}, '')) >= 0")
    other = path + "2"
    hostile_table(other, "CHECK", CALL)
    spark.conf.set(TRUSTED_TABLES, f"s3://elsewhere/t, file://{path}")
    try:
        hw.write(spark.range(1), path, mode="append")
        with pytest.raises(UntrustedExpressionError):
            hw.write(spark.range(1), other, mode="append")
    finally:
        spark.conf.unset(TRUSTED_TABLES)
    assert canary()
    spark._jvm.java.lang.System.clearProperty(CANARY)


def test_rules_still_hold(spark: SparkSession, path: str) -> None:
    hostile_table(path, "CHECK", "id < upper('1')")
    with pytest.raises(ConstraintViolationError, match="trap"):
        hw.write(spark.range(5, 6), path, mode="append")


def test_the_allow_list_holds_no_function_that_does_more(spark: SparkSession) -> None:
    """Given Spark's own registry, the classes behind the names are harmless; of those that are not, none is listed."""
    rows = spark.sql("SHOW SYSTEM FUNCTIONS").collect()
    known = {row[0] for row in rows}
    listed = ROW_FUNCTIONS | SESSION_FUNCTIONS
    assert not listed - known - {"timestampadd", "timestampdiff", "try_cast"}
    registry = spark._jsparkSession.sessionState().catalog()
    words = ("reflect", "avro", "protobuf", "xml", "xpath", "rand", "uuid", "file", "udf", "worker", "raise", "assert")
    for name in sorted(listed & known - {"case", "cast", "between", "in", "when"}):
        info = registry.lookupBuiltinOrTempFunction(name)
        if info.isDefined():
            described = f"{name} {info.get().getClassName()}".lower()
            assert not any(word in described for word in words), described
            assert info.get().getGroup() not in ("agg_funcs", "window_funcs", "generator_funcs", "table_funcs"), name


# --- reading ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        {"EXISTS_DEFAULT": "reflect('java.lang.System', 'exit')"},
        {"EXISTS_DEFAULT": "(SELECT 1)"},
        {"EXISTS_DEFAULT": "only_here(1)"},
        {"EXISTS_DEFAULT": "not sql at all"},
        {"EXISTS_DEFAULT": "true", "CURRENT_DEFAULT": CALL},
        {"__metadata_col": True},
        {"__metadata_col": "_metadata", "__file_source_metadata_col": True},
        {"__qualified_access_only": True},
        {"__file_source_constant_metadata_col": "file_path"},
        {"spark.watermarkDelayMs": 1},
    ],
    ids=str,
)
def test_column_metadata_tells_spark_nothing_while_it_reads(
    spark: SparkSession, path: str, metadata: dict[str, Any]
) -> None:
    hw.write(spark.range(2), path)
    log = Path(path, "_delta_log")
    [action] = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines() if "metaData" in line]
    schema = json.loads(action["metaData"]["schemaString"])
    schema["fields"].append(field("extra", "boolean", **metadata))
    action["metaData"]["schemaString"] = json.dumps(schema)
    (log / f"{1:020}.json").write_text(json.dumps(action))

    frame = hw.read(spark, path)
    assert sorted(map(tuple, frame.collect())) == [(0, None), (1, None)]
    assert frame.schema["extra"].metadata == {}
    assert frame.where("extra IS NULL").count() == 2


# --- the words that Spark Connect looks at -------------------------------------------------------------------


@pytest.mark.parametrize("expression", HOSTILE, ids=lambda text: text[:40])
def test_hostile_expressions_are_not_evaluated_on_connect(remote: SparkSession, expression: str) -> None:
    schema = StructType([StructField("id", LONG), StructField("s", STRING)])
    with pytest.raises(InvalidCommitError, match="CHECK c"):
        check_texts(remote, [TableSql("condition", "CHECK c", expression)], schema)


@pytest.mark.parametrize("how", ["CHECK", "default"])
def test_writers_on_connect_refuse_them(remote: SparkSession, path: str, how: str) -> None:
    hostile_table(path, how, CALL)
    with pytest.raises(UntrustedExpressionError, match=f"{NAMED[how]}.*calls reflect"):
        hw.write(remote.range(1), path, mode="append")
    with pytest.raises(UntrustedExpressionError, match=f"{NAMED[how]}.*calls reflect"):
        hw.DeltaTable.forPath(remote, path).update(set={"s": "'y'"})


def test_harmless_ones_are_fine_on_connect(remote: SparkSession) -> None:
    schema = StructType([StructField("id", LONG), StructField("s", STRING)])
    check_texts(remote, [TableSql("condition", "CHECK c", text) for text in HARMLESS], schema)


def test_a_function_of_the_session_shadows_nothing_on_connect(remote: SparkSession) -> None:
    remote.udf.register("signum", lambda x: x, "double")
    try:
        with pytest.raises(UntrustedExpressionError, match="calls signum, which the session"):
            check_texts(remote, [TableSql("condition", "c", "signum(id) > 0")], StructType([StructField("id", LONG)]))
    finally:
        remote.sql("DROP TEMPORARY FUNCTION signum")


_PIECES = [
    "'", '"', '`', '\\', "''", "r'", 'R"', "\\'", 'x', ' ', '\n', '=',
    '||', '(', ')', 'reflect(', "reflect ('a')", '--', '/*', '*/', '(select 1)', 'abs(1)', 'in (select 1)', 'exists(',
    "'a'", '"a"', 'x -> ', ',', '`reflect`(', '::int', "u&'", "x'", '1e5', '.', '[0]', 'and ',
    'reflect/**/(', "identifier('x')(", 'current_date', '\xa0', '\u2028',
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=9).map("".join))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_never_pass_what_sparks_parser_finds(spark: SparkSession, text: str) -> None:
    """Given any text that Spark can parse, a call or a query that its parser finds is found in the words too."""
    sql = TableSql("condition", "c", text)
    try:
        check_size(sql)
        check_words(sql)
    except UntrustedExpressionError:
        return
    try:
        tree = spark._jsparkSession.sessionState().sqlParser().parseExpression(text).toJSON()
    except Exception:
        return  # what Spark cannot parse it does not evaluate
    for node in json.loads(tree):
        kind = node["class"].rpartition(".")[2]
        assert kind not in ("ScalarSubquery", "Exists", "ListQuery", "ExpressionWithUnresolvedIdentifier"), text
        if kind == "UnresolvedFunction":
            assert node["nameParts"][1:-1].lower() in ROW_FUNCTIONS | SESSION_FUNCTIONS, text


def test_the_environment_is_not_read(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ["PATH"]
    hostile_table(path, "default", "'${env:PATH}' = ''")
    with pytest.raises(UntrustedExpressionError, match="environment variables"):
        hw.write(spark.range(1), path, mode="append")


def test_all_refusals_are_errors_of_ours() -> None:
    assert issubclass(UntrustedExpressionError, InvalidCommitError)
    assert issubclass(UntrustedExpressionError, HeadwaterError)


def test_a_table_cannot_make_the_jvm_construct_a_class(spark: SparkSession) -> None:
    type_ = {"type": "udt", "class": "java.lang.NoSuchThing", "pyClass": None, "sqlType": "long"}
    found = jvm_of(spark).data_type(
        {"type": "struct", "fields": [field("a", {"type": "array", "elementType": type_, "containsNull": True})]}
    )
    assert found.simpleString() == "struct<a:array<bigint>>"


def test_vectors_of_spark_stay_vectors(spark: SparkSession, path: str) -> None:
    from pyspark.ml.linalg import Vectors

    hw.write(spark.createDataFrame([(Vectors.dense(1.0, 2.0),)], ["v"]), path)
    assert hw.read(spark, path).first()["v"] == Vectors.dense(1.0, 2.0)
