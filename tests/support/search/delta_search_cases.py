"""Random lines and queries for search on Delta tables, and what the queries find by a naive reading of the lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

from headwater.features.context import TableRef
from headwater.search.query.parse import parse_query
from headwater.spark.search.delta import open_indexed_table
from headwater.spark.search.source import Search, Wanted
from headwater.spark.session import SparkTable

Row: TypeAlias = tuple[int, str | None, str | None, int | None]
"""id, host, message, took."""
SCHEMA = "id BIGINT, host STRING, message STRING, took BIGINT"
COLUMNS: dict[str, Any] = {"message": "text", "host": "string", "took": None}

WORDS = ("disk", "full", "error", "timeout", "retry", "disco", "upstream")
HOSTS = ("web-1", "web-2", "db 1")

_messages = st.lists(st.sampled_from([*WORDS, *(word.upper() for word in WORDS[:3])]), max_size=6).map(
    lambda words: ", ".join(words)
)


def rows(first_id: int, count: int) -> st.SearchStrategy[list[Row]]:
    """Some rows with new ids."""
    row = st.tuples(
        st.one_of(st.none(), st.sampled_from(HOSTS)), st.one_of(st.none(), _messages), st.none() | st.integers(0, 20)
    )
    return st.lists(row, min_size=1, max_size=count).map(
        lambda drawn: [(first_id + number, *values) for number, values in enumerate(drawn)]
    )


@dataclass(frozen=True)
class Asked:
    """A query, and whether it finds a row."""

    text: str
    finds: Callable[[Row], bool]

    def __repr__(self) -> str:
        return self.text


def _words(row: Row) -> list[str]:
    return re.findall(r"[a-z0-9]+", (row[2] or "").lower())


def _word(word: str) -> Asked:
    return Asked(word, lambda row: word in _words(row))


def _prefix(length: int) -> Asked:
    start = "disk"[:length]
    return Asked(f"message:{start}*", lambda row: any(word.startswith(start) for word in _words(row)))


def _phrase(words: tuple[str, str]) -> Asked:
    def finds(row: Row) -> bool:
        found = _words(row)
        return any(tuple(found[i : i + 2]) == words for i in range(len(found)))

    return Asked(f'"{" ".join(words)}"', finds)


def _host(host: str) -> Asked:
    return Asked(f'host:"{host}"', lambda row: row[1] == host)


def _range(bounds: tuple[int, int]) -> Asked:
    least, most = min(bounds), max(bounds)
    return Asked(f"took:[{least} TO {most}]", lambda row: row[3] is not None and least <= row[3] <= most)


def _not(asked: Asked) -> Asked:
    return Asked(f"(NOT {asked})", lambda row: not asked.finds(row))


def _both(pair: tuple[Asked, Asked]) -> Asked:
    return Asked(f"({pair[0]} AND {pair[1]})", lambda row: pair[0].finds(row) and pair[1].finds(row))


def _either(pair: tuple[Asked, Asked]) -> Asked:
    return Asked(f"({pair[0]} OR {pair[1]})", lambda row: pair[0].finds(row) or pair[1].finds(row))


_words_of = st.sampled_from(WORDS)
_leaf = st.one_of(
    _words_of.map(_word),
    st.integers(1, 4).map(_prefix),
    st.tuples(_words_of, _words_of).map(_phrase),
    st.sampled_from(HOSTS).map(_host),
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(_range),
)
queries = st.recursive(
    _leaf,
    lambda inner: st.one_of(inner.map(_not), st.tuples(inner, inner).map(_both), st.tuples(inner, inner).map(_either)),
    max_leaves=4,
)


def found_ids(spark: Any, path: str, query: str, version: int | None = None) -> list[int]:
    """What a search finds, by everything that a search does except Spark's planning and its workers."""
    table = open_indexed_table(SparkTable(spark, TableRef(path)), version)
    source = table.source(Search(parse_query(query, table.config)))
    wanted = Wanted(("id",))
    plan = source.task_plan(wanted)
    batches = [batch for task in source.tasks(wanted, 2) for batch in plan.read(task)]
    return sorted(number for batch in batches for number in batch.column("id").to_pylist())
