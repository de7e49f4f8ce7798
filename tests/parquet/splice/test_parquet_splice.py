"""A file with other values in some columns: readers see the new ones and all that was, and find it by statistics."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.parquet.splice.file import UnsplicedError, splice
from headwater.parquet.splice.thrift import I64, Field, Struct, decoded, encoded
from support.corpus import CORPUS, MISSING
from support.tables.parquet_files import (
    NEW,
    OLD,
    TYPES,
    WRITERS,
    Columns,
    Writer,
    alone,
    by_pyarrow,
    by_readers,
    column,
    read,
    rows,
    spliced,
)

EVERY_WRITER = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
SMALL = OLD.select(["id", "many", "text"])
IDS = pa.array(range(300))


def with_columns(table: pa.Table, columns: Columns) -> pa.Table:
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table


@pytest.mark.parametrize("names", [("text",), ("id", "number", "pair"), ("many", "named"), tuple(TYPES)], ids=len)
@EVERY_WRITER
def test_readers_see_new_values_and_all_others(write: Writer, names: tuple[str, ...], tmp_path: Path) -> None:
    file = write(OLD, tmp_path)
    old = read(file)
    new = {name: column(name, NEW, old.num_rows) for name in names}

    found = by_readers(spliced(file, new), tmp_path)

    expected = rows(with_columns(old, new))
    assert found == {"pyarrow": expected, "DuckDB": expected}


@EVERY_WRITER
def test_columns_that_a_file_lacks_are_added(write: Writer, tmp_path: Path) -> None:
    file = write(OLD.select(["id", "text", "pair"]), tmp_path)
    old = read(file)
    nothing = {"text": pa.nulls(old.num_rows, pa.string())}
    new = {name: column(name, NEW, old.num_rows) for name in ("number", "many")}

    found = by_readers(spliced(file, nothing, new), tmp_path)

    expected = with_columns(old, nothing)
    for name, values in new.items():
        expected = expected.append_column(name, values)
    assert found == {"pyarrow": rows(expected), "DuckDB": rows(expected)}


@EVERY_WRITER
def test_the_footer_says_of_each_column_what_is_true(write: Writer, tmp_path: Path) -> None:
    file = write(OLD, tmp_path)
    before = pq.read_metadata(io.BytesIO(file))
    text = column("text", NEW, before.num_rows)

    after = pq.read_metadata(io.BytesIO(spliced(file, {"text": text})))

    start = 0
    for number in range(before.num_row_groups):
        old, new = before.row_group(number), after.row_group(number)
        chunks = [new.column(place) for place in range(new.num_columns)]
        for place, chunk in enumerate(chunks):
            if chunk.path_in_schema != "text":
                assert said(chunk) == said(old.column(place))
                continue
            held = text.slice(start, new.num_rows)
            found = chunk.statistics
            if len(held) > held.null_count:
                assert {"min": found.min, "max": found.max} == pc.min_max(held).as_py()
                assert found.null_count == held.null_count
            assert chunk.bloom_filter_length is None, "the old filter knows nothing of the new values"
        assert new.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)
        assert new.sorting_columns == ()
        start += new.num_rows


def said(chunk: Any) -> dict[str, Any]:
    """All that a footer says of a column but where it is."""
    kept = {key: str(value) for key, value in chunk.to_dict().items() if not key.endswith("offset")}
    return kept | {"bloom_filter": chunk.bloom_filter_length}


def test_notes_on_the_old_types_are_dropped_and_the_writer_is_noted() -> None:
    def notes(file: bytes, version: str) -> dict[bytes, bytes]:
        sink = io.BytesIO()
        splice(memoryview(file), [(alone("id", IDS, [300]), "id")], sink, version)
        assert sink.getvalue().count(b"org.apache.spark.version") <= 1
        return dict(pq.read_metadata(sink).metadata)

    schema = SMALL.schema.with_metadata(
        {"pandas": "{}", "own": "kept", "org.apache.spark.sql.parquet.row.metadata": "{}"}
    )
    sink = io.BytesIO()
    pq.write_table(SMALL.cast(schema), sink)
    assert b"ARROW:schema" in pq.read_metadata(sink).metadata

    assert notes(sink.getvalue(), "") == {b"own": b"kept"}
    noted = notes(sink.getvalue(), "4.0.1")
    assert noted == {b"own": b"kept", b"org.apache.spark.version": b"4.0.1"}
    named = SMALL.cast(SMALL.schema.with_metadata({"org.apache.spark.version": "3.5.0"}))
    assert notes(by_pyarrow(row_group_size=300)(named, Path()), "4.0.1")[b"org.apache.spark.version"] == b"3.5.0"


@pytest.mark.parametrize("writer", ["page index", "pages 2.0", "delta-rs", "DuckDB"])
def test_filters_that_skip_pages_find_the_same_rows(writer: str, tmp_path: Path) -> None:
    """DataFusion, which is in delta-rs, reads only pages that the page index leaves over; DuckDB skips row groups."""
    file = WRITERS[writer](SMALL, tmp_path)
    new = pa.array([f"v{number:05}" for number in range(pq.read_metadata(io.BytesIO(file)).num_rows)])
    table = tmp_path / "table"
    table.mkdir()
    (table / "f.parquet").write_bytes(spliced(file, {"text": new}, write_page_index=True, max_rows_per_page=7))
    convert_to_deltalake(table)
    queries = QueryBuilder().register("t", DeltaTable(table))
    with duckdb.connect() as connection:
        for number in (0, 7, 127, 128, 299):
            for where in (f"text = 'v{number:05}'", f"id = {number} AND text < 'v00300'"):
                query = f"SELECT id, text FROM t WHERE {where}"
                expected = {"id": number, "text": f"v{number:05}"}
                assert pa.table(queries.execute(query).read_all()).to_pylist() == [expected], where
                by_duckdb = connection.execute(query.replace(" t ", f" '{table}/f.parquet' ")).fetchall()
                assert by_duckdb == [tuple(expected.values())], where


@pytest.mark.parametrize("writer", ["bloom filters", "DuckDB"])
def test_bloom_filters_come_along(writer: str, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([0, 2, 4, 6, 8] * 60), "many": OLD["many"], "text": OLD["text"]})
    path = tmp_path / "f.parquet"
    file = WRITERS[writer](table, tmp_path)
    path.write_bytes(spliced(file, {"many": column("many", NEW, read(file).num_rows)}))
    with duckdb.connect() as connection:

        def excluded(value: int) -> set[bool]:
            query = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', 'id', {value})"
            return {found for [found] in connection.execute(query).fetchall()}

        assert excluded(5) == {True}
        assert excluded(4) == {False}


def doctored(file: bytes, change: Callable[[Struct], None]) -> bytes:
    """The same with something else in the metadata of its columns."""
    start = -8 - int.from_bytes(file[-8:-4], "little")
    footer = decoded(file[start:-8])
    for group in footer[4].value.values:
        for chunk in group[1].value.values:
            change(chunk[3].value)
    data = encoded(footer)
    return file[:start] + data + len(data).to_bytes(4, "little") + b"PAR1"


def test_a_dictionary_at_the_beginning_of_the_file_is_none() -> None:
    def change(chunk: Struct) -> None:
        chunk[11] = Field(I64, 0)

    file = doctored(by_pyarrow(use_dictionary=False)(SMALL, Path()), change)
    assert rows(read(spliced(file, {"id": IDS}))) == rows(SMALL)


def test_a_bloom_filter_of_unknown_length_is_dropped() -> None:
    def change(chunk: Struct) -> None:
        chunk.pop(15, None)

    file = doctored(WRITERS["bloom filters"](SMALL, Path()), change)
    assert pq.read_metadata(io.BytesIO(file)).row_group(0).column(2).bloom_filter_offset
    found = spliced(file, {"id": IDS})
    assert pq.read_metadata(io.BytesIO(found)).row_group(0).column(2).bloom_filter_offset is None


@pytest.mark.skipif(CORPUS is None, reason=MISSING)
def test_files_of_every_writer_of_the_corpus_take_a_column(tmp_path: Path) -> None:
    assert CORPUS is not None
    writers: set[str] = set()
    for path in sorted(CORPUS.rglob("*.parquet")):
        try:
            metadata = pq.read_metadata(path)
        except (pa.ArrowException, OSError):  # damaged on purpose, or encrypted
            continue
        if metadata.created_by in writers or not metadata.num_rows or path.parent.name == "_delta_log":
            continue
        writers.add(metadata.created_by)
        file = path.read_bytes()
        old = read(file)
        name = old.column_names[0]
        new = {name: old.column(name).take(pa.array(range(old.num_rows))[::-1])}
        assert rows(read(spliced(file, new))) == rows(with_columns(old, new)), path
    assert len(writers) > 5


# --- what cannot be ------------------------------------------------------------------------------------------


class Keys(pe.KmsClient):  # type: ignore[misc]
    """Keys that are no secret."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return bytes.fromhex(wrapped_key)


