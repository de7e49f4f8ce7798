"""Alterations among other writers: what was decided on a version must be right for the version it is committed on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    MetadataChangedException,
    ProtocolChangedException,
)
from headwater.log.schema import LONG, StructField
from support.commands import add_columns, add_constraint, add_feature, set_domain, set_nullable, set_properties
from support.tables.plain_tables import append, newest, plain_table


@pytest.fixture(params=["Serializable", "WriteSerializable"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = plain_table(tmp_path / "t", pa.table({"id": [1, 2]}))
    set_properties(newest(path), {"delta.isolationLevel": request.param})
    return path


def test_rows_that_come_while_others_are_looked_at_stop_a_constraint(table: str) -> None:
    def look(*_: object) -> None:
        append(table, pa.table({"id": [-1]}))

    with pytest.raises(ConcurrentAppendException, match="ADD CONSTRAINT"):
        add_constraint(newest(table), "positive", "id > 0", look)
    assert newest(table).properties.keys() == {"delta.isolationLevel"}


def test_rows_that_go_while_others_are_looked_at_stop_it_too(table: str) -> None:
    def look(*_: object) -> None:
        DeltaTable(table).delete("id = 1")

    with pytest.raises((ConcurrentAppendException, ConcurrentDeleteReadException)):
        add_constraint(newest(table), "positive", "id > 0", look)


def test_rows_that_come_meanwhile_stop_not_null(table: str) -> None:
    def look(*_: object) -> None:
        append(table, pa.table({"id": pa.array([None], pa.int64())}))

    with pytest.raises(ConcurrentAppendException):
        set_nullable(newest(table), "id", False, look)


def test_rows_that_come_meanwhile_do_not_stop_other_alterations(table: str) -> None:
    before = newest(table)
    append(table, pa.table({"id": [3]}))
    add_columns(before, [StructField("n", LONG)])
    assert newest(table).version == before.version + 2
    assert newest(table).num_files == 2


def test_two_changes_of_the_definition_conflict(table: str) -> None:
    before = newest(table)
    add_columns(before, [StructField("a", LONG)])
    with pytest.raises(MetadataChangedException):
        add_columns(before, [StructField("b", LONG)])
    with pytest.raises(MetadataChangedException):
        set_properties(before, {"a": "b"})


def test_two_changes_of_the_protocol_conflict(table: str) -> None:
    before = newest(table)
    add_feature(before, "domainMetadata")
    with pytest.raises(ProtocolChangedException):
        add_feature(before, "allowColumnDefaults")


def test_two_changes_of_one_domain_conflict_and_of_two_domains_do_not(table: str) -> None:
    add_feature(newest(table), "domainMetadata")
    before = newest(table)
    set_domain(before, "mine", "1")
    with pytest.raises(ConcurrentTransactionException):
        set_domain(before, "mine", "2")
    set_domain(before, "yours", "3")
    assert newest(table).domain_metadata == {"mine": "1", "yours": "3"}
