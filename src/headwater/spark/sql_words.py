"""The words of a text in SQL: enough to tell what Spark's analyzer does not say, or says only in classic sessions."""

from __future__ import annotations

from itertools import pairwise

from headwater.errors import FilterError

RANDOM_FUNCTIONS = frozenset(
    {
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "monotonically_increasing_id",
        "rand",
        "randn",
        "random",
        "randstr",
        "shuffle",
        "spark_partition_id",
        "uniform",
        "uuid",
    }
)
"""Functions whose answer depends on more than the row and the query."""
TIME_FUNCTIONS = frozenset(
    {"curdate", "current_date", "current_time", "current_timestamp", "localtimestamp", "now", "unix_timestamp"}
)
"""Functions that have one answer in a query, and another one in the next."""


def words(text: str) -> list[str]:
    """The words of a text, in lower case, without strings and quoted names.

    >>> words("a > 'b' AND Rand() < 1")
    ['a', '>', '', 'and', 'rand', '(', ')', '<', '1']

    Raises:
        FilterError: the text cannot be read as SQL.
    """
    import sqlglot
    from sqlglot import TokenType
    from sqlglot.errors import SqlglotError

    try:
        tokens = sqlglot.tokenize(text, read="spark")
    except SqlglotError as error:
        raise FilterError(f"the expression cannot be read: {text}") from error
    quoted = (TokenType.STRING, TokenType.IDENTIFIER)
    return ["" if token.token_type in quoted else token.text.lower() for token in tokens]


def called_functions(text: str) -> set[str]:
    """The names that stand before a parenthesis.

    >>> sorted(called_functions("abs(x) > 1 AND upper(y) = 'Z'"))
    ['abs', 'upper']
    """
    return {a for a, b in pairwise(words(text)) if b == "(" and a.isidentifier()}
