"""The check of the documents finds what is broken, and the documents of this project have nothing of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_docs.py"


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, for a project in `tmp_path`."""
    spec = importlib.util.spec_from_file_location("check_docs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "check_docs", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def page(tmp_path: Path, text: str, name: str = "page.md") -> Path:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_link_to_nowhere_is_found_with_its_line(check: Any, tmp_path: Path) -> None:
    path = page(tmp_path, "# Title\n\nsee [that](docs/gone.md) and [this](page.md)\n")

    assert [str(problem) for problem in check.broken_links(path)] == ["page.md:3: broken link: docs/gone.md"]


def test_a_link_out_of_the_project_is_broken(check: Any, tmp_path: Path) -> None:
    path = page(tmp_path, "[up](../)\n")

    assert [problem.text for problem in check.broken_links(path)] == ["broken link: ../"]


def test_a_link_to_a_heading_needs_the_heading(check: Any, tmp_path: Path) -> None:
    page(tmp_path, "# The `log`, first\n", "other.md")
    path = page(tmp_path, "[good](other.md#the-log-first) [bad](other.md#the-log)\n")

    assert [problem.text for problem in check.broken_links(path)] == ["no such heading: other.md#the-log"]


def test_links_in_code_and_to_other_sites_are_left_alone(check: Any, tmp_path: Path) -> None:
    path = page(tmp_path, "`[a](gone.md)` [b](https://example.org/x)\n\n```python\nx[0](gone)\n```\n")

    assert list(check.broken_links(path)) == []


def test_a_page_that_no_document_links_to_is_found(check: Any, tmp_path: Path) -> None:
    readme = page(tmp_path, "[docs](docs/index.md)\n", "README.md")
    index = page(tmp_path, "nothing\n", "docs/index.md")
    lonely = page(tmp_path, "nobody\n", "docs/lonely.md")

    assert [problem.document for problem in check.unreachable_pages([readme, index, lonely])] == [lonely]


def test_examples_of_one_document_share_their_names(check: Any, tmp_path: Path) -> None:
    path = page(tmp_path, "```python run\nx = 1\n```\n\n```python run\nassert x == 1\n```\n")

    assert list(check.failing_examples(path, tmp_path)) == []


def test_a_failing_example_is_found_with_the_line_of_the_document(check: Any, tmp_path: Path) -> None:
    path = page(tmp_path, "text\n\n```python run\nx = 1\n```\n\n```python run\n\nassert x == 2\n```\n")

    (problem,) = check.failing_examples(path, tmp_path)

    assert "line 9" in problem.text


def test_a_failing_command_is_found_and_its_output_is_no_command(check: Any, tmp_path: Path) -> None:
    path = page(tmp_path, "```console run\n$ true\nexit 1\n$ echo wrong; exit 3\n```\n")

    (problem,) = check.failing_examples(path, tmp_path)

    assert (problem.line, problem.text) == (4, "failed: $ echo wrong; exit 3\nwrong\n")


def test_examples_that_do_not_say_that_they_run_are_not_run(check: Any, tmp_path: Path) -> None:
    path = page(tmp_path, "```python\n1 / 0\n```\n\n```console\n$ false\n```\n")

    assert list(check.failing_examples(path, tmp_path)) == []


def test_the_documents_of_this_project_are_in_order() -> None:
    # A Java for each document, and none of them lives long enough for its better compiler.
    environ = os.environ | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env=environ)

    assert done.returncode == 0, done.stdout + done.stderr
