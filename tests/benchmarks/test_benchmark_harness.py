"""The harness measures what it says, and believes no time whose answer is wrong."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.harness import (
    Case,
    Command,
    Measurement,
    Operation,
    Outcome,
    best_of,
    measure_cases,
    measure_here,
)
from benchmarks.log_open import all_cases
from benchmarks.log_open_operations import OPERATIONS
from benchmarks.runner import _public_arguments
from benchmarks.tables import TableSpec, make_table

from benchmarks import report

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "benchmarks.log_open_operations"
SPEC = TableSpec(num_files=200, num_partitions=20)


def case_of(title: str, tmp_path: Path) -> Case:
    def small(spec: TableSpec) -> Any:
        return make_table(spec if spec.layout == "commits" else SPEC, tmp_path)

    return next(case for case in all_cases([200], small) if case.title == title)


def measured(**changed: Any) -> Measurement:
    values: dict[str, Any] = {
        "wall_s": 1.0,
        "cpu_s": 2.0,
        "setup_s": 0.0,
        "peak_rss_bytes": 400,
        "imports_rss_bytes": 100,
    }
    return Measurement(**(values | changed))


def outcome(ours: Measurement, theirs: Measurement, **case: Any) -> Outcome:
    return Outcome(Case("title", "open", "[]", "10k files", {}, **case), {"headwater": ours, "deltalake": theirs}, [])


@pytest.mark.parametrize(
    "title",
    [
        "open",
        "all live paths",
        "partition filter",
        "id range, JSON stats",
        "second partition filter",
        "second id range, JSON stats",
        "refresh by one commit",
        "refresh, then a partition filter",
        "`headwater show`, the whole process",
    ],
)
def test_deltalake_gives_the_true_answer_in_a_process_of_its_own(title: str, tmp_path: Path) -> None:
    case = case_of(title, tmp_path)

    [found] = measure_cases(MODULE, OPERATIONS, [case], runs=1, without=frozenset({"headwater"}))

    assert found.errors == []
    assert found.best["deltalake"].answer is not None
    assert case.truth.items() <= found.best["deltalake"].answer.items()
    assert found.best["deltalake"].wall_s > 0
    assert not list(tmp_path.glob(".clone-*"))


def test_a_wrong_answer_gives_no_ratio(tmp_path: Path) -> None:
    right = case_of("open", tmp_path)
    wrong = Case(right.title, right.operation, right.subject, right.size, {"version": 7})

    [found] = measure_cases(MODULE, OPERATIONS, [wrong], runs=3, without=frozenset({"headwater"}))

    assert found.errors == ["deltalake: version is 1020, not 7"]
    assert report.ratio(found, "deltalake") is None
    assert "FAILED" in report.line(found, "deltalake")


def test_a_peer_that_fails_is_reported_with_its_reason(tmp_path: Path) -> None:
    case = Case("open", "open", json.dumps([str(tmp_path)]), "nothing", {})

    [found] = measure_cases(MODULE, OPERATIONS, [case], runs=3, without=frozenset({"headwater"}))

    assert len(found.errors) == 1
    assert "TableNotFoundError" in found.errors[0]


def test_a_command_that_does_not_exist_is_reported() -> None:
    operations = {"none": {"peer": Command(lambda _: ["/no/such/command"], None)}}

    [found] = measure_cases(MODULE, operations, [Case("none", "none", "", "nothing", {})], runs=1)

    assert found.errors == ["peer: cannot start command: No such file or directory"]


def test_a_command_is_measured_as_a_whole_process() -> None:
    program = "import time; time.sleep(0.2); print('{\"version\": 3}')"
    operations = {"sleep": {"peer": Command(lambda _: [sys.executable, "-c", program], json.loads)}}

    [found] = measure_cases(MODULE, operations, [Case("sleep", "sleep", "", "one", {"version": 3})], runs=1)

    assert found.errors == []
    assert found.best["peer"].wall_s >= 0.2
    assert found.best["peer"].cpu_s > 0
    assert found.best["peer"].peak_rss_bytes > 1_000_000


def test_imports_while_the_time_runs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this_is_late", raising=False)

    def run(_subject: str) -> int:
        sys.modules["this_is_late"] = sys
        return 5

    found = measure_here(Operation(("json",), run, lambda result: {"result": result}), "subject")

    assert found.late_imports == ["this_is_late"]
    assert found.answer == {"result": 5}
    monkeypatch.delitem(sys.modules, "this_is_late")


def test_cleanup_happens_even_when_the_operation_fails() -> None:
    cleaned: list[str] = []

    def fail(_subject: str) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        measure_here(Operation((), fail, lambda _: {}, cleanup=cleaned.append), "subject")

    assert cleaned == ["subject"]


def test_the_best_of_several_is_the_smallest_of_each_number() -> None:
    best = best_of([measured(wall_s=1.0, cpu_s=5.0), measured(wall_s=2.0, cpu_s=3.0, peak_rss_bytes=300)])

    assert (best.wall_s, best.cpu_s, best.peak_rss_bytes) == (1.0, 3.0, 300)


def test_verdicts_follow_the_targets() -> None:
    met = outcome(measured(wall_s=0.1), measured(wall_s=1.0), target=0.1, memory_target=0.5)

    cells = report.line(met, "deltalake")

    assert cells[4:7] == ["0.100x", "<= 0.1x", "met"]
    assert cells[9:12] == ["1.000x", "<= 0.5x", "missed"]


def test_the_notes_give_the_ratio_to_the_first_filter() -> None:
    second = outcome(measured(wall_s=0.01, setup_s=0.1), measured(), setup_title="the first filter")

    assert report.notes(second, "deltalake") == ["title, 10k files: 0.100x of the first filter (100 ms)"]


def test_the_block_in_the_results_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    results = tmp_path / "RESULTS.md"
    results.write_text("before\n<!-- one:begin -->\nold\n<!-- one:end -->\nafter\n")

    report.replace_block(results, "one", "new\n")

    assert results.read_text() == "before\n<!-- one:begin -->\nnew\n<!-- one:end -->\nafter\n"
    with pytest.raises(ValueError, match="two:begin"):
        report.replace_block(results, "two", "new\n")


def test_the_markdown_names_versions_and_command_but_no_path_of_the_machine(tmp_path: Path) -> None:
    case = case_of("open", tmp_path)
    found = Outcome(case, {"headwater": measured(), "deltalake": measured()}, [])

    text = report.markdown("Title", [found], "deltalake", "python -m benchmarks.log_open", ["a remark"])

    assert "python -m benchmarks.log_open" in text
    assert "deltalake 1." in text
    assert "- a remark" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("cache", [["--cache", "/tmp/x"], ["--cache=/tmp/x"]])
def test_the_recorded_command_line_does_not_name_the_cache(cache: list[str]) -> None:
    assert _public_arguments(["--files", "10", *cache, "--results"]) == ["--files", "10", "--results"]


@pytest.mark.parametrize(
    ("found", "text"), [(1.5, "1.500x"), (0.0123, "0.012x"), (0.0042, "0.0042x"), (0.00004, "< 0.001x")]
)
def test_small_ratios_keep_their_digits(found: float, text: str) -> None:
    assert report.line(outcome(measured(wall_s=found), measured(wall_s=1.0)), "deltalake")[4] == text


def test_a_setup_that_fails_leaves_no_clone_behind(tmp_path: Path) -> None:
    table = make_table(SPEC, tmp_path)
    subject = json.dumps([str(table.path), "no_such_column = 1"])

    [found] = measure_cases(
        MODULE, OPERATIONS, [Case("refresh", "refresh", subject, "", {})], runs=1, without=frozenset({"headwater"})
    )

    assert len(found.errors) == 1
    assert not list(tmp_path.glob(".clone-*"))


def test_ratio_of_warm_sessions_is_the_median_of_the_rounds() -> None:
    ours = [measured(wall_s=wall) for wall in (1.0, 8.0, 2.0)]
    theirs = [measured(wall_s=wall) for wall in (1.0, 2.0, 1.0)]
    case = Case("title", "open", "[]", "10k files", {})

    found = Outcome(case, {"headwater": ours[0], "deltalake": theirs[0]}, [], {"headwater": ours, "deltalake": theirs})

    assert report.ratio(found, "deltalake") == 2.0
    assert report.ratio(outcome(ours[0], theirs[0]), "deltalake") == 1.0


@pytest.mark.parametrize(("limits", "expected"), [({}, 3), ({"max_runs": 2}, 2), ({"min_runs": 5}, 5)])
def test_a_case_may_ask_for_fewer_or_more_rounds(limits: dict[str, int], expected: int) -> None:
    case = Case("title", "open", "[]", "10k files", {}, **limits)
    operation = Operation((), lambda _state: None, lambda _result: {})
    taken: list[str] = []

    def measure(_module: str, _case: Case, peer: str, _how: Any) -> Measurement:
        taken.append(peer)
        return measured(answer={})

    assert len(list(measure_cases(MODULE, {"open": {"headwater": operation}}, [case], runs=3, measure=measure))) == 1
    assert len(taken) == expected


def test_in_warm_sessions_nobody_comes_first_more_often() -> None:
    operation = Operation((), lambda _state: None, lambda _result: {})
    taken: list[str] = []

    def measure(_module: str, _case: Case, peer: str, _how: Any) -> Measurement:
        taken.append(peer)
        return measured(answer={})

    peers = dict.fromkeys(("headwater", "deltalake"), operation)
    case = Case("title", "open", "[]", "10k files", {})
    [found] = measure_cases(MODULE, {"open": peers}, [case], runs=3, measure=measure, warmups=1)

    assert taken[2::2] == ["headwater", "deltalake"] * 2, "the first of each round, after the warm-up"
    assert [len(rounds) for rounds in found.rounds.values()] == [4, 4]
