"""Parse the statements that only Delta has: OPTIMIZE, VACUUM, RESTORE, CLONE and the like.

Spark's own parser does not know them. Each becomes a frozen value, which travels to the command's execution as JSON.
Names are resolved when the statement runs, so a statement may be prepared before its table exists.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from headwater.errors import SqlSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable

Name: TypeAlias = tuple[str, ...]
"""The parts of a name, as `spark_catalog.db.t`."""


class Target(msgspec.Struct, frozen=True):
    """The table of a statement: its name, or a path in quotes."""

    name: Name = ()
    path: str | None = None

    def __str__(self) -> str:
        return f"'{self.path}'" if self.path is not None else ".".join(self.name)


class AsOf(msgspec.Struct, frozen=True):
    """A point in the history: a version or the text of a timestamp."""

    version: int | None = None
    timestamp: str | None = None


class Vacuum(msgspec.Struct, frozen=True, tag=True):
    target: Target
    lite: bool = False
    retention_hours: float | None = None
    dry_run: bool = False
    inventory: str | None = None
    """A query for the inventory of files."""


class DescribeDetail(msgspec.Struct, frozen=True, tag=True):
    target: Target


class DescribeHistory(msgspec.Struct, frozen=True, tag=True):
    target: Target
    limit: int | None = None


class Generate(msgspec.Struct, frozen=True, tag=True):
    mode: str
    target: Target


class ConvertToDelta(msgspec.Struct, frozen=True, tag=True):
    target: Target
    collect_statistics: bool = True
    partition_schema: str | None = None


class Restore(msgspec.Struct, frozen=True, tag=True):
    target: Target
    as_of: AsOf


class AddConstraint(msgspec.Struct, frozen=True, tag=True):
    target: Target
    name: str
    expression: str


class DropConstraint(msgspec.Struct, frozen=True, tag=True):
    target: Target
    name: str
    if_exists: bool = False


class DropFeature(msgspec.Struct, frozen=True, tag=True):
    target: Target
    feature: str
    truncate_history: bool = False


class SyncIdentity(msgspec.Struct, frozen=True, tag=True):
    target: Target
    column: Name


class Optimize(msgspec.Struct, frozen=True, tag=True):
    target: Target
    full: bool = False
    where: str | None = None
    zorder_by: tuple[Name, ...] = ()


class Reorg(msgspec.Struct, frozen=True, tag=True):
    target: Target
    where: str | None = None
    iceberg_compat_version: int | None = None
    """For UPGRADE UNIFORM; None for PURGE."""


class Clone(msgspec.Struct, frozen=True, tag=True):
    target: Target
    source: Target
    deep: bool = False
    as_of: AsOf | None = None
    if_not_exists: bool = False
    replace: bool = False
    create: bool = True
    properties: dict[str, str] = {}
    location: str | None = None


class CreateSearchIndex(msgspec.Struct, frozen=True, tag=True):
    target: Target
    columns: tuple[Name, ...]
    options: dict[str, str] = {}


class RefreshSearchIndex(msgspec.Struct, frozen=True, tag=True):
    target: Target


class DropSearchIndex(msgspec.Struct, frozen=True, tag=True):
    target: Target


Statement: TypeAlias = (
    Vacuum
    | DescribeDetail
    | DescribeHistory
    | Generate
    | ConvertToDelta
    | Restore
    | AddConstraint
    | DropConstraint
    | DropFeature
    | SyncIdentity
    | Optimize
    | Reorg
    | Clone
    | CreateSearchIndex
    | RefreshSearchIndex
    | DropSearchIndex
)

_DECODER = msgspec.json.Decoder(Statement)


def decode_statement(text: str) -> Statement:
    """Return the statement that `msgspec.json.encode` has made a text of."""
    statement: Statement = _DECODER.decode(text)
    return statement


def parse_statement(text: str) -> Statement | None:
    """Return the statement of a text; None if it is one for Spark's own parser.

    Raises:
        SqlSyntaxError: it begins as a statement of Delta, and goes on as none.

    >>> parse_statement("VACUUM events RETAIN 200 HOURS DRY RUN")
    Vacuum(target=Target(name=('events',), path=None), lite=False, retention_hours=200.0, dry_run=True, inventory=None)
    >>> parse_statement("SELECT 1") is None
    True
    """
    parser = _Parser(text)
    for words, parse in _STATEMENTS:
        if parser.has(*words):
            return parse(parser)
    if parser.has("CREATE") or parser.has("REPLACE"):
        return _clone(parser)
    return _alter(parser) if parser.has("ALTER", "TABLE") else None


# --- tokens -------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<word>\w+)
    |(?P<symbol>.)""",
    re.X | re.S,
)
_ESCAPED = re.compile(r"\\(.)|''|\"\"", re.S)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    start: int
    end: int

    @property
    def value(self) -> str:
        if self.kind == "string":
            return _ESCAPED.sub(lambda m: _CONTROLS.get(m[1], m[1]) if m[1] else m[0][0], self.text[1:-1])
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


