"""The statements that only Delta has, parsed: every clause, and what is wrong in a text."""

from __future__ import annotations

import msgspec
import pytest

from headwater.errors import SqlSyntaxError
from headwater.sql import statements as sql
from headwater.sql.statements import AsOf, Target, decode_statement, parse_statement

T = Target(("t",))

PARSED = [
    ("VACUUM t", sql.Vacuum(T)),
    ("vacuum db.t lite", sql.Vacuum(Target(("db", "t")), lite=True)),
    ("VACUUM '/data/my table' RETAIN 1.5 HOURS DRY RUN;", sql.Vacuum(Target(path="/data/my table"), False, 1.5, True)),
    ("VACUUM t DRY RUN RETAIN 10 HOURS FULL", sql.Vacuum(T, False, 10, True)),
    ("VACUUM t USING INVENTORY (SELECT a, (b) FROM x) LITE", sql.Vacuum(T, True, inventory="SELECT a, (b) FROM x")),
    ("VACUUM t USING INVENTORY db.`in ventory`", sql.Vacuum(T, inventory="SELECT * FROM `db`.`in ventory`")),
    ("OPTIMIZE t", sql.Optimize(T)),
    ("OPTIMIZE t FULL", sql.Optimize(T, full=True)),
    ("OPTIMIZE delta.`/a``b`", sql.Optimize(Target(("delta", "/a`b")))),
    ('OPTIMIZE "/a/b" ZORDER BY a, `b.c`', sql.Optimize(Target(path="/a/b"), zorder_by=(("a",), ("b.c",)))),
    (
        "OPTIMIZE t WHERE day >= '2024' AND x IN (1, 2) -- the newest\n ZORDER BY (s.a)",
        sql.Optimize(T, where="day >= '2024' AND x IN (1, 2)", zorder_by=(("s", "a"),)),
    ),
    ("OPTIMIZE t WHERE note = 'ZORDER BY (x)'", sql.Optimize(T, where="note = 'ZORDER BY (x)'")),
    ("DESCRIBE HISTORY t", sql.DescribeHistory(T)),
    ("DESC HISTORY delta.`/p` LIMIT 3", sql.DescribeHistory(Target(("delta", "/p")), 3)),
    ("/* look */ DESCRIBE DETAIL '/p'", sql.DescribeDetail(Target(path="/p"))),
    ("RESTORE TABLE t TO VERSION AS OF 3", sql.Restore(T, AsOf(version=3))),
    ("RESTORE t VERSION AS OF '3'", sql.Restore(T, AsOf(version=3))),
    ("RESTORE t TO TIMESTAMP AS OF '2024-01-31 12:00:00'", sql.Restore(T, AsOf(timestamp="2024-01-31 12:00:00"))),
    ("RESTORE t FOR SYSTEM_TIME AS OF '2024'", sql.Restore(T, AsOf(timestamp="2024"))),
    ("GENERATE symlink_format_manifest FOR TABLE t", sql.Generate("symlink_format_manifest", T)),
    ("CONVERT TO DELTA parquet.`/p`", sql.ConvertToDelta(Target(("parquet", "/p")))),
    (
        "CONVERT TO DELTA t NO STATISTICS PARTITIONED BY (a INT, b DECIMAL(10, 2))",
        sql.ConvertToDelta(T, False, "a INT, b DECIMAL(10, 2)"),
    ),
    ("REORG TABLE t APPLY (PURGE)", sql.Reorg(T)),
    ("REORG TABLE t WHERE p = (1) APPLY (PURGE)", sql.Reorg(T, "p = (1)")),
    ("REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))", sql.Reorg(T, None, 2)),
    ("CREATE TABLE t SHALLOW CLONE s", sql.Clone(T, Target(("s",)))),
    (
        "CREATE TABLE IF NOT EXISTS t DEEP CLONE s VERSION AS OF 2",
        sql.Clone(T, Target(("s",)), True, AsOf(2), if_not_exists=True),
    ),
    ("REPLACE TABLE t CLONE s", sql.Clone(T, Target(("s",)), True, replace=True, create=False)),
    (
        "CREATE OR REPLACE TABLE t SHALLOW CLONE s TBLPROPERTIES ('a.b' = 'c', d.e = 3, f = true) LOCATION '/x'",
        sql.Clone(T, Target(("s",)), replace=True, properties={"a.b": "c", "d.e": "3", "f": "true"}, location="/x"),
    ),
    ("ALTER TABLE t DROP FEATURE deletionVectors", sql.DropFeature(T, "deletionVectors")),
    ("ALTER TABLE t DROP FEATURE 'a' TRUNCATE HISTORY", sql.DropFeature(T, "a", truncate_history=True)),
    ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0 AND (b))", sql.AddConstraint(T, "c", "a > 0 AND (b)")),
    ("ALTER TABLE t DROP CONSTRAINT IF EXISTS c", sql.DropConstraint(T, "c", if_exists=True)),
    ("ALTER TABLE t ALTER COLUMN id SYNC IDENTITY", sql.SyncIdentity(T, ("id",))),
    ("CREATE SEARCH INDEX ON t (a, b)", sql.CreateSearchIndex(T, (("a",), ("b",)))),
    (
        "CREATE SEARCH INDEX ON t (a) OPTIONS ('a' = 'text')",
        sql.CreateSearchIndex(T, (("a",),), {"a": "text"}),
    ),
    ("REFRESH SEARCH INDEX ON t", sql.RefreshSearchIndex(T)),
    ("DROP SEARCH INDEX ON t", sql.DropSearchIndex(T)),
]


