"""`scripts/visited.py` lists the files of a package whose functions an operation calls."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from support.scripts import load_file, load_script

visited = load_script("visited")


def module_of(path: Path, text: str) -> Any:
    path.write_text(text)
    return load_file(path)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(visited, "PACKAGE", tmp_path)
    return tmp_path


def test_files_come_in_the_order_in_which_they_are_entered(package: Path) -> None:
    first = module_of(package / "first.py", "def call(other):\n    return other()\n")
    second = module_of(package / "second.py", "def call():\n    return 1\n")
    module_of(package / "never.py", "def call():\n    return 2\n")

    assert visited.visited(lambda: [first.call(second.call), first.call(second.call)]) == ["first.py", "second.py"]


def test_importing_a_file_does_not_visit_it(package: Path) -> None:
    assert visited.visited(lambda: module_of(package / "imported.py", "x = 1\n")) == []


def test_calls_in_other_threads_count(package: Path) -> None:
    module = module_of(package / "threaded.py", "def call():\n    return 1\n")

    def operation() -> None:
        thread = threading.Thread(target=module.call)
        thread.start()
        thread.join()

    assert visited.visited(operation) == ["threaded.py"]


def test_nothing_is_watched_after_an_operation_that_fails(package: Path) -> None:
    def fails() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        visited.visited(fails)

    assert sys.getprofile() is None
