"""Files of other writers in the hands of everything that reads or rewrites files.

Either an operation has the rows that a scan shows, or it refuses the file by name, as a scan does, and commits nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as OtherTable
from deltalake import write_deltalake

import headwater as hw
from headwater.spark.write.copies import Copies
from support.tables.delta_tables import DeltaTable, field, mapped
from support.tables.rewriting_operations import OPERATIONS, Rows, copies, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.oracles.delta_spark_oracle import DeltaSparkOracle

pytestmark = pytest.mark.spark

AT = dt.datetime(2024, 2, 29, 23, 59, 59, 123000)
UTC = AT.replace(tzinfo=dt.UTC)
OLD_DAY, OLD_TIME = dt.date(1500, 3, 1), dt.datetime(1700, 1, 1, 12)


def made_table(path: Path, columns: list[dict[str, Any]], files: Mapping[str, bytes], **table: Any) -> None:
    """A table with files as they are, three rows each."""
    made = DeltaTable(path, *columns, **table)
    for name, data in files.items():
        action = made.file(pa.table({"id": [0]}), name=f"{name}.parquet")
        (path / f"{name}.parquet").write_bytes(data)
        action["add"] |= {"size": len(data), "stats": '{"numRecords":3}'}
        made.commit(action)


def ids(number: int) -> list[int]:
    """Those of a file."""
    return [10 * number + n for n in (1, 2, 3)]


def written(columns: Mapping[str, pa.Array], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(columns)), sink, **options)
    return bytes(sink.getvalue())


def check_same_rows(
    spark: SparkSession, original: Path, directory: Path, expected: Rows, names: Iterable[str] = tuple(OPERATIONS)
) -> None:
    for name, operation, path in copies(spark, original, directory, names):
        before = hw.open_log(path).version
        seen = operation.run(spark, path)
        assert (rows_of(spark, path) if seen is None else seen) == operation.expected(expected), name
        if operation.writes and name not in ("search", "upsert"):
            assert hw.open_log(path).version > before, name


def check_refused(
    spark: SparkSession, original: Path, directory: Path, file: str, names: Iterable[str] = tuple(OPERATIONS)
) -> None:
    for name, operation, path in copies(spark, original, directory, names):
        before = hw.open_log(path)
        with pytest.raises(hw.UnreadableDataFileError, match=file):
            operation.run(spark, path)
        # Rows may be deleted by vectors without a look at other columns, and an index is defined before it is built.
        after = hw.open_log(path)
        assert after.version - before.version <= (name in ("REORG", "search")), name
        assert after.files(columns=["path"]) == before.files(columns=["path"]), name


# --- files that all of them read -----------------------------------------------------------------------

TEXTS = {"type": "array", "elementType": "string", "containsNull": True}
PAIR = {"type": "struct", "fields": [field("x", "long"), field("y", "string")]}
COLUMNS = [
    field("id", "long"),
    field("text", "string"),
    field("raw", "binary"),
    field("at", "timestamp"),
    field("local", "timestamp_ntz"),
    field("day", "date"),
    field("amount", "decimal(20,3)"),
    field("number", "long"),
    field("texts", TEXTS),
    field("pair", PAIR),
]
ROWS: list[tuple[Any, ...]] = [
    ("a", b"a", AT, AT, AT.date(), Decimal("1.500"), 1, ["a", ""], (1, "y")),
    ("", b"", AT, AT, AT.date(), Decimal("-0.500"), -1, [], (2, None)),
    (None,) * 9,
]
NARROW = {"amount": pa.decimal128(5, 1), "number": pa.int16()}
PLAIN = {
    "id": pa.int64(),
    "text": pa.string(),
    "raw": pa.binary(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "day": pa.date32(),
    "amount": pa.decimal128(20, 3),
    "number": pa.int64(),
    "texts": pa.list_(pa.string()),
    "pair": pa.struct([("x", pa.int64()), ("y", pa.string())]),
}
VIEWS = {
    "text": pa.string_view(),
    "raw": pa.binary_view(),
    "texts": pa.list_(pa.string_view()),
    "pair": pa.struct([("x", pa.int64()), ("y", pa.string_view())]),
}
LARGE = {
    "text": pa.large_string(),
    "raw": pa.large_binary(),
    "texts": pa.large_list(pa.large_string()),
    "amount": pa.decimal256(20, 3),
    "at": pa.timestamp("us", "Europe/Berlin"),
}
OTHER_TEXTS = {"text": pa.dictionary(pa.int32(), pa.string()), "texts": pa.list_view(pa.string())}
MILLIS = {"at": pa.timestamp("ms", "UTC"), "local": pa.timestamp("ms")}
SECONDS_OF_LOCAL_TIME = {"at": pa.timestamp("ms"), "local": pa.timestamp("ms", "UTC")}
SWAPPED = {"text": pa.binary(), "raw": pa.string()}


def rows_table(number: int, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """The rows of a file, in Arrow types of its own."""
    names = [column["name"] for column in COLUMNS]
    rows = [dict(zip(names, (id_, *row), strict=True)) for id_, row in zip(ids(number), ROWS, strict=True)]
    found = {}
    for name, type_ in (PLAIN | dict(types or {})).items():
        values = [row[name] for row in rows]
        if name == "pair":
            values = [None if value is None else {"x": value[0], "y": value[1]} for value in values]
        if type_ == pa.string() and name == "raw":
            values = [None if value is None else value.decode() for value in values]
        if type_ == pa.binary() and name == "text":
            values = [None if value is None else value.encode() for value in values]
        found[name] = pa.array(values, type_)
    return pa.table(found)


def by_arrow(types: Mapping[str, pa.DataType], **options: Any) -> Callable[[int, Path], bytes]:
    def write(number: int, _: Path) -> bytes:
        return written(dict(zip(PLAIN, rows_table(number, types).columns, strict=True)), **options)

    return write


def by_duckdb(number: int, directory: Path) -> bytes:
    target = directory / "duckdb.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows_table(number))
        connection.execute(f"COPY (SELECT * FROM rows) TO '{target}' (FORMAT parquet)")
    return target.read_bytes()


def by_pandas(number: int, directory: Path) -> bytes:
    frame = pd.DataFrame(rows_table(number).to_pylist())
    frame["at"] = pd.to_datetime(frame["at"], utc=True).astype("datetime64[us, UTC]")
    frame["local"] = frame["local"].astype("datetime64[us]")
    frame["number"] = frame["number"].astype("Int64")
    frame.to_parquet(directory / "pandas.parquet")
    return (directory / "pandas.parquet").read_bytes()


def by_deltalake(number: int, directory: Path) -> bytes:
    """What its UPDATE makes of a file: types of strings are views."""
    path = directory / "deltalake"
    write_deltalake(path, rows_table(number))
    table = OtherTable(path)
    table.update({"number": "number"}, predicate="id % 10 = 2")
    [name] = [Path(uri).name for uri in OtherTable(path).file_uris()]
    return (path / name).read_bytes()


FAST: dict[str, Callable[[int, Path], bytes]] = {
    "deltalake": by_deltalake,
    "duckdb": by_duckdb,
    "pandas": by_pandas,
    "views": by_arrow(VIEWS),
    "large": by_arrow(LARGE),
    "dictionaries": by_arrow(OTHER_TEXTS),
    "milliseconds": by_arrow(MILLIS),
    "zones": by_arrow(SECONDS_OF_LOCAL_TIME),
    "int96": by_arrow({}, use_deprecated_int96_timestamps=True),
    "narrow": by_arrow(NARROW),
    "swapped": by_arrow(SWAPPED),
    "old format": by_arrow({}, version="1.0", data_page_version="1.0", use_compliant_nested_type=False),
    "new format": by_arrow({}, data_page_version="2.0", use_dictionary=False, compression="zstd"),
}
"""Writers whose files Arrow reads as Spark does."""


def test_deltalake_writes_views(tmp_path: Path) -> None:
    """If this fails, deltalake has changed, and its file above is no longer the case that it stands for."""
    assert pa.string_view() in pq.read_schema(pa.BufferReader(by_deltalake(0, tmp_path))).types


def test_operations_have_the_rows_of_a_scan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file makes Spark copy rows in the place of Arrow, though none is as Spark would have written it."""
    monkeypatch.setattr(Copies, "_tried", lambda _, fast, _by_spark: fast())
    files = {name: write(number, tmp_path) for number, (name, write) in enumerate(FAST.items())}
    made_table(tmp_path / "t", COLUMNS, files, features=("timestampNtz",))
    rows = {id_: row for number in range(len(FAST)) for id_, row in zip(ids(number), ROWS, strict=True)}
    check_same_rows(spark, tmp_path / "t", tmp_path, rows)


