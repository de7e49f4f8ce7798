"""Names that a column may have and that something else has too, and tables of such columns with a model beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

import headwater as hw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    Row = dict[str, Any]


def words(text: str) -> list[str]:
    """Names that need no quotes."""
    return text.split()


FEED = ("_change_type", "_commit_version", "_commit_timestamp")
"""Columns of a change data feed, which a table that has one must not have."""
SPARKS = words("""
    _metadata __metadata _tmp_metadata_row_index row_index file_path file_name file_size file_block_start
    file_block_length file_modification_time input_file_name
""")
"""What Spark's file source adds to the columns of files."""
LOGS = words("""
    path size modificationTime partitionValues dataChange stats tags deletionVector baseRowId start end length
    numRecords minValues maxValues nullCount tightBounds split split_bytes uri version timestamp
""")
"""What the log says of files, and what lists of files and of their parts have."""
SHOWN = words("_row_id _row_commit_version _score _rid _values col item array list bag key_value element key value")
"""What reads and searches show beside the table's columns, and what files call the parts of columns."""
JOBS = words("""
    file rows row task partition partition_values count check keys values holds bitmap nothing number 0 1 value0 k0 min0
    max0 values0 text0 pairs num_read modified_ms size_bytes directory group time t s target source
""")
"""Columns of jobs, and the aliases that the tests use."""
HELPERS = [
    f"__headwater_{name}"
    for name in words("""
        file row matched source_row matched_row number check clause new_ new_x key base_row_id split partition_ chunk
        words default_row_commit_version split_bytes bitmap only_rows out_file place node row_number deletion_vector
        kept_rows dropped_rows
    """)
]
"""What hidden columns of jobs once were called."""
ODD = [
    *("a.b", "a", ".a", "[0]", "..", "a`b", "`", "a'b", 'a"b', "a%b", "%41", "%2F", "a#b", "a/b", "a\\b", "a:b", "a?b"),
    *("a*b", "*", "a&b", "a-b", "-1", "--", "/**/", "@", "$", "|", "_", "<x>", "null", "true", "select", "\x01", "\r"),
    *("\N{GRINNING FACE}", "\N{LATIN SMALL LETTER SHARP S}", "e\N{COMBINING ACUTE ACCENT}", "\N{NO-BREAK SPACE}"),
]
"""Names that need no column mapping."""
MAPPED = ["a b", "a,b", "a;b", "a=b", "a(b)", "{b}", "a\nb", "a\tb", " ", "a = 1; --", "p=1/q=2", "(", ")", "`, `"]
"""Names that only column mapping allows."""
COLLIDING = [*FEED, *SPARKS, *LOGS, *SHOWN, *JOBS, *HELPERS]
SPELLINGS: tuple[Callable[[str], str], ...] = (str, str.upper, str.title, str.swapcase)


