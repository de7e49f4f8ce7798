"""Tables on a disk that are damaged or made to do harm: every answer is right or a typed error, and comes soon.

Things that are no regular files, files of absurd sizes, values out of range, deep nesting, odd paths. `test_fuzz` is
about flipped and lost bytes.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import socket
import struct
from binascii import crc32
from contextlib import chdir, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import (
    CorruptLogError,
    HeadwaterError,
    InvalidTablePropertyError,
    MissingCommitError,
    ObjectNotFoundError,
    RetentionError,
    SchemaError,
    StorageError,
    StorageRefusedError,
    VersionNotFoundError,
)
from headwater.features.context import TableRef
from headwater.log.actions.deletion_vectors import MAGIC, read_vectors, vector_path
from headwater.log.actions.model import Add, DeletionVector
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.delta.checkpoint.write import write_checkpoint
from headwater.log.delta.cleanup import clean_up
from headwater.log.opening import open_snapshot
from headwater.search import table_log as log_caches
from headwater.search.table_log import create_search_log, open_search_log
from headwater.storage import LocalStore
from headwater.storage.uri import MAX_BYTES_VARIABLE
from support.commands import vacuum
from support.log_settings import examined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIELDS = [
    {"name": name, "type": type_, "nullable": True, "metadata": {}}
    for name, type_ in (
        ("id", "long"),
        ("d", "decimal(38,10)"),
        ("t", "timestamp"),
        ("day", "date"),
        ("p", "decimal(10,2)"),
        ("s", "string"),
    )
]
FILTERS = ("id > 5", "d > 1.5", "t > '2020-01-01'", "day = '2020-01-01'", "p = 1", "p > 0.5", "p IS NULL", "s = 'x'")
TERABYTE = 1 << 40


@pytest.fixture(autouse=True)
def dies_rather_than_hangs() -> Iterator[None]:
    """A hang is a failure too, and one that says where."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def table(path: Path, *more: dict[str, Any], add: dict[str, Any] | None = None, **metadata: Any) -> Path:
    """A table of one version."""
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    described = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": FIELDS}),
        "partitionColumns": ["p"],
        "configuration": {},
        "createdTime": 0,
        **metadata,
    }
    values = {"p": "1.00"} if described["partitionColumns"] else {}
    file = {
        "path": "f",
        "partitionValues": values,
        "size": 10,
        "modificationTime": 0,
        "dataChange": True,
        **(add or {}),
    }
    log = path / "_delta_log"
    log.mkdir(parents=True)
    actions = [{"protocol": protocol}, {"metaData": described}, {"add": file}, *more]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def asked(path: Path) -> list[Callable[[], object]]:
    """Everything that can be asked of a log, and done to it."""

    def read() -> None:
        snapshot = hw.open_log(path)
        _ = snapshot.files().to_pylist(), snapshot.num_files, snapshot.size_bytes, snapshot.timestamp
        _ = snapshot.tombstones(), snapshot.app_transactions, snapshot.domain_metadata
        _ = snapshot.verify(), str(snapshot.schema), snapshot.schema.to_arrow()
        _ = [str(commit) for commit in snapshot.history()], snapshot.refresh()

    def write() -> None:
        ctx = TableRef(path).context()
        transaction = Transaction(ctx, open_snapshot(ctx))
        transaction.add([Add("new", 5, dict.fromkeys(transaction.snapshot.partition_columns, "2.00"), 0)])  # type: ignore[union-attr]
        rebased = write_checkpoint(transaction.commit(Operation("WRITE")).snapshot)
        _ = rebased.files(), clean_up(rebased)

    filters = [lambda where=where: hw.open_log(path).files(where) for where in FILTERS]
    cleaned = [lambda mode=mode: vacuum(TableRef(path).context(), mode=mode) for mode in ("FULL", "LITE")]
    return [read, *filters, write, *cleaned]  # type: ignore[list-item]


def check_typed(path: Path, *, few: bool = False) -> list[HeadwaterError]:
    """What was raised; anything that is not of ours fails the test. With `few`, files are not filtered."""
    raised: list[HeadwaterError] = []
    questions = asked(path)
    for question in (questions[0], *questions[-3:-1]) if few else questions:
        try:
            question()
        except HeadwaterError as error:
            raised.append(error)
    return raised


