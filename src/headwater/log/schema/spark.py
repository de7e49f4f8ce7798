"""Convert schemas to PySpark and back through Spark's JSON, and parse types in Spark's SQL grammar.

PySpark is imported only when one of these functions is called, so that the log works without it. Two kinds of types
change, because that is how Spark itself keeps them:

- `char(n)` and `varchar(n)` become strings with the declared type in the column metadata, in both directions:
  DataFrames accept nothing else, and other readers of the log know only strings;
- user-defined types become the types that they are stored as, except the few of PySpark itself: to build one,
  PySpark imports whatever module the table names, and versions before 4.2 unpickle what the table holds.

Declaring a column needs no running Spark.

>>> str(parse_type("STRUCT<id: BIGINT NOT NULL, tags: array<string>>"))
'struct<id:bigint,tags:array<string>>'
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

from headwater.errors import SchemaError
from headwater.log.schema.json_format import encode_json, type_to_value
from headwater.log.schema.types import (
    PRIMITIVE_NAMES,
    SQL_ALIASES,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    change_parts,
    strings_for_chars,
    transform_fields,
)

_OWN_UDTS = frozenset(f"pyspark.{ml}.linalg.{kind}UDT" for ml in ("ml", "mllib") for kind in ("Vector", "Matrix"))


def schema_to_spark(schema: StructType) -> Any:
    """Convert a schema to a `pyspark.sql.types.StructType`.

    Raises:
        SchemaError: PySpark does not know the type of a column, or PySpark is not installed.
    """
    types = _pyspark_types()
    return types.StructType([_field_to_spark(f, types) for f in _for_spark(schema).fields])


def schema_from_spark(schema: Any) -> StructType:
    """Convert a `pyspark.sql.types.StructType`. Raises `SchemaError` for anything else."""
    types = _pyspark_types()
    if not isinstance(schema, types.StructType):
        raise SchemaError(f"expected a pyspark.sql.types.StructType, not {type(schema).__name__}")
    return strings_for_chars(StructType.from_json(encode_json(schema.jsonValue())))


def _pyspark_types() -> Any:
    try:
        return importlib.import_module("pyspark.sql.types")
    except ImportError as e:
        raise SchemaError(
            'the Spark form of a schema needs PySpark: install it with pip install "headwater[spark]"'
        ) from e


def _field_to_spark(field: StructField, types: Any) -> Any:
    value = type_to_value(StructType([field]))
    assert isinstance(value, dict)
    try:
        return types.StructField.fromJson(value["fields"][0])
    except Exception as e:  # PySpark raises assertion, key, type and value errors of its own here
        raise SchemaError(f"column {field.name}: PySpark cannot represent type {field.type}: {e}") from e


def _for_spark(schema: StructType) -> StructType:
    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        return replace(field, type=_without_foreign_udts(field.type))

    return transform_fields(strings_for_chars(schema), change)


def _without_foreign_udts(data_type: DataType) -> DataType:
    match data_type:
        case UserDefinedType(sql_type=sql_type, properties=properties):
            ours = properties.get("pyClass") in _OWN_UDTS
            return data_type if ours else _without_foreign_udts(sql_type)
    return change_parts(data_type, lambda part, _name: _without_foreign_udts(part))


_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)
          |`(?P<quoted>(?:[^`]|``)+)`
          |(?P<number>\d+)
          |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
          |(?P<symbol>[<>(),:]))""",
    re.VERBOSE | re.DOTALL,
)
_ALIASES = SQL_ALIASES | {"real": "float", "timestamp_ltz": "timestamp"}
_DECIMAL = ("decimal", "dec", "numeric")
_CHAR = {"char": "char", "character": "char", "varchar": "varchar"}
_KNOWN = [*PRIMITIVE_NAMES, *_ALIASES, *_DECIMAL, *_CHAR, "array", "map", "struct"]
_MAX_NESTING = 100


class _Token(NamedTuple):
    kind: str
    """`name`, `quoted`, `number`, `text`, `symbol` or `end`."""
    value: str
    position: int


def parse_type(text: str) -> DataType:
    """Return the type that a SQL text names.

    Raises:
        SchemaError: the text is not a type; the message says where parsing stops.
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
        name = _ALIASES.get(name, name)
        if name in PRIMITIVE_NAMES:
            return PrimitiveType(name)
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


TYPE_CHANGES_KEY = "delta.typeChanges"
"""The column metadata that lists the types a column had; `fieldPath` leads into arrays and maps."""
_DIGITS_IN_PARQUET = {"byte": 10, "short": 10, "integer": 10, "long": 20}
_MAX_PRECISION = 38


def readable_types(schema: StructType) -> StructType:
    """Return the schema with types from which Spark's reader can widen everything that files may hold."""

    def change(field: StructField, _path: tuple[str, ...]) -> StructField:
        type_ = field.type
        for entry in field.metadata.get(TYPE_CHANGES_KEY, ()):
            digits = _DIGITS_IN_PARQUET.get(str(entry.get("fromType")))
            if digits is not None:
                path = str(entry.get("fieldPath") or "")
                type_ = _with_digits(type_, path.split(".") if path else [], digits)
        return field if type_ == field.type else replace(field, type=type_)

    return transform_fields(schema, change)


def _with_digits(type_: DataType, path: list[str], digits: int) -> DataType:
    """Give the decimal that the path leads to at least `digits` digits before the point."""
    match type_:
        case DecimalType(precision=precision, scale=scale) if not path and precision - scale < digits:
            return DecimalType(min(digits + scale, _MAX_PRECISION), scale)
        case ArrayType(element_type=element) if path and path[0] == "element":
            return replace(type_, element_type=_with_digits(element, path[1:], digits))
        case MapType(key_type=key) if path and path[0] == "key":
            return replace(type_, key_type=_with_digits(key, path[1:], digits))
        case MapType(value_type=value) if path and path[0] == "value":
            return replace(type_, value_type=_with_digits(value, path[1:], digits))
    return type_