@pytest.mark.parametrize(("text", "expected"), PARSED, ids=[text for text, _ in PARSED])
def test_a_statement_is_parsed(text: str, expected: sql.Statement) -> None:
    assert parse_statement(text) == expected


@pytest.mark.parametrize("expected", [statement for _, statement in PARSED], ids=[text for text, _ in PARSED])
def test_a_statement_survives_the_way_to_its_execution(expected: sql.Statement) -> None:
    assert decode_statement(msgspec.json.encode(expected).decode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "CREATE TABLE t (a INT)",
        "CREATE TABLE clone AS SELECT 1 AS clone",
        "CREATE OR REPLACE TABLE t USING delta AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "ALTER TABLE t ADD COLUMN a INT",
        "ALTER TABLE t ALTER COLUMN a TYPE BIGINT",
        "ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY (a)",
        "DESCRIBE TABLE history",
        "",
        ";",
    ],
)
def test_statements_of_spark_are_left_to_spark(text: str) -> None:
    assert parse_statement(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("OPTIMIZE", "a name is expected at the end"),
        ("VACUUM t RETAIN many HOURS", "a number of hours is expected at 'many'"),
        ("VACUUM t NOW", "DRY RUN is expected at 'NOW'"),
        ("RESTORE t TO 3", "VERSION AS OF or TIMESTAMP AS OF is expected at '3'"),
        ("RESTORE t TO VERSION AS OF x", "a version is expected at 'x'"),
        ("RESTORE t TO VERSION AS OF 'x'", "a version is a whole number, not x"),
        ("DESCRIBE HISTORY t LIMIT 1.5", "whole number"),
        ("DESCRIBE DETAIL t u", "nothing more is expected at 'u'"),
        ("CONVERT TO DELTA t PARTITIONED BY (", "an expression is expected at the end"),
        ("REORG TABLE t APPLY (TIDY)", "PURGE is expected at 'TIDY'"),
        ("GENERATE x FOR t", "FOR TABLE is expected"),
        ("CREATE TABLE t SHALLOW CLONE s TBLPROPERTIES (a = )", "value of a property is expected"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(SqlSyntaxError, match=says.replace("(", r"\(")):
        parse_statement(text)


def test_texts_keep_their_escapes() -> None:
    found = parse_statement(r"VACUUM 'a\'b\\c\n' 'd'")

    assert isinstance(found, sql.Vacuum)
    assert found.target.path == "a'b\\c\nd"


def test_a_long_statement_takes_linear_work() -> None:
    condition = " OR ".join(f"(a = {i})" for i in range(20_000))

    found = parse_statement(f"OPTIMIZE t WHERE {condition}")

    assert isinstance(found, sql.Optimize)
    assert found.where == condition
