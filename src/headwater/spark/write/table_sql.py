"""Check SQL that a table brings along before it is evaluated: CHECK, invariants, generated columns and defaults.

Everyone who can write to a table's log decides what these texts say, and every writer evaluates them in its own
session. So only an allow-list is evaluated: Spark's own functions and operators that compute a value from the
columns of the row. No subqueries, no functions of the session or a catalog, no calls of Java methods, no session
variables, nothing that reads files, settings or the environment, and nothing random.

In a classic session Spark's parser and analyzer tell what a text contains; on Spark Connect its words and its tree
do. A user who trusts a table says so by the session's setting `TRUSTED_TABLES`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from headwater.errors import InvalidCommitError, InvalidUriError, UntrustedExpressionError
from headwater.log.actions.model import Protocol
from headwater.spark.errors import quiet_analysis
from headwater.spark.functions import functions, functions_for, jvm_session
from headwater.spark.jvm import EXPRESSIONS, Jvm, jvm_of
from headwater.spark.scan.columns import ScanColumns, spark_fields
from headwater.spark.write.constraints import sql_rules
from headwater.spark.write.values import filled_columns
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headwater.features.definition import TableDefinition
    from headwater.log.schema import StructField, StructType

T = TypeVar("T")

TRUSTED_TABLES = "spark.headwater.trustedTables"
"""The setting that trusts tables: their locations, separated by commas (a comma in a location is written `%2C`)."""

Kind: TypeAlias = Literal["condition", "generated", "default"]

_MAX_CHARACTERS = 20_000
_MAX_DEPTH = 100
"""The most nested parentheses: parsers recurse, and end the process when they have no stack left."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROW_FUNCTIONS = _names(
    """
    abs acos acosh add_months aes_decrypt aggregate array array_append array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min array_position
    array_prepend array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii
    asin asinh atan atan2 atanh base64 between bigint bin binary bit_count bit_get bit_length
    bitmap_bit_position bitmap_bucket_number bitmap_count boolean bround btrim cardinality case cast cbrt ceil
    ceiling char char_length character_length chr coalesce collate collation concat concat_ws contains conv
    convert_timezone cos cosh cot crc32 csc date date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode
    degrees div double e element_at elt encode endswith equal_null exists exp expm1 extract factorial filter
    find_in_set flatten float floor forall format_number format_string from_base32 from_csv from_json
    from_unixtime from_utc_timestamp get get_json_object getbit greatest hash hex hmac hour hypot if ifnull
    ilike in initcap instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull
    jaro_winkler_similarity json_array_length json_object_keys last_day lcase least left len length levenshtein
    like ln locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval
    make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with mask md5 minute mod month monthname months_between named_struct nanvl negative next_day nullif
    nullifzero nvl nvl2 octet_length overlay parse_json parse_url pi pmod position positive pow power printf
    quarter quote radians reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
    regexp_replace regexp_substr repeat replace reverse right rint rlike round rpad rtrim schema_of_csv
    schema_of_json schema_of_variant sec second sentences sequence sha sha1 sha2 shiftleft shiftright
    shiftrightunsigned sign signum sin sinh size slice smallint sort_array soundex space split split_part sqrt
    st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid startswith str_to_map string struct substr
    substring substring_index tan tanh time time_diff time_from_micros time_from_millis time_from_seconds
    time_to_micros time_to_millis time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis
    timestamp_nanos timestamp_seconds timestampadd timestampdiff tinyint to_base32 to_binary to_char to_csv
    to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp to_varchar to_variant_object transform transform_keys transform_values translate trim trunc
    try_add try_aes_decrypt try_cast try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_subtract
    try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8
    try_variant_array_append try_variant_get try_variant_insert try_variant_set typeof ucase unbase64 unhex
    unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper url_decode url_encode
    validate_utf8 variant_array_append variant_delete variant_get variant_insert variant_set variant_strip_nulls
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize weekday
    weekofyear when width_bucket xxhash64 year zeroifnull zip_with
    """
)
"""Functions that compute a value from their arguments and do nothing else; those of later Sparks are missing."""
SESSION_FUNCTIONS = _names(
    """
    curdate current_catalog current_database current_date current_schema current_time current_timestamp
    current_timezone current_user localtime localtimestamp now session_user user version
    """
)
"""Functions with one result in a query: allowed in conditions and defaults, but not in generated columns."""

_DENIED_TRAITS = (
    "PlanExpression",
    "UserDefinedExpression",
    "Nondeterministic",
    "Generator",
    "WindowExpression",
    "CallMethodViaReflection",
    "VariableReference",
    "aggregate.AggregateFunction",
    "aggregate.AggregateExpression",
)
"""Kinds of nodes that no tree may have."""
_UNRESOLVED = "org.apache.spark.sql.catalyst.analysis."
_PARSED = frozenset({"UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedFunction"})
"""What a parsed tree may hold beside expressions."""


