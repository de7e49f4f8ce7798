"""`make setup` sees a `.venv` that is damaged, foreign or out of date, and leaves a good one alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from support.scripts import load_script


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, for a project in `tmp_path`."""
    module = load_script("setup_venv")
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.chdir(tmp_path)
    return module


def make_venv(root: Path, version: str = "3.12") -> Path:
    """What of a virtual environment the script looks at: a Python that tells its version, and pip."""
    bin_ = root / ".venv" / "bin"
    bin_.mkdir(parents=True)
    write(bin_ / "python", f"#!/bin/sh\necho {version}\n")
    write(bin_ / "pip", f"#!{bin_}/python3\nimport pip\n")
    return bin_


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_good_one_is_left_alone(setup: Any, tmp_path: Path) -> None:
    make_venv(tmp_path)

    assert setup.why_unusable() is None


def test_none_at_all(setup: Any) -> None:
    assert setup.why_unusable() == "there is none"


def test_a_python_that_was_removed(setup: Any, tmp_path: Path) -> None:
    (make_venv(tmp_path) / "python").unlink()

    assert setup.why_unusable() == "its Python does not start"


def test_a_python_that_fails(setup: Any, tmp_path: Path) -> None:
    write(make_venv(tmp_path) / "python", "#!/bin/sh\nexit 1\n")

    assert setup.why_unusable() == "its Python does not start"


def test_a_python_that_is_too_old(setup: Any, tmp_path: Path) -> None:
    make_venv(tmp_path, "3.9")

    assert setup.why_unusable() == "it has Python 3.9, older than 3.11"


def test_pip_was_never_installed(setup: Any, tmp_path: Path) -> None:
    (make_venv(tmp_path) / "pip").unlink()

    assert setup.why_unusable() == "it has no pip"


def test_a_directory_that_was_copied_from_elsewhere(setup: Any, tmp_path: Path) -> None:
    write(make_venv(tmp_path) / "pip", "#!/elsewhere/.venv/bin/python3\nimport pip\n")

    assert setup.why_unusable() == "it was made for another directory"


def test_a_python_that_was_asked_for_by_name_replaces_another(
    setup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = "{}.{}".format(*sys.version_info[:2])
    make_venv(tmp_path, running)
    monkeypatch.setenv("PYTHON", "python3")
    assert setup.why_unusable() is None

    write(tmp_path / ".venv" / "bin" / "python", "#!/bin/sh\necho 3.99\n")
    assert setup.why_unusable() == "it has Python 3.99"


@pytest.mark.parametrize("changed", ["constraints.txt", "pyproject.toml", "src/headwater/_version.py"])
def test_a_change_of_what_is_installed_changes_the_stamp(setup: Any, tmp_path: Path, changed: str) -> None:
    for name in setup.INPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    before = setup.wanted_stamp()
    assert setup.wanted_stamp() == before

    (tmp_path / changed).write_text("after")

    assert setup.wanted_stamp() != before
