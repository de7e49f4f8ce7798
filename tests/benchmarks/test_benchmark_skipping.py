"""The benchmark of layouts: what it reports, and that its block is in the results."""

from __future__ import annotations

from benchmarks.runner import RESULTS
from benchmarks.skipping import COLUMNS, PAPER, Skipping, markdown, verdict


def test_the_report_has_all_columns_and_says_whether_the_target_is_met() -> None:
    found = [
        Skipping("Z-order, as in the paper", 100, PAPER),
        Skipping("Z-order by Headwater", 100, (70.0, 60.0, 60.0, 50.0)),
        Skipping("clustering by Headwater", 100, (59.0,) * 4),
    ]
    assert [verdict(one) for one in found] == ["", "met", "missed"]
    lines = markdown(found, "python -m benchmarks.skipping", 1_000).splitlines()
    assert all(name in lines[-5] for name in COLUMNS)
    assert "| 67.0 % | 60.0 % | 47.0 % | 44.0 % | 54.5 % |" in lines[-3]
    assert len({line.count("|") for line in lines[-5:]}) == 1


def test_the_results_have_a_place_for_it() -> None:
    assert RESULTS.read_text().count("<!-- skipping:begin -->") == 1
