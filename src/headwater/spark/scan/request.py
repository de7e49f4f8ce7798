"""What a scan is asked for, and what the session's time zone decides about it.

A request names files of one version of a table, and says which of their rows and columns matter. In classic PySpark
later filters and projections reach the scan by themselves; elsewhere `where` is the way to skip files by statistics,
and `columns` the way to read less. The result is the same everywhere: Spark itself evaluates the filter, and the log
only prunes by it.

A time without a zone is one in the session's time zone, as everywhere in Spark: in `timestamp`, in a path such as
`path@20240131120000000`, and in the log's partition values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from headwater.errors import ColumnNotFoundError, FilterError, TimeTravelError
from headwater.log.filters.expressions import (
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Literal,
    Predicate,
    Unknown,
    columns_of,
    has_unknown,
    is_unknown,
    transform,
)
from headwater.log.filters.sql import parse_filter
from headwater.log.schema import TIMESTAMP, VOID, StructType, compares_as_is
from headwater.log.schema.types import quoted, resolve
from headwater.log.stats.value_text import zone_of
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import tzinfo
    from os import PathLike

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot


_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})


@dataclass(frozen=True, eq=False)
class ScanRequest:
    """Files of one version of a table, and what to read of them.

    Attributes:
        snapshot: the version: its schema, and how columns are found in files.
        files: the files, as `Snapshot.files` lists them (or with other deletion vectors, which then count); by default
            all live files. Those that are given are pruned by partition values only.
        locate_rows: show where each row is: its file's number, which `files` has in the column `FILE_COLUMN`, and its
            position in the file.
        where: a condition in Spark's SQL. Rows that do not fulfil it may be left out.
        columns: top-level columns of the table, in the order wanted; None for all. Others may be left out.
        row_tracking: show the ids and commit versions of rows.
        options: of Spark's Parquet reader.
    """

    snapshot: Snapshot
    files: pa.Table | None = field(default=None, repr=False)
    locate_rows: bool = False
    where: str | None = None
    columns: tuple[str, ...] | None = None
    row_tracking: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.files is not None or not self.locate_rows, "files that are located have numbers"
        if self.where is not None and not isinstance(self.where, str):
            raise FilterError(f"where is a condition in SQL, not {type(self.where).__name__}")

    def list_files(self, where: Expression | None, columns: Sequence[str]) -> pa.Table:
        """List columns of the files that may hold matching rows; see `Snapshot.files`."""
        if self.files is None:
            return self.snapshot.files(where, columns)
        return self.files.select(list(columns))

    @cached_property
    def has_vectors(self) -> bool:
        """Whether any file has a deletion vector; a protocol without the feature cannot have one."""
        if self.files is None and not self.snapshot.protocol.supports("deletionVectors"):
            return False
        vectors = self.list_files(None, ["deletionVector"]).column("deletionVector")
        return bool(vectors.null_count < len(vectors))

    @property
    def num_files(self) -> int:
        """The number of files before pruning."""
        return self.snapshot.num_files if self.files is None else int(self.files.num_rows)

    @cached_property
    def size_bytes(self) -> int:
        """The size of all files before pruning."""
        if self.files is None:
            return self.snapshot.size_bytes
        return pc.sum(self.files.column("size")).as_py() or 0

    def pruning(self, spark: SparkSession) -> Expression:
        """Return what the log can prune by: `where`, as far as this session reads it as the log does."""
        if self.where is None:
            return Constant(True)
        return prunable(spark, parse_filter(self.where), self.snapshot.schema)

    def needed_columns(self) -> tuple[str, ...] | None:
        """Return the columns that must be read for the filter and the result; None for all.

        There is always one: PySpark 4.0 forgets how many rows a batch without columns has.

        Raises:
            ColumnNotFoundError: the table has no such column.
        """
        if self.columns is None:
            return None
        schema = self.snapshot.schema
        names = [schema.field(name).name for name in self.columns]
        if self.where is not None:
            parsed = parse_filter(self.where)
            if has_unknown(known_part(parsed, schema)):
                return None
            names += [resolve(schema, column.parts)[0].name for column in columns_of(parsed)]
        names = names or [field.name for field in schema.fields if field.type != VOID][:1]
        return tuple(dict.fromkeys(names))

    def select(self, frame: DataFrame, also: Sequence[str] = ()) -> DataFrame:
        """Return just the wanted rows and columns of a DataFrame of the table, and the columns `also`."""
        if self.where is not None:
            frame = frame.where(self.where)
        if self.columns is None:
            return frame
        schema = self.snapshot.schema
        return frame.select(*(quoted(name) for name in (*(schema.field(n).name for n in self.columns), *also)))


def prunable(spark: SparkSession, parsed: Expression, schema: StructType) -> Expression:
    """Return the part of a filter that means the same to the session and to the log; the rest is unknown."""
    if str(spark.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        return Unknown("the session's types are compared by other rules")
    return _prunable(parsed, schema, in_utc=session_zone(spark) in _UTC)


def known_part(expr: Expression, schema: StructType) -> Expression:
    """Return the part of a filter that is about columns of a schema; the rest is unknown."""
    return _prunable(expr, schema, in_utc=True)


def _prunable(expr: Expression, schema: StructType, *, in_utc: bool) -> Expression:
    return transform(expr, lambda leaf: leaf if _means_the_same(leaf, schema, in_utc=in_utc) else Unknown(str(leaf)))


def _means_the_same(leaf: Predicate, schema: StructType, *, in_utc: bool) -> bool:
    """Return whether the session and the log read a condition alike.

    The log reads timestamps without a zone in UTC, the session in its own zone. Text with rules of its own is compared
    by the session only. Columns that the table does not have may be those that a scan adds.
    """
    if isinstance(leaf, Constant | Unknown) or is_unknown(leaf):
        return not isinstance(leaf, Compare)
    (column,) = columns_of(leaf)
    try:
        fields = resolve(schema, column.parts)
    except ColumnNotFoundError:
        return False
    if isinstance(leaf, IsNull):
        return True
    literals = leaf.values if isinstance(leaf, In) else (leaf.right,) if isinstance(leaf, Compare) else ()
    is_zoned = any(isinstance(one, Literal) and getattr(one.value, "tzinfo", None) is not None for one in literals)
    return compares_as_is(fields) and (in_utc or not (fields[-1].type == TIMESTAMP or is_zoned))


_SUFFIX = re.compile(r"(?P<path>.+)@(?:v(?P<version>\d+)|(?P<timestamp>\d{17}))", re.DOTALL)
_SUFFIX_FORMAT = "%Y%m%d%H%M%S%f"


@dataclass(frozen=True, slots=True)
class Target:
    """A version of a table: a number, a point in time, or the newest."""

    path: str | PathLike[str]
    version: int | None
    timestamp: datetime | int | None


def session_zone(spark: SparkSession) -> str:
    """Return the session's time zone, as Spark spells it."""
    return str(spark.conf.get("spark.sql.session.timeZone"))


