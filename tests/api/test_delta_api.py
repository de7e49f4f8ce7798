"""The faces have the names and the parameters that scripts for Delta call, and refuse what they cannot do yet."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import InvalidUriError

REFERENCE = {
    hw.DeltaTable: """
        toDF()
        alias(aliasName)
        generate(mode)
        delete(condition=None)
        update(condition=None, set=None)
        merge(source, condition)
        vacuum(retentionHours=None)
        history(limit=None)
        detail()
        convertToDelta(sparkSession, identifier, partitionSchema=None)
        forPath(sparkSession, path, hadoopConf={})
        forName(sparkSession, tableOrViewName)
        create(sparkSession=None)
        createIfNotExists(sparkSession=None)
        replace(sparkSession=None)
        createOrReplace(sparkSession=None)
        isDeltaTable(sparkSession, identifier)
        upgradeTableProtocol(readerVersion, writerVersion)
        addFeatureSupport(featureName)
        dropFeatureSupport(featureName, truncateHistory=None)
        restoreToVersion(version)
        restoreToTimestamp(timestamp)
        optimize()
        clone(target, isShallow=False, replace=False, properties=None)
        cloneAtVersion(version, target, isShallow=False, replace=False, properties=None)
        cloneAtTimestamp(timestamp, target, isShallow=False, replace=False, properties=None)
    """,
    hw.DeltaMergeBuilder: """
        whenMatchedUpdate(condition=None, set=None)
        whenMatchedUpdateAll(condition=None)
        whenMatchedDelete(condition=None)
        whenNotMatchedInsert(condition=None, values=None)
        whenNotMatchedInsertAll(condition=None)
        whenNotMatchedBySourceUpdate(condition=None, set=None)
        whenNotMatchedBySourceDelete(condition=None)
        withSchemaEvolution()
        execute()
    """,
    hw.DeltaTableBuilder: """
        tableName(identifier)
        location(location)
        comment(comment)
        addColumn(colName, dataType, nullable=True, generatedAlwaysAs=None, generatedByDefaultAs=None, comment=None)
        addColumns(cols)
        partitionedBy(*cols)
        clusterBy(*cols)
        property(key, value)
        execute()
    """,
    hw.DeltaOptimizeBuilder: """
        where(partitionFilter)
        executeCompaction()
        executeZOrderBy(*cols)
    """,
}
"""What delta-spark has, without the types."""

SIGNATURES = [
    pytest.param(face, text.strip(), id=f"{face.__name__}.{text.strip().partition('(')[0]}")
    for face, texts in REFERENCE.items()
    for text in texts.strip().splitlines()
]
SESSION: Any = None
"""Names are refused before a session is asked for anything."""


def declared(text: str) -> tuple[str, list[tuple[str, object]]]:
    """The name of a method, and of each parameter the name and the default."""
    [function] = ast.parse(f"def {text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    required = len(given.args) - len(given.defaults)
    defaults = [inspect.Parameter.empty] * required + [ast.literal_eval(value) for value in given.defaults]
    parameters = [(arg.arg, default) for arg, default in zip(given.args, defaults, strict=True)]
    return function.name, [*parameters, *([(f"*{given.vararg.arg}", inspect.Parameter.empty)] if given.vararg else [])]


@pytest.mark.parametrize(("face", "text"), SIGNATURES)
def test_a_method_has_the_parameters_that_scripts_give_it(face: type, text: str) -> None:
    name, wanted = declared(text)

    parameters = list(inspect.signature(getattr(face, name)).parameters.values())
    if not inspect.ismethod(getattr(face, name)):
        parameters = parameters[1:]  # self
    ours = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    found = [(str(p).partition(":")[0].partition(" =")[0], p.default) for p in ours]

    assert [parameter for parameter, _ in found] == [parameter for parameter, _ in wanted]
    for (parameter, ours_by_default), (_, by_default) in zip(found, wanted, strict=True):
        assert (ours_by_default or None) == (by_default or None), parameter
    assert all(p.default is not p.empty for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def test_an_identity_column_counts_from_one_in_steps_of_one() -> None:
    generator = hw.IdentityGenerator()

    assert (generator.start, generator.step) == (1, 1)
    assert hw.IdentityGenerator(5, 2) == hw.IdentityGenerator(start=5, step=2)


@pytest.mark.parametrize("name", ["events", "db.events", "spark_catalog.db.events", "`my db`.events", "parquet.`/raw`"])
def test_a_table_is_not_opened_by_its_name_yet(name: str) -> None:
    with pytest.raises(hw.HeadwaterError) as refused:
        hw.DeltaTable.forName(SESSION, name)

    assert isinstance(refused.value, InvalidUriError)
    assert str(refused.value) == (
        f"a table cannot be opened by the name {name!r} yet: names come with the catalog, in a later release. "
        "Say where it is, with DeltaTable.forPath(spark, path)."
    )


@pytest.mark.parametrize("name", ["delta.`/data/events`", " DELTA.`/data/events` "])
def test_a_name_with_a_path_in_it_is_told_the_call_with_the_path(name: str) -> None:
    with pytest.raises(hw.HeadwaterError, match=r"with DeltaTable\.forPath\(spark, '/data/events'\)\.$"):
        hw.DeltaTable.forName(SESSION, name)
    with pytest.raises(hw.InvalidCommitError, match=r"with location\('/data/events'\)\.$"):
        hw.DeltaTable.create(SESSION).tableName(name)


def test_a_table_is_not_created_under_a_name_yet() -> None:
    with pytest.raises(
        hw.InvalidCommitError, match=r"'db\.events' yet: names come .* later release.* location\(path\)"
    ):
        hw.DeltaTable.create(SESSION).tableName("db.events")


@pytest.mark.parametrize("name", ["events", "db.events", "/data/raw", "`parquet`.`/data/raw`"])
def test_what_is_converted_is_said_with_its_format_and_path(name: str) -> None:
    with pytest.raises(InvalidUriError, match=r"write parquet\.`/path/to/directory`.* later release") as refused:
        hw.DeltaTable.convertToDelta(SESSION, name)

    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("call", [hw.DeltaTable.forName, hw.DeltaTable.convertToDelta])
def test_what_is_no_text_is_no_name(call: Callable[..., object]) -> None:
    with pytest.raises(InvalidUriError, match="the name of a table is a text, not NoneType"):
        call(SESSION, None)


def test_only_parquet_is_converted() -> None:
    with pytest.raises(InvalidUriError, match=r"only Parquet .* not iceberg"):
        hw.DeltaTable.convertToDelta(SESSION, "iceberg.`/data/raw`")


def test_a_dotted_name_is_a_path_where_a_path_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert not hw.DeltaTable.isDeltaTable(SESSION, "db.events")
    with pytest.raises(hw.TableNotFoundError, match=r"db\.events"):
        hw.DeltaTable.forPath(SESSION, "db.events")


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda name: hw.DeltaTable.isDeltaTable(SESSION, name), r"DeltaTable\.isDeltaTable\(spark, '/data/`events'\)"),
        (lambda name: hw.DeltaTable.forPath(SESSION, name), r"DeltaTable\.forPath\(spark, '/data/`events'\)"),
        (lambda name: hw.DeltaTable(SESSION, "events", None).clone(name), r"clone\('/data/`events'\)"),
        (lambda name: hw.DeltaTable(SESSION, "events", None).cloneAtVersion(0, name), r"clone\('/data/`events'\)"),
    ],
)
def test_a_name_with_a_path_in_it_is_not_taken_for_a_path(call: Callable[[str], object], instead: str) -> None:
    with pytest.raises(InvalidUriError, match=rf"is a name, and a path is needed: write {instead}\.$"):
        call("delta.`/data/``events`")
