"""MERGE as a plain model in Python, with clauses that are said three times: in SQL, in Python, and for deltalake."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TARGET_SCHEMA = "id long, p string, v string, x long, u long"
SOURCE_SCHEMA = f"{TARGET_SCHEMA}, flag boolean"


class T(NamedTuple):
    """A row of the target; `u` tells rows apart that are otherwise the same."""

    id: int | None
    p: str
    v: str | None
    x: int | None
    u: int | None


class S(NamedTuple):
    """A row of the source."""

    id: int | None
    p: str
    v: str | None
    x: int | None
    u: int | None
    flag: bool | None

    @property
    def row(self) -> T:
        """What a star makes of it."""
        return T(*self[:5])


class AmbiguousError(Exception):
    """Several rows of the source act on one row of the target."""


def above(one: int | None, other: int | None) -> bool | None:
    """`one > other` in SQL."""
    return None if one is None or other is None else one > other


def plus(one: Any, other: Any) -> Any:
    """`one + other`, or `one || other`, in SQL."""
    return None if one is None or other is None else one + other


@dataclass(frozen=True)
class Spec:
    """A clause."""

    when: str
    action: str
    condition: str | None = None
    holds: Callable[[Any, Any], bool | None] = lambda _t, _s: True
    values: dict[str, str] | None = None
    """None for the star."""
    new: Callable[[Any, Any], T] | None = None


UPDATE_IF = Spec(
    "matched",
    "update",
    "s.x > t.x",
    lambda t, s: above(s.x, t.x),
    {"x": "s.x + t.x", "v": "t.v || s.v"},
    lambda t, s: t._replace(x=plus(s.x, t.x), v=plus(t.v, s.v)),
)
UPDATE = Spec("matched", "update", None, values={"t.x": "-1"}, new=lambda t, _s: t._replace(x=-1))
UPDATE_ALL_IF = Spec("matched", "update", "t.x > 4", lambda t, _s: above(t.x, 4), new=lambda _t, s: s.row)
DELETE = Spec("matched", "delete")
DELETE_IF = Spec("matched", "delete", "s.flag", lambda _t, s: s.flag)
INSERT_ALL = Spec("not matched", "insert", None, new=lambda _t, s: s.row)
INSERT_IF = Spec(
    "not matched",
    "insert",
    "s.flag",
    lambda _t, s: s.flag,
    {"id": "s.id", "p": "s.p", "x": "s.x + 1"},
    lambda _t, s: T(s.id, s.p, None, plus(s.x, 1), None),
)
INSERT_ALL_IF = Spec("not matched", "insert", "s.x > 5", lambda _t, s: above(s.x, 5), new=lambda _t, s: s.row)
SOURCE_UPDATE_IF = Spec(
    "not matched by source",
    "update",
    "t.x > 6",
    lambda t, _s: above(t.x, 6),
    {"x": "t.x + 1000"},
    lambda t, _s: t._replace(x=plus(t.x, 1000)),
)
SOURCE_DELETE_IF = Spec("not matched by source", "delete", "t.p = 'b'", lambda t, _s: t.p == "b")
SOURCE_DELETE = Spec("not matched by source", "delete")


class Changes(NamedTuple):
    """What a merge does."""

    rows: Counter[tuple[int | None, T]]
    """The rows afterwards; of those that were there before also their `u` at that time."""
    feed: Counter[tuple[str, T]]
    updated: int
    deleted: int
    inserted: int

    @property
    def table(self) -> Counter[T]:
        """The rows afterwards."""
        return Counter(row for _, row in self.rows.elements())


CONDITIONS: dict[str, Callable[[T, S], bool]] = {
    "t.id = s.id": lambda t, s: t.id is not None and t.id == s.id,
    "t.id = s.id AND t.p = s.p": lambda t, s: t.id is not None and t.id == s.id and t.p == s.p,
    "s.id = t.id AND t.p = 'a' AND s.x > 1": lambda t, s: (
        t.id is not None and t.id == s.id and t.p == "a" and above(s.x, 1) is True
    ),
}


def merged(target: Sequence[T], source: Sequence[S], condition: str, clauses: Sequence[Spec]) -> Changes:
    """What a merge makes of a table."""
    matches = CONDITIONS[condition]
    rows: Counter[tuple[int | None, T]] = Counter()
    feed: Counter[tuple[str, T]] = Counter()
    for t in target:
        partners = [s for s in source if matches(t, s)]
        kind = "matched" if partners else "not matched by source"
        acts = [(c, s) for s in partners or [None] if (c := _acting(clauses, kind, t, s)) is not None]
        if len(acts) > 1 and acts[0][0] is not DELETE:
            raise AmbiguousError
        if not acts:
            rows[t.u, t] += 1
        elif acts[0][0].action == "delete":
            feed["delete", t] += 1
        else:
            clause, s = acts[0]
            assert clause.new is not None
            new = clause.new(t, s)
            rows[t.u, new] += 1
            feed.update([("update_preimage", t), ("update_postimage", new)])
    for s in source:
        clause = None if any(matches(t, s) for t in target) else _acting(clauses, "not matched", None, s)
        if clause is not None:
            assert clause.new is not None
            rows[None, clause.new(None, s)] += 1
            feed["insert", clause.new(None, s)] += 1
    count = Counter(kind for (kind, _), n in feed.items() for _ in range(n))
    return Changes(rows, feed, count["update_preimage"], count["delete"], count["insert"])


def sql(path: str, source: Sequence[S], condition: str, clauses: Sequence[Spec]) -> str:
    """The merge as a statement for delta-spark."""
    columns = ", ".join(name.split()[0] for name in SOURCE_SCHEMA.split(", "))
    casts = ", ".join(f"CAST({field.split()[0]} AS {field.split()[1]})" for field in SOURCE_SCHEMA.split(", "))
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in source)
    text = f"MERGE INTO delta.`{path}` t USING (SELECT {casts} FROM VALUES {values} AS q({columns})) s ON {condition}"
    for clause in clauses:
        text += f" WHEN {clause.when}" + (f" AND {clause.condition}" if clause.condition else "") + " THEN "
        if clause.action == "delete":
            text += "DELETE"
        elif clause.values is None:
            text += "UPDATE SET *" if clause.action == "update" else "INSERT *"
        elif clause.action == "update":
            text += "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in clause.values.items())
        else:
            text += f"INSERT ({', '.join(clause.values)}) VALUES ({', '.join(clause.values.values())})"
    return text


def random_target(chance: random.Random, count: int = 18) -> list[T]:
    """Rows of which some have the same key, or none."""
    return [
        T(
            chance.choice([None, *range(12)]),
            chance.choice("ab"),
            chance.choice(["v", None]),
            chance.choice([None, *range(9)]),
            number,
        )
        for number in range(count)
    ]


def random_source(chance: random.Random) -> list[S]:
    """Rows with a key each, and some with none."""
    keys: list[int | None] = [None, *chance.sample(range(18), 9)]
    return [
        S(
            key,
            chance.choice("ab"),
            chance.choice(["w", None]),
            chance.choice([None, *range(9)]),
            100 + number,
            chance.choice([True, False, None]),
        )
        for number, key in enumerate(keys)
    ]


def _acting(clauses: Sequence[Spec], when: str, t: T | None, s: S | None) -> Spec | None:
    return next((clause for clause in clauses if clause.when == when and clause.holds(t, s) is True), None)


def _literal(value: Any) -> str:
    return "NULL" if value is None else str(value).upper() if isinstance(value, bool) else repr(value)