def encrypted(*, plaintext_footer: bool) -> bytes:
    config = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["text"]}, plaintext_footer=plaintext_footer, double_wrapping=False
    )
    factory = pe.CryptoFactory(lambda _: Keys())
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    return by_pyarrow(row_group_size=300, encryption_properties=properties)(SMALL, Path())


WHOLE = by_pyarrow(row_group_size=300, write_page_index=True)(SMALL, Path())


@pytest.mark.parametrize(
    ("file", "piece", "replaced", "why"),
    [
        (encrypted(plaintext_footer=False), alone("id", IDS, [300]), "id", "encrypted"),
        (encrypted(plaintext_footer=True), alone("id", IDS, [300]), "id", "encrypted"),
        (b"", alone("id", IDS, [300]), "id", "no Parquet file"),
        (b"PAR1" * 9, alone("id", IDS, [300]), "id", "footer"),
        (bytes(alone("id", IDS, [])), alone("id", IDS, [300]), "id", "no row groups"),
        (WHOLE, alone("id", IDS, [128, 172]), "id", r"\[300\].*\[128, 172\]"),
        (WHOLE, alone("id", IDS, [299]), "id", r"\[300\].*\[299\]"),
        (WHOLE, alone("id", IDS, [300])[:-9], "id", "no Parquet file"),
        (WHOLE, alone("ID", IDS, [300]), "ID", "no column ID"),
        (WHOLE, alone("x", IDS, [300]), "many.list.element", "no column many"),
        (WHOLE, alone("text", IDS, [300]), None, "same name"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_before_anything_is_written(
    file: bytes, piece: memoryview, replaced: str | None, why: str
) -> None:
    sink = io.BytesIO()
    with pytest.raises(UnsplicedError, match=why):
        splice(memoryview(file), [(piece, replaced)], sink)
    assert sink.getvalue() == b""


def test_a_file_that_lost_its_middle_is_refused() -> None:
    piece = alone("id", IDS, [300])
    footer = WHOLE[-8 - int.from_bytes(WHOLE[-8:-4], "little") :]
    with pytest.raises(UnsplicedError, match="not in the file"):
        splice(memoryview(WHOLE[:100] + footer), [(piece, "id")], io.BytesIO())


few = settings(max_examples=50, derandomize=True)


@few
@given(st.data())
def test_a_damaged_footer_is_refused_by_name_if_it_is_refused(data: st.DataObject) -> None:
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[-data.draw(st.integers(1, 8 + int.from_bytes(WHOLE[-8:-4], "little")))] = data.draw(st.integers(0, 255))
    with suppress(UnsplicedError):
        splice(memoryview(damaged), [(alone("id", IDS, [300]), "id")], io.BytesIO())


def tables(columns: st.SearchStrategy[list[str]], num_rows: int) -> st.SearchStrategy[dict[str, pa.Array]]:
    def values(name: str) -> st.SearchStrategy[pa.Array]:
        one = st.sampled_from([None, *NEW[name], *OLD[name].to_pylist()[:5]])
        return st.lists(one, min_size=num_rows, max_size=num_rows).map(lambda found: pa.array(found, TYPES[name]))

    return columns.flatmap(lambda names: st.fixed_dictionaries({name: values(name) for name in names}))


@few
@given(data=st.data())
def test_any_columns_of_any_file_can_be_replaced(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    num_rows = data.draw(st.integers(1, 12))
    held = st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4, unique=True)
    old = pa.table(data.draw(tables(held, num_rows)))
    new = data.draw(tables(st.lists(st.sampled_from(old.column_names), unique=True, max_size=3), num_rows))
    options = {
        "row_group_size": data.draw(st.integers(1, num_rows)),
        "use_dictionary": data.draw(st.booleans()),
        "write_page_index": data.draw(st.booleans()),
        "data_page_version": data.draw(st.sampled_from(["1.0", "2.0"])),
        "compression": data.draw(st.sampled_from(["none", "snappy", "zstd"])),
        "max_rows_per_page": data.draw(st.integers(1, num_rows)),
    }
    file = by_pyarrow(**options)(old, Path())

    found = by_readers(spliced(file, new), tmp_path_factory.getbasetemp())

    expected = rows(with_columns(old, new))
    assert found == {"pyarrow": expected, "DuckDB": expected}
