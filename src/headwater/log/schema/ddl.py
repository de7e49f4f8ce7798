"""Types as SQL writes them: `bigint`, `decimal(10,2)`, `struct<name: string, tags: array<string>>`.

The grammar is Spark's for data types, read here so that declaring a column needs no running Spark.

>>> str(parse_type("STRUCT<id: BIGINT NOT NULL, tags: array<string>>"))
'struct<id:bigint,tags:array<string>>'
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import NamedTuple, NoReturn

from headwater.errors import SchemaError
from headwater.log.schema.types import (
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
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)
          |`(?P<quoted>(?:[^`]|``)+)`
          |(?P<number>\d+)
          |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
          |(?P<symbol>[<>(),:]))""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE: dict[str, DataType] = {
    "boolean": BOOLEAN,
    "tinyint": BYTE,
    "byte": BYTE,
    "smallint": SHORT,
    "short": SHORT,
    "int": INTEGER,
    "integer": INTEGER,
    "bigint": LONG,
    "long": LONG,
    "float": FLOAT,
    "real": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "variant": VARIANT,
    "void": VOID,
}
_DECIMAL = ("decimal", "dec", "numeric")
_CHAR = {"char": "char", "character": "char", "varchar": "varchar"}
_KNOWN = [*_SIMPLE, *_DECIMAL, *_CHAR, "array", "map", "struct"]
_MAX_NESTING = 100


class _Token(NamedTuple):
    kind: str
    """`name`, `quoted`, `number`, `text`, `symbol` or `end`."""
    value: str
    position: int


def parse_type(text: str) -> DataType:
    """The type that a SQL text names.

    Raises:
        SchemaError: it is not a type; the message says where it stops being one.
    """
    parser = _Parser(text)
    found = parser.type(0)
    parser.expect_end()
    return found


class _Parser:
    """A recursive-descent parser over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise SchemaError(f"{text!r} is not a type: {text[at:].strip()[:20]!r} is not understood.")
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        return [*tokens, _Token("end", "", len(text))]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _fail(self, expected: str) -> NoReturn:
        here = self._next
        found = "it ends" if here.kind == "end" else f"there is {here.value!r}"
        raise SchemaError(f"{self._text!r} is not a type: {expected} is expected where {found}.")

    def _accept(self, symbol: str) -> bool:
        if self._next.kind == "symbol" and self._next.value == symbol:
            self._at += 1
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            self._fail(repr(symbol))

    def expect_end(self) -> None:
        if self._next.kind != "end":
            self._fail("the end")

    def _keyword(self, *words: str) -> bool:
        following = self._tokens[self._at : self._at + len(words)]
        if [t.value.lower() for t in following if t.kind == "name"] != list(words):
            return False
        self._at += len(words)
        return True

    def _number(self) -> int:
        if self._next.kind != "number":
            self._fail("a number")
        return int(self._take().value)

    def type(self, depth: int) -> DataType:
        if depth > _MAX_NESTING:
            raise SchemaError(f"a type may not be nested more than {_MAX_NESTING} levels deep.")
        if self._next.kind != "name":
            self._fail("the name of a type")
        name = self._next.value.lower()
        if name not in _KNOWN:
            close = get_close_matches(name, _KNOWN, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise SchemaError(f"{self._text!r} is not a type: there is no type {self._next.value!r}.{hint}")
        self._take()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _DECIMAL:
            return self._decimal()
        if name in _CHAR:
            self._expect("(")
            length = self._number()
            self._expect(")")
            if length == 0:
                raise SchemaError(f"{self._text!r} is not a type: the length of {name} is at least 1.")
            return PrimitiveType(f"{_CHAR[name]}({length})")
        return self._nested(name, depth)

    def _decimal(self) -> DataType:
        if not self._accept("("):
            return DecimalType(10, 0)
        precision, scale = self._number(), 0
        if self._accept(","):
            scale = self._number()
        self._expect(")")
        return DecimalType(precision, scale)

    def _nested(self, name: str, depth: int) -> DataType:
        self._expect("<")
        if name == "array":
            element = self.type(depth + 1)
            self._expect(">")
            return ArrayType(element)
        if name == "map":
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            return MapType(key, value)
        fields: list[StructField] = []
        if self._accept(">"):
            return StructType(fields)
        while True:
            fields.append(self._field(depth + 1))
            if self._accept(">"):
                return StructType(fields)
            if not self._accept(","):
                self._fail("',' or '>'")

    def _field(self, depth: int) -> StructField:
        token = self._take()
        if token.kind not in ("name", "quoted"):
            self._at -= 1
            self._fail("the name of a field")
        self._accept(":")
        field_type = self.type(depth)
        nullable = not self._keyword("not", "null")
        metadata: dict[str, str] = {}
        if self._keyword("comment"):
            if self._next.kind != "text":
                self._fail("a comment in quotes")
            metadata["comment"] = _unquoted(self._take().value)
        return StructField(token.value.replace("``", "`"), field_type, nullable, metadata)


def _unquoted(text: str) -> str:
    quote = text[0]
    inner = text[1:-1].replace(quote * 2, quote)
    return re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL)
