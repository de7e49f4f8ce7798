"""delta-spark as an oracle: the reference implementation in a process of its own, asked in JSON.

It needs another Spark than ours and its JARs (`benchmarks/delta_spark.py` installs both into the user's cache). Where
it is not installed the tests that need it are skipped, unless `HEADWATER_DELTA_SPARK=install` says to get it, as
`.ci/run` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

from benchmarks import delta_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SERVER = r"""
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession, functions

answers = open(int(sys.argv[1]), "w")  # Spark itself writes on standard output
builder = SparkSession.builder.master("local[2]")
for key, value in json.loads(sys.argv[2]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def rows_of(frame, json_options=None):
    schema = frame.schema.json()
    if json_options is None:
        return {"schema": schema, "rows": sorted(frame.toJSON().collect())}
    rows = frame.select(functions.to_json(functions.struct("*"), json_options))
    return {"schema": schema, "rows": sorted(row[0] for row in rows.collect())}


def answer_or_error(command):
    try:
        return answer(command)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def answer(command):
    if "all" in command:
        with ThreadPoolExecutor(4) as pool:
            return {"all": list(pool.map(answer_or_error, command["all"]))}
    if "script" in command:
        for statement in command["script"]:
            spark.sql(statement)
        return {}
    if "sql" in command:
        return rows_of(spark.sql(command["sql"]), command.get("json_options"))
    reader = spark.read.format("delta")
    for key, value in command.get("options", {}).items():
        reader = reader.option(key, value)
    return rows_of(reader.load(command["read"]), command.get("json_options"))


for line in sys.stdin:
    answers.write(json.dumps(answer_or_error(json.loads(line))) + "\n")
    answers.flush()
"""

_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class DeltaSparkError(Exception):
    """delta-spark did not do what it was asked to do; the message is its own."""


class DeltaSparkOracle:
    """A running delta-spark."""

    def __init__(self) -> None:
        from headwater.spark.session.java import find_java

        installed = delta_spark.find()
        self._directory = tempfile.TemporaryDirectory()
        conf = {
            **_CONF,
            "spark.jars": ",".join(map(str, installed.jars)),
            "spark.sql.warehouse.dir": f"{self._directory.name}/warehouse",
        }
        answers, theirs = os.pipe()
        environ = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": str(installed.python)}
        environ.pop("SPARK_HOME", None)
        environ.pop("PYTHONPATH", None)
        self._errors = open(f"{self._directory.name}/errors", "w+")  # noqa: SIM115 - closed by `stop`
        self._process = subprocess.Popen(
            [str(installed.python), "-c", _SERVER, str(theirs), json.dumps(conf)],
            pass_fds=[theirs],
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
            text=True,
            env=environ,
            cwd=self._directory.name,
        )
        os.close(theirs)
        self._answers = os.fdopen(answers)

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement's result."""
        return [json.loads(row) for row in self._ask(sql=text)["rows"]]

    def rows(self, path: Path | str, **options: object) -> list[str]:
        """The rows of a table as sorted JSON texts."""
        found: list[str] = self._ask(read=str(path), options={k: str(v) for k, v in options.items()})["rows"]
        return found

    def schema(self, path: Path | str) -> dict[str, Any]:
        """The schema of a table, as Spark writes it."""
        found: dict[str, Any] = json.loads(self._ask(read=str(path))["schema"])
        return found

    def all(self, commands: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answers to many commands, several of which run at a time.

        Args:
            commands: `{"sql": text}`, `{"read": path, "options": {}}` (both perhaps with `json_options`, for the JSON
                of the rows), or `{"script": [text, ...]}` for statements one after the other.

        Returns:
            In the same order `{"schema": ..., "rows": [...]}`, nothing for a script, or `{"error": message}`.
        """
        found: list[dict[str, Any]] = self._ask(all=list(commands))["all"]
        return found

    def _ask(self, **command: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._answers.readline()
        if not line:
            self._errors.seek(0)
            raise DeltaSparkError(f"delta-spark has stopped: {self._errors.read()[-2_000:]}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise DeltaSparkError(found["error"])
        return found

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._errors.close()
        self._directory.cleanup()


def available() -> str:
    """An empty text, or why delta-spark cannot be asked."""
    try:
        delta_spark.find()
    except delta_spark.DeltaSparkMissingError as missing:
        if os.environ.get("HEADWATER_DELTA_SPARK") != "install":
            return f"delta-spark is {missing}"
        try:
            delta_spark.install()
        except (OSError, subprocess.CalledProcessError, delta_spark.DeltaSparkMissingError) as error:
            return f"delta-spark cannot be installed here: {error}"
    return ""
