"""Kinds of tables for `test_round_trips.py`, declared once: for us, for delta-spark in SQL, and for deltalake.

Every table has a column `id` from which all other values follow, so that what a table must hold can be said in one
query that has seen no table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST = (1, 2)
APPENDED = (3, 4)
REPLACED, REPLACING = 2, 22
LAST = (5,)
REPLACE_WHERE = f"id IN ({REPLACED}, {REPLACING})"
CHECKPOINT_INTERVAL = 2


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    value: str
    """In SQL, over `id`."""
    nullable: bool = True
    generated: str | None = None
    """An expression over other columns; writers leave the column to the table then, here and below."""
    default: str | None = None
    is_identity: bool = False
    old_name: str | None = None
    """Its name until the table is altered."""
    old_type: str | None = None
    """Its type until the table is altered."""

    @property
    def is_given(self) -> bool:
        return self.generated is None and self.default is None and not self.is_identity


ID = Column("id", "BIGINT", "id")
NAME = Column("name", "STRING", "concat('n', id)")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of table."""

    columns: tuple[Column, ...] = (ID, NAME)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    is_overwritten: bool = False
    """Whether we also replace all rows by the same, after the first write."""
    check: str | None = None
    """A CHECK constraint."""

    @property
    def all_properties(self) -> dict[str, str]:
        return {"delta.checkpointInterval": str(CHECKPOINT_INTERVAL), **self.properties}

    @property
    def is_append_only(self) -> bool:
        return self.properties.get("delta.appendOnly") == "true"

    @property
    def needs_declaration(self) -> bool:
        """Whether its columns say more than a DataFrame can."""
        return any(not column.is_given or not column.nullable for column in self.columns)

    @property
    def final_ids(self) -> tuple[int, ...]:
        """The rows after `FIRST`, `APPENDED`, a replacement and `LAST`."""
        ids = (*FIRST, *APPENDED, *LAST)
        return ids if self.is_append_only else tuple(REPLACING if i == REPLACED else i for i in ids)

    def rows(self, *ids: int, altered: bool = True) -> str:
        """The query for rows that are written."""
        return _query(
            [
                (column.name, column.type, column.value)
                if altered
                else (column.old_name or column.name, column.old_type or column.type, column.value)
                for column in self.columns
                if column.is_given
            ],
            ids,
        )

    def expected(self) -> str:
        """The query for the rows that the table must have in the end, but for its identity values."""
        shown = [(column.name, column.type, column.value) for column in self.columns if not column.is_identity]
        return _query(shown, self.final_ids)

    def creation_sql(self, path: str) -> list[str]:
        """The table as delta-spark creates it."""
        columns = ", ".join(map(_declaration, self.columns))
        layout = f" PARTITIONED BY ({', '.join(self.partition_by)})" if self.partition_by else ""
        layout += f" CLUSTER BY ({', '.join(self.cluster_by)})" if self.cluster_by else ""
        properties = {**self.all_properties}
        if any(column.default for column in self.columns):
            properties["delta.feature.allowColumnDefaults"] = "supported"
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        created = f"CREATE TABLE delta.`{path}` ({columns}) USING delta{layout} TBLPROPERTIES ({listed})"
        checked = f"ALTER TABLE delta.`{path}` ADD CONSTRAINT checked CHECK ({self.check})"
        return [created, *([checked] if self.check else ())]

    def alteration_sql(self, path: str) -> list[str]:
        """Renaming and widening of columns in SQL."""
        found = []
        for column in self.columns:
            if column.old_name:
                found.append(f"ALTER TABLE delta.`{path}` RENAME COLUMN `{column.old_name}` TO `{column.name}`")
            if column.old_type:
                found.append(f"ALTER TABLE delta.`{path}` ALTER COLUMN `{column.name}` TYPE {column.type}")
        return found

    def insert_sql(self, path: str, *ids: int, altered: bool = True) -> str:
        given = [c for c in self.columns if c.is_given]
        names = ", ".join(f"`{c.name if altered else c.old_name or c.name}`" for c in given)
        return f"INSERT INTO delta.`{path}` ({names}) {self.rows(*ids, altered=altered)}"


def _query(shown: list[tuple[str, str, str]], ids: tuple[int, ...]) -> str:
    columns = ", ".join(f"CAST({value} AS {type_}) AS `{name}`" for name, type_, value in shown)
    return f"SELECT /*+ COALESCE(1) */ {columns} FROM VALUES {', '.join(f'({i}L)' for i in ids)} AS t(id)"


def _declaration(column: Column) -> str:
    text = f"`{column.old_name or column.name}` {column.old_type or column.type}"
    text += "" if column.nullable else " NOT NULL"
    text += " GENERATED ALWAYS AS IDENTITY" if column.is_identity else ""
    text += f" GENERATED ALWAYS AS ({column.generated})" if column.generated else ""
    return text + (f" DEFAULT {column.default}" if column.default else "")


def _property(name: str, value: str = "true", **more: str) -> dict[str, str]:
    return {f"delta.{name}": value, **{f"delta.{key.replace('__', '.')}": text for key, text in more.items()}}


