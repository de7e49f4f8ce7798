"""delta-spark as a peer: a Python of its own with the Spark that it is made for, and its JARs.

It does not install beside the project's Spark, so it has a directory in the user's cache, which this makes (half a
gigabyte; pip and Spark's package resolution must reach their registries):

    python -m benchmarks.delta_spark

Benchmarks use it where it is there, and say that they went without it where it is not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

VERSION = "4.4.0"
SPARK_VERSION = "4.2.0"
PACKAGE = f"io.delta:delta-spark_4.2_2.13:{VERSION}"

_RESOLVE = """
import sys
from pyspark.sql import SparkSession
package, ivy = sys.argv[1:]
conf = {"spark.jars.packages": package, "spark.jars.ivy": ivy, "spark.ui.enabled": "false"}
builder = SparkSession.builder.master("local[1]")
for key, value in conf.items():
    builder = builder.config(key, value)
builder.getOrCreate().stop()
"""


class DeltaSparkMissingError(Exception):
    """delta-spark is not installed for benchmarks; the message says what to do."""


@dataclass(frozen=True)
class DeltaSpark:
    """An installation."""

    python: Path
    jars: tuple[Path, ...]


def home() -> Path:
    """The directory of the installation, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "headwater" / f"delta-spark-{VERSION}"


def find() -> DeltaSpark:
    """The installation; raises `DeltaSparkMissingError` where there is none."""
    python, jars = home() / "venv" / "bin" / "python", tuple(sorted((home() / "jars").glob("*.jar")))
    if not python.exists() or not any(jar.name.startswith("delta-spark_") for jar in jars):
        raise DeltaSparkMissingError("not installed, `python -m benchmarks.delta_spark` does it")
    return DeltaSpark(python, jars)


def install() -> DeltaSpark:
    """Install what is missing."""
    from headwater.spark.session.java import find_java

    environment = home() / "venv"
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"pyspark=={SPARK_VERSION}"], check=True)
    ivy = home() / "ivy"
    environ = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": str(python)}
    environ.pop("SPARK_HOME", None)
    subprocess.run([str(python), "-c", _RESOLVE, PACKAGE, str(ivy)], check=True, env=environ)
    jars = home() / "jars"
    jars.mkdir(exist_ok=True)
    for jar in (ivy / "jars").glob("*.jar"):
        shutil.copy2(jar, jars / jar.name.split("_", 1)[1])  # Ivy puts the organisation before the name
    return find()


if __name__ == "__main__":
    found = install()
    sys.stdout.write(f"delta-spark {VERSION} on Spark {SPARK_VERSION}, {len(found.jars)} JARs\n")