class _Parser:
    """Reads a statement from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = [
            _Token(m.lastgroup or "", m[0], m.start(), m.end()) for m in _TOKEN.finditer(text) if m.lastgroup != "space"
        ]
        while self._tokens and self._tokens[-1].text == ";":
            self._tokens.pop()
        self._at = 0

    def peek(self, ahead: int = 0) -> _Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def has(self, *words: str) -> bool:
        """Say whether the next tokens are these words."""
        found = [self.peek(i) for i in range(len(words))]
        return all(
            token is not None and token.kind in ("word", "symbol") and token.text.upper() == word
            for token, word in zip(found, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Go past these words, if they are next."""
        if not self.has(*words):
            return False
        self._at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise self.error(f"{' '.join(words)} is expected")

    def next(self, kinds: tuple[str, ...], what: str) -> _Token:
        token = self.peek()
        if token is None or token.kind not in kinds:
            raise self.error(f"{what} is expected")
        self._at += 1
        return token

    def error(self, problem: str) -> SqlSyntaxError:
        token = self.peek()
        place = "at the end of the statement" if token is None else f"at {token.text!r} (position {token.start})"
        return SqlSyntaxError(f"{problem} {place}: {self.text.strip()}")

    def done(self) -> None:
        if self.peek() is not None:
            raise self.error("the statement ends too late: nothing more is expected")

    # --- pieces of statements

    def name(self) -> Name:
        parts = [self.next(("word", "quoted"), "a name").value]
        while self.take("."):
            parts.append(self.next(("word", "quoted"), "a name").value)
        return tuple(parts)

    def target(self) -> Target:
        token = self.peek()
        return Target(path=self.string()) if token is not None and token.kind == "string" else Target(self.name())

    def string(self) -> str:
        text = self.next(("string",), "a text in quotes").value
        while (token := self.peek()) is not None and token.kind == "string":
            text += self.next(("string",), "a text in quotes").value
        return text

    def integer(self, what: str) -> int:
        token = self.next(("number",), what)
        if not token.text.isdigit():
            raise self.error(f"{what} is a whole number, not {token.text}")
        return int(token.text)

    def number(self, what: str) -> float:
        sign = -1.0 if self.take("-") else 1.0
        return sign * float(self.next(("number",), what).text)

    def names(self) -> tuple[Name, ...]:
        """Read names with commas between them, perhaps in parentheses."""
        enclosed = self.take("(")
        names = [self.name()]
        while self.take(","):
            names.append(self.name())
        if enclosed:
            self.expect(")")
        return tuple(names)

    def text_until(self, *ends: tuple[str, ...]) -> str:
        """Read an expression: everything up to one of these words outside of parentheses, or to the end."""
        first, depth, last = self.peek(), 0, None
        while (token := self.peek()) is not None and not (depth == 0 and any(self.has(*words) for words in ends)):
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
            last = token
            self._at += 1
        if first is None or last is None:
            raise self.error("an expression is expected")
        return self.text[first.start : last.end]

    def enclosed_text(self) -> str:
        """Read the text between parentheses."""
        self.expect("(")
        text = self.text_until((")",))
        self.expect(")")
        return text

    def as_of(self) -> AsOf | None:
        self.take("FOR")
        if self.take("VERSION", "AS", "OF") or self.take("SYSTEM_VERSION", "AS", "OF"):
            token = self.next(("number", "string"), "a version")
            if not token.value.strip().isdigit():
                raise self.error(f"a version is a whole number, not {token.value}")
            return AsOf(version=int(token.value))
        if self.take("TIMESTAMP", "AS", "OF") or self.take("SYSTEM_TIME", "AS", "OF"):
            return AsOf(timestamp=self.string())
        return None

    def properties(self) -> dict[str, str]:
        self.expect("(")
        found: dict[str, str] = {}
        while True:
            token = self.peek()
            key = self.string() if token is not None and token.kind == "string" else ".".join(self.name())
            self.take("=")
            found[key] = self.next(("string", "number", "word"), "the value of a property").value
            if not self.take(","):
                break
        self.expect(")")
        return found


