"""Random rows of all kinds of fields, and queries with a naive predicate that says which rows they should find.

The predicates know nothing of the engine: they cut words with `str.isalnum`, match with `re` and count edits by brute
force over permutations of edits.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from headwater.log.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from headwater.search.split.reader import Split
from support.search.built_splits import schema_of, split_of

Row = dict[str, Any]
Predicate = Callable[[Row], bool]

WORDS = (
    *("error", "Error", "disk", "full", "fulls", "web", "timeout", "timeouts", "a", "b", "x", "y", "z1", "z2"),
    *("Straße", "ÜBER", "über", "naïve", "日本", "foo", "fooo", "fo", "ofo", "10", "10.5", "web-1", "web-2"),
    *("foo_bar", "foo-bar", "(disk)", "full,", "error:", "c++", "Σίσυφος", "İstanbul"),
)
HOSTS = ["web-1", "web-2", "Web-1", "", "db 1", "db*1", "übung", "日本", "a\nb", "x" * 50]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.1.0.1", "192.168.1.1", "::1", "2001:db8::1", "2001:DB8:0::1", "not an address"]
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

SCHEMA = schema_of(
    message=STRING,
    note=STRING,
    host=STRING,
    ip=STRING,
    code=LONG,
    size=DOUBLE,
    ok=BOOLEAN,
    at=TIMESTAMP,
    day=DATE,
    price=DecimalType(10, 2),
    big=DecimalType(25, 3),
    attrs=StructType([StructField("user", STRING), StructField("n", INTEGER), StructField("tags", ArrayType(STRING))]),
    props=MapType(STRING, LONG),
    tags=ArrayType(STRING),
    doc=STRING,
)
CHOICES: dict[str, Any] = {
    "types": {"message": ("text", "string"), "note": "text", "ip": "ip", "doc": "json"},
    "tokenizers": {"note": "whitespace"},
    "not_fast": ["price", "day"],
}


def random_rows(seed: int, count: int) -> list[Row]:
    rng = random.Random(seed)
    return [_row(rng) for _ in range(count)]


def _row(rng: random.Random) -> Row:
    def maybe(value: Any, nulls: float = 0.15) -> Any:
        return None if rng.random() < nulls else value

    def text(most: int = 8) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, most)))

    doc = {
        "k": rng.choice([1, 2.5, 5, "5", "disk full", True, None, ["x", 7], {"inner": "foo"}, "2024-01-01T00:00:00Z"]),
        "a.b": text(3),
        "n": {"m": [{"v": rng.randint(0, 5)}, {"v": rng.choice(WORDS)}]},
    }
    return {
        "message": maybe(text()),
        "note": maybe(text(4)),
        "host": maybe(rng.choice(HOSTS)),
        "ip": maybe(rng.choice(ADDRESSES)),
        "code": maybe(rng.choice([0, 1, 5, -5, 200, 404, 500, 2**62, 2**62 + 1, -(2**63)])),
        "size": maybe(rng.choice([0.0, -0.0, 1.5, -2.25, 1e300, math.nan, math.inf, -math.inf, 10.0])),
        "ok": maybe(rng.random() < 0.5),
        "at": maybe(EPOCH + timedelta(microseconds=rng.choice([0, 1, 2, 86_400_000_000, -1]))),
        "day": maybe(date(2024, 1, rng.randint(1, 9))),
        "price": maybe(Decimal(rng.randint(-300, 300)) / 100),
        "big": maybe(Decimal(rng.choice([1, 12345678901234567890123, -5, 500])) / 1000),
        "attrs": maybe(
            {
                "user": maybe(rng.choice(["Bob Smith", "alice", "bob"])),
                "n": maybe(rng.randint(0, 3)),
                "tags": maybe([rng.choice(WORDS) for _ in range(rng.randint(0, 3))]),
            }
        ),
        "props": maybe([(key, maybe(rng.randint(0, 3))) for key in rng.sample(["p", "q", "r.s"], rng.randint(0, 3))]),
        "tags": maybe([maybe(rng.choice(WORDS)) for _ in range(rng.randint(0, 3))]),
        "doc": maybe(rng.choice([json.dumps(doc), json.dumps(doc), "[1, 2]", "no json", '"text"'])),
    }


def corpus_split(directory: Path, rows: list[Row], **more: Any) -> Split:
    return split_of(directory, SCHEMA, rows, **{**CHOICES, **more})


# --- naive semantics -----------------------------------------------------------------------------------------


def words_of(text: str | None) -> list[str]:
    """Words as the default analyser has them: runs of letters and digits, each character in lower case."""
    groups = itertools.groupby(text or "", key=_is_word_character)
    return ["".join(c.lower() for c in group) for is_word, group in groups if is_word]


def _is_word_character(character: str) -> bool:
    return character.isalnum()


def blank_words(text: str | None) -> list[str]:
    return (text or "").split(" ") if text else []


def has_sequence(words: list[str], phrase: list[str], slop: int) -> bool:
    places = [[i for i, word in enumerate(words) if word == wanted] for wanted in phrase]
    for chosen in itertools.product(*places):
        if len(set(chosen)) == len(chosen):
            moved = [position - slot for slot, position in enumerate(chosen)]
            if max(moved) - min(moved) <= slop:
                return True
    return False


@functools.cache
def edits(word: str, other: str) -> int:
    if not word or not other:
        return len(word) + len(other)
    best = min(
        edits(word[1:], other) + 1, edits(word, other[1:]) + 1, edits(word[1:], other[1:]) + (word[0] != other[0])
    )
    if len(word) > 1 and len(other) > 1 and word[0] == other[1] and word[1] == other[0]:
        best = min(best, edits(word[2:], other[2:]) + 1)
    return best


def scalars(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for item in value for leaf in scalars(item)]
    return [] if value is None or isinstance(value, dict) else [value]


def json_at(row: Row, *path: str) -> list[Any]:
    try:
        values = [json.loads(row["doc"])] if row["doc"] is not None else []
    except ValueError:
        return []
    for key in path:
        values = [item for v in values for item in (v if isinstance(v, list) else [v])]
        values = [v[key] for v in values if isinstance(v, dict) and key in v]
    return [leaf for value in values for leaf in scalars(value)]


# --- queries -------------------------------------------------------------------------------------------------

PLAIN_WORDS = [
    "error",
    "DISK",
    "full",
    "timeouts",
    "x",
    "straße",
    "über",
    "日本",
    "nowhere",
    "web-1",
    "foo_bar",
    "10.5",
]


def everything(_: Row) -> bool:
    return True


def nothing(_: Row) -> bool:
    return False


def leaf_queries() -> st.SearchStrategy[tuple[str, Predicate]]:
    return st.one_of(_text_leaves(), _string_leaves(), _value_leaves(), _nested_leaves())


def _text_leaves() -> st.SearchStrategy[tuple[str, Predicate]]:
    word = st.sampled_from(PLAIN_WORDS)
    phrase = st.lists(st.sampled_from(["error", "disk", "full", "a", "b", "x", "web", "1"]), min_size=1, max_size=4)

    def quoted(words: list[str], slop: int) -> tuple[str, Predicate]:
        text = f'"{" ".join(words)}"' + (f"~{slop}" if slop else "")
        return text, lambda row: has_sequence(words_of(row["message"]), words, slop) and row["message"] is not None

    def pattern(text: str) -> tuple[str, Predicate]:
        regex = re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in text.lower()), re.DOTALL)
        return f"message:{text}", lambda row: any(regex.fullmatch(word) for word in words_of(row["message"]))

    def expression(text: str) -> tuple[str, Predicate]:
        return f"message:/{text}/", lambda row: any(re.fullmatch(text, w, re.ASCII) for w in words_of(row["message"]))

    def fuzzy(text: str, distance: int) -> tuple[str, Predicate]:
        return f"{text}~{distance}", lambda row: any(edits(text, w) <= distance for w in words_of(row["message"]))

    def ranged(low: str, high: str) -> tuple[str, Predicate]:
        return f"message:[{low} TO {high}}}", lambda row: any(low <= w < high for w in words_of(row["message"]))

    return st.one_of(
        word.map(lambda w: (w, lambda row: has_sequence(words_of(row["message"]), words_of(w), 0))),
        word.map(lambda w: (f"note:{w}", lambda row: w in blank_words(row["note"]))),
        st.builds(quoted, phrase, st.integers(0, 4)),
        st.sampled_from(["f*", "*o", "F?o*", "?", "err*r", "*", "日*", "z?"]).map(
            lambda t: pattern(t) if t != "*" else ("*", everything)
        ),
        st.sampled_from([r"fo+", r"(?:err|tim)[a-z]+", r"z\d", r"[^a-z]+", r"\w{2,3}", "a|b", "日."]).map(expression),
        st.builds(fuzzy, st.sampled_from(["foo", "fulls", "tiemout", "ab", "日"]), st.integers(0, 2)),
        st.builds(ranged, st.sampled_from(["a", "d", "foo"]), st.sampled_from(["e", "fulls", "z2", "ü"])),
    )


def _string_leaves() -> st.SearchStrategy[tuple[str, Predicate]]:
    def one(value: str) -> tuple[str, Predicate]:
        return f'host:"{value}"', lambda row: row["host"] == value

    def several(values: list[str]) -> tuple[str, Predicate]:
        listed = " ".join(f'"{value}"' for value in values)
        return f"host:IN [{listed}]", lambda row: row["host"] in values

    def ranged(low: str, high: str, left: str, right: str) -> tuple[str, Predicate]:
        def inside(row: Row) -> bool:
            host = row["host"]
            if host is None:
                return False
            key, lower, upper = host.encode(), low.encode(), high.encode()
            return (key >= lower if left == "[" else key > lower) and (key <= upper if right == "]" else key < upper)

        return f'host:{left}"{low}" TO "{high}"{right}', inside

    host = st.sampled_from([*HOSTS, "nowhere", "x" * 51])
    return st.one_of(
        host.map(one),
        st.lists(host, max_size=4).map(several),
        st.builds(ranged, host, host, st.sampled_from("[{"), st.sampled_from("]}")),
        st.sampled_from(["w", "web-", "d", "", "日"])
        .filter(bool)
        .map(lambda p: (f"host:{p}*", lambda row: row["host"] is not None and row["host"].startswith(p))),
        st.just((r"host:db\*?", lambda row: row["host"] == "db*1")),
        st.just(("host:/web.[12]/", lambda row: row["host"] in ("web-1", "web-2"))),
        st.just(("host:web-3~1", lambda row: row["host"] is not None and edits("web-3", row["host"]) <= 1)),
        st.sampled_from(["host", "message", "size", "attrs", "tags", "doc", "ip", "day"]).map(
            lambda name: (f"{name}:*", lambda row: row[name] is not None)
        ),
        st.sampled_from(["message.raw"]).map(
            lambda f: (f'{f}:"error disk"', lambda row: row["message"] == "error disk")
        ),
    )


def _value_leaves() -> st.SearchStrategy[tuple[str, Predicate]]:
    def number(column: str, value: Any) -> tuple[str, Predicate]:
        return f"{column}:{value}", lambda row: row[column] is not None and row[column] == value

    def compared(column: str, op: str, value: Any) -> tuple[str, Predicate]:
        return f"{column}:{op}{value}", lambda row: row[column] is not None and spark_compare(row[column], op, value)

    def moment(op: str, micros: int) -> tuple[str, Predicate]:
        value = EPOCH + timedelta(microseconds=micros)
        return f"at:{op}{value.isoformat()}", lambda row: row["at"] is not None and spark_compare(row["at"], op, value)

    op = st.sampled_from(["<", "<=", ">", ">="])
    whole = st.sampled_from([0, 1, 5, -5, 404, 2**62, 2**62 + 1, -(2**63)])
    price = st.sampled_from([Decimal("0.5"), Decimal("-1.25"), Decimal(1), Decimal("0.005")])
    return st.one_of(
        st.builds(number, st.just("code"), whole),
        st.builds(compared, st.just("code"), op, whole),
        st.builds(compared, st.just("code"), op, st.just(1.5)),
        st.builds(number, st.just("size"), st.sampled_from([0.0, 1.5, 10.0])),
        st.builds(compared, st.just("size"), op, st.sampled_from([0.0, 1.5, -3.0])),
        st.builds(number, st.just("price"), price),
        st.builds(compared, st.just("price"), op, price),
        st.builds(number, st.just("big"), st.sampled_from([Decimal("0.5"), Decimal("12345678901234567890.123")])),
        st.builds(compared, st.just("big"), op, st.sampled_from([Decimal("0.5"), Decimal("12345678901234567890.122")])),
        st.builds(moment, op, st.sampled_from([0, 1, 2])),
        st.booleans().map(lambda v: (f"ok:{str(v).lower()}", lambda row: row["ok"] is v)),
        st.integers(1, 9).map(lambda d: (f"day:2024-01-0{d}", lambda row: row["day"] == date(2024, 1, d))),
        st.builds(compared, st.just("day"), op, st.just(date(2024, 1, 5))),
        st.just(("ip:10.0.0.0/16", lambda row: row["ip"] in ("10.0.0.1", "10.0.0.2"))),
        st.just(("ip:2001:db8::1", lambda row: row["ip"] in ("2001:db8::1", "2001:DB8:0::1"))),
        st.just(("ip:>10.0.0.2", lambda row: row["ip"] in ("10.1.0.1", "192.168.1.1", "2001:db8::1", "2001:DB8:0::1"))),
    )


def spark_compare(left: Any, op: str, right: Any) -> bool:
    """As Spark compares: NaN is larger than every number."""
    if isinstance(left, float) and math.isnan(left):
        return op in (">", ">=")
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])


def _nested_leaves() -> st.SearchStrategy[tuple[str, Predicate]]:
    def attrs(row: Row) -> Row:
        return row["attrs"] or {"user": None, "n": None, "tags": None}

    def prop(row: Row, key: str) -> Any:
        return dict(row["props"] or []).get(key)

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    return st.sampled_from(
        [
            ("attrs.user:bob", lambda row: "bob" in words_of(attrs(row)["user"])),
            ('attrs.user:"Bob Smith"', lambda row: has_sequence(words_of(attrs(row)["user"]), ["bob", "smith"], 0)),
            ("attrs.user:b*", lambda row: any(w.startswith("b") for w in words_of(attrs(row)["user"]))),
            ("attrs.user:alize~1", lambda row: "alice" in words_of(attrs(row)["user"])),
            ("attrs.n:2", lambda row: attrs(row)["n"] == 2),
            ("attrs.n:[1 TO 2]", lambda row: attrs(row)["n"] in (1, 2)),
            ("attrs.n:*", lambda row: attrs(row)["n"] is not None),
            ("attrs.tags:error", lambda row: any("error" in words_of(t) for t in attrs(row)["tags"] or [])),
            ("attrs.tags:*", lambda row: bool(attrs(row)["tags"])),
            ("props.p:1", lambda row: prop(row, "p") == 1),
            (r"props.r\.s:>=2", lambda row: (prop(row, "r.s") or 0) >= 2),
            ("props.q:*", lambda row: prop(row, "q") is not None),
            ("tags:web-1", lambda row: any(has_sequence(words_of(t), ["web", "1"], 0) for t in row["tags"] or [])),
            ('tags:"error disk"', nothing),
            ("tags:(foo OR full)", lambda row: any({"foo", "full"} & set(words_of(t)) for t in row["tags"] or [])),
            ("doc.k:5", lambda row: any(v == "5" or (is_number(v) and v == 5) for v in json_at(row, "k"))),
            ('doc.k:"5"', lambda row: "5" in json_at(row, "k")),
            ("doc.k:2.5", lambda row: 2.5 in [v for v in json_at(row, "k") if is_number(v)]),
            ("doc.k:true", lambda row: any(v is True for v in json_at(row, "k"))),
            ("doc.k:[2 TO 6]", lambda row: any(is_number(v) and 2 <= v <= 6 for v in json_at(row, "k"))),
            ("doc.k:disk", lambda row: any("disk" in words_of(v) for v in json_at(row, "k") if isinstance(v, str))),
            ("doc.k:2024*", lambda row: "2024-01-01T00:00:00Z" in json_at(row, "k")),
            ('doc.k:"01t00 00"', lambda row: "2024-01-01T00:00:00Z" in json_at(row, "k")),
            ("doc.k.inner:foo", lambda row: "foo" in json_at(row, "k", "inner")),
            (r"doc.a\.b:error", lambda row: any("error" in words_of(v) for v in json_at(row, "a.b"))),
            ("doc.n.m.v:3", lambda row: 3 in [v for v in json_at(row, "n", "m", "v") if is_number(v)]),
            ("doc.n.m.v:/fo+/", lambda row: any(
                re.fullmatch("fo+", w) for v in json_at(row, "n", "m", "v") for w in words_of(str(v)))),
            ("doc.nowhere:*", nothing),
        ]
    )  # fmt: skip


def queries() -> st.SearchStrategy[tuple[str, Predicate]]:
    """Whole queries: leaves put together in every way that the language has."""
    return st.recursive(leaf_queries(), _combined, max_leaves=6)


def _combined(parts: st.SearchStrategy[tuple[str, Predicate]]) -> st.SearchStrategy[tuple[str, Predicate]]:
    several = st.lists(parts, min_size=2, max_size=3)

    def both(chosen: list[tuple[str, Predicate]]) -> tuple[str, Predicate]:
        return f"({' AND '.join(t for t, _ in chosen)})", lambda row: all(p(row) for _, p in chosen)

    def either(chosen: list[tuple[str, Predicate]], word: str) -> tuple[str, Predicate]:
        return f"({word.join(t for t, _ in chosen)})", lambda row: any(p(row) for _, p in chosen)

    def negated(chosen: tuple[str, Predicate], sign: str) -> tuple[str, Predicate]:
        return f"({sign}{chosen[0]})", lambda row: not chosen[1](row)

    def signed(a: tuple[str, Predicate], b: tuple[str, Predicate], c: tuple[str, Predicate]) -> tuple[str, Predicate]:
        return f"(+{a[0]} {b[0]} -{c[0]})", lambda row: a[1](row) and not c[1](row)

    def boosted(chosen: tuple[str, Predicate], factor: float) -> tuple[str, Predicate]:
        return f"({chosen[0]})^{factor}", chosen[1]

    return st.one_of(
        several.map(both),
        st.builds(either, several, st.sampled_from([" OR ", " || ", " "])),
        st.builds(negated, parts, st.sampled_from(["-", "NOT ", "!"])),
        st.builds(signed, parts, parts, parts),
        st.builds(boosted, parts, st.sampled_from([0.5, 2, 3.25])),
    )
