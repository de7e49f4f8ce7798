"""Turn names into tables (`db.t`, ``delta.`/a/path` ``, a path in quotes), and register tables in the catalog."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import NotADeltaTableError, TableNotFoundError
from headwater.features.context import TableRef
from headwater.spark.jvm import jvm_of
from headwater.spark.session import SparkTable
from headwater.sql.statements import quoted_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from headwater.spark.jvm import JavaObject
    from headwater.sql.statements import Target

_CATALOGS = "headwater.Catalogs"


@dataclass(frozen=True, slots=True)
class Found:
    """What a name stands for in the session's catalogs.

    Attributes:
        name: the name with all its parts.
        location: where the table is; None if there is none of this name.
        provider: `delta`, `parquet`, ...; None for a path.
        is_path: whether the name is one of the form ``delta.`/a/path` ``.
        entry: what else the catalog says of it.
    """

    name: tuple[str, ...]
    location: str | None
    provider: str | None
    is_path: bool
    entry: Mapping[str, Any]

    @property
    def is_delta(self) -> bool:
        return self.is_path or self.provider == "delta"


def find(spark: SparkSession, name: Sequence[str]) -> Found:
    """Look a name up."""
    jvm = jvm_of(spark)
    found = json.loads(jvm.static(_CATALOGS).find(spark._jsparkSession, text_array(spark, name)))
    full = (found["catalog"], *found["namespace"], found["name"])
    path = found.get("path")
    return Found(full, path or found.get("location"), found.get("provider"), path is not None, found)


def table_of(spark: SparkSession, target: Target) -> SparkTable:
    """Return the Delta table that a statement is about.

    Raises:
        TableNotFoundError: there is no table of this name.
        NotADeltaTableError: there is one of another kind.
    """
    if target.path is not None:
        return SparkTable(spark, TableRef(location(spark, target.path)))
    found = find(spark, target.name)
    if found.location is None:
        raise TableNotFoundError(f"there is no table or view {quoted_name(target.name)}")
    if not found.is_delta:
        raise NotADeltaTableError(f"{quoted_name(target.name)} is not a Delta table, but one of {found.provider}")
    return SparkTable(spark, TableRef(found.location))


def location(spark: SparkSession, path: str) -> str:
    """Return a path as a URI with its scheme."""
    return str(jvm_of(spark).static(_CATALOGS).location(spark._jsparkSession, path))


def text_array(spark: SparkSession, parts: Sequence[str]) -> JavaObject:
    jvm = jvm_of(spark)
    array = jvm.gateway.new_array(jvm.static("java.lang.String"), len(parts))
    for i, part in enumerate(parts):
        array[i] = part
    return array


@dataclass(frozen=True, slots=True)
class CatalogName:
    """A name in the session catalog under which a table can be registered."""

    spark: SparkSession
    identifier: JavaObject

    @classmethod
    def of(cls, spark: SparkSession, namespace: Sequence[str], name: str) -> CatalogName:
        parts = text_array(spark, namespace)
        return cls(spark, jvm_of(spark).static(_CATALOGS).identifier(parts, name))

    def __str__(self) -> str:
        return str(self.identifier.toString())

    def entry(self) -> dict[str, Any] | None:
        text = self._catalogs.entry(self._session, self.identifier)
        return None if text is None else json.loads(text)

    def default_location(self) -> str:
        return str(self._catalogs.defaultLocation(self._session, self.identifier))

    def register(self, location: str, *, managed: bool, comment: str | None = None) -> None:
        self._catalogs.register(self._session, self.identifier, location, managed, comment)

    def set_location(self, location: str) -> None:
        self._catalogs.setLocation(self._session, self.identifier, location)

    def drop(self) -> None:
        self._catalogs.drop(self._session, self.identifier)

    @property
    def _catalogs(self) -> JavaObject:
        return jvm_of(self.spark).static(_CATALOGS)

    @property
    def _session(self) -> JavaObject:
        return self.spark._jsparkSession


def refresh_cached(spark: SparkSession, location: str, identifier: JavaObject | None = None) -> None:
    """Let cached data of a table be computed again after a commit."""
    jvm_of(spark).static(_CATALOGS).refresh(spark._jsparkSession, location, identifier)
