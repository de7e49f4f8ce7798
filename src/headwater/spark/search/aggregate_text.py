"""Aggregates as people write them: `count`, `avg(took) AS mean`, `date_histogram(ts, 1h)`.

>>> from headwater.log.schema import LONG, StructField, StructType
>>> schema = StructType([StructField("took", LONG)])
>>> aggregate_request(["count", "max(Took)"], ["histogram(took, 100)"], schema).names
('took', 'count', 'max(took)')
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from headwater.errors import SearchQueryError
from headwater.search.aggregation_request import FUNCTIONS, AggregateRequest, ByNumber, ByTime, ByValue, Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.schema import StructType
    from headwater.search.aggregation_request import Function, Group

_NAME = r"(?:`(?P<quoted>[^`]+)`|(?P<plain>[^`(),]+?))"
_METRIC = re.compile(rf"\s*(?P<function>\w+)\s*(?:\(\s*(?:\*|{_NAME})\s*\))?\s*(?:\s[aA][sS]\s+(?P<as>\w+)\s*)?")
_BUCKETS = re.compile(
    rf"\s*(?P<kind>histogram|date_histogram)\s*\(\s*{_NAME}\s*,\s*(?P<quote>['\"]?)(?P<width>[^'\",]+?)(?P=quote)\s*"
    r"(?:,\s*(?P<offset>[^,]+?)\s*)?\)\s*",
    re.IGNORECASE,
)


def aggregate_request(aggregates: Sequence[str], group_by: Sequence[str], schema: StructType) -> AggregateRequest:
    """What is asked for, with the columns as the table calls them.

    Raises:
        SearchQueryError: a text is none of the forms.
        ColumnNotFoundError: the table has no such column.
    """
    if isinstance(aggregates, str):
        aggregates = [aggregates]
    return AggregateRequest(
        tuple(_metric(text, schema) for text in aggregates), tuple(_group(text, schema) for text in group_by)
    )


def _metric(text: str, schema: StructType) -> Metric:
    found = _METRIC.fullmatch(text)
    function = found["function"].lower() if found is not None else ""
    if found is None or function not in FUNCTIONS:
        raise SearchQueryError(
            f"{text!r} is no aggregate: write count, count(column), sum(column), avg(column), min(column), max(column)"
        )
    given = found["quoted"] or found["plain"]
    column = None if given is None else schema.field(given).name
    name = found["as"] or ("count" if text.strip().lower() == "count" else None)
    return Metric(cast("Function", function), column, name)


def _group(text: str, schema: StructType) -> Group:
    found = _BUCKETS.fullmatch(text)
    if found is None:
        return ByValue(schema.field(text.strip().strip("`")).name)
    column = schema.field(found["quoted"] or found["plain"]).name
    if found["kind"].lower() == "date_histogram":
        if found["offset"] is not None:
            raise SearchQueryError(f"{text!r}: a date histogram has a column and an interval, as in (ts, 1h)")
        return ByTime(column, found["width"])
    return ByNumber(column, _number(text, found["width"]), _number(text, found["offset"] or "0"))


def _number(text: str, number: str) -> int | float:
    try:
        return int(number)
    except ValueError:
        pass
    try:
        return float(number)
    except ValueError:
        raise SearchQueryError(f"{text!r}: {number!r} is no number, as in histogram(took, 100)") from None