_WITH_ALL_TEXTS = Protocol(1, 7, None, ("allowColumnDefaults", "checkConstraints", "generatedColumns", "invariants"))


@dataclass(frozen=True, slots=True)
class TableSql:
    """A text in SQL that a table brings along."""

    kind: Kind
    title: str
    """The constraint or column that it belongs to, for messages."""
    text: str

    @property
    def functions(self) -> frozenset[str]:
        """The functions that it may call."""
        return ROW_FUNCTIONS if self.kind == "generated" else ROW_FUNCTIONS | SESSION_FUNCTIONS

    def refused(self, reason: str) -> UntrustedExpressionError:
        """Return the error that says why it is not evaluated."""
        shown = self.text if len(self.text) <= 500 else f"{self.text[:500]}..."
        return UntrustedExpressionError(f"{self.title} ({shown}) is not evaluated: {reason}")


def texts_of(schema: StructType, properties: Mapping[str, str], protocol: Protocol = _WITH_ALL_TEXTS) -> list[TableSql]:
    """Return the texts of a table that a writer evaluates; all texts are in force if the protocol is not known yet."""
    rules = sql_rules(protocol, properties, schema)
    filled = filled_columns(protocol, schema)
    return [
        *(TableSql("condition", rule.title, rule.expression) for rule in rules),
        *(TableSql("generated", f"the generated column {name}", text) for name, text in filled.generated.items()),
        *(TableSql("default", f"the default of column {name}", text) for name, text in filled.defaults.items()),
    ]


def check_table_sql(spark: SparkSession, definition: TableDefinition, uri: str) -> None:
    """Raise unless all SQL of a table may be evaluated.

    Args:
        spark: the session that would evaluate it.
        uri: its location, for messages and for the setting that trusts it.

    Raises:
        UntrustedExpressionError: a text is not on the allow-list; the message names what it belongs to.
        InvalidCommitError: Spark does not understand one.
    """
    schema = definition.schema
    texts = texts_of(schema, definition.metadata.configuration, definition.protocol)
    if not texts or is_trusted(spark, uri):
        return
    try:
        check_texts(spark, texts, schema)
    except UntrustedExpressionError as error:
        raise UntrustedExpressionError(
            f"{uri}: {error} Nothing was written. If you trust everybody who can write to this table, set "
            f"{TRUSTED_TABLES} to its location."
        ) from None
    except InvalidCommitError as error:
        raise InvalidCommitError(
            f"{uri}: an expression in the table's definition cannot be evaluated, so nothing can be written to it: "
            f"{error}"
        ) from error


def is_trusted(spark: SparkSession, uri: str) -> bool:
    """Return whether the session's setting names a table.

    Raises:
        InvalidCommitError: the setting holds something that is not a location.
    """
    listed = str(spark.conf.get(TRUSTED_TABLES, None) or "")
    try:
        return _place(uri) in [_place(text.strip()) for text in listed.split(",") if text.strip()]
    except InvalidUriError as error:
        raise InvalidCommitError(f"{TRUSTED_TABLES} is a list of table locations: {error}") from error


def _place(uri: str) -> tuple[str, ...]:
    location = parse_uri(uri)
    return location.kind, location.bucket, location.account_host, location.path


def check_texts(spark: SparkSession, texts: Sequence[TableSql], schema: StructType) -> None:
    """Raise unless texts are on the allow-list, whatever the session trusts.

    Raises:
        UntrustedExpressionError: one is not.
        InvalidCommitError: Spark does not understand one.
    """
    if not texts:
        return
    for sql in texts:
        check_size(sql)
    with functions_for(spark), quiet_analysis():
        if jvm_session(spark) is None:
            _check_on_connect(spark, texts, schema)
        else:
            _check_classic(spark, texts, schema)


def check_size(sql: TableSql) -> None:
    """Raise `UntrustedExpressionError` for texts that are too large, or in which Spark replaces variables."""
    if len(sql.text) > _MAX_CHARACTERS:
        raise sql.refused(f"it has {len(sql.text):,} characters, and {_MAX_CHARACTERS:,} are the most.")
    if "${" in sql.text:
        raise sql.refused("Spark replaces ${...} by settings and environment variables.")
    depth = deepest = 0
    for character in sql.text:
        depth += (character in "([") - (character in ")]")
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH:
        raise sql.refused(f"it is nested {deepest} levels deep, and {_MAX_DEPTH} are the most.")


# --- classic sessions: Spark's own trees ----------------------------------------------------------------


