"""Which rules of a table name a column."""

from __future__ import annotations

import pytest

from headwater.commands.alter.schema_edits import names_column


@pytest.mark.parametrize(
    ("expression", "path"),
    [
        ("ID > 0", "id"),
        ("`a b` IS NOT NULL", "a b"),
        ("cast(ts as date)", "ts"),
        ("year(d) * 100 + MONTH(d)", "D"),
        ("address.city = 'x'", "address"),
        ("address . city = 'x'", "address.city"),
        ("a.b.c.d.e > 1", "a.b.c.d.e"),
        ("m['k'].z > 1", "m.value.z"),
        ("exists(points, p -> p.x > 0)", "points.element.x"),
        ("value > 1", "value"),
        ("((( not sql about amount", "amount"),
    ],
)
def test_it_is_named(expression: str, path: str) -> None:
    assert names_column(expression, path.split("."))


@pytest.mark.parametrize(
    ("expression", "path"),
    [
        ("id > 0", "i"),
        ("name = 'id'", "id"),
        ("cast(ts as date)", "date"),
        ("address.city = 'x'", "address.street"),
        ("a.b.c.d.e > 1", "a.b.c.d.x"),
        ("((( not sql about amount", "amo"),
    ],
)
def test_it_is_not_named(expression: str, path: str) -> None:
    assert not names_column(expression, path.split("."))
