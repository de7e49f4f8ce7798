"""Search in SQL today: `textsearch(column, query)`, a function of a session.

It is an ordinary function of Python's, right on every table and view: the query looks at the words of one value. Where
the column is one of a search table's text fields, the planner's filter is recognised and the index answers it instead
(`matching_query`), with the same analyser and so with the same answer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SearchFunctionError
from headwater.log.schema import STRING
from headwater.search.analysis import TOKENIZERS
from headwater.search.config import FieldConfig, IndexConfig
from headwater.search.query.parse import parse_query
from headwater.search.query.tree import Exists, FieldPath, all_of
from headwater.search.rows.evaluate import matches
from headwater.spark.functions import functions_for, jvm_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.search.query.tree import Query
    from headwater.spark.jvm import JavaObject

FUNCTION = "textsearch"
_TOKENIZER = TOKENIZERS[0]
_PYTHON_UDF = "org.apache.spark.sql.catalyst.expressions.PythonUDF"
_REGISTERED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The pickled function of a session as the JVM has it, by which a filter is known to be ours."""


def register_search_functions(spark: SparkSession) -> None:
    """Give a session the SQL function `textsearch(text, query)`.

    It is true where the query finds something in the text, word by word as the `default` tokenizer sees them; null for
    a text that is null.

    Args:
        spark: the session.

    Example:
        >>> register_search_functions(spark)  # doctest: +SKIP
        >>> spark.sql("SELECT * FROM logs WHERE textsearch(message, 'disk AND NOT full')")  # doctest: +SKIP
    """
    try:
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
    except ImportError as error:
        raise SearchFunctionError(
            f"{FUNCTION} needs functions on Arrow, which PySpark has from 4.1 on; SearchTable.search does not."
        ) from error
    with functions_for(spark):
        registered: Any = spark.udf.register(FUNCTION, arrow_udf(text_search, "boolean"))
    if jvm_session(spark) is not None:
        _REGISTERED[spark] = registered._judf.func().command()


def text_search(texts: pa.Array, queries: pa.Array) -> pa.Array:
    """Say whether each query finds something in its text. Most calls have one query for all texts."""
    found = pa.nulls(len(texts), pa.bool_())
    rows = pa.table({"text": texts.cast(pa.string())})
    for query in pc.unique(queries).to_pylist():
        if query is not None:
            asked = pc.and_(texts.is_valid(), pc.fill_null(pc.equal(queries, query), False))
            here = rows.filter(asked)
            found = pc.replace_with_mask(found, asked, matches(_parsed(query), here, _config()))
    return found


@functools.lru_cache(maxsize=256)
def _parsed(query: str) -> Query:
    return parse_query(query, _config())


@functools.cache
def _config() -> IndexConfig:
    return IndexConfig((FieldConfig("text", "text", "text", STRING, tokenizer=_TOKENIZER),))


def matching_query(spark: SparkSession, condition: JavaObject, config: IndexConfig) -> Query | None:
    """Return the query of the index for a filter `textsearch(column, 'query')`; None for any other filter.

    Raises:
        SearchQueryError: the query cannot be understood.
    """
    known = _REGISTERED.get(spark)
    if known is None or condition.getClass().getName() != _PYTHON_UDF or condition.name() != FUNCTION:
        return None
    if not condition.func().command().equals(known):
        return None
    column, query = (condition.children().apply(number) for number in (0, 1))
    if not column.getClass().getName().endswith(".AttributeReference") or not query.foldable():
        return None
    field = config.find(column.name())
    text = query.eval(None)
    if field is None or field.kind != "text" or field.tokenizer != _TOKENIZER or not field.indexed or text is None:
        return None
    only = IndexConfig((field,))
    # The function is not true of null, whatever the query asks.
    return all_of(parse_query(text.toString(), only, [field.name]), Exists(FieldPath(field.name)))
