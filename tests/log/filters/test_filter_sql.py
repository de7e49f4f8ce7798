from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import FilterError, HeadwaterError
from headwater.log.filters.expressions import (
    And,
    Column,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    Unknown,
    column,
)
from headwater.log.filters.sql import parse_filter
from support.corpus import CORPUS, MISSING, tables

A, B, C = column("a"), column("b"), column("c")


def eq(col: Column, value: Any) -> Compare:
    return Compare("=", col, Literal(value))


# --- conditions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", eq(A, 1)),
        ("a == 1", eq(A, 1)),
        ("a <> 1", Compare("<>", A, Literal(1))),
        ("a != 1", Compare("<>", A, Literal(1))),
        ("a < 1", Compare("<", A, Literal(1))),
        ("a <= 1", Compare("<=", A, Literal(1))),
        ("a > 1", Compare(">", A, Literal(1))),
        ("a >= 1", Compare(">=", A, Literal(1))),
        ("a <=> 1", Compare("<=>", A, Literal(1))),
        ("1 = a", eq(A, 1)),
        ("1 < a", Compare(">", A, Literal(1))),
        ("1 <= a", Compare(">=", A, Literal(1))),
        ("1 >= a", Compare("<=", A, Literal(1))),
        ("1 <=> a", Compare("<=>", A, Literal(1))),
        ("(a) = ((1))", eq(A, 1)),
        ("a IS DISTINCT FROM 1", Not(Compare("<=>", A, Literal(1)))),
        ("a IS NOT DISTINCT FROM 1", Compare("<=>", A, Literal(1))),
        ("a IN (1, 2)", In(A, (Literal(1), Literal(2)))),
        ("a NOT IN ('x')", Not(In(A, (Literal("x"),)))),
        ("a IN (1, NULL)", In(A, (Literal(1), Literal(None)))),
        ("a BETWEEN 1 AND 2", And((Compare(">=", A, Literal(1)), Compare("<=", A, Literal(2))))),
        ("a NOT BETWEEN 1 AND 2", Not(And((Compare(">=", A, Literal(1)), Compare("<=", A, Literal(2)))))),
        ("5 BETWEEN a AND b", And((Compare("<=", A, Literal(5)), Compare(">=", B, Literal(5))))),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("isnull(a)", IsNull(A)),
        ("isnotnull(a)", Not(IsNull(A))),
        ("a IS TRUE", Compare("<=>", A, Literal(True))),
        ("a IS NOT FALSE", Not(Compare("<=>", A, Literal(False)))),
        ("a", eq(A, True)),
        ("NOT a", Not(eq(A, True))),
        ("!a", Not(eq(A, True))),
        ("startswith(a, 'x')", StartsWith(A, "x")),
    ],
)
def test_conditions(text: str, expected: Expression) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a AND b AND c", And((eq(A, True), eq(B, True), eq(C, True)))),
        ("(a AND (b AND c))", And((eq(A, True), eq(B, True), eq(C, True)))),
        ("a OR b OR c", Or((eq(A, True), eq(B, True), eq(C, True)))),
        ("a OR b AND c", Or((eq(A, True), And((eq(B, True), eq(C, True)))))),
        ("(a OR b) AND c", And((Or((eq(A, True), eq(B, True))), eq(C, True)))),
        ("NOT a AND b", And((Not(eq(A, True)), eq(B, True)))),
        ("NOT a = 1 OR b = 2", Or((Not(eq(A, 1)), eq(B, 2)))),
        ("NOT NOT a", Not(Not(eq(A, True)))),
        ("a = 1 /* one */ AND -- and\n b = 2", And((eq(A, 1), eq(B, 2)))),
        ("a = 1;", eq(A, 1)),
    ],
)
def test_and_or_not(text: str, expected: Expression) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = NULL", Constant(None)),
        ("NULL < a", Constant(None)),
        ("a <=> NULL", IsNull(A)),
        ("a IS DISTINCT FROM NULL", Not(IsNull(A))),
        ("a = CAST(NULL AS INT)", Constant(None)),
        ("TRUE", Constant(True)),
        ("false", Constant(False)),
        ("NULL", Constant(None)),
        ("1 = 1", Constant(True)),
        ("1 = 0", Constant(False)),
        ("1.5 < 2", Constant(True)),
        ("'a' >= 'b'", Constant(False)),
        ("NULL = NULL", Constant(None)),
        ("NULL <=> NULL", Constant(True)),
        ("1 <=> NULL", Constant(False)),
    ],
)
def test_nulls_and_constants(text: str, expected: Expression) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.b.c = 1", ("a", "b", "c")),
        ("a.b.c.d.e.f = 1", ("a", "b", "c", "d", "e", "f")),
        ("`a.b` = 1", ("a.b",)),
        ("`my col`.`x``y` = 1", ("my col", "x`y")),
        ("a . b = 1", ("a", "b")),
        ("Größe = 1", ("Größe",)),
        ("`😀` = 1", ("😀",)),
        ("date = 1", ("date",)),
        ("timestamp = 1", ("timestamp",)),
        ("value = 1", ("value",)),
        ("left = 1", ("left",)),
        ("map.key = 1", ("map", "key")),
        ("`select` = 1", ("select",)),
        ("a.1b = 1", ("a", "1b")),
        ("0x1F = 1", ("0x1F",)),
        ("2024_q1 = 1", ("2024_q1",)),
    ],
)
def test_names_of_columns(text: str, parts: tuple[str, ...]) -> None:
    assert parse_filter(text) == eq(Column(parts), 1)