# --- statements ---------------------------------------------------------------------------------------


def _vacuum(p: _Parser) -> Vacuum:
    p.expect("VACUUM")
    target = p.target()
    lite, hours, dry_run, inventory = False, None, False, None
    while p.peek() is not None:
        if p.take("LITE"):
            lite = True
        elif p.take("FULL"):
            lite = False
        elif p.take("RETAIN"):
            hours = p.number("a number of hours")
            p.expect("HOURS")
        elif p.take("DRY", "RUN"):
            dry_run = True
        elif p.take("USING", "INVENTORY"):
            inventory = p.enclosed_text() if p.has("(") else f"SELECT * FROM {quoted_name(p.name())}"
        else:
            raise p.error("LITE, FULL, RETAIN n HOURS, USING INVENTORY or DRY RUN is expected")
    return Vacuum(target, lite, hours, dry_run, inventory)


def _describe(p: _Parser) -> DescribeDetail | DescribeHistory:
    if not p.take("DESC"):
        p.expect("DESCRIBE")
    if p.take("DETAIL"):
        target = p.target()
        p.done()
        return DescribeDetail(target)
    p.expect("HISTORY")
    target = p.target()
    limit = p.integer("the limit") if p.take("LIMIT") else None
    p.done()
    return DescribeHistory(target, limit)


def _generate(p: _Parser) -> Generate:
    p.expect("GENERATE")
    mode = p.next(("word", "quoted"), "what to generate").value
    p.expect("FOR", "TABLE")
    target = Target(p.name())
    p.done()
    return Generate(mode, target)


def _convert(p: _Parser) -> ConvertToDelta:
    p.expect("CONVERT", "TO", "DELTA")
    target = Target(p.name())
    collect = not p.take("NO", "STATISTICS")
    schema = p.enclosed_text() if p.take("PARTITIONED", "BY") else None
    p.done()
    return ConvertToDelta(target, collect, schema)


def _restore(p: _Parser) -> Restore:
    p.expect("RESTORE")
    p.take("TABLE")
    target = Target(p.name())
    p.take("TO")
    as_of = p.as_of()
    if as_of is None:
        raise p.error("VERSION AS OF or TIMESTAMP AS OF is expected")
    p.done()
    return Restore(target, as_of)


def _optimize(p: _Parser) -> Optimize:
    p.expect("OPTIMIZE")
    target = p.target()
    full = p.take("FULL")
    where = p.text_until(("ZORDER", "BY")) if p.take("WHERE") else None
    zorder = p.names() if p.take("ZORDER", "BY") else ()
    p.done()
    return Optimize(target, full, where, zorder)


def _reorg(p: _Parser) -> Reorg:
    p.expect("REORG", "TABLE")
    target = Target(p.name())
    where = p.text_until(("APPLY", "(")) if p.take("WHERE") else None
    p.expect("APPLY", "(")
    version = None
    if where is not None or not p.take("UPGRADE", "UNIFORM"):
        p.expect("PURGE")
    else:
        p.expect("(", "ICEBERG_COMPAT_VERSION", "=")
        version = p.integer("the version of IcebergCompat")
        p.expect(")")
    p.expect(")")
    p.done()
    return Reorg(target, where, version)


