"""The process: what it imports, how it ends, and what it writes to pipes and terminals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import headwater
from headwater.cli.main import main
from support.jobs.cli_process import BUSY, COMMAND, TIMEOUT_S
from support.tables.cli_tables import PROTOCOL, add, metadata, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Ended

HEAVY = ("pyarrow", "pandas", "numpy", "sqlglot", "obstore", "pyspark", "pyroaring")


def start(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **options
    )  # type: ignore[call-overload, no-any-return]


def imported(*args: object) -> set[str]:
    """The modules that a command imports, by their outermost names."""
    code = "import sys; from headwater.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert done.stdout != ""
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    "arguments", [["show"], ["show", "--json"], ["history"], ["verify"], ["show", "--version", "0"]]
)
def test_a_small_log_is_looked_at_without_heavy_modules(tiny: Path, arguments: list[str]) -> None:
    command, *others = arguments

    modules = imported(command, tiny, *others)

    assert "headwater" in modules
    assert modules & set(HEAVY) == set()


def test_json_needs_no_rich(tiny: Path) -> None:
    assert "rich" not in imported("show", tiny, "--json")


def test_a_filter_is_what_needs_a_sql_parser(events: Path) -> None:
    assert "sqlglot" not in imported("files", events)
    assert "sqlglot" in imported("files", events, "--where", "id > 5")


def test_the_script_and_the_module_are_the_same_command(tiny: Path) -> None:
    script = os.path.join(os.path.dirname(sys.executable), "headwater")

    by_script = subprocess.run(
        [script, "show", str(tiny)], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )

    assert by_script.stdout == start("show", tiny).stdout


def test_version_prints_the_version(run: Callable[..., Ended]) -> None:
    assert run("--version").out == f"headwater {headwater.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(run: Callable[..., Ended], arguments: list[str]) -> None:
    ended = run(*arguments)

    assert ended.code == 0
    assert [name for name in ("show", "history", "files", "verify") if f" {name} " not in ended.out] == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["show", "{table}"], 0), (["verify", "{bad}"], 1), (["show", "/nowhere"], 2), (["show"], 2)],
)
def test_exit_codes(tiny: Path, tmp_path: Path, arguments: list[str], code: int) -> None:
    bad = write_log(tmp_path / "bad", [PROTOCOL, metadata(), add("a"), add("a", 2)])

    done = start(*(argument.format(table=tiny, bad=bad) for argument in arguments))

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert (done.stdout == "") == (code == 2)
    assert (done.stderr == "") == (code != 2)


def test_ctrl_c_ends_quietly() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY, "show", "somewhere"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opening\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 130
    assert (out, err) == ("", "")


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path, arguments: list[str]) -> None:
    # Far more than a pipe holds, so that the command must notice.
    table = write_log(tmp_path / "t", [PROTOCOL, metadata(), *(add(f"{'x' * 200}{i}") for i in range(3000))])
    with subprocess.Popen(
        [*COMMAND, "files", str(table), "--limit", "3000", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(TIMEOUT_S)

    assert err == b""
    assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["show", "{table}"], ["show", "{table}", "--json"], ["--version"]])
def test_a_full_disk_is_an_error(tiny: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [*COMMAND, *(argument.format(table=tiny) for argument in arguments)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)

    assert done.returncode == 2
    assert "could not write the output" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_is_no_error(tiny: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "show", str(tiny)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_an_encoding_without_bars_gets_plain_letters(tiny: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    done = start("show", tiny, env=env)

    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "`-- id  long" in done.stdout
    assert re.search(r"< 1 KiB  #+ +1$", done.stdout, re.MULTILINE)


def test_json_is_utf8_whatever_the_encoding_of_the_terminal(tmp_path: Path) -> None:
    table = write_log(tmp_path / "t", [PROTOCOL, metadata(name="Flüsse 🌊")])
    env = os.environ | {"PYTHONIOENCODING": "ascii"}

    done = subprocess.run(
        [*COMMAND, "show", str(table), "--json"], capture_output=True, timeout=TIMEOUT_S, check=True, env=env
    )

    assert "Flüsse 🌊".encode() in done.stdout


def test_output_in_a_pipe_has_no_escapes_and_no_blanks_at_the_ends_of_lines(events: Path) -> None:
    for command in ("show", "history", "files"):
        text = start(command, events).stdout
        assert "\x1b" not in text
        assert [line for line in text.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("command", ["show", "history", "files"])
def test_lines_fit_into_the_width_they_are_given(
    run: Callable[..., Ended], events: Path, monkeypatch: pytest.MonkeyPatch, width: int, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    lines = [line for line in run(command, events).out.splitlines() if not line.startswith("file://")]

    assert max(map(len, lines)) <= width


def test_main_returns_the_code_of_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater.api.open.open_log", interrupt)

    assert main(["show", "x"]) == 130