# --- literals: the values are those that PySpark 4.3 collects for `SELECT <literal>` -------------------


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("- 5", -5),
        ("- -5", 5),
        ("+5", 5),
        ("5L", 5),
        ("-9223372036854775808L", -(2**63)),
        ("5s", 5),
        ("-32768S", -32768),
        ("3Y", 3),
        ("-128Y", -128),
        ("99999999999999999999", 99999999999999999999),
        ("1.50", Decimal("1.50")),
        ("5.", Decimal(5)),
        (".5", Decimal("0.5")),
        ("-1.5", Decimal("-1.5")),
        ("1.5BD", Decimal("1.5")),
        ("1e3BD", Decimal(1000)),
        ("15e-1bd", Decimal("1.5")),
        ("-12345678901234567890123456789012345.678", Decimal("-12345678901234567890123456789012345.678")),
        ("1e3", 1000.0),
        ("1.e3", 1000.0),
        ("1E-3", 0.001),
        ("-2.5e0", -2.5),
        ("2.5D", 2.5),
        (".5d", 0.5),
        ("1F", 1.0),
        ("0.1F", 0.10000000149011612),
        (".1F", 0.10000000149011612),
        ("16777217F", 16777216.0),
        ("TRUE", True),
        ("X'ab'", b"\xab"),
        ("x'abc'", b"\x0a\xbc"),
        ("X''", b""),
        ("'text'", "text"),
        ('"text"', "text"),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ('"it\'s"', "it's"),
        ('"a""b"', 'a"b'),
        ("\"it''s\"", "it''s"),
        ("'it' 's'", "its"),
        ("'a' 'b''c'", "ab'c"),
        ("'a' \"b\"", "ab"),
        (r"r'\d'", r"\d"),
        (r"r'\'", "\\"),
        ("r'it''s'", "its"),
        (r"'a\%b'", r"a\%b"),
        (r"'a\_b'", r"a\_b"),
        (r"'\n\t\r\b\0\Z\q\\'", "\n\t\r\b\0\x1aq\\"),
        (r"'\u0041\U0001F600'", "A😀"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\101\177\012'", "A\x7f\n"),
        (r"'\200\377\1\400'", "2003771400"),
        (r"'\u00\08'", "u00\x008"),
        ("'é😀'", "é😀"),
        ("'a\nb'", "a\nb"),
    ],
)
def test_values_of_literals(sql: str, value: object) -> None:
    found = parse_filter(f"a = {sql}")

    assert found == eq(A, value)
    assert isinstance(found, Compare)
    assert type(found.right.value) is type(value)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("DATE '2024-01-02'", date(2024, 1, 2)),
        ("date'2024-1-2'", date(2024, 1, 2)),
        ("DATE '2024'", date(2024, 1, 1)),
        ("DATE '2024-02'", date(2024, 2, 1)),
        ("DATE ' 2024-01-02 '", date(2024, 1, 2)),
        ("DATE '2024-01-02 10:00:00'", date(2024, 1, 2)),
        ("DATE '2024-01-02T'", date(2024, 1, 2)),
        ("DATE '+2024-01-02'", date(2024, 1, 2)),
        ("CAST('2024-01-02' AS DATE)", date(2024, 1, 2)),
        ("'2024-01-02'::date", date(2024, 1, 2)),
        ("date('2024-01-02')", date(2024, 1, 2)),
        ("to_date('2024-01-02')", date(2024, 1, 2)),
        ("TIMESTAMP '2024-01-02'", datetime(2024, 1, 2, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-02 1:2:3'", datetime(2024, 1, 2, 1, 2, 3, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-02 01'", datetime(2024, 1, 2, 1, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-02T01:02'", datetime(2024, 1, 2, 1, 2, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-02 01:02:03.1'", datetime(2024, 1, 2, 1, 2, 3, 100_000, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-02 01:02:03.123456789'", datetime(2024, 1, 2, 1, 2, 3, 123_456, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-02 01:02:03Z'", datetime(2024, 1, 2, 1, 2, 3, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-02 01:02:03 UTC'", datetime(2024, 1, 2, 1, 2, 3, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-01 01:02:03+2'", datetime(2023, 12, 31, 23, 2, 3, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-01 01:02:03+0230'", datetime(2023, 12, 31, 22, 32, 3, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-01 01:02:03+1:3'", datetime(2023, 12, 31, 23, 59, 3, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-01 01:02:03-02:30:15'", datetime(2024, 1, 1, 3, 32, 18, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-01 01:02:03 GMT-01:00'", datetime(2024, 1, 1, 2, 2, 3, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-01 01:02:03 Europe/Paris'", datetime(2024, 1, 1, 0, 2, 3, tzinfo=UTC)),
        # a time that the clocks skip, and one that they show twice
        ("TIMESTAMP '2024-03-31 02:30:00 Europe/Paris'", datetime(2024, 3, 31, 1, 30, tzinfo=UTC)),
        ("TIMESTAMP '2024-10-27 02:30:00 Europe/Paris'", datetime(2024, 10, 27, 0, 30, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-01 00:00:00 Etc/GMT+9'", datetime(2024, 1, 1, 9, tzinfo=UTC)),
        ("TIMESTAMP_LTZ '2024-01-01 00:00:00+01:00'", datetime(2023, 12, 31, 23, tzinfo=UTC)),
        ("TIMESTAMP_NTZ '2024-01-01 01:02:03'", datetime(2024, 1, 1, 1, 2, 3)),
        ("TIMESTAMP_NTZ '2024-01-01 01:02:03+02:00'", datetime(2024, 1, 1, 1, 2, 3)),
        ("CAST('2024-01-01' AS TIMESTAMP)", datetime(2024, 1, 1, tzinfo=UTC)),
        ("CAST('2024-01-01' AS TIMESTAMP_NTZ)", datetime(2024, 1, 1)),
        ("CAST(DATE '2024-01-01' AS TIMESTAMP)", datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp('2024-01-01 00:00:00')", datetime(2024, 1, 1, tzinfo=UTC)),
        ("to_timestamp('2024-01-01 00:00:00')", datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_dates_and_timestamps(sql: str, value: date) -> None:
    found = parse_filter(f"a = {sql}")

    assert found == eq(A, value)
    assert isinstance(found, Compare)
    assert getattr(found.right.value, "tzinfo", None) == getattr(value, "tzinfo", None)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("CAST('12' AS INT)", 12),
        ("CAST(' 12 ' AS BIGINT)", 12),
        ("CAST(5 AS TINYINT)", 5),
        ("int('5')", 5),
        ("CAST(1 AS DECIMAL(5,2))", Decimal("1.00")),
        ("CAST(1.005 AS DECIMAL(5,2))", Decimal("1.01")),
        ("CAST(-1.005 AS DECIMAL(5,2))", Decimal("-1.01")),
        ("CAST('1.5' AS DECIMAL(5,1))", Decimal("1.5")),
        ("CAST(1 AS DECIMAL)", Decimal(1)),
        ("CAST(0.1 AS DOUBLE)", 0.1),
        ("CAST('1.5' AS DOUBLE)", 1.5),
        ("CAST(1.5 AS FLOAT)", 1.5),
        ("CAST(16777217 AS FLOAT)", 16777216.0),
        ("CAST(1 AS STRING)", "1"),
        ("CAST(true AS STRING)", "true"),
        ("CAST(DATE '2024-01-01' AS STRING)", "2024-01-01"),
        ("CAST('true' AS BOOLEAN)", True),
        ("CAST(X'ab' AS BINARY)", b"\xab"),
        ("TRY_CAST('12' AS INT)", 12),
    ],
)
def test_casts_of_literals(sql: str, value: object) -> None:
    assert parse_filter(f"a = {sql}") == eq(A, value)


# --- LIKE ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (r"'abc%'", "abc"),
        (r"'abc%%'", "abc"),
        (r"'%'", ""),
        (r"'100\%%'", "100%"),
        (r"'a\_%'", "a_"),
        (r"'a\\\\%'", "a\\"),
        (r"r'a\\%'", "a\\"),
        (r"'a!%!!%' ESCAPE '!'", "a%!"),
        (r"'a\\b%' ESCAPE '!'", "a\\b"),
    ],
)
def test_like_with_a_prefix(pattern: str, prefix: str) -> None:
    assert parse_filter(f"a LIKE {pattern}") == StartsWith(A, prefix)
    assert parse_filter(f"a NOT LIKE {pattern}") == Not(StartsWith(A, prefix))


@pytest.mark.parametrize(("pattern", "text"), [("'abc'", "abc"), (r"'a\%'", "a%"), ("''", "")])
def test_like_without_wildcards_is_equality_of_texts(pattern: str, text: str) -> None:
    # The prefix test says that it is text which is compared: 1 LIKE '01' is false, though 1 = '01' is true.
    assert parse_filter(f"a LIKE {pattern}") == And((eq(A, text), StartsWith(A, text)))


@pytest.mark.parametrize(("pattern", "prefix"), [("'ab%c'", "ab"), ("'ab_'", "ab"), ("'a_%'", "a")])
def test_other_patterns_still_use_their_prefix(pattern: str, prefix: str) -> None:
    assert parse_filter(f"a LIKE {pattern}") == And((StartsWith(A, prefix), Unknown(f"a LIKE {pattern}")))
    assert parse_filter("a LIKE '%c'") == Unknown("a LIKE '%c'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"a LIKE 'a\\'", "must stand before"),
        (r"a LIKE 'a\\b'", "must stand before"),
        ("a LIKE 'a!b' ESCAPE '!'", "must stand before"),
        ("a LIKE 'a' ESCAPE '!!'", "ESCAPE takes one character"),
    ],
)
def test_bad_patterns_are_errors_as_in_spark(text: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse_filter(text)


# --- what the tree cannot say --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a + 1 = 2",
        "-a = 1",
        "upper(a) = 'X'",
        "a = 1 + 1",
        "a = 'x' || 'y'",
        "a[0] = 1",
        "a.* = 1",
        "a::int = 1",
        "CAST(a AS INT) = 1",
        "a IN (1, b)",
        "a IN (SELECT 1)",
        "a IN (1, '1')",
        "a IN (1, 1e0)",
        "(a, b) IN ((1, 2))",
        "EXISTS(SELECT 1)",
        "a RLIKE 'x'",
        "a ILIKE 'x%'",
        "a LIKE ANY ('x%', 'y%')",
        "a LIKE b",
        "a = 'x' COLLATE UTF8_LCASE",
        "CASE WHEN a THEN TRUE END",
        "a = CURRENT_DATE",
        "a = INTERVAL '1' DAY",
        "a = TRUE = FALSE",
        "(a = 1) IS NULL",
        "a = 1 IS NULL",
        "a = 1 < 2",
        "a BETWEEN 1 AND 2 = TRUE",
        "a = CAST(300 AS TINYINT)",
        "a = CAST('x' AS INT)",
        "a = CAST(1.5 AS INT)",
        "a = CAST(0.1 AS FLOAT)",
        "a = CAST('2024-13-01' AS DATE)",
        "a = DATE 'today'",
        "a = DATE '12024-01-01'",
        "a = TIMESTAMP 'now'",
        "a = TIMESTAMP '01:02:03'",
        "a = TIMESTAMP '2024-01-01 00:00:00 NOWHERE'",
        "a = TIMESTAMP '2024-01-01 00:00:00 Atlantis/Capital'",
        "a = TIMESTAMP '0001-01-01 00:00:00+10:00'",
        "a = to_date('2024', 'yyyy')",
        "1 = 1e0",
        "'true'",
    ],
)
def test_anything_else_is_unknown(text: str) -> None:
    assert isinstance(parse_filter(text), Unknown)


def test_only_the_part_that_is_not_understood_is_unknown() -> None:
    assert parse_filter("a = 1 AND upper(b) = 'X' AND NOT (c = 2 OR a = b)") == And(
        (eq(A, 1), Unknown("UPPER(b) = 'X'"), Not(Or((eq(C, 2), Compare("=", A, B)))))
    )
    assert parse_filter("a BETWEEN 1 AND b") == And((Compare(">=", A, Literal(1)), Compare("<=", A, B)))


def test_is_true_of_a_condition_keeps_its_true_side() -> None:
    assert parse_filter("(a = 1) IS TRUE") == And((eq(A, 1), Unknown("(a = 1) IS TRUE")))
    assert parse_filter("(a = 1) IS FALSE") == And((Not(eq(A, 1)), Unknown("(a = 1) IS FALSE")))


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the filter is empty"),
        ("  \n", "the filter is empty"),
        ("-- nothing", "the filter is empty"),
        ("a =", "something is missing here"),
        ("a = 1 AND", "something is missing here"),
        ("(a = 1", "expected ) here"),
        ("a = 1)", "did not expect this"),
        ("a = 1 b", "did not expect this"),
        ("a, b", "did not expect this"),
        ("a = 1 && b = 2", "Write AND instead of &&"),
        ("WHERE a = 1", "Leave out the word WHERE"),
        ("a = . 5", "did not expect this"),
        ("a = 'x", "this quote is not closed"),
        ("`a = 1", "this backtick is not closed"),
        ("a = 1 /* x", "this comment is not closed"),
        ("a = 1 -- x \\\n OR b", "a comment line ends with a backslash"),
        ("a = 1; b = 2", "one condition without semicolons"),
        ("SELECT * FROM t", "did not expect this"),
        ("DROP TABLE t", "did not expect this"),
        ("SHOW TABLES", "did not expect this"),
        ("a IN ()", "the list after IN is empty"),
        ("a ISNULL", "write IS NULL"),
        ("a = ?", "has a parameter"),
        ("a = :p", "has a parameter"),
        ("upper(a) = ${p}", "has a parameter"),
        ("1", "1 is a value, not a condition"),
        ("a = 1 AND DATE '2024-01-01'", "is a value, not a condition"),
        ("a = 300Y", "300Y is out of range"),
        ("a = 128Y", "128Y is out of range"),
        ("a = 9223372036854775808L", "is out of range"),
        ("a = 1e400", "is out of range"),
        ("a = 1e39F", "is out of range"),
        ("a = 1e999999999BD", "more than 38 digits"),
        ("a = 123456789012345678901234567890123456789", "more than 38 digits"),
        ("a = DATE '2024-13-01'", "month must be in 1..12"),
        ("a = DATE '2024-02-30'", "bad literal"),
        ("a = DATE 'x'", "'x' is not a date"),
        ("a = to_date('x')", "'x' is not a date"),
        ("a = TIMESTAMP '2024-01-01 24:00:00'", "bad literal"),
        ("a = TIMESTAMP '2024-01-01T'", "is not a timestamp"),
        ("a = TIMESTAMP '2024-01-01 01:02:03+19:00'", "is not an offset"),
        ("a = TIMESTAMP '2024-01-01 01:02:03 ?!'", "is not a time zone"),
        (r"a = '\ud83d'", "half of a surrogate pair"),
        ("(" * 2000 + "a" + ")" * 2000, "nested too deeply"),
        ("NOT " * 5000 + "a", "nested too deeply"),
    ],
)
def test_a_bad_filter_is_an_error_that_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)

    assert message in str(caught.value)
    assert isinstance(caught.value, HeadwaterError)
    assert isinstance(caught.value, ValueError)


def test_the_error_shows_the_place() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter("id > 5\n  AND name = garbage here")

    assert str(caught.value).splitlines()[:3] == [
        "cannot understand the filter: did not expect this",
        "    AND name = garbage here",
        "                       ^",
    ]
    assert "backticks" in str(caught.value)


def test_the_error_shows_only_a_part_of_a_long_filter() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(" AND ".join(["some_column = 1"] * 100) + " oops " + "x" * 1000)

    shown, mark = str(caught.value).splitlines()[1:3]
    assert len(shown) < 120
    assert shown[mark.index("^") :].startswith("oops") or shown[mark.index("^") :].startswith("x")


def test_only_text_is_parsed() -> None:
    with pytest.raises(FilterError, match="not int"):
        parse_filter(5)  # type: ignore[arg-type]


# --- size, noise, imports ------------------------------------------------------------------------------


def test_thousands_of_alternatives_are_no_problem() -> None:
    found = parse_filter(" OR ".join(f"a = {i}" for i in range(3000)))

    assert isinstance(found, Or)
    assert list(found.operands) == [eq(A, i) for i in range(3000)]


def test_long_lists_are_no_problem() -> None:
    found = parse_filter(f"a IN ({', '.join(map(str, range(3000)))})")

    assert found == In(A, tuple(Literal(i) for i in range(3000)))


def test_sqlglot_is_quiet_and_its_logger_stays_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("sqlglot")
    before = list(logger.filters)

    with caplog.at_level(logging.DEBUG):
        for text in ("a = 1", "SHOW TABLES", "array_agg(a) FILTER (WHERE b) = x -> y", "a = b ->> '$.x[?]'"):
            with suppress(FilterError):
                parse_filter(text)

    assert caplog.records == []
    assert logger.filters == before


def test_sqlglot_is_imported_only_when_a_text_is_parsed() -> None:
    code = "import sys, headwater.log.filters.sql; assert 'sqlglot' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_the_predicates_of_the_corpus_are_understood_completely() -> None:
    texts = {p["sql"] for entry in tables() for p in entry.get("predicates", [])}

    assert len(texts) > 15
    for text in texts:
        assert "<" not in str(parse_filter(text)).replace("<=", "").replace(" < ", "")


# --- trees to text and back ----------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
columns = st.lists(
    st.sampled_from(["a", "my col", "x.y", "q`r", "Größe", "select", "1e5", "date"]) | any_text.filter(bool),
    min_size=1,
    max_size=6,
).map(lambda parts: Column(tuple(parts)))
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=9))])
values = (
    st.booleans()
    | st.integers(-(10**38) + 1, 10**38 - 1)
    | st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**20), max_value=10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes()
    | st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)
)
literals = values.map(Literal)
same_kind = st.one_of(
    *(st.lists(kind.map(Literal), min_size=1, max_size=3) for kind in (st.integers(-99, 99), any_text, st.dates()))
)
comparisons = st.builds(Compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), columns, literals)
leaves = (
    comparisons
    | st.builds(lambda c, v: In(c, tuple(v)), columns, same_kind)
    | st.builds(StartsWith, columns, any_text)
    | st.builds(IsNull, columns)
    | st.builds(Constant, st.sampled_from([True, False, None]))
)


def nested(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """AND inside AND would come back as one list, so each holds the other."""
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    conjunctions = several.filter(lambda xs: not any(isinstance(x, And) for x in xs)).map(And)
    disjunctions = several.filter(lambda xs: not any(isinstance(x, Or) for x in xs)).map(Or)
    return inner.map(Not) | conjunctions | disjunctions


@given(st.recursive(leaves, nested, max_leaves=5))
def test_the_text_of_a_tree_is_read_as_the_same_tree(tree: Expression) -> None:
    assert parse_filter(str(tree)) == tree


WORDS = (
    "a b = < ( ) , . ' \" ` -- /* 1 1.5e 2.5F IN "
    "NOT LIKE IS NULL AND OR BETWEEN DATE CAST AS [ ] : ? @ $ \\ r' X' "
    "-> :: é"
)


@given(st.text(max_size=30) | st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join))
def test_any_text_gives_a_tree_or_a_filter_error(text: str) -> None:
    with suppress(FilterError):
        parse_filter(text)
