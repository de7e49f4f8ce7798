"""Use Spark's column functions for the session at hand (classic or Spark Connect), and look at the text of SQL.

PySpark decides per process what `pyspark.sql.functions` means, but a process may hold sessions of both kinds. So code
that builds columns calls `functions()`, and an entry point says by `functions_for(session)` which kind it builds for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.log.schema import StructType


_T = TypeVar("_T")
_FOR_CONNECT: ContextVar[bool] = ContextVar("headwater_functions_for_connect", default=False)


def is_connect(thing: object) -> bool:
    """Say whether a session or DataFrame is one of Spark Connect; imports nothing.

    >>> is_connect(object())
    False
    """
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(thing).__mro__)


def functions() -> Any:
    """Return the module of column functions to use here."""
    if _FOR_CONNECT.get():
        from pyspark.sql.connect import functions as connect_functions

        return connect_functions
    from pyspark.sql import functions as classic_functions

    return classic_functions


@contextmanager
def functions_for_connect() -> Iterator[Any]:
    """Let `functions` return those of Spark Connect, within this context and thread."""
    token = _FOR_CONNECT.set(True)
    try:
        yield functions()
    finally:
        _FOR_CONNECT.reset(token)


def functions_for(thing: object) -> AbstractContextManager[Any]:
    """Let `functions` return those for the kind of a session or DataFrame, within this context and thread."""
    return functions_for_connect() if is_connect(thing) else nullcontext()


def are_same_kind(one: object, other: object) -> bool:
    """Say whether sessions or DataFrames are of the same kind: both classic, or both of Spark Connect."""
    return is_connect(one) == is_connect(other)


def jvm_session(spark: SparkSession) -> Any | None:
    """Return a session as the JVM has it; None on Spark Connect, where Python does not reach the JVM."""
    return None if is_connect(spark) else spark._jsparkSession


def query_execution(frame: DataFrame) -> Any | None:
    """Return the JVM's `QueryExecution` of a DataFrame; None on Spark Connect."""
    return None if is_connect(frame) else frame._jdf.queryExecution()


def connect_plan(frame: DataFrame) -> Any | None:
    """Return the plan of a DataFrame of Spark Connect, a tree of Python objects; None in classic PySpark."""
    return frame._plan if is_connect(frame) else None


def java_node(column: Column) -> Any | None:
    """Return the expression of a column as the JVM has it; None on Spark Connect."""
    classic: Any = column
    return None if is_connect(column) else classic._jc.node()


def default_parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks Spark runs at a time; None on Spark Connect, which does not tell."""
    return None if is_connect(spark) else int(spark.sparkContext.defaultParallelism)


@contextmanager
def tagged_jobs(spark: SparkSession, tag: str) -> Iterator[None]:
    """Give the jobs of this thread a tag by which `interrupt_jobs` finds them."""
    if is_connect(spark):
        add, remove = spark.addTag, spark.removeTag
    else:
        add, remove = spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def interrupt_jobs(spark: SparkSession, tag: str) -> None:
    """Stop the jobs that have a tag; in classic PySpark also those in clones of the session."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def with_local_properties(spark: SparkSession, work: Callable[[], _T]) -> Callable[[], _T]:
    """Let work in another thread have the local properties of this one (scheduler pool, job group)."""
    if is_connect(spark):
        return work
    from pyspark.util import inheritable_thread_target

    inherited: Callable[[], _T] = inheritable_thread_target(spark)(work)
    return inherited


_TRANSLATED: set[bool] = set()


Explain = Callable[[str], "Exception | None"]


def translate_errors(thing: object, classic: Explain, connect: Explain) -> None:
    """Let users see other errors instead of Spark's, in sessions of the kind of a session.

    `classic` and `connect` make an error from the text of Spark's; None leaves it as it is. The first call for a kind
    of session counts.
    """
    kind = is_connect(thing)
    if kind in _TRANSLATED:
        return
    _TRANSLATED.add(kind)
    module: Any = import_module("pyspark.sql.connect.client.core" if kind else "pyspark.errors.exceptions.captured")
    convert: Callable[..., Exception] = module.convert_exception

    def convert_or_explain(*arguments: Any, **named: Any) -> Exception:
        if not kind:
            # PySpark's own error has not the causes in its text.
            return classic(_text_of_java_error(arguments[0])) or convert(*arguments, **named)
        error = convert(*arguments, **named)
        return connect(str(error)) or error

    module.convert_exception = convert_or_explain


def _text_of_java_error(error: Any) -> str:
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    return "" if jvm is None else str(jvm.org.apache.spark.util.Utils.exceptionString(error))


def observation(thing: object) -> Any:
    """Return a new `Observation` (aggregates that a job computes) for the kind of a session or DataFrame."""
    if is_connect(thing):
        from pyspark.sql.connect.observation import Observation as ConnectObservation

        return ConnectObservation()
    from pyspark.sql import Observation

    return Observation()


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a DataFrame without rows that has the columns of a schema. `createDataFrame` does not know all types."""
    sf = functions()
    shown: Any = schema.to_spark()
    columns = (sf.lit(None).cast(f.dataType).alias(f.name, metadata=f.metadata) for f in shown.fields)
    return spark.range(0).select(*columns)


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
    """Return the tokens of SQL text in lower case, without strings and quoted names.

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
    """Return the names that stand before a parenthesis.

    >>> sorted(called_functions("abs(x) > 1 AND upper(y) = 'Z'"))
    ['abs', 'upper']
    """
    return {a for a, b in pairwise(words(text)) if b == "(" and a.isidentifier()}
