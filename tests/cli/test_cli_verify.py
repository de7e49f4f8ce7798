"""`headwater verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from headwater.cli.app import app
from headwater.cli.maintenance import contrast
from support.tables.cli_tables import PROTOCOL, add, metadata, write_checksum, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Ended

FINE = {
    "numFiles": 2,
    "tableSizeBytes": 4000,
    "numMetadata": 1,
    "numProtocol": 1,
    "protocol": PROTOCOL["protocol"],
    "metadata": metadata()["metaData"],
}


def test_a_log_that_agrees_with_its_checksum_is_sound(tiny: Path) -> None:
    write_checksum(tiny, 1, **FINE)

    result = CliRunner().invoke(app, ["verify", str(tiny)])

    assert result.exit_code == 0
    assert result.output == "Version 1 is sound: the log and its checksum agree on 2 files and 3.9 KiB.\n"


def test_without_a_checksum_verify_says_so(run: Callable[..., Ended], tiny: Path) -> None:
    ended = run("verify", tiny)

    assert ended.code == 0
    assert "Version 1 has no checksum" in ended.out
    assert run("verify", tiny, "--json").json["checksum"] == "missing"


def test_discrepancies_are_a_table_and_exit_code_one(run: Callable[..., Ended], tiny: Path) -> None:
    write_checksum(tiny, 1, **{**FINE, "numFiles": 3, "tableSizeBytes": 1})

    ended = run("verify", tiny)

    assert ended.code == 1
    assert ended.err == ""
    assert "has 2 discrepancies" in ended.out
    source = f"{1:020}.crc"
    assert ended.lines[-2:] == [[source, "numFiles", "2", "3"], [source, "tableSizeBytes", "4000", "1"]]
    assert ["in", "field", "expected", "found"] in ended.lines


def test_json_is_one_object(run: Callable[..., Ended], tiny: Path) -> None:
    write_checksum(tiny, 1, **{**FINE, "numFiles": 3})

    ended = run("verify", tiny, "--json")

    assert ended.code == 1
    assert ended.json == {
        "uri": f"file://{tiny}",
        "version": 1,
        "checksum": "found",
        "ok": False,
        "discrepancies": [
            {"source": f"_delta_log/{1:020}.crc", "field": "numFiles", "expected": 2, "actual": 3},
        ],
    }


def test_a_damaged_checksum_is_a_discrepancy(run: Callable[..., Ended], tiny: Path) -> None:
    (tiny / "_delta_log" / f"{1:020}.crc").write_text("{ this is not JSON")

    assert run("verify", tiny).code == 1
    assert run("verify", tiny, "--json").json["checksum"] == "damaged"


def test_an_older_version_is_verified_with_its_own_checksum(run: Callable[..., Ended], tiny: Path) -> None:
    write_checksum(tiny, 0, **{**FINE, "numFiles": 1, "tableSizeBytes": 1000})
    write_checksum(tiny, 1, **{**FINE, "numFiles": 77})

    assert run("verify", tiny, "--version", 0).code == 0
    assert run("verify", tiny).code == 1


def test_an_illegal_commit_is_found_without_a_checksum(run: Callable[..., Ended], tmp_path: Path) -> None:
    twice = [PROTOCOL, metadata(), add("a.parquet", 1), add("a.parquet", 2)]

    ended = run("verify", write_log(tmp_path / "t", twice))

    assert ended.code == 1
    assert "a.parquet" in ended.out


def test_of_a_contradicting_action_only_the_difference_is_shown(run: Callable[..., Ended], tiny: Path) -> None:
    write_checksum(tiny, 1, **{**FINE, "metadata": metadata(id="other")["metaData"]})

    ended = run("verify", tiny)

    assert ended.lines[-1] == [f"{1:020}.crc", "metadata", '{"id":"b1e2"}', '{"id":"other"}']


def test_of_two_lists_only_the_difference_is_shown() -> None:
    assert contrast([1, 2, 3, 4], [1, 2, 0, 4]) == ("[2] 3", "[2] 0")
    assert contrast([1, 2, 3, 4], [1, 2, 3]) == ("4 items, only here: [4]", "3 items")
    assert contrast([("a", 1)] * 4, [("b", 1)]) == (
        '4 items, only here: [["a",1],["a",1],["a",1],["a",1]]',
        '1 item, only here: [["b",1]]',
    )