def test_files_of_delta_spark_keep_their_rows(
    spark: SparkSession, delta_spark: DeltaSparkOracle, tmp_path: Path
) -> None:
    """Columns are found by id, and older files hold narrower types than the table has now."""
    name = f"delta.`{tmp_path / 't'}`"
    select = "id, int(id) n, timestamp'2024-02-29 23:59:59.123Z' at, array('a', '') texts, named_struct('x', id) pair"
    properties = "'delta.columnMapping.mode' = 'id', 'delta.enableTypeWidening' = 'true'"
    ranges = [f"SELECT {select} FROM range({10 * n + 1}, {10 * n + 4})" for n in range(3)]
    delta_spark.all(
        [
            {
                "script": [
                    f"CREATE TABLE {name} USING delta TBLPROPERTIES ({properties}) AS {ranges[0]}",
                    f"INSERT INTO {name} {ranges[1]}",
                    f"ALTER TABLE {name} ALTER COLUMN n TYPE bigint",
                    f"ALTER TABLE {name} RENAME COLUMN texts TO words",
                    f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM ({ranges[2]})",
                ]
            }
        ]
    )
    rows = {id_: (id_, AT, ["a", ""], (id_,)) for n in range(3) for id_ in ids(n)}
    names = ["read", "OPTIMIZE", "DELETE", "UPDATE in place", "MERGE", "upsert", "search"]
    check_same_rows(spark, tmp_path / "t", tmp_path, rows, names)
    changed = tmp_path / "UPDATE-in-place"
    assert {json.loads(row)["id"] for row in delta_spark.rows(changed)} == set(rows_of(spark, changed))


