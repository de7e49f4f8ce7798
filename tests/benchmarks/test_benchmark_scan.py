"""The benchmark of scans: its tables are what they say, its sessions survive what operations do to them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from benchmarks.harness import Case, Measurement, MeasurementError, Operation, Outcome, measure_cases
from benchmarks.scan_operations import OPERATIONS, PARQUET
from benchmarks.scan_tables import ANSWER, PATHS_FILE, ScanSpec, make_planning_table, make_scan_table
from benchmarks.sessions import Sessions, SessionSpec

import headwater as hw
from benchmarks import delta_spark, report, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = ScanSpec(20_000, 10)
HERE = SessionSpec(sys.executable, {"PYTHONPATH": str(Path(__file__).parents[1])})
MODULE = "support.jobs.session_operations"


def parquet_answer(path: Path, files: str, where: str | None) -> dict[str, Any]:
    """The answer by another engine, straight from the data files."""
    columns = ", ".join(f"{sql} as {name}" for name, sql in ANSWER.items())
    source = f"read_parquet('{path}/{files}', hive_partitioning = true)"
    sql = f"select {columns} from {source} where {where or 'true'}"
    return dict(zip(ANSWER, duckdb.sql(sql).fetchone() or (), strict=True))


@pytest.mark.parametrize(
    ("spec", "files"), [(SPEC, "data/*.parquet"), (ScanSpec(20_000, 100, partitioned=True), "*/*.parquet")]
)
def test_the_truth_of_a_table_is_that_of_its_files(spec: ScanSpec, files: str, tmp_path: Path) -> None:
    table = make_scan_table(spec, tmp_path)

    for query, where in spec.filters.items():
        assert table.truth[query] == parquet_answer(table.path, files, where)
        assert table.truth[query]["rows"] > 0
    assert hw.open_log(table.path).num_files == spec.num_files


def test_deletion_vectors_are_readable_by_another_reader_and_leave_the_true_rows(tmp_path: Path) -> None:
    from deltalake import DeltaTable, QueryBuilder

    table = make_scan_table(replace(SPEC, deleted_percent=10), tmp_path)

    columns = ", ".join(f"{sql} as {name}" for name, sql in ANSWER.items())
    sql = f"select {columns} from t"
    found = QueryBuilder().register("t", DeltaTable(table.path)).execute(sql).read_all()

    assert table.truth["aggregate"]["rows"] == 18_000
    assert {name: found.column(name)[0].as_py() for name in ANSWER} == table.truth["aggregate"]


def test_tables_are_made_once(tmp_path: Path) -> None:
    first = make_scan_table(SPEC, tmp_path)
    log = first.path / "_delta_log" / f"{0:020}.json"
    before = log.stat()

    again = make_scan_table(SPEC, tmp_path)

    assert again == first
    assert log.stat().st_mtime_ns == before.st_mtime_ns


def test_a_planning_table_has_all_its_live_files(tmp_path: Path) -> None:
    path = make_planning_table(200, tmp_path)

    listed = json.loads((path / PATHS_FILE).read_text())

    live = hw.open_log(path).files(columns=["path"])["path"].to_pylist()
    assert sorted(listed) == sorted(str(path / name) for name in live)
    assert all(Path(name).is_file() for name in listed)


# --- sessions -----------------------------------------------------------------------------------------


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    with Sessions({"one": HERE, "two": HERE}, {"a": "one", "b": "one", "c": "two"}) as running:
        yield running


def ask(sessions: Sessions, operation: str, peer: str = "a") -> Measurement:
    nothing = Operation((), lambda _: None, lambda _: {})
    return sessions.measure(MODULE, Case(operation, operation, "subject", "", {}), peer, nothing)


def answer(sessions: Sessions, operation: str, peer: str = "a") -> dict[str, Any]:
    found = ask(sessions, operation, peer).answer
    assert found is not None
    return found


def test_peers_of_one_session_share_a_process_that_stays(sessions: Sessions) -> None:
    first, second, apart = (answer(sessions, "count", peer) for peer in ("a", "b", "c"))

    assert first["process"] == second["process"] != apart["process"]
    assert (first["calls"], second["calls"], apart["calls"]) == (1, 2, 1)


def test_the_cpu_time_is_the_modules_own(sessions: Sessions) -> None:
    assert ask(sessions, "count").cpu_s == 1.0


def test_what_operations_print_does_not_disturb_the_replies(sessions: Sessions) -> None:
    assert answer(sessions, "noise") == {"heard": True}
    assert answer(sessions, "count")["calls"] == 1


def test_a_session_goes_on_after_an_operation_failed(sessions: Sessions) -> None:
    with pytest.raises(MeasurementError, match="RuntimeError: broken"):
        ask(sessions, "fail")

    assert answer(sessions, "count")["calls"] == 1


def test_a_session_that_ends_is_reported_with_its_last_words_and_replaced(sessions: Sessions) -> None:
    with pytest.raises(MeasurementError, match="last words"):
        ask(sessions, "die")

    assert answer(sessions, "count")["calls"] == 1


def test_warm_up_rounds_are_checked_but_not_counted() -> None:
    times = iter([9.0, 9.0, 2.0, 1.0])

    def measure(*_: object) -> Measurement:
        return Measurement(next(times), 0.0, 0.0, 0, 0, answer={"rows": 3})

    operation = Operation((), lambda _: None, lambda _: {})
    case = Case("t", "query", "", "", {"rows": 4}, peer_truths={"p": {"rows": 3}})
    [found] = measure_cases("m", {"query": {"p": operation}}, [case], runs=2, measure=measure, warmups=2)

    assert found.errors == []
    assert found.best["p"].wall_s == 1.0
    assert next(times, None) is None


# --- cases and reports --------------------------------------------------------------------------------


def test_every_case_has_an_operation_and_a_target_at_full_size(tmp_path: Path) -> None:
    small = replace(scan.FULL, wide=SPEC, partitions=ScanSpec(2_000, 100, partitioned=True), planned_files=(200,))

    cases = list(scan.cases_of(small, tmp_path))

    assert all(case.operation in OPERATIONS for case in cases)
    assert all(case.target or case.cpu_target for case in cases)
    assert {case.title: case.cpu_target for case in cases}["deletion vectors, 10% deleted"] == 1.25


def test_the_report_compares_cpu_time() -> None:
    ours, theirs = (Measurement(1.0, cpu, 0.0, 0, 0) for cpu in (3.0, 2.0))
    case = Case("t", "query", "", "", {}, cpu_target=1.25)
    outcome = Outcome(case, {"headwater": ours, PARQUET: theirs}, [])

    assert report.line(outcome, PARQUET, report.CPU)[7:] == ["3,000", "2,000", "1.500x", "<= 1.25x", "missed"]


def test_a_missing_delta_spark_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(delta_spark.DeltaSparkMissingError, match=r"python -m benchmarks\.delta_spark"):
        delta_spark.find()
