"""What a read may prune by: only what the session and the log read alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headwater.errors import ColumnNotFoundError, FilterError
from headwater.log.schema import LONG, STRING, TIMESTAMP, StructField, StructType
from headwater.spark.scan.request import ScanRequest

SCHEMA = StructType([StructField("id", LONG), StructField("at", TIMESTAMP), StructField("name", STRING)])


def session(zone: str = "UTC", ansi: str = "true") -> Any:
    settings = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi}
    return SimpleNamespace(conf=SimpleNamespace(get=settings.__getitem__))


def request(where: Any = None, columns: tuple[str, ...] | None = None) -> ScanRequest:
    snapshot: Any = SimpleNamespace(schema=SCHEMA)
    return ScanRequest(snapshot, where=where, columns=columns)


@pytest.mark.parametrize(
    ("sql", "zone", "pruning"),
    [
        ("id = 1", "Asia/Tokyo", "id = 1"),
        ("at > '2024-01-01'", "UTC", "at > '2024-01-01'"),
        ("at > '2024-01-01' AND id = 1", "Asia/Tokyo", "(<at > '2024-01-01'> AND id = 1)"),
        ("at IS NULL", "Asia/Tokyo", "at IS NULL"),
        ("id = name AND id = 1", "UTC", "(<id = name> AND id = 1)"),
        ("_row_id = 3 OR id = 1", "UTC", "(<_row_id = 3> OR id = 1)"),
    ],
)
def test_what_means_the_same_prunes(sql: str, zone: str, pruning: str) -> None:
    assert str(request(where=sql).pruning(session(zone))) == pruning


def test_a_session_with_other_rules_of_comparison_prunes_nothing() -> None:
    assert "other rules" in str(request(where="name = 5").pruning(session(ansi="false")))


def test_columns_of_the_filter_are_read_too() -> None:
    assert request("id > 1", ("NAME",)).needed_columns() == ("name", "id")
    assert request("id > 1").needed_columns() is None
    # Which columns a part uses that is not understood is not known.
    assert request("upper(name) = 'X'", ("id",)).needed_columns() is None
    assert request("id = _row_id", ("id",)).needed_columns() is None


def test_bad_selections_are_refused() -> None:
    with pytest.raises(FilterError):
        request(where=3)
    with pytest.raises(FilterError):
        request(where="id >").pruning(session())
    with pytest.raises(ColumnNotFoundError):
        request(columns=("no",)).needed_columns()