def _check_classic(spark: SparkSession, texts: Sequence[TableSql], schema: StructType) -> None:
    """Check what Spark parses, and then what it resolves to: resolving a harmful text may already read files."""
    jvm = jvm_of(spark)
    session: Any = spark
    parser = session._jsparkSession.sessionState().sqlParser()
    for sql in texts:
        _check_parsed(jvm, sql, _understood(sql, partial(_parsed, parser, sql.text)))
    visible = list(ScanColumns(schema, "none", ()).visible.fields)
    for kinds, columns in ((("condition", "generated"), visible), (("default",), [])):
        some = [sql for sql in texts if sql.kind in kinds]
        if some:
            frame = _columns_only(spark, columns)
            try:
                _check_resolved(jvm, some, frame)
            except InvalidCommitError:
                for sql in some:  # which of them?
                    _check_resolved(jvm, [sql], frame)
                raise


def _columns_only(spark: SparkSession, fields: list[StructField]) -> DataFrame:
    """Return a DataFrame without rows, at a cost that does not grow with its columns, and without hidden ones."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    jvm = jvm_of(spark)
    session: Any = spark
    type_ = jvm.data_type({"type": "struct", "fields": spark_fields(fields)})
    frame: Any = ClassicDataFrame(session._jsparkSession.createDataFrame([], type_), session)
    return cast("DataFrame", frame)


def _parsed(parser: Any, text: str) -> str:
    return str(parser.parseExpression(text).toJSON())


def _check_parsed(jvm: Jvm, sql: TableSql, tree: str) -> None:
    for node in json.loads(tree):
        name = str(node["class"])
        if name == f"{_UNRESOLVED}UnresolvedFunction":
            _check_function(sql, str(node.get("nameParts")).removeprefix("[").removesuffix("]"))
            if node.get("filter") is not None or node.get("isDistinct") is True:
                raise sql.refused("it aggregates rows.")
        elif name.removeprefix(_UNRESOLVED) not in _PARSED and not _is_harmless(jvm, name):
            raise sql.refused(_why_not(name))


def _check_resolved(jvm: Jvm, texts: Sequence[TableSql], frame: DataFrame) -> None:
    """Check what Spark's analyzer makes of texts, all in one struct."""
    sf = functions()
    first = texts[0]

    def ask() -> tuple[str, bool]:
        values = [sf.expr(sql.text).alias(f"value{number}") for number, sql in enumerate(texts)]
        selected: Any = frame.select(sf.struct(*values).alias("values"))
        plan = selected._jdf.queryExecution().analyzed()
        found = plan.expressions().head()
        return found.toJSON(), found.deterministic()

    tree, is_deterministic = _understood(first, ask)
    harmful = [name for node in json.loads(tree) if not _is_harmless(jvm, name := str(node["class"]))]
    if harmful:
        raise first.refused(_why_not(harmful[0]))
    if not is_deterministic:
        raise first.refused("its value is not determined by the row.")


def _understood(sql: TableSql, ask: Callable[[], T]) -> T:
    """Return what Spark answers.

    Raises:
        InvalidCommitError: it does not understand the text.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from headwater.spark.errors import first_line

    try:
        return ask()
    except (PySparkException, Py4JError) as error:
        raise InvalidCommitError(f"{sql.title} cannot be ({sql.text}): {first_line(error)}") from error


def _is_harmless(jvm: Jvm, name: str) -> bool:
    """Return whether a node of a tree is one of Spark's own expressions, and of no denied kind; cached by class."""
    if not name.startswith(f"{EXPRESSIONS}."):
        return False

    def look() -> bool:
        found = jvm.java_class(name)
        return not any(jvm.java_class(f"{EXPRESSIONS}.{t}").isAssignableFrom(found) for t in _DENIED_TRAITS)

    harmless: bool = jvm.kept(f"harmless {name}", look)
    return harmless


def _why_not(class_name: str) -> str:
    kind = class_name.rpartition(".")[2].rstrip("$")
    if "Subquery" in kind or kind in ("Exists", "ListQuery"):
        return "it has a subquery."
    if "Window" in kind:
        return "it looks at a window of rows."
    if kind == "VariableReference":
        return "it uses a variable of the session."
    return f"it is more than a value computed from the row by Spark's own functions ({kind})."


def _check_function(sql: TableSql, name: str) -> None:
    if name.lower() in sql.functions:
        return
    if name.lower() in SESSION_FUNCTIONS:
        raise sql.refused(f"it calls {name}, whose answer depends on more than the row.")
    raise sql.refused(f"it calls {name}, which is not one of the built-in functions that a table may use.")