def in_session_zone(spark: SparkSession, snapshot: Snapshot) -> Snapshot:
    """Return the same snapshot, whose partition values without a zone are in the session's."""
    is_zoned = any(snapshot.schema.field(name).type == TIMESTAMP for name in snapshot.partition_columns)
    if not is_zoned or snapshot.ctx.time_zone == session_zone(spark):
        return snapshot
    return replace(snapshot, ctx=replace(snapshot.ctx, time_zone=session_zone(spark)))


def resolve_target(
    path: str | PathLike[str],
    version: int | None,
    timestamp: str | datetime | date | int | None,
    zone: str,
) -> Target:
    """Return which version is meant; `path` may have a suffix `@v<version>` or `@<yyyyMMddHHmmssSSS>`.

    Raises:
        TimeTravelError: more than one is given, or one cannot be understood.

    >>> resolve_target("/data/events@v3", None, None, "UTC")
    Target(path='/data/events', version=3, timestamp=None)
    """
    match = _SUFFIX.fullmatch(path) if isinstance(path, str) else None
    if match is not None and not _is_table(str(path)):
        if version is not None or timestamp is not None:
            raise TimeTravelError(f"{path} already says which version is meant: do not give a version or timestamp too")
        if match["version"] is not None:
            return Target(match["path"], int(match["version"]), None)
        return Target(match["path"], None, _suffix_time(match["timestamp"], zone))
    if version is not None and timestamp is not None:
        raise TimeTravelError(f"give a version ({version}) or a timestamp ({timestamp}), not both")
    return Target(path, version, None if timestamp is None else in_zone(timestamp, zone))


def in_zone(timestamp: str | datetime | date | int, zone: str) -> datetime | int:
    """Return a point in time; one without a zone is in the session's.

    >>> in_zone("2024-01-31 12:00:00", "Europe/Berlin").isoformat()
    '2024-01-31T12:00:00+01:00'
    """
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp.strip())
        except ValueError as error:
            raise TimeTravelError(f"{timestamp!r} is not a timestamp: write it as 2024-01-31 12:00:00") from error
    elif not isinstance(timestamp, datetime):
        timestamp = datetime.combine(timestamp, time())
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=_zone(zone))


def _suffix_time(digits: str, zone: str) -> datetime:
    try:
        # Python reads the last digits as microseconds, however many there are.
        return datetime.strptime(digits, _SUFFIX_FORMAT).replace(tzinfo=_zone(zone))
    except ValueError as error:
        raise TimeTravelError(f"@{digits} is not a time in the form yyyyMMddHHmmssSSS: {error}") from error


def _zone(name: str) -> tzinfo:
    """Return a zone by Spark's name: of the zone database, or an offset such as `+02:00`."""
    try:
        zone = zone_of(name)
    except ValueError:
        zone = None
    if zone is None:
        raise TimeTravelError(f"the session's time zone {name!r} is not known here: give the time with a zone")
    return zone


def _is_table(path: str) -> bool:
    """Say whether there is a table whose very name looks like time travel."""
    return bool(open_store(path).list_from("_delta_log/"))
