"""Every table of the conformance corpus, read with Spark: all rows of all versions, by content hash."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.spark.scan.read import read, read_changes
from support.corpus import CORPUS, MISSING, table_id, tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark

if CORPUS is None:
    pytest.skip(MISSING, allow_module_level=True)
sys.path.insert(0, str(CORPUS))
from rowhash import row_hash  # noqa: E402

Entry = dict[str, Any]
_READABLE = [t for t in tables() if t["expect"] == "ok" and t.get("data_files") != "absent"]
_UNREADABLE = [t for t in tables() if t["expect"] == "error" and not t.get("disputed")]


def _parameters(entries: list[Entry]) -> list[Any]:
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(t, id=table_id(t), marks=marks[bool(t.get("slow"))]) for t in entries]


@pytest.fixture
def path(entry: Entry, tmp_path: Path) -> Path:
    """The table; a prepared copy where the manifest asks for one."""
    source = Path(CORPUS or "") / entry["path"]
    if not entry.get("setup"):
        return source
    copy = tmp_path / "table"
    shutil.copytree(source, copy)
    commit = copy / "_delta_log" / "00000000000000000000.json"
    folder = f"{copy}/folder&with%25special%20char"
    commit.write_text(commit.read_text().replace("{{FOLDER_WITH_SPECIAL_CHAR}}", folder))
    return copy


@pytest.mark.parametrize("entry", _parameters(_READABLE))
def test_rows_are_those_of_other_readers(entry: Entry, path: Path, spark: SparkSession) -> None:
    frame = read(spark, path)
    expected = [(c["name"], c["nullable"]) for c in entry["columns"]]
    assert [(f.name, f.nullable) for f in frame.schema.fields] == expected
    assert row_hash(_to_arrow(frame)) == entry["row_hash"]
    for predicate in entry.get("predicates", ()):
        assert frame.where(predicate["sql"]).count() == predicate["rows"], predicate["sql"]


@pytest.mark.parametrize("entry", _parameters([t for t in _READABLE if t.get("versions")]))
def test_rows_of_every_version(entry: Entry, path: Path, spark: SparkSession) -> None:
    hashes = entry.get("version_hashes", {})
    for version, rows in entry["versions"].items():
        if int(version) == entry["latest_version"]:
            continue  # the test above
        if rows is None:
            with pytest.raises(hw.HeadwaterError):
                _to_arrow(read(spark, path, version=int(version)))
            continue
        table = _to_arrow(read(spark, f"{path}@v{version}"))
        assert table.num_rows == rows, version
        if hashes.get(version):
            assert row_hash(table) == hashes[version], version


@pytest.mark.parametrize("entry", _parameters([t for t in _READABLE if t.get("cdf")]))
def test_changes_are_those_of_other_readers(entry: Entry, path: Path, spark: SparkSession) -> None:
    expected = entry["cdf"]
    table = _to_arrow(read_changes(spark, path, expected["start"], expected["end"]))
    assert table.schema.names[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    assert table.num_rows == expected["num_rows"]
    assert Counter(table.column("_change_type").to_pylist()) == expected["rows_by_type"]
    by_version = Counter(str(v) for v in table.column("_commit_version").to_pylist())
    assert by_version == expected["rows_by_version"]
    assert row_hash(table.drop_columns(["_commit_timestamp"])) == expected["row_hash"]
    for start, end in expected.get("ranges_error", ()):
        with pytest.raises(hw.HeadwaterError):
            read_changes(spark, path, start, end)


@pytest.mark.parametrize("entry", _parameters(_UNREADABLE))
def test_what_cannot_be_read_raises(entry: Entry, path: Path, spark: SparkSession) -> None:
    with pytest.raises(hw.HeadwaterError):
        _to_arrow(read(spark, path))


def _to_arrow(frame: DataFrame) -> pa.Table:
    """The rows; a variant as its JSON text with sorted keys, which is how the manifest hashes it."""
    from pyspark.sql import functions as sf

    columns: list[Column] = []
    variants: list[int] = []
    for position, field in enumerate(frame.schema.fields):
        column = sf.col("`" + field.name.replace("`", "``") + "`")
        if field.dataType.typeName() == "variant":
            variants.append(position)
            column = sf.to_json(column)
        elif "variant" in field.dataType.simpleString():
            column = column.cast(field.dataType.simpleString().replace("variant", "string"))
        columns.append(column.alias(field.name))
    table = frame.select(*columns).toArrow()
    for position in variants:
        table = table.set_column(position, table.schema.names[position], _sorted_json(table.column(position)))
    return table


def _sorted_json(texts: pa.ChunkedArray) -> pa.Array:
    values = [None if text is None else json.loads(text) for text in texts.to_pylist()]
    return pa.array(
        [None if t is None else json.dumps(t, sort_keys=True, separators=(",", ":")) for t in values], pa.string()
    )