def _clone(p: _Parser) -> Clone | None:
    create = p.take("CREATE")
    replace = (p.take("OR", "REPLACE") or p.take("REPLACE")) if create else p.take("REPLACE")
    if not p.take("TABLE"):
        return None
    if_not_exists = p.take("IF", "NOT", "EXISTS")
    target = Target(p.name())
    deep = p.has("DEEP", "CLONE") or p.has("CLONE")
    if not (p.take("SHALLOW", "CLONE") or p.take("DEEP", "CLONE") or p.take("CLONE")):
        return None
    source = Target(p.name())
    as_of = p.as_of()
    properties = p.properties() if p.take("TBLPROPERTIES") else {}
    location = p.string() if p.take("LOCATION") else None
    p.done()
    return Clone(target, source, deep, as_of, if_not_exists, replace, create, properties, location)


def _alter(p: _Parser) -> AddConstraint | DropConstraint | DropFeature | SyncIdentity | None:
    p.expect("ALTER", "TABLE")
    target = Target(p.name())
    if p.take("DROP", "FEATURE"):
        feature = p.next(("word", "quoted", "string"), "the name of a table feature").value
        truncate = p.take("TRUNCATE", "HISTORY")
        p.done()
        return DropFeature(target, feature, truncate)
    if p.take("ADD", "CONSTRAINT"):
        name = p.next(("word", "quoted"), "the name of a constraint").value
        if not p.take("CHECK"):
            return None
        expression = p.enclosed_text()
        p.done()
        return AddConstraint(target, name, expression)
    if p.take("DROP", "CONSTRAINT"):
        if_exists = p.take("IF", "EXISTS")
        return DropConstraint(target, p.next(("word", "quoted"), "the name of a constraint").value, if_exists)
    if p.take("ALTER") or p.take("CHANGE"):
        p.take("COLUMN")
        column = p.name()
        return SyncIdentity(target, column) if p.take("SYNC", "IDENTITY") else None
    return None


def _create_search_index(p: _Parser) -> CreateSearchIndex:
    p.expect("CREATE", "SEARCH", "INDEX", "ON")
    target = p.target()
    columns = p.names()
    options = p.properties() if p.take("OPTIONS") else {}
    p.done()
    return CreateSearchIndex(target, columns, options)


def _refresh_search_index(p: _Parser) -> RefreshSearchIndex:
    p.expect("REFRESH", "SEARCH", "INDEX", "ON")
    target = p.target()
    p.done()
    return RefreshSearchIndex(target)


def _drop_search_index(p: _Parser) -> DropSearchIndex:
    p.expect("DROP", "SEARCH", "INDEX", "ON")
    target = p.target()
    p.done()
    return DropSearchIndex(target)


_STATEMENTS: tuple[tuple[tuple[str, ...], Callable[[_Parser], Statement]], ...] = (
    (("VACUUM",), _vacuum),
    (("OPTIMIZE",), _optimize),
    (("DESCRIBE", "HISTORY"), _describe),
    (("DESCRIBE", "DETAIL"), _describe),
    (("DESC", "HISTORY"), _describe),
    (("DESC", "DETAIL"), _describe),
    (("RESTORE",), _restore),
    (("CONVERT", "TO", "DELTA"), _convert),
    (("GENERATE",), _generate),
    (("REORG",), _reorg),
    (("CREATE", "SEARCH", "INDEX"), _create_search_index),
    (("REFRESH", "SEARCH", "INDEX"), _refresh_search_index),
    (("DROP", "SEARCH", "INDEX"), _drop_search_index),
)


def quoted_name(name: Name) -> str:
    """Return a name as SQL writes it.

    >>> quoted_name(("delta", "/data/a`b"))
    '`delta`.`/data/a``b`'
    """
    return ".".join("`" + part.replace("`", "``") + "`" for part in name)
