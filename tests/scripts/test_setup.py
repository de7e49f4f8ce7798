"""`make setup` on machines that cannot: it stops before touching anything, and says what to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup"


def run_setup(tmp_path: Path, python: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run it with a PATH that has the shell's tools, and of all Pythons only those in `tmp_path`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cat", "dirname"):
        tools.joinpath(name).symlink_to(next(p for p in map(Path, ("/bin", "/usr/bin")) if (p / name).exists()) / name)
    environ = {"PATH": os.pathsep.join([str(tmp_path), str(tools)])} | ({"PYTHON": python} if python else {})
    return subprocess.run(["/bin/sh", SETUP], capture_output=True, text=True, env=environ)


def fake_python(path: Path, says: str) -> None:
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)


def test_without_any_python_it_names_every_one_it_looked_for(tmp_path: Path) -> None:
    done = run_setup(tmp_path)

    assert done.returncode == 1
    for name in ("python3.13", "python3.12", "python3.11", "python3"):
        assert f"- {name}: not found" in done.stderr


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("echo 'is Python 3.9, older than 3.11'", "python3 is Python 3.9, older than 3.11"),
        ("echo 'has no module ensurepip'", "python3 has no module ensurepip"),
        ("echo 'not selected' >&2; exit 127", "python3 does not start"),
    ],
    ids=["old", "no-ensurepip", "version-manager"],
)
def test_a_python_that_does_not_serve_is_named_with_the_reason(tmp_path: Path, says: str, reason: str) -> None:
    fake_python(tmp_path / "python3", says)

    done = run_setup(tmp_path)

    assert done.returncode == 1
    assert reason in done.stderr
    assert "python3-venv" in done.stderr


def test_a_python_that_was_named_is_the_only_one_considered(tmp_path: Path) -> None:
    fake_python(tmp_path / "python3.13", "echo ok")

    done = run_setup(tmp_path, python="python3.11-from-nowhere")

    assert done.returncode == 1
    assert "python3.11-from-nowhere: not found" in done.stderr
    assert "python3.13" not in done.stderr


def test_the_first_python_that_serves_makes_the_environment(tmp_path: Path) -> None:
    fake_python(tmp_path / "python3.13", "echo 'has no module ensurepip'")
    fake_python(tmp_path / "python3.12", '[ "$1" = - ] && echo ok || echo "3.12 runs $1"')
    fake_python(tmp_path / "python3", '[ "$1" = - ] && echo ok || echo "3 runs $1"')

    done = run_setup(tmp_path)

    assert (done.returncode, done.stdout) == (0, "3.12 runs scripts/setup_venv.py\n")