# --- no regular files -----------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("/nonexistent/file")


def plug(path: Path) -> None:
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as plugged:
        plugged.bind(path.name)


def huge(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(TERABYTE)


THINGS = [pipe, endless_device, directory, link_to_itself, link_to_nothing, plug, huge]
NAMES = [
    f"{0:020d}.json",
    f"{1:020d}.json",
    f"{2:020d}.json",
    f"{0:020d}.checkpoint.parquet",
    f"{1:020d}.checkpoint.parquet",
    f"{0:020d}.{1:020d}.compacted.json",
    f"{0:020d}.crc",
    f"{1:020d}.crc",
    "_last_checkpoint",
    "_sidecars",
    "_last_vacuum_info",
]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
def test_whatever_stands_in_place_of_a_log_file_is_answered_soon(tmp_path: Path, thing: Callable[[Path], None]) -> None:
    for number, name in enumerate(NAMES):
        path = table(tmp_path / str(number))
        place = path / "_delta_log" / name
        place.unlink(missing_ok=True)
        thing(place)
        check_typed(path, few=True)


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
def test_the_same_for_search_tables(tmp_path: Path, thing: Callable[[Path], None]) -> None:
    from headwater.log.schema import LONG, StructField, StructType

    for number, name in enumerate([n for n in NAMES if not n.endswith("parquet")] + [f"{1:020d}.checkpoint.json"]):
        path = tmp_path / str(number)
        create_search_log(path, StructType([StructField("id", LONG)]))
        place = path / "_transaction_log" / name
        place.unlink(missing_ok=True)
        thing(place)
        log_caches.invalidate_cache()
        with suppress(HeadwaterError):
            snapshot = open_search_log(path)
            _ = snapshot.files(), snapshot.verify(), snapshot.history(), snapshot.refresh()
            Transaction(snapshot.ctx, snapshot).commit(Operation("WRITE"))


@pytest.mark.parametrize("thing", THINGS[:4], ids=lambda thing: thing.__name__)
def test_what_is_no_regular_file_is_no_object(tmp_path: Path, thing: Callable[[Path], None]) -> None:
    store = LocalStore(tmp_path)
    thing(tmp_path / "x")
    for read in (lambda: store.get("x"), lambda: store.get_range("x", 0, 10), lambda: store.head("x")):
        with pytest.raises(ObjectNotFoundError, match="/x"):
            read()
    assert store.list_from("") == []
    with pytest.raises(StorageRefusedError, match=r"could not create .*/x: there is "):
        store.put_if_absent("x", b"data")


@pytest.mark.parametrize("thing", THINGS[:3], ids=lambda thing: thing.__name__)
def test_a_version_that_is_no_file_is_missing_and_cannot_be_written(
    tmp_path: Path, thing: Callable[[Path], None]
) -> None:
    ctx = TableRef(table(tmp_path)).context()
    snapshot = open_snapshot(ctx)
    thing(tmp_path / "_delta_log" / f"{1:020d}.json")
    with pytest.raises(StorageRefusedError, match=rf"{1:020d}\.json"):
        Transaction(ctx, snapshot).commit(Operation("WRITE"))
    (tmp_path / "_delta_log" / f"{2:020d}.json").write_text('{"commitInfo":{}}\n')
    with pytest.raises(MissingCommitError, match=rf"{1:020d}\.json"):
        hw.open_log(tmp_path)


# --- sizes ----------------------------------------------------------------------------------------------


def test_a_log_file_is_not_read_if_it_is_too_large(tmp_path: Path) -> None:
    path = table(tmp_path)
    huge(path / "_delta_log" / f"{1:020d}.json")
    with pytest.raises(StorageError, match=rf"{1:020d}\.json: it has {TERABYTE} bytes.*{MAX_BYTES_VARIABLE}"):
        hw.open_log(path)


def test_the_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path)
    assert hw.open_log(path).version == 0
    monkeypatch.setenv(MAX_BYTES_VARIABLE, "100")
    with pytest.raises(StorageError, match="at most 100 are read at once"):
        hw.open_log(path)
    monkeypatch.setenv(MAX_BYTES_VARIABLE, "a lot")
    with pytest.raises(StorageError, match=MAX_BYTES_VARIABLE):
        hw.open_log(path)


