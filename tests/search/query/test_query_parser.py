"""The query language: what each form means, and the place of whatever is wrong."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError, SearchQueryError
from headwater.log.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)
from headwater.search.choices import index_config
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import (
    All,
    Boolean,
    Boost,
    Exists,
    FieldPath,
    Fuzzy,
    Nothing,
    Phrase,
    Prefix,
    Query,
    Range,
    Regex,
    Term,
    TermSet,
    Wildcard,
    from_json,
    to_json,
)
from support.search.built_splits import schema_of

CONFIG = index_config(
    schema_of(
        message=STRING,
        host=STRING,
        code=LONG,
        size=DOUBLE,
        ratio=FLOAT,
        ok=BOOLEAN,
        at=TIMESTAMP,
        day=DATE,
        price=DecimalType(10, 2),
        ip=STRING,
        doc=STRING,
        attrs=StructType([StructField("user", STRING), StructField("n", LONG)]),
        tags=ArrayType(STRING),
        blob=BINARY,
    ),
    types={"message": ("text", "string"), "ip": "ip", "doc": "json"},
)
MESSAGE, HOST, CODE = FieldPath("message"), FieldPath("host"), FieldPath("code")


def word(text: str) -> Term:
    return Term(MESSAGE, text)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("Error", word("error")),
        ("error disk", Boolean(should=(word("error"), word("disk")))),
        ("error OR disk", Boolean(should=(word("error"), word("disk")))),
        ("error || disk", Boolean(should=(word("error"), word("disk")))),
        ("error AND disk", Boolean(must=(word("error"), word("disk")))),
        ("error && disk", Boolean(must=(word("error"), word("disk")))),
        ("a AND b OR c", Boolean(should=(Boolean(must=(word("a"), word("b"))), word("c")))),
        ("a OR b AND c", Boolean(should=(word("a"), Boolean(must=(word("b"), word("c")))))),
        ("a AND (b OR c)", Boolean(must=(word("a"), Boolean(should=(word("b"), word("c")))))),
        ("a AND NOT b", Boolean(must=(word("a"),), must_not=(word("b"),))),
        ("a -b", Boolean(should=(word("a"),), must_not=(word("b"),))),
        ("a NOT b", Boolean(should=(word("a"),), must_not=(word("b"),))),
        ("+a b -c", Boolean(must=(word("a"),), should=(word("b"),), must_not=(word("c"),))),
        ("NOT a", Boolean(must_not=(word("a"),))),
        ("!a", Boolean(must_not=(word("a"),))),
        ("a OR NOT b", Boolean(should=(word("a"), Boolean(must_not=(word("b"),))))),
        ("NOT NOT a", Boolean(must_not=(Boolean(must_not=(word("a"),)),))),
        ("*", All()),
        ("*:*", All()),
        ('"disk full"', Phrase(MESSAGE, ("disk", "full"))),
        ("'disk full'", Phrase(MESSAGE, ("disk", "full"))),
        ('"disk full"~3', Phrase(MESSAGE, ("disk", "full"), 3)),
        ('"disk"', word("disk")),
        ("web-1", Phrase(MESSAGE, ("web", "1"))),
        ("it's", Phrase(MESSAGE, ("it", "s"))),
        ("qui*", Prefix(MESSAGE, "qui")),
        ("Q?i*k", Wildcard(MESSAGE, "q?i*k")),
        (r"host:a\*b", Term(HOST, "a*b")),
        (r"host:a\*b*", Prefix(HOST, "a*b")),
        (r"host:?\?*", Wildcard(HOST, r"?\?*")),
        ("fox~", Fuzzy(MESSAGE, "fox", 2)),
        ("Fox~1", Fuzzy(MESSAGE, "fox", 1)),
        (r"/Fo\d+/", Regex(MESSAGE, "fo[0-9]+")),
        (r"host:/a\/b|C/", Regex(HOST, "a/b|C")),
        ("fox^2.5", Boost(word("fox"), 2.5)),
        ("(a b)^0.5", Boost(Boolean(should=(word("a"), word("b"))), 0.5)),
        ("fox~1^2", Boost(Fuzzy(MESSAGE, "fox", 1), 2.0)),
        ("host:web-1", Term(HOST, "web-1")),
        ("HOST:web-1", Term(HOST, "web-1")),
        ("message.raw:Web-1", Term(FieldPath("message.raw"), "Web-1")),
        ("host:web:8080", Term(HOST, "web:8080")),
        ('host: "a b"', Term(HOST, "a b")),
        ("host:(a OR b)", Boolean(should=(Term(HOST, "a"), Term(HOST, "b")))),
        ("host:IN [a b 'c d']", TermSet(HOST, ("a", "b", "c d"))),
        ("host:IN []", Nothing()),
        ("host:*", Exists(HOST)),
        ("host:[a TO b}", Range(HOST, "a", "b", True, False)),
        ('host:{"a b" TO *]', Range(HOST, "a b", None, False, True)),
        ("host:[* TO *]", Exists(HOST)),
        ("code:-5", Term(CODE, -5)),
        ("code:>=5", Range(CODE, 5, None)),
        ("code:<-5", Range(CODE, None, -5, True, False)),
        ("code:[1.5 TO 3.5]", Range(CODE, 1, 3, False, True)),
        ("code:1.5", Nothing()),
        ("code:1e2", Term(CODE, 100)),
        ("size:1.5", Term(FieldPath("size"), 1.5)),
        ("ratio:0.1", Term(FieldPath("ratio"), 0.10000000149011612)),
        ("ok:True", Term(FieldPath("ok"), True)),
        ("day:1970-01-11", Term(FieldPath("day"), 10)),
        ("at:1970-01-01T00:00:01.000002Z", Term(FieldPath("at"), 1_000_002)),
        ("at:1970-01-01T01:00:00+01:00", Term(FieldPath("at"), 0)),
        ("price:1.25", Term(FieldPath("price"), 125)),
        ("price:[1.255 TO 2]", Range(FieldPath("price"), 125, 200, False, True)),
        ("ip:::FFFF:10.0.0.1", Term(FieldPath("ip"), "10.0.0.1")),
        ("ip:10.1.0.0/16", Range(FieldPath("ip"), "10.1.0.0", "10.1.255.255")),
        ("attrs.user:Bob", Term(FieldPath("attrs", ("user",)), "bob")),
        ("attrs.n:5", Term(FieldPath("attrs", ("n",)), 5)),
        ("doc.a.b:x", Term(FieldPath("doc", ("a", "b")), "x")),
        (r"doc.a\.b:x", Term(FieldPath("doc", ("a.b",)), "x")),
        ("doc.a:5", Boolean(should=(Term(FieldPath("doc", ("a",)), "5"), Term(FieldPath("doc", ("a",)), 5)))),
        ('doc.a:"5"', Term(FieldPath("doc", ("a",)), "5")),
        ("doc.a:[1 TO 2.5]", Range(FieldPath("doc", ("a",)), 1, 2.5)),
        ("doc:*", Exists(FieldPath("doc"))),
        ("tags:x", Term(FieldPath("tags"), "x")),
        ("blob:*", Exists(FieldPath("blob"))),
    ],
)
def test_a_query_means(text: str, tree: Query) -> None:
    found = parse_query(text, CONFIG)
    assert found == tree
    assert from_json(to_json(found)) == tree
    assert pickle.loads(pickle.dumps(found)) == tree
    assert hash(found) == hash(tree)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "empty"),
        ("  ", 0, "empty"),
        ("a AND", 5, "missing at the end"),
        ("AND a", 0, "did not expect 'AND'"),
        ("a OR OR b", 5, "did not expect 'OR'"),
        ("(a", 0, "not closed"),
        ("a) b", 1, "closes nothing"),
        ("()", 0, "nothing stands between"),
        ('a "b c', 2, "quote is not closed"),
        ("nowhere:x", 0, "no field 'nowhere'"),
        ("mesage:x", 0, "did you mean 'message'"),
        ("10:30", 0, "text with a colon stands in quotes"),
        ("attrs.nowhere:x", 0, "no 'nowhere'; there are 'user', 'n'"),
        ("host.x:y", 0, "no field 'host.x'"),
        ("code:abc", 5, "expected a number"),
        ("code:99999999999999999999", 5, "too large"),
        ("size:1e999", 5, "too large"),
        ("ok:maybe", 3, "expected true or false"),
        ("day:tomorrowish", 4, "is not a date"),
        ("at:noonish", 3, "is not a timestamp"),
        ("ip:10.0.0.256", 3, "expected an IP address"),
        ("attrs:x", 6, "name one of its keys"),
        ("blob:x", 5, "not indexed"),
        ("a web-1*", 2, "stands between words"),
        ("code:5*", 5, "patterns are for text"),
        ("fox~3", 0, "at most 2"),
        ("web-1~1", 0, "for one word"),
        ("f*x~1", 3, "cannot be fuzzy as well"),
        ("a ~1", 2, "directly behind"),
        ("a^x", 1, "stands a number"),
        ("a^", 1, "stands a number"),
        ('"a b"~', 5, "number up to"),
        ("host:[a TO b", 5, "a range is written"),
        ("host:[a b]", 5, "a range is written"),
        ("[a TO b]", 0, "needs a field"),
        (">5", 0, "needs a field"),
        ("code:>*", 5, "needs a value"),
        ("doc.a:[1 TO x]", 6, "one bound is a number"),
        ("host:", 5, "a value for the field host is missing"),
        ("host:)", 5, "a value for the field host is missing"),
        ("*:x", 0, "finds every row"),
        ("a ]", 2, "closes nothing"),
        ("--", 1, "directly before"),
        ("a - b", 2, "directly before"),
        ("++a", 1, "two signs"),
        ("+a OR b", 0, "contradict"),
        ("...", 0, "no word in it"),
        ('"abc"*', 5, "a blank is missing"),
        ('host:"a"b', 8, "a blank is missing"),
        ("a\\", 1, "a backslash stands before"),
        ("/a(?=b)/", 0, "only (?:"),
        ("/a**/", 0, "nothing to repeat"),
        ("/a*?/", 0, "nothing to repeat"),
        ("/^a/", 0, "^ is not needed"),
        (r"/\bfoo/", 0, "cannot be used"),
        ("/(a/", 0, "not closed"),
        ("/[b-a]/", 0, "after the last one"),
        ("/a{2000}/", 0, "more than 1000"),
        ("(" * 60 + "a" + ")" * 60, 50, "levels of parentheses"),
    ],
)
def test_the_place_of_a_mistake_is_shown(text: str, position: int, words: str) -> None:
    with pytest.raises(SearchQueryError) as caught:
        parse_query(text, CONFIG)
    assert words in str(caught.value)
    assert caught.value.position == position
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.position) == (str(caught.value), position)


def test_a_mistake_is_marked_in_its_line() -> None:
    with pytest.raises(SearchQueryError) as caught:
        parse_query("error\nAND code:abc", CONFIG)
    assert str(caught.value).splitlines()[1:] == ["  AND code:abc", "           ^"]


def test_words_are_searched_in_the_given_fields() -> None:
    both = parse_query("Web-1", CONFIG, ["message", "host"])
    assert both == Boolean(should=(Phrase(MESSAGE, ("web", "1")), Term(HOST, "Web-1")))
    assert parse_query("abc", CONFIG, ["code", "host"]) == Term(HOST, "abc")  # no number
    with pytest.raises(SearchQueryError, match="expected a number"):
        parse_query("abc", CONFIG, ["code"])
    with pytest.raises(SearchQueryError, match="no field 'nowhere'"):
        parse_query("abc", CONFIG, ["nowhere"])


def test_without_text_fields_words_are_searched_in_strings() -> None:
    config = index_config(schema_of(host=STRING, n=LONG))
    assert parse_query("Web-1", config) == Term(HOST, "Web-1")
    with pytest.raises(SearchQueryError, match="name a field"):
        parse_query("a", index_config(schema_of(n=LONG)))


def test_a_query_has_a_largest_size() -> None:
    with pytest.raises(SearchQueryError, match="characters"):
        parse_query("a " * 60_000, CONFIG)


@settings(max_examples=500)
@given(st.text(alphabet=st.sampled_from(list("ab1 :\"'*?~^()[]{}/\\+-!&|<>=.,ANDORTOIN\nü日")), max_size=30))
def test_no_text_makes_the_parser_fail_in_another_way(text: str) -> None:
    problem: SearchQueryError | None = None
    try:
        tree = parse_query(text, CONFIG)
    except SearchQueryError as error:
        problem = error
    if problem is None:
        assert from_json(to_json(tree)) == tree
    else:
        assert problem.position is not None
        assert 0 <= problem.position <= len(text)


@settings(max_examples=200)
@given(st.text(min_size=1, max_size=20))
def test_quoted_text_finds_itself_in_a_string_field(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_query(f'host:"{escaped}"', CONFIG) == Term(HOST, text)
    assert issubclass(SearchQueryError, HeadwaterError)