def quoted(*path: str) -> str:
    """A column for SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


def distinct(names: Iterable[str], taken: Iterable[str] = ("id",)) -> list[str]:
    """The names without those that Spark takes for the same as another, or as one that is taken."""
    seen = {name.lower().upper() for name in taken}
    return [n for n in names if not (n.lower().upper() in seen or seen.add(n.lower().upper()))]  # type: ignore[func-returns-value]


@dataclass
class NamedTable:
    """A table whose columns have the given names, and what it must hold.

    Attributes:
        spark: the session.
        path: of the table.
        texts: columns of text.
        numbers: columns of whole numbers.
        structs: columns that are structs, each with a number of every name in `inner`.
        inner: names of fields.
        partitions: columns of whole numbers by which the table is partitioned.
        properties: of the table, without `delta.`.
        model: the rows, by id.
    """

    spark: SparkSession
    path: str
    texts: Sequence[str] = ()
    numbers: Sequence[str] = ()
    structs: Sequence[str] = ()
    inner: Sequence[str] = ()
    partitions: Sequence[str] = ()
    properties: dict[str, str] = field(default_factory=dict)
    model: dict[int, Row] = field(default_factory=dict)
    checks: int = 0

    @property
    def schema(self) -> t.StructType:
        """All columns; that of the id comes first."""
        inner = t.StructType([t.StructField(name, t.LongType()) for name in self.inner])
        types: dict[str, t.DataType] = {"id": t.LongType(), **dict.fromkeys(self.texts, t.StringType())}
        types |= dict.fromkeys(self.structs, inner)
        types |= dict.fromkeys((*self.numbers, *self.partitions), t.LongType())
        return t.StructType([t.StructField(name, type_) for name, type_ in types.items()])

    def row(self, id_: int, turn: int = 0) -> Row:
        """The row of an id, another one in every turn. Numbers could be positions of rows, but are those of others."""
        base = 1000 * (id_ + 1) + 100_000 * turn
        row: Row = {"id": id_}
        row |= {name: f"v{base + place}" for place, name in enumerate(self.texts)}
        row |= {n: {f: base + p + 10 * q for q, f in enumerate(self.inner)} for p, n in enumerate(self.structs)}
        row |= {name: (id_ + 1 + place + turn) % 7 for place, name in enumerate(self.numbers)}
        return row | {name: id_ % (2 + place % 2) for place, name in enumerate(self.partitions)}

    def frame(self, rows: Iterable[Row]) -> DataFrame:
        """Rows as a DataFrame."""
        values = [tuple(tuple(v.values()) if isinstance(v, dict) else v for v in row.values()) for row in rows]
        return self.spark.createDataFrame(values, self.schema)

    @property
    def table(self) -> hw.DeltaTable:
        """The table."""
        return hw.DeltaTable.forPath(self.spark, self.path)

    # --- what is done to the table and to the model -----------------------------------------------------

    def append(self, ids: range) -> None:
        """Add rows."""
        rows = [self.row(id_) for id_ in ids]
        first = {} if self.model else {f"delta.{name}": value for name, value in self.properties.items()}
        partitions = list(self.partitions) if self.partitions and not self.model else None
        hw.write(self.frame(rows).coalesce(1), self.path, mode="append", partition_by=partitions, properties=first)
        self.model |= {row["id"]: row for row in rows}

    def delete(self, condition: str, matches: Callable[[Row], bool]) -> None:
        """Take rows away."""
        self.table.delete(condition)
        kept = {id_: row for id_, row in self.model.items() if not matches(row)}
        assert len(kept) < len(self.model)
        self.model = kept

    def update(self, ids: Sequence[int]) -> None:
        """Give other values to all columns of rows, but for those that partition the table."""
        values = {quoted(name): f"concat({quoted(name)}, '!')" for name in self.texts}
        values |= {quoted(name): f"{quoted(name)} + 1" for name in self.numbers}
        values |= {quoted(n, f): f"{quoted(n, f)} * 2" for n in self.structs for f in self.inner}
        self.table.update(f"id IN ({', '.join(map(str, ids))})", values)
        for id_ in ids:
            old = self.model[id_]
            new = {name: old[name] + "!" for name in self.texts} | {name: old[name] + 1 for name in self.numbers}
            new |= {name: {f: 2 * value for f, value in old[name].items()} for name in self.structs}
            self.model[id_] = old | new

    def upsert(self, ids: Sequence[int], turn: int) -> None:
        """Replace rows, and add others: by keys."""
        rows = [self.row(id_, turn) for id_ in ids]
        merge = self.table.alias("t").merge(self.frame(rows).alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        self.model |= {row["id"]: row for row in rows}

    def merge(self, ids: Sequence[int], gone: int, turn: int) -> None:
        """The same by a join, without values of partitions; and take a row away that the source does not have."""
        rows = [self.row(id_, turn) for id_ in ids]
        given = {quoted(name): f"s.{quoted(name)}" for name in self.schema.names}
        set_ = {name: value for name, value in given.items() if name not in map(quoted, self.partitions)}
        merge = self.table.alias("t").merge(self.frame(rows).alias("s"), "t.id = s.id AND t.id + 0 < 1000")
        merge = merge.whenMatchedUpdate("t.id >= 0", set_)
        merge.whenNotMatchedInsert(values=given).whenNotMatchedBySourceDelete(f"t.id = {gone}").execute()
        for row in rows:
            old = self.model.get(row["id"], row)
            self.model[row["id"]] = row | {name: old[name] for name in self.partitions}
        del self.model[gone]

    def replace(self, condition: str, matches: Callable[[Row], bool], ids: Sequence[int]) -> None:
        """Put rows in the place of those that match."""
        rows = [self.row(id_, 9) for id_ in ids]
        hw.write(self.frame(rows), self.path, mode="overwrite", replace_where=condition)
        self.model = {id_: row for id_, row in self.model.items() if not matches(row)}
        self.model |= {row["id"]: row for row in rows}

    # --- what must hold ------------------------------------------------------------------------------------

    def check(self) -> None:
        """The table holds what the model does, and a filter on a column, each time on another, finds its rows."""
        found = hw.read(self.spark, self.path)
        assert found.columns == self.schema.names
        assert {row[0]: plain(row) for row in found.collect()} == self.model
        names = [*self.texts, *self.numbers, *self.partitions]
        name = names[self.checks % len(names)]
        self.checks += 1
        value = self.model[min(self.model)][name]
        asked = found.where(f"{quoted(name)} = '{value}'").select("id").collect()
        assert sorted(row.id for row in asked) == sorted(i for i, row in self.model.items() if row[name] == value), name

    def check_changes(self) -> None:
        """The change data feed leads from nothing to what the model holds."""
        rows = hw.read_changes(self.spark, self.path, starting_version=0).collect()
        kept = [{name: str(value) for name, value in plain(row).items()} for row in rows]
        kinds = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
        counts: dict[str, int] = {}
        for row in kept:
            sign = kinds[row.pop(FEED[0])]
            assert row.pop(FEED[1]).isdecimal()
            del row[FEED[2]]
            counts[str(row)] = counts.get(str(row), 0) + sign
        expected = [str({name: str(value) for name, value in row.items()}) for row in self.model.values()]
        assert sorted(text for text, count in counts.items() if count) == sorted(expected)
        assert set(counts.values()) <= {0, 1}


def plain(row: Any) -> Row:
    """A row of Spark as the model has it."""
    values = (plain(value) if hasattr(value, "__fields__") else value for value in row)
    return dict(zip(row.__fields__, values, strict=True))
