"""What is understood of the condition of a MERGE, and how clauses may go together. No Spark is needed for that."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidMergeError
from headwater.log.schema import LONG, STRING, StructField, StructType
from headwater.spark.dml.assignments import checked_values
from headwater.spark.merge.clauses import Action, Clause, When, check_clauses
from headwater.spark.merge.condition import Key, Sides, understand

TARGET = StructType(
    [
        StructField("id", LONG),
        StructField("day", STRING),
        StructField("place", StructType([StructField("city", STRING)])),
    ]
)
SIDES = Sides.of(TARGET, "t", ["id", "day", "only_source", "place"])


@pytest.mark.parametrize(
    ("condition", "keys", "on_target"),
    [
        ("t.id = s.id", [(("id",), "id")], None),
        ("s.id = t.id AND t.day >= '2024-01-01'", [(("id",), "id")], "day >= '2024-01-01'"),
        ("t.ID = only_source AND (t.day = 'x' OR t.id < 3)", [(("id",), "only_source")], "(day = 'x' OR id < 3)"),
        ("t.place.city = s.day", [(("place", "city"), "day")], None),
        ("t.id = s.id AND t.day = s.day", [(("id",), "id"), (("day",), "day")], None),
        ("t.id = s.id OR t.day = 'x'", [], None),  # a row may match by its day alone
        ("t.id = s.id + 1", [], None),
        ("t.id <=> s.id", [], None),  # nulls match each other
        ("id = s.id", [], None),  # whose id
        ("t.id = t.day", [], None),
        ("s.day = 'x' AND s.id = 5", [], None),
        ("t.day = 'x' OR s.day = 'y'", [], None),
        ("not a condition (", [], None),
    ],
)
def test_a_condition_is_understood_where_that_is_safe(
    condition: str, keys: list[tuple[tuple[str, ...], str]], on_target: str | None
) -> None:
    found = understand(condition, SIDES)

    assert list(found.keys) == [Key(*key) for key in keys]
    assert (None if found.on_target is None else str(found.on_target)) == on_target


def test_a_source_column_named_like_the_alias_leaves_a_name_unclear() -> None:
    sides = Sides.of(TARGET, "t", ["id", "t"])

    assert understand("t.id = s.id AND t.day = 'x'", sides).keys == ()


def test_without_an_alias_names_that_only_the_table_has_are_its_own() -> None:
    sides = Sides.of(TARGET, None, ["key"])

    found = understand("id = key AND day = 'x'", sides)

    assert found.keys == (Key(("id",), "key"),)
    assert str(found.on_target) == "day = 'x'"


def test_a_merge_needs_a_clause() -> None:
    with pytest.raises(InvalidMergeError, match="at least one WHEN clause"):
        check_clauses(())


@pytest.mark.parametrize("when", When)
def test_only_the_last_clause_of_a_kind_may_have_no_condition(when: When) -> None:
    action = Action.INSERT if when is When.NOT_MATCHED else Action.DELETE
    with_condition, without = Clause(when, action, "true"), Clause(when, action)

    check_clauses((with_condition, without))
    with pytest.raises(InvalidMergeError, match=f"WHEN {when.value} clauses only the last"):
        check_clauses((without, with_condition))


@pytest.mark.parametrize(("values", "message"), [(None, "must be a dict"), ({1: "x"}, "names"), ({"a": 1}, "lit")])
def test_new_values_are_a_dictionary_of_names_and_expressions(values: dict[str, str], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        checked_values(values, "'set'")
