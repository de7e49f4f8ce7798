"""Snippets: the piece of a text in which a query found something, with what it found marked.

Made from plain rows, so that they work for rows that no index covers. The marked words are those whose tokens the
query's leaves on the field ask for; everything around them is escaped for HTML.

>>> from headwater.log.schema import STRING
>>> from headwater.search.config import FieldConfig, IndexConfig
>>> from headwater.search.query.parse import parse_query
>>> import pyarrow as pa
>>> config = IndexConfig((FieldConfig("message", "message", "text", STRING, tokenizer="default"),))
>>> rows = pa.table({"message": ["Disk <full> on web-1", None]})
>>> snippets(parse_query("disk OR full", config), rows, config, "message").to_pylist()
['<b>Disk</b> &lt;<b>full</b>&gt; on web-1', None]
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from headwater.errors import SearchQueryError
from headwater.log.files import arrow as build
from headwater.search.analysis import tokens
from headwater.search.query.patterns import is_separator
from headwater.search.query.targets import find_target
from headwater.search.query.tree import Boolean, Boost, Exists, Phrase, TermSet, leaves
from headwater.search.rows.evaluate import chosen_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headwater.search.config import IndexConfig
    from headwater.search.query.targets import Target
    from headwater.search.query.tree import Leaf, Query

MAX_CHARACTERS = 150


def snippets(
    query: Query, rows: pa.Table, config: IndexConfig, field: str, max_characters: int = MAX_CHARACTERS
) -> pa.StringArray:
    """Return a snippet of a text or string field for each row; null where the column is null.

    Marks do not count for `max_characters`.
    """
    target = find_target(config, field)
    if target.kind not in ("text", "string") or target.path:
        raise SearchQueryError(f"field {field!r} is not a text: it has no snippets")
    wanted = [leaf for leaf in _positive_leaves(query) if _is_about(leaf, target, config)]
    column = rows.column(target.field.column).to_pylist()
    return build.strings([None if v is None else _snippet(str(v), target, wanted, max_characters) for v in column])


def _positive_leaves(query: Query) -> list[Leaf]:
    match query:
        case Boolean(must=must, should=should):
            return [leaf for part in (*must, *should) for leaf in _positive_leaves(part)]
        case Boost(query=inner):
            return _positive_leaves(inner)
        case _:
            return list(leaves(query))


def _is_about(leaf: Leaf, target: Target, config: IndexConfig) -> bool:
    field = config.find(leaf.on.field)
    return field is not None and field.name == target.field.name and not isinstance(leaf, Exists)


def _snippet(text: str, target: Target, wanted: Sequence[Leaf], max_characters: int) -> str:
    words = _words(text, target.tokenizer)
    marked = _marked([token for _, _, token in words], wanted)
    hits = [(start, end) for (start, end, _), is_hit in zip(words, marked, strict=True) if is_hit]
    left, right = _window(text, hits, max_characters)
    out, at = ["…" if left else ""], left
    for start, end in hits:
        if start >= left and end <= right:
            out += [html.escape(text[at:start]), "<b>", html.escape(text[start:end]), "</b>"]
            at = end
    return "".join([*out, html.escape(text[at:right]), "…" if right < len(text) else ""])


def _words(text: str, tokenizer: str) -> list[tuple[int, int, str]]:
    """Return the start and end of each word, and its token."""
    if tokenizer == "raw":
        return [(0, len(text), text)]
    separators = "".join(sorted({re.escape(c) for c in set(text) if is_separator(tokenizer, c)}))
    pattern = f"[^{separators}]+" if separators else "(?s:.+)"
    return [(m.start(), m.end(), tokens(tokenizer, m[0])[0]) for m in re.finditer(pattern, text)]


def _marked(words: Sequence[str], wanted: Sequence[Leaf]) -> list[bool]:
    if not words or not wanted:
        return [False] * len(words)
    terms = build.strings(list(words))
    marks = [False] * len(words)
    for leaf in wanted:
        single = TermSet(leaf.on, tuple(leaf.terms)) if isinstance(leaf, Phrase) else leaf
        found = chosen_terms(single, terms).to_pylist()
        marks = [a or b for a, b in zip(marks, found, strict=True)]
    return marks


def _window(text: str, hits: Sequence[tuple[int, int]], max_characters: int) -> tuple[int, int]:
    """Return the piece of the text with the most hits, with some text around them."""
    if len(text) <= max_characters:
        return 0, len(text)
    best = (0, 0, 0)
    after = 0  # the first hit that does not fit into a window that starts with hit i; it only ever moves on
    for i, (start, _) in enumerate(hits):
        while after < len(hits) and hits[after][1] - start <= max_characters:
            after += 1
        if after - i > best[0]:
            best = (after - i, start, hits[after - 1][1])
    count, start, end = best
    if not count:
        return 0, max_characters
    left = max(0, min(start - (max_characters - (end - start)) // 2, len(text) - max_characters))
    return left, left + max_characters