def test_the_limit_holds_for_object_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.storage import open_store

    store = open_store("memory://hostile-sizes")
    store.put("x", b"0" * 101)
    monkeypatch.setenv(MAX_BYTES_VARIABLE, "100")
    with pytest.raises(StorageError, match=r"memory://hostile-sizes/x: it has 101 bytes"):
        store.get("x")


# --- deletion vectors -----------------------------------------------------------------------------------

NAME = "ab^-aqEH.-t@S}K{vb[*k^"


def vector(size_bytes: int, cardinality: int = 1, offset: int | None = 1, **fields: Any) -> DeletionVector:
    return DeletionVector(fields.get("kind", "u"), fields.get("text", NAME), size_bytes, cardinality, offset)


def read(path: Path, wanted: DeletionVector) -> list[bytes]:
    store = LocalStore(path)
    return read_vectors([wanted], store, lambda key: (store, key))


INTEGERS = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from([-1, 0, 1, 11, 12, 2**31 - 1, -(2**31)]))


@given(INTEGERS, INTEGERS, st.one_of(st.none(), INTEGERS), st.sampled_from(["u", "i"]))
@examined
def test_no_numbers_of_a_vector_do_harm(size_bytes: int, cardinality: int, offset: int | None, kind: str) -> None:
    text = NAME if kind == "u" else "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    path = _vectors()
    with suppress(HeadwaterError):
        read(path, vector(size_bytes, cardinality, offset, kind=kind, text=text))


@given(st.binary(max_size=80), st.sampled_from([MAGIC, MAGIC - 1, 0]))
@examined
def test_no_bytes_of_a_bitmap_do_harm(data: bytes, magic: int) -> None:
    path = _vectors()
    body = struct.pack("<i", magic) + data
    target = path / vector_path(vector(0))
    target.write_bytes(b"\1" + struct.pack(">i", len(body)) + body + struct.pack(">I", crc32(body)))
    with suppress(HeadwaterError):
        read(path, vector(len(body)))


def _vectors() -> Path:
    """A directory with the file of a vector, one for all examples."""
    path = Path(os.environ["HEADWATER_SPLIT_CACHE_DIR"]) / "hostile-vectors"
    target = path / vector_path(vector(0))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target.write_bytes(b"\1" + bytes(100))
    return path


@pytest.mark.parametrize("field", ["size_in_bytes", "cardinality", "offset"])
def test_a_negative_number_of_a_vector_is_named_with_its_file(tmp_path: Path, field: str) -> None:
    import msgspec

    with pytest.raises(CorruptLogError, match=r"deletion_vector_.*\.bin cannot be"):
        read(tmp_path, msgspec.structs.replace(vector(40), **{field: -1}))


@pytest.mark.parametrize("thing", [pipe, endless_device, directory, huge], ids=lambda thing: thing.__name__)
def test_a_vector_file_that_is_none_is_answered_soon(tmp_path: Path, thing: Callable[[Path], None]) -> None:
    target = tmp_path / vector_path(vector(0))
    target.parent.mkdir()
    thing(target)
    with pytest.raises(HeadwaterError, match=r"deletion_vector_.*\.bin"):
        read(tmp_path, vector(2**31 - 1))


# --- values ---------------------------------------------------------------------------------------------

NUMBERS = [
    "1e999999",
    "-1e400",
    "9" * 60,
    "NaN",
    "1e-400",
    "true",
    "{}",
    "[]",
    '"x"',
    '"' + "9" * 60 + '"',
    "1." + "0" * 99,
]


