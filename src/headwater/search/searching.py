"""Searching one split: how many rows a query finds, which, which of them best, and why (snippets).

Answers of several splits are put together by adding counts, by `merge_statistics` before and sorting by score after
`top`, and by `headwater.search.aggregation` for aggregates.
"""

from __future__ import annotations

from headwater.search.matching import count, row_numbers
from headwater.search.ranking import ScoredRows, top
from headwater.search.row_scores import scores
from headwater.search.scoring import Statistics, merge_statistics
from headwater.search.snippets import snippets
from headwater.search.term_statistics import row_statistics, term_statistics

__all__ = [
    "ScoredRows",
    "Statistics",
    "count",
    "merge_statistics",
    "row_numbers",
    "row_statistics",
    "scores",
    "snippets",
    "term_statistics",
    "top",
]
