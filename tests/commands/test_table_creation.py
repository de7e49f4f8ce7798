"""Creating and replacing tables, by the log alone."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.commands import create as creation
from headwater.commands.create import CreateMode, CreateRequest, create
from headwater.errors import (
    ColumnNotFoundError,
    ConcurrentAppendException,
    InvalidCommitError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from headwater.features.context import TableRef
from headwater.log.context import LogContext
from headwater.log.schema import INTEGER, STRING, StructField, StructType
from headwater.log.snapshot import Snapshot
from support.tables.plain_tables import actions, append, last_commit, newest, plain_table

SCHEMA = StructType([StructField("a", INTEGER), StructField("b", STRING)])
WANTED = {"schema": SCHEMA, "partition_columns": ("b",), "properties": {"my": "1"}, "description": "new"}


def make(path: str | Path, how: CreateMode, **wanted: Any) -> None:
    create(CreateRequest(TableRef(str(path)), how, **(wanted or WANTED)))


@pytest.mark.parametrize("how", [CreateMode.CREATE, CreateMode.CREATE_IF_NOT_EXISTS, CreateMode.CREATE_OR_REPLACE])
def test_a_table_is_created(tmp_path: Path, how: CreateMode) -> None:
    path = str(tmp_path / "t")
    make(path, how)
    expected = "CREATE OR REPLACE TABLE" if how is CreateMode.CREATE_OR_REPLACE else "CREATE TABLE"
    parameters = {"partitionBy": ["b"], "clusterBy": [], "isManaged": "false", "properties": {"my": "1"}}
    assert last_commit(path) == (expected, {**parameters, "description": "new"})
    metadata = DeltaTable(path).metadata()
    assert (metadata.partition_columns, metadata.configuration, metadata.description) == (["b"], {"my": "1"}, "new")
    assert [f.name for f in DeltaTable(path).schema().fields] == ["a", "b"]


def test_there_must_be_none_to_create_and_one_to_replace(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="createOrReplace"):
        make(tmp_path / "t", CreateMode.REPLACE)
    make(tmp_path / "t", CreateMode.CREATE)
    with pytest.raises(TableAlreadyExistsError, match="createIfNotExists"):
        make(tmp_path / "t", CreateMode.CREATE)
    make(tmp_path / "t", CreateMode.CREATE_IF_NOT_EXISTS, schema=StructType([StructField("other", STRING)]))
    assert newest(str(tmp_path / "t")).version == 0


@pytest.mark.parametrize("how", [CreateMode.REPLACE, CreateMode.CREATE_OR_REPLACE])
def test_a_replaced_table_keeps_its_history(tmp_path: Path, how: CreateMode) -> None:
    path = plain_table(tmp_path / "t", pa.table({"id": [1, 2]}), configuration={"delta.checkpointInterval": "7"})
    append(path, pa.table({"id": [7]}))
    before = newest(path)
    make(path, how)

    after = newest(path)
    assert (after.version, after.num_files, after.properties, after.partition_columns) == (2, 0, {"my": "1"}, ["b"])
    assert after.metadata.id != before.metadata.id
    assert after.schema.names == ("a", "b")
    written = actions(path, 2)
    assert {r["path"] for r in written["remove"]} == set(before.files().column("path").to_pylist())
    assert all(r["dataChange"] and r["extendedFileMetadata"] and r["deletionTimestamp"] for r in written["remove"])
    assert last_commit(path)[0] == how.value
    assert DeltaTable(path, version=1).to_pyarrow_table().num_rows == 3
    assert DeltaTable(path).to_pyarrow_table().num_rows == 0


def test_rows_that_come_meanwhile_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain_table(tmp_path / "t", pa.table({"id": [1]}))
    remove = creation.removals

    def append_first(*args: object, **options: object) -> object:
        append(path, pa.table({"id": [2]}))
        return remove(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(creation, "removals", append_first)
    with pytest.raises(ConcurrentAppendException):
        make(path, CreateMode.REPLACE)
    assert newest(path).num_files == 2


def test_an_append_only_table_is_not_replaced(tmp_path: Path) -> None:
    path = plain_table(tmp_path / "t", configuration={"delta.appendOnly": "true"})
    with pytest.raises(InvalidCommitError, match="append"):
        make(path, CreateMode.CREATE_OR_REPLACE)


@pytest.mark.parametrize(
    ("how", "error", "files"),
    [
        (CreateMode.CREATE, TableAlreadyExistsError, 1),
        (CreateMode.REPLACE, TableNotFoundError, 1),
        (CreateMode.CREATE_IF_NOT_EXISTS, None, 1),
        (CreateMode.CREATE_OR_REPLACE, None, 0),
    ],
)
def test_a_table_that_somebody_else_creates_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: CreateMode, error: type[Exception] | None, files: int
) -> None:
    path = tmp_path / "t"
    find = creation.find_table

    def find_before_it_is_there(ctx: LogContext) -> Snapshot | None:
        found = find(ctx)
        if found is None:
            plain_table(path, pa.table({"id": [1]}))
        return found

    monkeypatch.setattr(creation, "find_table", find_before_it_is_there)
    with nullcontext() if error is None else pytest.raises(error):
        make(path, how)
    assert newest(str(path)).num_files == files


def test_files_that_belong_to_no_table_are_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "t" / "day=1").mkdir(parents=True)
    (tmp_path / "t" / "_SUCCESS").write_text("")
    make(tmp_path / "t", CreateMode.CREATE)  # hidden files are nobody's data
    (tmp_path / "u" / "day=1").mkdir(parents=True)
    (tmp_path / "u" / "day=1" / "part-0.parquet").write_text("")
    with pytest.raises(InvalidCommitError, match=r"day=1/part-0\.parquet"):
        make(tmp_path / "u", CreateMode.CREATE_OR_REPLACE)


def test_partition_columns_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ColumnNotFoundError, match="no column z"):
        make(tmp_path / "t", CreateMode.CREATE, schema=SCHEMA, partition_columns=("z",))
    with pytest.raises(InvalidCommitError, match="all of its columns"):
        make(tmp_path / "t", CreateMode.CREATE, schema=SCHEMA, partition_columns=("a", "b"))
    assert not (tmp_path / "t" / "_delta_log").exists()
