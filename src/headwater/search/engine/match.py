"""Find the rows of a split that match a query. No answer is ever cut off.

Where the index only proposes rows (`headwater.search.engine.compile`), they are read and decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from headwater.errors import SearchQueryError
from headwater.search.engine.compile import compile_query, gap_fields, unindexed_query
from headwater.search.query.tree import All, Nothing, map_leaves
from headwater.search.rows.evaluate import BATCH_ROWS, columns_needed, matches
from headwater.search.rows.tokens import counting
from headwater.search.split.rows import uint64s
from headwater.search.types import ROW_ID_FIELD

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from headwater.search.query.tree import Leaf, Query
    from headwater.search.split.reader import Split


class _Plan(NamedTuple):
    """How to ask splits of a kind."""

    given: Query
    query: Query
    """Without the columns that these splits do not have."""
    sure: tantivy.Query | None
    """What the index finds for sure."""
    asked: tantivy.Query | None
    """What else it proposes."""


_MAX_PLANS = 64
_PLANS: dict[tuple[Hashable, int], _Plan] = {}
"""By the kind of the splits and the identity of the query, which a plan keeps alive. Equal queries may be different
ones, as 1 and 1.0 are."""


def _planned(split: Split, query: Query) -> _Plan:
    """Plan how to ask a split. A table has many splits and they are mostly alike, so plans are kept for a while."""
    key = (split.kind, id(query))
    known = _PLANS.get(key)
    if known is not None and known.given is query:
        return known
    own = adapted(split, query)
    is_trivial = isinstance(own, All | Nothing) or split.num_records == 0
    plan = _Plan(query, own, *((None, None) if is_trivial else _parts(split, own)))
    if split.num_records:
        if len(_PLANS) >= _MAX_PLANS:
            _PLANS.clear()
        _PLANS[key] = plan
    return plan


def count(split: Split, query: Query) -> int:
    """Count the rows of a split that a query finds."""
    _, query, sure, asked = _planned(split, query)
    if isinstance(query, All):
        return split.num_records
    if split.num_records == 0 or isinstance(query, Nothing):
        return 0
    found = 0 if sure is None else run(split, sure, limit=1, count=True).count  # type: ignore[attr-defined]
    return int(found) + (0 if asked is None else len(decided(split, query, proposed(split, asked))))


def row_numbers(split: Split, query: Query) -> pa.UInt64Array:
    """Return the numbers of the rows of a split that a query finds, ascending."""
    _, query, sure, asked = _planned(split, query)
    if isinstance(query, All):
        return counting(split.num_records).cast(pa.uint64())
    if split.num_records == 0 or isinstance(query, Nothing):
        return uint64s([])
    if asked is None:
        assert sure is not None
        return proposed(split, sure)
    found = decided(split, query, proposed(split, asked))
    if sure is None:
        return found
    numbers = pa.concat_arrays([proposed(split, sure), found])
    return numbers.take(pc.sort_indices(numbers))


def _parts(split: Split, query: Query) -> tuple[tantivy.Query | None, tantivy.Query | None]:
    """Return the query whose rows are certain, and the query for rows that have to be read to decide."""
    compiled = compile_query(query, split)
    if compiled.exact:
        return compiled.query, None
    gaps = gap_fields(query, split)
    certain = compile_query(query, split, gaps=False)
    if not gaps or not certain.exact:
        return None, compiled.query
    # Only the rows that are not whole in the index need to be read.
    broken = broken_rows(split, gaps)
    return whole_rows(certain.query, broken), _both(compiled.query, broken)


def broken_rows(split: Split, gaps: Sequence[str]) -> tantivy.Query:
    """Find the rows of which the index lacks the value of one of some fields."""
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, unindexed_query(name, split)) for name in gaps])


def whole_rows(query: tantivy.Query, broken: tantivy.Query) -> tantivy.Query:
    """Leave only the rows of a query that the index has whole, with the same scores."""
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.MustNot, broken)])


def _both(query: tantivy.Query, other: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, other)])


def found_broken_rows(split: Split, query: Query, gaps: Sequence[str]) -> pa.UInt64Array:
    """Return the numbers of the rows that a query finds among those that the index does not have whole."""
    compiled = compile_query(query, split)
    return decided(split, query, proposed(split, _both(compiled.query, broken_rows(split, gaps))))


def adapted(split: Split, query: Query) -> Query:
    """Replace columns that were added to the table after the split was written: they are null in all its rows."""
    columns = {field.name.lower() for field in split.schema.fields}

    def known(leaf: Leaf) -> Query:
        name = leaf.on.field.lower()
        column = name.removesuffix(".raw").removesuffix(".text")  # a column's second field
        is_known = split.config.find(leaf.on.field) is not None or name in columns or column in columns
        return leaf if is_known else Nothing()

    return map_leaves(query, known)


def proposed(split: Split, query: tantivy.Query) -> pa.UInt64Array:
    """Return the numbers of the rows that the index finds, ascending."""
    # The library aborts for a limit that is far too large, and panics for 0.
    limit = max(1, split.searcher.num_docs)
    found = run(split, query, limit=limit, count=False, order_by_field=ROW_ID_FIELD, order=tantivy.Order.Asc)
    numbers = split.row_numbers_of([row_id for row_id, _ in found.hits])
    return numbers.take(pc.sort_indices(numbers))


def run(split: Split, query: tantivy.Query, **options: Any) -> tantivy.SearchResult:
    """Search the index, and raise `SearchQueryError` for what the library refuses only now."""
    try:
        return split.searcher.search(query, **options)
    except ValueError as error:
        raise SearchQueryError(f"the index of the split {split.path} refuses the query: {error}") from error


def decided(split: Split, query: Query, numbers: pa.UInt64Array) -> pa.UInt64Array:
    """Read rows, and return those that a query finds."""
    if len(numbers) == 0:
        return numbers
    columns = readable_columns(split, query)
    kept = []
    for start in range(0, len(numbers), BATCH_ROWS):
        piece = numbers.slice(start, BATCH_ROWS)
        kept.append(piece.filter(matches(query, split.rows(piece, columns), split.config)))
    return pa.concat_arrays([*kept, uint64s([])])


def readable_columns(split: Split, query: Query) -> list[str]:
    """Return the columns that a query needs, all of which must be in the rows."""
    columns = columns_needed(query, split.config)
    for name in columns:
        if name in split.config.index_only_columns:
            raise SearchQueryError(
                f"column {name!r} is only indexed: its values are not kept, and the index alone cannot answer {query}"
            )
    return columns