# --- files that only Spark reads -----------------------------------------------------------------------

LEGACY = {
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
}
LEGACY_ROW = ("a", OLD_DAY, OLD_TIME, Decimal("1.50"), ["a"], {"k": 1})
LEGACY_SQL = (
    "id bigint, text string, day date, at timestamp, amount decimal(9,2), texts array<string>, named map<string,int>"
)
NAMED = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}
LEGACY_COLUMNS = [
    field("id", "long"),
    field("text", "string"),
    field("day", "date"),
    field("at", "timestamp"),
    field("amount", "decimal(9,2)"),
    field("texts", TEXTS),
    field("named", NAMED),
]


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def by_old_spark(spark: SparkSession, number: int, directory: Path) -> bytes:
    target = directory / f"old-{number}"
    with settings(spark, LEGACY):
        rows = [(id_, *LEGACY_ROW) for id_ in ids(number)]
        spark.createDataFrame(rows, LEGACY_SQL).coalesce(1).write.parquet(str(target))
    [file] = target.glob("*.parquet")
    return file.read_bytes()


def test_files_of_an_old_spark_keep_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Lists and maps of the old form, INT96, decimals of the old form, and days of the old calendar."""
    files = {f"old-{number}": by_old_spark(spark, number, tmp_path) for number in range(2)}
    made_table(tmp_path / "t", LEGACY_COLUMNS, files)
    rows = {id_: LEGACY_ROW for number in range(2) for id_ in ids(number)}
    names = ["read", "OPTIMIZE", "DELETE", "UPDATE in place", "UPDATE with row ids", "upsert", "REORG", "changes"]
    check_same_rows(spark, tmp_path / "t", tmp_path, rows, names)
    check_refused(spark, tmp_path / "t", tmp_path / "x", "old-", ["search"])


def test_files_without_a_calendar_are_rewritten_by_that_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    """Hive and Impala wrote days of the old calendar and said nothing of it; who reads such files says so."""
    days = pa.array([OLD_DAY] * 3)
    files = {f"hive-{n}": written({"id": pa.array(ids(n), pa.int64()), "v": days}) for n in range(2)}
    made_table(tmp_path / "t", [field("id", "long"), field("v", "date")], files)
    with settings(spark, {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"}):
        shown = rows_of(spark, tmp_path / "t")
        assert (OLD_DAY,) not in shown.values()
        check_same_rows(spark, tmp_path / "t", tmp_path, shown, ["OPTIMIZE", "DELETE", "UPDATE in place", "upsert"])


# --- files that none of them reads ---------------------------------------------------------------------

ODD: dict[str, tuple[Any, pa.Array]] = {
    "a time of day where a date is wanted": ("date", pa.array([AT] * 3, pa.timestamp("us"))),
    "nanoseconds": ("timestamp", pa.array([UTC] * 3, pa.timestamp("ns", "UTC"))),
    "texts where numbers are wanted": ("integer", pa.array(["1", "2", "3"])),
    "wide decimals": ("decimal(5,2)", pa.array([Decimal("1.5")] * 3, pa.decimal128(9, 2))),
    "a list where a number is wanted": ("long", pa.array([[1]] * 3)),
}
REWRITES = ["read", "OPTIMIZE", "UPDATE in place"]


@pytest.mark.parametrize("kind", ODD)
def test_operations_refuse_by_name_what_a_scan_refuses(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    type_, values = ODD[kind]
    files = {
        "odd": written({"id": pa.array(ids(0), pa.int64()), "v": values}),
        "odder": written({"id": pa.array(ids(1), pa.int64()), "v": values}),
    }
    made_table(tmp_path / "t", [field("id", "long"), field("v", type_)], files)
    all_of_them = kind.startswith("a time of day")
    check_refused(spark, tmp_path / "t", tmp_path, r"odd(er)?\.parquet", list(OPERATIONS) if all_of_them else REWRITES)


def test_operations_refuse_a_file_without_ids_where_columns_are_found_by_id(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [mapped("id", "long", "id", 1), mapped("v", "string", "v", 2)]
    files = {
        f"odd-{number}": written({"id": pa.array(ids(number), pa.int64()), "v": pa.array(["a", "b", "c"])})
        for number in range(2)
    }
    made_table(
        tmp_path / "t",
        columns,
        files,
        features=("columnMapping",),
        configuration={"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"},
    )
    check_refused(spark, tmp_path / "t", tmp_path, r"odd-\d\.parquet")
    with settings(spark, {"spark.sql.parquet.fieldId.read.ignoreMissing": "true"}):
        check_refused(spark, tmp_path / "t", tmp_path / "x", r"odd-\d\.parquet", ["read", "OPTIMIZE"])


def test_a_file_of_another_table_is_refused_by_name_too(spark: SparkSession, tmp_path: Path) -> None:
    """Given a shallow clone, whose files are those of its source, when one is odd, then the clone names it."""
    odd = written({"id": pa.array(ids(0), pa.int64()), "v": pa.array(["1", "2", "3"])})
    made_table(tmp_path / "a source", [field("id", "long"), field("v", "integer")], {"odd": odd, "odder": odd})
    hw.DeltaTable.forPath(spark, tmp_path / "a source").clone(str(tmp_path / "clone"), isShallow=True)
    check_refused(spark, tmp_path / "clone", tmp_path, r"a source/odd(er)?\.parquet", ["read", "OPTIMIZE"])


# --- Spark Connect -------------------------------------------------------------------------------------

ON_CONNECT = ["read", "OPTIMIZE", "DELETE", "UPDATE in place", "MERGE"]


def test_operations_on_connect_have_the_rows_of_a_scan(remote: SparkSession, tmp_path: Path) -> None:
    files = {name: FAST[name](number, tmp_path) for number, name in enumerate(("deltalake", "views", "int96"))}
    made_table(tmp_path / "t", COLUMNS, files, features=("timestampNtz",))
    rows = {id_: row for number in range(len(files)) for id_, row in zip(ids(number), ROWS, strict=True)}
    check_same_rows(remote, tmp_path / "t", tmp_path, rows, ON_CONNECT)


@pytest.mark.parametrize("mode", ["none", "id"])
def test_operations_on_connect_refuse_what_a_scan_refuses(remote: SparkSession, tmp_path: Path, mode: str) -> None:
    columns = {"id": lambda n: pa.array(ids(n), pa.int64()), "v": lambda _: pa.array([AT] * 3, pa.timestamp("us"))}
    files = {f"odd-{n}": written({name: make(n) for name, make in columns.items()}) for n in range(2)}
    if mode == "none":
        made_table(tmp_path / "t", [field("id", "long"), field("v", "date")], files)
    else:
        made_table(
            tmp_path / "t",
            [mapped("id", "long", "id", 1), mapped("v", "timestamp", "v", 2)],
            files,
            features=("columnMapping",),
            configuration={"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"},
        )
    check_refused(remote, tmp_path / "t", tmp_path, r"odd-\d\.parquet", ON_CONNECT)