_AT = "timestamp_micros(id * 86400000000 + 1700000000123456)"
_ALL_TYPES = (
    ID,
    NAME,
    Column("flag", "BOOLEAN", "id % 2 = 0"),
    Column("tiny", "TINYINT", "-id"),
    Column("small", "SMALLINT", "id * 1000"),
    Column("number", "INT", "IF(id = 4, NULL, id * 100000)"),
    Column("single", "FLOAT", "id / 4"),
    Column("double", "DOUBLE", "id / 8"),
    Column("price", "DECIMAL(10,2)", "id + 0.25"),
    Column("large", "DECIMAL(38,10)", "id * 1000000000000000000BD + 0.0000000001BD"),
    Column("day", "DATE", "date_add(DATE'2024-02-27', CAST(id AS INT))"),
    Column("at", "TIMESTAMP", _AT),
    Column("data", "BINARY", "encode(concat('b', id), 'UTF-8')"),
)
_PARTITION = "element_at(map(1L, 'a b', 2L, 'x=y/z', 22L, 'ä%20', 3L, 'Ω:#?', 5L, 'n''q'), id)"
_PARTITIONED = (
    ID,
    Column("p", "STRING", _PARTITION),
    Column("day", "DATE", "IF(id = 3, NULL, date_add(DATE'2024-02-27', CAST(id AS INT)))"),
    Column("at", "TIMESTAMP", _AT),
    NAME,
)
_NESTED = (
    ID,
    Column(
        "s",
        "STRUCT<x: INT, y: ARRAY<STRING>>",
        "named_struct('x', CAST(id AS INT), 'y', array(concat('y', id), NULL))",
    ),
    Column("m", "MAP<STRING, STRUCT<z: BIGINT>>", "map(concat('k', id), named_struct('z', id))"),
    Column("l", "ARRAY<STRUCT<a: INT, b: STRING>>", "array(named_struct('a', CAST(id AS INT), 'b', NULL))"),
)
_MAPPED = (
    ID,
    Column("a title", "STRING", "concat('n', id)", old_name="name"),
    Column("s", "STRUCT<`x y`: INT>", "named_struct('x y', CAST(id AS INT))"),
)
KINDS: dict[str, Kind] = {
    "plain": Kind(is_overwritten=True, columns=_ALL_TYPES),
    "partitioned": Kind(is_overwritten=True, columns=_PARTITIONED, partition_by=("p", "day", "at")),
    "nested": Kind(columns=_NESTED),
    "mapped by name": Kind(columns=_MAPPED, properties=_property("columnMapping.mode", "name")),
    "mapped by id": Kind(is_overwritten=True, columns=_MAPPED, properties=_property("columnMapping.mode", "id")),
    "mapped and partitioned": Kind(
        columns=(*_PARTITIONED[:2], *_MAPPED[1:]),
        partition_by=("p",),
        properties=_property("columnMapping.mode", "name"),
    ),
    "constrained": Kind(columns=(ID, Column("name", "STRING", NAME.value, nullable=False)), check="id > 0"),
    "generated": Kind(
        columns=(
            ID,
            Column("at", "TIMESTAMP", _AT),
            Column("day", "DATE", f"CAST({_AT} AS DATE)", generated="CAST(at AS DATE)"),
        ),
        partition_by=("day",),
    ),
    "identity": Kind(is_overwritten=True, columns=(Column("n", "BIGINT", "NULL", is_identity=True), ID, NAME)),
    "defaults": Kind(
        columns=(ID, Column("name", "STRING", "'none'", default="'none'")),
        properties=_property("feature.allowColumnDefaults", "supported"),
    ),
    "row-tracked": Kind(is_overwritten=True, properties=_property("enableRowTracking")),
    "V2 checkpoints": Kind(properties=_property("checkpointPolicy", "v2")),
    "deletion vectors": Kind(properties=_property("enableDeletionVectors")),
    "in-commit timestamps": Kind(properties=_property("enableInCommitTimestamps")),
    "type widened": Kind(
        columns=(
            ID,
            Column("n", "BIGINT", "IF(id < 3, id, id * 10000000000)", old_type="INT"),
            Column("x", "DOUBLE", "id / 2", old_type="FLOAT"),
        ),
        properties=_property("enableTypeWidening"),
    ),
    "timestamp without zone": Kind(columns=(ID, Column("at", "TIMESTAMP_NTZ", f"CAST({_AT} AS TIMESTAMP_NTZ)"))),
    "variant": Kind(columns=(ID, Column("v", "VARIANT", "parse_json(concat('{\"a\": [', id, ', null]}'))"))),
    "clustered": Kind(cluster_by=("id", "name")),
    "append-only": Kind(properties=_property("appendOnly")),
    "change data feed": Kind(properties=_property("enableChangeDataFeed")),
    "Iceberg compatible V1": Kind(
        columns=_MAPPED, properties=_property("enableIcebergCompatV1", columnMapping__mode="name")
    ),
    "Iceberg compatible V2": Kind(
        columns=(*_NESTED, Column("p", "STRING", _PARTITION)),
        partition_by=("p",),
        properties=_property("enableIcebergCompatV2", columnMapping__mode="name"),
    ),
    "vacuum protocol check": Kind(properties=_property("feature.vacuumProtocolCheck", "supported")),
    "many features": Kind(
        is_overwritten=True,
        columns=_MAPPED,
        cluster_by=("id",),
        properties=_property(
            "columnMapping.mode",
            "name",
            enableRowTracking="true",
            enableInCommitTimestamps="true",
            enableChangeDataFeed="true",
            enableDeletionVectors="true",
            checkpointPolicy="v2",
        ),
    ),
}