@pytest.mark.parametrize(
    "text",
    [
        "1e999999",
        "NaN",
        "Infinity",
        "9" * 60,
        "-" + "9" * 60,
        "0x10",
        "1_000",
        "１２",
        ".",
        "1e9",
    ],
)
def test_a_decimal_that_does_not_fit_its_column_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    """Arrow itself does not survive the first of them."""
    path = table(tmp_path, add={"partitionValues": {"p": text}})
    for where in ("p = 1", "p > 0.5"):
        with pytest.raises(CorruptLogError, match="partition value of column 'p'"):
            hw.open_log(path).files(where)
    check_typed(path)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("1e2", "p = 100"),
        (" 1.5 ", "p = 1.5"),
        ("+7", "p = 7"),
        (".5", "p = 0.5"),
        ("1.23456", "p = 1.23"),
        ("1e-99999", "p = 0"),
    ],
)
def test_a_decimal_may_be_written_in_other_ways(tmp_path: Path, text: str, fits: str) -> None:
    path = table(tmp_path, add={"partitionValues": {"p": text}})
    assert hw.open_log(path).files(fits).num_rows == 1
    assert hw.open_log(path).files("p = 3").num_rows == 0


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_bounds_out_of_range_are_unknown(tmp_path: Path, number: str) -> None:
    names = ("id", "d", "t", "day", "s")
    values = ",".join(f'"{name}":{number}' for name in names)
    stats = f'{{"numRecords":{number},"minValues":{{{values}}},"maxValues":{{{values}}},"nullCount":{{"id":{number}}}}}'
    path = table(tmp_path, add={"stats": stats})
    assert check_typed(path) == []


@given(st.decimals(allow_nan=True, allow_infinity=True), st.booleans())
@settings(examined, max_examples=100)
def test_decimals_never_end_the_process(value: Any, quoted: bool) -> None:
    import pyarrow as pa

    from headwater.log.schema import DecimalType
    from headwater.log.stats.values import decimal_array, parse_bounds

    text = f" {value}" if quoted else str(value)
    found = parse_bounds(pa.array([text]), DecimalType(38, 10)).to_pylist()[0]
    assert found is None or found == value
    for upper in (True, False):
        (bound,) = decimal_array([value], pa.decimal128(38, 10), upper=upper).to_pylist()
        assert bound is None or (bound >= value if upper else bound <= value)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**62, -1, 253_402_300_800_000])
def test_absurd_times_and_sizes(tmp_path: Path, number: int) -> None:
    path = table(
        tmp_path,
        {"commitInfo": {"timestamp": number, "inCommitTimestamp": number, "operation": "X"}},
        {"remove": {"path": "r", "deletionTimestamp": number, "dataChange": True}},
        {"txn": {"appId": "a", "version": 1, "lastUpdated": number}},
        add={"modificationTime": number, "size": max(number, 0)},
        createdTime=number,
    )
    check_typed(path)


@pytest.mark.parametrize(
    "text", ["interval 10 lightyears", "interval -5 days", "interval 1 month", "interval", "", "9" * 100, "soon"]
)
def test_a_retention_that_makes_no_sense_is_named(tmp_path: Path, text: str) -> None:
    names = (
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.setTransactionRetentionDuration",
    )
    path = table(
        tmp_path, {"txn": {"appId": "a", "version": 1, "lastUpdated": 5}}, configuration=dict.fromkeys(names, text)
    )
    for error in check_typed(path):
        assert isinstance(error, InvalidTablePropertyError)
        assert "RetentionDuration" in str(error)
    with pytest.raises(InvalidTablePropertyError, match="deletedFileRetentionDuration"):
        vacuum(TableRef(path).context())


def test_a_retention_longer_than_all_time_keeps_everything(tmp_path: Path) -> None:
    names = (
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.setTransactionRetentionDuration",
    )
    for number, text in enumerate(("interval 99999999999999999999999 days", "interval 9223372036854775807 weeks")):
        path = table(
            tmp_path / str(number),
            {"txn": {"appId": "a", "version": 1, "lastUpdated": 5}},
            {"remove": {"path": "r", "deletionTimestamp": 1, "dataChange": True}},
            configuration=dict.fromkeys(names, text),
        )
        assert check_typed(path) == []
        snapshot = hw.open_log(path)
        assert (snapshot.app_transactions, snapshot.tombstones().num_rows) == ({"a": 1}, 1)


