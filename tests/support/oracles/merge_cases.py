"""The ways of merging that are tested: clauses, conditions and kinds of tables, so that every two values meet."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import headwater as hw
from support.oracles import merge_model as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater import DeltaMergeBuilder

AXES: dict[str, list[Any]] = {
    "matched": [(m.UPDATE_IF, m.DELETE_IF), (m.DELETE_IF, m.UPDATE_ALL_IF, m.UPDATE), (m.UPDATE,), (m.DELETE,), ()],
    "not_matched": [(m.INSERT_ALL,), (m.INSERT_IF, m.INSERT_ALL_IF), ()],
    "by_source": [(), (m.SOURCE_UPDATE_IF, m.SOURCE_DELETE_IF), (m.SOURCE_DELETE,)],
    "condition": list(m.CONDITIONS),
    "vectors": ["none", "new", "there before"],
    "partitioned": [False, True],
    "recorded": [False, True],
    "mapping": ["none", "name", "id"],
    "tracked": [False, True],
}


@dataclass(frozen=True)
class Case:
    """A merge into a kind of table."""

    number: int
    matched: tuple[m.Spec, ...]
    not_matched: tuple[m.Spec, ...]
    by_source: tuple[m.Spec, ...]
    condition: str
    vectors: str
    partitioned: bool
    recorded: bool
    mapping: str
    tracked: bool

    @property
    def clauses(self) -> tuple[m.Spec, ...]:
        return (*self.matched, *self.not_matched, *self.by_source) or (m.INSERT_ALL,)

    @property
    def properties(self) -> dict[str, str]:
        return {
            "delta.enableDeletionVectors": str(self.vectors != "none").lower(),
            "delta.enableChangeDataFeed": str(self.recorded).lower(),
            "delta.enableRowTracking": str(self.tracked).lower(),
            "delta.columnMapping.mode": self.mapping,
        }

    @property
    def data(self) -> tuple[list[m.T], list[m.S]]:
        chance = random.Random(self.number)
        return m.random_target(chance), m.random_source(chance)

    def __str__(self) -> str:
        clauses = "+".join(f"{c.when}-{c.action}" for c in self.clauses).replace(" ", "_")
        return f"{self.number}-{clauses}-vectors_{self.vectors}-{self.mapping}".replace(" ", "_")


def pairwise() -> list[Case]:
    """Cases in which any two values of any two axes come together."""
    chance = random.Random(7)
    missing = {
        frozenset({(a, i), (b, j)})
        for a, b in combinations(AXES, 2)
        for i in range(len(AXES[a]))
        for j in range(len(AXES[b]))
    }
    cases: list[Case] = []
    while missing:
        best = max((_candidate(missing, chance) for _ in range(30)), key=lambda c: len(missing & _pairs(c)))
        missing -= _pairs(best)
        cases.append(Case(len(cases), **{name: AXES[name][place] for name, place in best.items()}))
    return cases


def _candidate(missing: set[frozenset[tuple[str, int]]], chance: random.Random) -> dict[str, int]:
    """A pair that is missing, and for each other axis the value that makes most pairs with what is there."""
    picked = dict(chance.choice(sorted(missing, key=sorted)))
    for name in chance.sample(list(AXES), len(AXES)):
        if name not in picked:
            places = chance.sample(range(len(AXES[name])), len(AXES[name]))
            picked[name] = max(places, key=lambda place: len(missing & _pairs({**picked, name: place})))
    return picked


def _pairs(picked: dict[str, int]) -> set[frozenset[tuple[str, int]]]:
    return {frozenset(pair) for pair in combinations(picked.items(), 2)}


def write_target(spark: SparkSession, path: str, case: Case) -> None:
    """The table of a case, in a few files; perhaps with rows that are deleted already."""
    rows, _ = case.data
    more = [row._replace(u=1000 + number, x=99) for number, row in enumerate(rows)] if _has_old(case) else []
    frame = spark.createDataFrame([*rows, *more], m.TARGET_SCHEMA).repartition(3)
    hw.write(frame, path, partition_by="p" if case.partitioned else None, properties=case.properties)
    if more:
        hw.DeltaTable.forPath(spark, path).delete("u >= 1000")


def builder(spark: SparkSession, path: str, case: Case) -> DeltaMergeBuilder:
    """The merge of a case."""
    source = spark.createDataFrame(case.data[1], m.SOURCE_SCHEMA)
    found = hw.DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), case.condition)
    for clause in case.clauses:
        found = with_clause(found, clause)
    return found


def with_clause(found: DeltaMergeBuilder, clause: m.Spec) -> DeltaMergeBuilder:
    """A builder with one more clause."""
    values: Any = clause.values
    match clause.when, clause.action:
        case "matched", "delete":
            return found.whenMatchedDelete(clause.condition)
        case "matched", "update" if values is None:
            return found.whenMatchedUpdateAll(clause.condition)
        case "matched", "update":
            return found.whenMatchedUpdate(clause.condition, values)
        case "not matched", "insert" if values is None:
            return found.whenNotMatchedInsertAll(clause.condition)
        case "not matched", "insert":
            return found.whenNotMatchedInsert(clause.condition, values)
        case "not matched by source", "delete":
            return found.whenNotMatchedBySourceDelete(clause.condition)
        case _:
            return found.whenNotMatchedBySourceUpdate(clause.condition, values)


def _has_old(case: Case) -> bool:
    return case.vectors == "there before"
