"""The synthetic tables are valid Delta tables, and deltalake says of them what the generator says."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.columns import spark_hash
from benchmarks.log_open_operations import id_range
from benchmarks.tables import FileSet, Table, TableSpec, digest_of_paths, make_table
from deltalake import DeltaTable

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {"num_files": 600, "num_partitions": 60, "row_group_rows": 200}
SPECS = [
    TableSpec(layout="classic", stats="json", **SMALL),
    TableSpec(layout="classic", stats="struct", **SMALL),
    TableSpec(layout="classic", stats="both", order="sorted", **SMALL),
    TableSpec(layout="classic", checksums=True, **SMALL),
    TableSpec(layout="multi-part", **SMALL),
    TableSpec(layout="multi-part", stats="struct", **SMALL),
    TableSpec(layout="v2", **SMALL),
    TableSpec(layout="v2", stats="both", order="sorted", **SMALL),
    TableSpec(layout="commits", num_files=2_000, num_partitions=100),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(params=SPECS, ids=lambda spec: spec.name)
def table(request: pytest.FixtureRequest, cache: Path) -> Table:
    return make_table(request.param, cache)


def adds_of(opened: DeltaTable) -> pa.Table:
    return pa.table(opened.get_add_actions(flatten=True))


def file_set(adds: pa.Table) -> FileSet:
    return FileSet(
        num_files=len(adds),
        num_records=pc.sum(adds["num_records"]).as_py(),
        size_bytes=pc.sum(adds["size_bytes"]).as_py(),
        digest=digest_of_paths(adds["path"].to_pylist()),
    )


def test_deltalake_agrees_about_version_schema_and_live_files(table: Table) -> None:
    opened = DeltaTable(table.path)

    assert opened.version() == table.truth.version
    assert [field.name for field in opened.schema().fields] == table.truth.columns
    assert opened.metadata().partition_columns == ["date"]
    assert file_set(adds_of(opened)) == table.truth.live


def test_deltalake_agrees_about_the_files_of_a_partition(table: Table) -> None:
    adds = adds_of(DeltaTable(table.path))

    for chosen in table.truth.by_partition:
        date = chosen.where.split("'")[1]
        in_partition = pc.equal(adds["partition.date"].cast(pa.string()), date)
        assert file_set(adds.filter(in_partition)) == chosen.files


def test_deltalake_agrees_about_the_files_that_statistics_leave(table: Table) -> None:
    opened = DeltaTable(table.path)
    adds = adds_of(opened)

    for chosen in table.truth.by_statistics:
        low, high = id_range(chosen.where)
        in_range = pc.and_(pc.greater_equal(adds["max.id"], low), pc.less_equal(adds["min.id"], high))
        assert file_set(adds.filter(in_range)) == chosen.files
        assert len(opened.file_uris(file_pruning_predicate=chosen.where)) == chosen.files.num_files


def test_every_filter_leaves_some_files_and_not_all(table: Table) -> None:
    truth = table.truth
    for chosen in [*truth.by_partition, *truth.by_statistics, truth.next_by_partition]:
        assert 0 < chosen.files.num_files < truth.live.num_files / 2


def test_deltalake_agrees_after_the_commit_that_was_kept_back(table: Table, tmp_path: Path) -> None:
    clone = table.clone(tmp_path)
    opened = DeltaTable(clone)
    (clone / "_delta_log" / f"{table.truth.version + 1:020}.json").write_bytes(table.next_commit())

    opened.update_incremental()

    assert opened.version() == table.truth.version + 1
    adds = adds_of(opened)
    assert file_set(adds) == table.truth.next_live
    chosen = table.truth.next_by_partition
    in_partition = pc.equal(adds["partition.date"].cast(pa.string()), chosen.where.split("'")[1])
    assert file_set(adds.filter(in_partition)) == chosen.files
    assert DeltaTable(table.path).version() == table.truth.version


def test_the_same_spec_gives_the_same_bytes(tmp_path: Path) -> None:
    spec = TableSpec(layout="v2", stats="both", checksums=True, **SMALL)

    one, two = make_table(spec, tmp_path / "one"), make_table(spec, tmp_path / "two")

    names = sorted(str(file.relative_to(one.path)) for file in one.path.rglob("*") if file.is_file())
    assert names == sorted(str(file.relative_to(two.path)) for file in two.path.rglob("*") if file.is_file())
    for name in names:
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes(), name


def test_another_seed_gives_other_files(tmp_path: Path) -> None:
    one = make_table(TableSpec(seed=1, **SMALL), tmp_path)
    two = make_table(TableSpec(seed=2, **SMALL), tmp_path)

    assert one.path != two.path
    assert one.truth.live.digest != two.truth.live.digest


def test_a_table_in_the_cache_is_not_made_again(tmp_path: Path) -> None:
    made = make_table(TableSpec(**SMALL), tmp_path)
    mark = made.path / "mark"
    mark.touch()

    assert make_table(TableSpec(**SMALL), tmp_path) == made
    assert mark.exists()


def checkpoint_rows(path: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(path.rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def test_struct_statistics_say_what_json_statistics_say(cache: Path) -> None:
    table = make_table(TableSpec(stats="both", **SMALL), cache)

    adds = [row["add"] for row in checkpoint_rows(table.path) if row["add"]]

    assert len(adds) == SMALL["num_files"]
    for add in adds:
        parsed, text = add["stats_parsed"], json.loads(add["stats"])
        for bounds in (parsed["minValues"], parsed["maxValues"]):
            bounds["ts"] = bounds["ts"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        assert parsed == text
        assert str(add["partitionValues_parsed"]["date"]) == dict(add["partitionValues"])["date"]


@pytest.mark.parametrize(
    ("stats", "present", "absent"),
    [
        ("json", {"stats"}, {"stats_parsed"}),
        ("struct", {"stats_parsed", "partitionValues_parsed"}, {"stats"}),
    ],
)
def test_a_checkpoint_has_only_the_wanted_form_of_statistics(
    cache: Path, stats: Any, present: set[str], absent: set[str]
) -> None:
    table = make_table(TableSpec(stats=stats, **SMALL), cache)

    [checkpoint] = table.path.rglob("*.checkpoint.parquet")

    columns = {field.name for field in pq.read_schema(checkpoint).field("add").type}
    assert present <= columns
    assert not absent & columns


def test_a_checkpoint_has_row_groups_of_the_wanted_size(cache: Path) -> None:
    table = make_table(TableSpec(**SMALL), cache)

    [checkpoint] = table.path.rglob("*.checkpoint.parquet")
    metadata = pq.read_metadata(checkpoint)

    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    others = 2  # protocol and metaData stand beside the file actions of one row group
    assert sum(sizes) == SMALL["num_files"] + SMALL["num_files"] // 100 + others
    assert max(sizes) <= SMALL["row_group_rows"] + others
    assert len(sizes) == 4


def test_multi_part_checkpoints_are_clustered_by_spark_s_hash_of_the_path(cache: Path) -> None:
    table = make_table(TableSpec(layout="multi-part", **SMALL), cache)

    parts = sorted(table.path.rglob("*.checkpoint.*.parquet"))

    assert len(parts) == json.loads((table.path / "_delta_log" / "_last_checkpoint").read_text())["parts"] == 2
    for number, part in enumerate(parts):
        rows = pq.read_table(part).to_pylist()
        paths = [(row["add"] or row["remove"])["path"] for row in rows if row["add"] or row["remove"]]
        hashes = spark_hash(np.array([list(path.encode()) for path in paths], dtype=np.uint8))
        assert set(np.mod(hashes, len(parts))) == {number}
    others = [[row for row in checkpoint_rows(table.path) if row[kind]] for kind in ("protocol", "metaData")]
    assert [len(rows) for rows in others] == [1, 1]


def test_a_v2_checkpoint_names_its_sidecars_and_holds_no_file_actions_itself(cache: Path) -> None:
    table = make_table(TableSpec(layout="v2", **SMALL), cache)
    log = table.path / "_delta_log"

    [top] = log.glob("*.checkpoint.*.parquet")
    rows = pq.read_table(top).to_pylist()

    sidecars = {row["sidecar"]["path"]: row["sidecar"]["sizeInBytes"] for row in rows if row["sidecar"]}
    assert sidecars == {file.name: file.stat().st_size for file in (log / "_sidecars").iterdir()}
    assert len(sidecars) == 2
    assert [row["checkpointMetadata"]["version"] for row in rows if row["checkpointMetadata"]] == [1_000]
    assert not any(row["add"] or row["remove"] for row in rows)


def test_checksums_say_what_deltalake_counts(cache: Path) -> None:
    table = make_table(TableSpec(checksums=True, **SMALL), cache)
    log = table.path / "_delta_log"

    for version in (1_001, 1_010, table.truth.version):
        checksum = json.loads((log / f"{version:020}.crc").read_text())
        live = file_set(adds_of(DeltaTable(table.path, version=version)))
        assert (checksum["numFiles"], checksum["tableSizeBytes"]) == (live.num_files, live.size_bytes)


def test_commits_are_a_minute_apart(cache: Path) -> None:
    table = make_table(TableSpec(**SMALL), cache)

    commits = sorted((table.path / "_delta_log").glob("*.json"))

    modified_s = [commit.stat().st_mtime for commit in commits]
    assert len(commits) == 21
    assert {later - earlier for earlier, later in itertools.pairwise(modified_s)} == {60}


@pytest.mark.parametrize(
    ("text", "expected"),
    # Expected values: `SELECT hash(text)` in Spark 4.3.
    [
        ("date=2022-01-01/part-00000-00000000-0000-4000-8000-000000000000-c000.snappy.parquet", 1437737362),
        ("date=2024-02-29/part-00123-0a1b2c3d-4e5f-4a6b-8c7d-9e8f0a1b2c3d-c000.snappy.parquet", -884462467),
        ("abcd", -396302900),
        ("é12", 1711169011),
        ("xyz", 753084083),
    ],
)
def test_the_hash_of_a_path_is_spark_s(text: str, expected: int) -> None:
    assert spark_hash(np.frombuffer(text.encode(), dtype=np.uint8).reshape(1, -1)).tolist() == [expected]


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_files": 99},
        {"num_partitions": 0},
        {"num_partitions": 10_001},
        {"tail_commits": 0},
        {"row_group_rows": 0},
        {"layout": "other"},
        {"layout": "commits", "num_files": 2_500},
        {"layout": "commits", "num_files": 1_000},
    ],
    ids=str,
)
def test_a_spec_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        TableSpec(**wrong)