@pytest.mark.parametrize("hours", [1e308, 2**63, 10**400])
def test_vacuum_retains_for_any_number_of_hours(tmp_path: Path, hours: float) -> None:
    ctx = TableRef(table(tmp_path)).context()
    ctx.store.put("garbage", b"")
    assert vacuum(ctx, retention_hours=hours).num_files == 0


@pytest.mark.parametrize("hours", [math.inf, math.nan, -1, -(10**400), "1", True])
def test_vacuum_refuses_what_is_no_number_of_hours(tmp_path: Path, hours: Any) -> None:
    with pytest.raises(RetentionError):
        vacuum(TableRef(table(tmp_path)).context(), retention_hours=hours, enforce_retention=False)


# --- nesting, names, paths ------------------------------------------------------------------------------


def nested_schema(depth: int, opening: str, closing: str) -> str:
    return (
        '{"type":"struct","fields":[{"name":"a","type":'
        + opening * depth
        + '"long"'
        + closing * depth
        + ',"nullable":true,"metadata":{}}]}'
    )


SHAPES = {
    "struct": ('{"type":"struct","fields":[{"name":"b","type":', ',"nullable":true,"metadata":{}}]}'),
    "array": ('{"type":"array","containsNull":true,"elementType":', "}"),
    "map": ('{"type":"map","valueContainsNull":true,"keyType":"long","valueType":', "}"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_schema_of_any_depth_is_read_or_refused(tmp_path: Path, shape: str) -> None:
    for depth in (20, 99, 101, 400, 3_000, 100_000):
        path = table(tmp_path / str(depth), schemaString=nested_schema(depth, *SHAPES[shape]), partitionColumns=[])
        raised = [error for error in check_typed(path) if "nested" in str(error)]
        assert bool(raised) == (depth > 100)
        if depth > 100:
            with pytest.raises(SchemaError, match=rf"{path.name} at version \d: .*nested"):
                _ = hw.open_log(path).schema


@pytest.mark.parametrize("depth", [400, 3_000, 100_000])
def test_json_of_any_depth_anywhere_in_the_log(tmp_path: Path, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    for number, place in enumerate(
        ("stats", f"{1:020d}.json", f"{0:020d}.crc", "_last_checkpoint", "_last_vacuum_info")
    ):
        path = table(tmp_path / str(number), add={"stats": deep} if place == "stats" else None)
        if place != "stats":
            (path / "_delta_log" / place).write_text(deep + "\n")
        raised = check_typed(path, few=True)
        assert bool(raised) == (number == 1 and depth > 400)


@pytest.mark.parametrize(
    "name",
    [
        "9" * 20 + ".json",
        "0" * 21 + "1.json",
        "１" * 20 + ".json",
        f"{2**63 - 1:020d}.json",
        f"{2**63 - 1:020d}.checkpoint.parquet",
        f"{0:020d}.{2**63 - 1:020d}.compacted.json",
        f"{1:020d}.{'9' * 20}.compacted.json",
        f"{1:020d}.checkpoint.{1:010d}.{9_999_999_999:010d}.parquet",
    ],
)
def test_absurd_versions_in_names(tmp_path: Path, name: str) -> None:
    path = table(tmp_path)
    (path / "_delta_log" / name).write_text("{}")
    check_typed(path, few=True)


@pytest.mark.parametrize(
    "path",
    [
        "\0",
        "a\0b",
        "file:///a%00b",
        "/" + "x" * 300,
        "/tmp/" + "y/" * 3_000,
        "/dev/null",
        "/etc/passwd",
        "/etc/passwd/t",
        "",
    ],
    ids=lambda path: repr(path)[:20],
)
def test_odd_paths_are_a_typed_error(path: str) -> None:
    for use in (
        lambda: hw.open_log(path),
        lambda: Transaction(TableRef(path).context(), None).commit(Operation("WRITE")),
    ):
        with pytest.raises(HeadwaterError):
            use()


@pytest.mark.parametrize("version", [-1, 2**63, 10**30])
def test_absurd_versions_are_not_found(tmp_path: Path, version: int) -> None:
    with pytest.raises(VersionNotFoundError):
        hw.open_log(table(tmp_path), version=version)