# --- Spark Connect: words and a parsed tree ---------------------------------------------------------------

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--|/\*)
  | (?P<text>[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<name>`(?:[^`]|``)+`)
  | (?P<word>\w+)
  | (?P<mark>[-+*/%=<>!&|^~,.()\[\]:?])
    """,
    re.VERBOSE | re.DOTALL,
)
_BEFORE_PARENTHESIS = _names(
    """
    all and any array as between binary both by case char character collate decimal dec div else escape float
    for from ilike in interval is leading like map not numeric on or regexp rlike some string struct then time
    timestamp trailing varchar when
    """
)
"""Words of SQL that may stand before a parenthesis and call nothing."""
_OPENS_QUERY = frozenset({"select", "from", "table", "values", "with"})
_ONLY_IN_QUERIES = frozenset({"using", "over", "lateral", "within"})
_UNITS = _names(
    """
    nanosecond microsecond millisecond second minute hour day dayofyear week month quarter year
    """
)
"""Words that name a part of a time, which sqlglot parses as columns."""


def check_words(sql: TableSql) -> frozenset[str]:
    """Raise unless the words of a text are on the allow-list, on Spark Connect; return the functions that it calls.

    Spark's own lexical rules decide where strings and names end, so a text means the same to both.

    >>> sorted(check_words(TableSql("condition", "CHECK c", "abs(x) > 1 AND upper(`y`) LIKE 'a(%'")))
    ['abs', 'upper']

    Raises:
        UntrustedExpressionError: it calls a function that is not on the list, has a subquery, or cannot be read.
    """
    called: set[str] = set()
    before: tuple[str, str] = ("", "")
    earlier = ""
    for kind, token in _tokens(sql):
        word = token.lower() if kind == "word" else token[1:-1].lower() if kind == "name" else ""
        if kind == "word" and before[1] == "(" and word in _OPENS_QUERY:
            raise sql.refused("it has a subquery.")
        if kind == "word" and word in _ONLY_IN_QUERIES:
            raise sql.refused(f"{token} belongs into queries.")
        if token == "(" and kind == "mark":
            called |= _called(sql, before, earlier)
        earlier, before = before[1], (kind, word if kind in ("word", "name") else token)
    return frozenset(called)


def _called(sql: TableSql, before: tuple[str, str], earlier: str) -> set[str]:
    """Return the function that is called where a parenthesis opens: a set of one, or none."""
    kind, name = before
    if kind in ("", "mark") and name not in (")", "]"):
        return set()
    if kind == "word" and name in _BEFORE_PARENTHESIS - ROW_FUNCTIONS and earlier != ".":
        return set()
    if kind not in ("word", "name") or earlier == "." or not name.isascii():
        raise sql.refused("it calls something else than a function by its plain name.")
    _check_function(sql, name)
    return {name}


def _tokens(sql: TableSql) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(sql.text):
        found = _TOKEN.match(sql.text, position)
        if found is None or found.lastgroup == "comment":
            what = "a comment" if found else repr(sql.text[position])
            raise sql.refused(f"it has {what}, which is not allowed here.")
        position = found.end()
        if found.lastgroup != "space":
            yield str(found.lastgroup), found[0]


def _check_on_connect(spark: SparkSession, texts: Sequence[TableSql], schema: StructType) -> None:
    called = {sql: check_words(sql) for sql in texts}
    for sql in texts:
        _check_tree(sql, [] if sql.kind == "default" else schema.names)
    if not any(called.values()):
        return
    own = _functions_of_users(spark)
    for sql, names in called.items():
        if not own.isdisjoint(names):
            raise sql.refused(f"it calls {min(own & names)}, which the session has given another meaning.")


def _functions_of_users(spark: SparkSession) -> frozenset[str]:
    """Return the functions that are not Spark's own: a temporary one may have the name of a built-in one."""
    rows = spark.sql("SHOW USER FUNCTIONS").collect()
    return frozenset(str(row[0]).rpartition(".")[2].lower() for row in rows)


def _check_tree(sql: TableSql, columns: Iterable[str]) -> None:
    """Check what sqlglot makes of a text: no queries, and no names but columns."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(sql.text, dialect="spark")
    except (SqlglotError, RecursionError, AttributeError, TypeError, ValueError) as error:
        raise InvalidCommitError(f"{sql.title} ({sql.text}) cannot be read as SQL.") from error
    for node in tree.walk():
        if isinstance(node, exp.Query | exp.Window | exp.Command | exp.Parameter | exp.Placeholder | exp.Star):
            raise sql.refused("it is more than a value computed from the row.")
    parameters = {name.name.lower() for found in tree.find_all(exp.Lambda) for name in found.expressions}
    known = {name.lower() for name in columns} | parameters | SESSION_FUNCTIONS | _UNITS
    for column in tree.find_all(exp.Column):
        first = column.parts[0].name
        if first.lower() not in known:
            raise InvalidCommitError(f"{sql.title} cannot be ({sql.text}): {first} cannot be resolved to a column.")
