"""One set of rules for every way in which types, properties and constraints get into a table: also for CLONE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headwater.commands.clone import Cloned
from headwater.errors import InvalidCommitError, InvalidTablePropertyError, SchemaError
from headwater.features.context import TableRef
from headwater.features.definition import TableDefinition, changed_table, set_table
from headwater.log.actions.model import Add
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration import TableConfiguration
from headwater.log.opening import open_snapshot
from headwater.log.schema import LONG, STRING, ArrayType, MapType, PrimitiveType, StructField, StructType
from support.commands import clone
from support.tables.feature_tables import TWO_COLUMNS, definition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headwater.log.snapshot import Snapshot

ILLEGAL = {
    "day-time interval": PrimitiveType("interval day to second"),
    "year-month interval": PrimitiveType("interval year to month"),
    "calendar interval": PrimitiveType("interval"),
    "time": PrimitiveType("time(6)"),
    "geometry": PrimitiveType("geometry(OGC:CRS84)"),
    "made up": PrimitiveType("quaternion"),
    "in an array": ArrayType(PrimitiveType("interval day to second")),
    "in a map": MapType(STRING, PrimitiveType("interval year to month")),
    "in a struct": StructType([StructField("a", PrimitiveType("interval"))]),
}
COLLATED = StructField("x", STRING, metadata={"__COLLATIONS": {"x": "spark.UTF8_LCASE"}})
NESTED = StructField("x", StructType([COLLATED]))
IN_ARRAY = StructField("x", ArrayType(STRING), metadata={"__COLLATIONS": {"x.element": "icu.UNICODE_CI"}})


def new(field: StructField) -> TableDefinition:
    return definition(StructType([*TWO_COLUMNS.fields, field]))


def added(field: StructField, *, replaces: bool = False) -> TableDefinition:
    before = definition()
    schema = StructType([*TWO_COLUMNS.fields, field])
    after = msgspec.structs.replace(before.metadata, schema_string=schema.to_json())
    return changed_table(before.configuration, after, replaces=replaces)


def replaced(field: StructField) -> TableDefinition:
    return added(field, replaces=True)


WAYS: dict[str, Callable[[StructField], TableDefinition]] = {"new": new, "added": added, "replaced": replaced}


@pytest.mark.parametrize("kind", ILLEGAL)
@pytest.mark.parametrize("way", WAYS)
def test_a_type_that_the_protocol_does_not_have_is_refused(way: str, kind: str) -> None:
    with pytest.raises(SchemaError, match=r"column x.* has no type "):
        WAYS[way](StructField("x", ILLEGAL[kind]))


@pytest.mark.parametrize("field", [COLLATED, NESTED, IN_ARRAY], ids=["column", "field", "element"])
@pytest.mark.parametrize("way", WAYS)
def test_a_collation_is_refused(way: str, field: StructField) -> None:
    with pytest.raises(SchemaError, match=r"column x.* has a collation .*feature collations"):
        WAYS[way](field)


@pytest.mark.parametrize("field", [COLLATED, StructField("x", ILLEGAL["time"])], ids=["collation", "type"])
def test_a_table_that_has_such_a_column_from_elsewhere_can_still_be_changed(field: StructField) -> None:
    plain = definition()
    schema = StructType([*TWO_COLUMNS.fields, field])
    before = msgspec.structs.replace(plain.metadata, schema_string=schema.to_json())
    after = msgspec.structs.replace(
        before, schema_string=StructType([*schema.fields, StructField("y", LONG)]).to_json(), configuration={"a": "b"}
    )
    assert changed_table(TableConfiguration(plain.protocol, before), after).schema.names == (
        *TWO_COLUMNS.names,
        "x",
        "y",
    )


@pytest.mark.parametrize("names", [("c", "C"), ("a b",), ("a;b",), ("-",)])
def test_constraints_have_names_that_can_be_told_apart(names: tuple[str, ...]) -> None:
    properties = {f"delta.constraints.{name}": "id > 0" for name in names}
    with pytest.raises(InvalidTablePropertyError, match="cannot be the name of a constraint"):
        definition(properties=properties)


# --- CLONE ----------------------------------------------------------------------------------------------


def table(path: Path, schema: StructType, stats: str | None = '{"numRecords":1}', **options: Any) -> Snapshot:
    ctx = TableRef(path).context()
    transaction = Transaction(ctx, None)
    set_table(transaction, definition(schema, **options))
    values = dict.fromkeys(options.get("partition_columns", ()), "1")
    transaction.add([Add("f.parquet", 4, partition_values=values, modification_time=0, stats=stats)])
    ctx.store.put("f.parquet", b"data")
    return transaction.commit(Operation("WRITE")).snapshot


def cloned(source: Snapshot, target: Path, *, replace: bool = False, **properties: str) -> Cloned:
    ctx = TableRef(target).context()
    return clone(source, ctx, is_shallow=True, replace=replace, copy=lambda _: None, properties=properties)


LISTS = StructType([StructField("id", LONG), StructField("a", ArrayType(LONG))])
MAPS = StructType([StructField("id", LONG), StructField("m", StructType([StructField("x", MapType(STRING, LONG))]))])
PLAIN = StructType([StructField("id", LONG), StructField("p", LONG)])


@pytest.mark.parametrize("version", ["V1", "V2"])
@pytest.mark.parametrize("replace", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize(
    ("schema", "stats", "options", "reason"),
    [
        (LISTS, '{"numRecords":1}', {}, "ids for array elements|does not allow the type"),
        (MAPS, '{"numRecords":1}', {}, "ids for array elements|does not allow the type"),
        (PLAIN, '{"numRecords":1}', {"partition_columns": ["p"]}, "do not hold their partition columns"),
        (PLAIN, None, {}, "numRecords"),
    ],
    ids=["array", "map", "partition column", "statistics"],
)
def test_a_clone_cannot_promise_more_of_its_files_than_they_were_written_for(
    tmp_path: Path, version: str, replace: bool, schema: StructType, stats: str | None, options: Any, reason: str
) -> None:
    source = table(tmp_path / "source", schema, stats, **options)
    if replace:
        table(tmp_path / "target", PLAIN)
    enabled = {f"delta.enableIcebergCompat{version}": "true", "delta.columnMapping.mode": "name"}
    with pytest.raises(InvalidCommitError, match=reason):
        cloned(source, tmp_path / "target", replace=replace, **enabled)
    if replace:
        assert open_snapshot(TableRef(tmp_path / "target").context()).version == 0


def test_a_clone_whose_files_are_good_enough_may(tmp_path: Path) -> None:
    source = table(tmp_path / "source", PLAIN)
    enabled = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}
    assert cloned(source, tmp_path / "target", **enabled).version == 0


@pytest.mark.parametrize("name", ["delta.constraints.c", "DELTA.constraints.c", "delta.CONSTRAINTS.c"])
@pytest.mark.parametrize("expression", ["id > 5", "nosuch > 1"])
def test_a_clone_gets_constraints_only_by_addconstraint(tmp_path: Path, name: str, expression: str) -> None:
    source = table(tmp_path / "source", PLAIN)
    with pytest.raises(InvalidTablePropertyError, match="addConstraint"):
        cloned(source, tmp_path / "target", **{name: expression})


def test_a_clone_keeps_the_constraints_of_its_source(tmp_path: Path) -> None:
    source = table(tmp_path / "source", PLAIN, properties={"delta.constraints.c": "id > 0"})
    cloned(source, tmp_path / "one")
    cloned(source, tmp_path / "other", **{"delta.constraints.c": "id > 0"})
    for name in ("one", "other"):
        snapshot = open_snapshot(TableRef(tmp_path / name).context())
        assert snapshot.properties["delta.constraints.c"] == "id > 0"


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.columnMapping.maxColumnId": "7"},
        {"delta.appendOnly": "perhaps"},
        {"delta.nosuch": "1"},
        {"delta.logRetentionDuration": "interval 10 lightyears"},
        {"delta.checkpointInterval": "0"},
        {"delta.rowTracking.materializedRowIdColumnName": "x"},
    ],
    ids=str,
)
def test_a_clone_refuses_the_properties_that_every_table_refuses(tmp_path: Path, properties: dict[str, str]) -> None:
    source = table(tmp_path / "source", PLAIN)
    with pytest.raises(InvalidTablePropertyError):
        cloned(source, tmp_path / "target", **properties)
    with pytest.raises(InvalidTablePropertyError):
        definition(properties=properties)
