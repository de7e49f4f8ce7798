"""Run the cases of `tests/sql/cases` on a Spark session, and note what each statement answers.

It knows nothing of Headwater, so that delta-spark's Python can run it in a process of its own:

    python runner.py CASES_DIRECTORY OUTPUT.json '{"spark.jars": "..."}'

A case is a list of statements between lines `-- case: NAME`. Lines that begin with `@` ask what SQL cannot: `@history
t` (operations, parameters and names of metrics), `@detail t`, `@protocol t`, `@schema STATEMENT` (the columns of its
result, whose values differ from run to run). `$DIR` is an empty directory.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def read_cases(directory: Path) -> dict[str, list[str]]:
    """Return the statements of every case by its name."""
    cases: dict[str, list[str]] = {}
    for path in sorted(directory.glob("*.sql")):
        name = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("-- case: "):
                name = f"{path.stem}: {line.removeprefix('-- case: ')}"
                cases[name] = []
            elif line.strip():
                cases[name].append(line.strip().removesuffix(";"))
    return cases


def run_case(spark: Any, statements: list[str]) -> list[dict[str, Any]]:
    """Run the statements of a case one after the other, in a database of its own."""
    directory = tempfile.mkdtemp(prefix="sql-case-")
    database = "case_" + Path(directory).name.removeprefix("sql-case-").lower()
    spark.sql(f"CREATE DATABASE {database}")
    spark.sql(f"USE {database}")
    hidden = {directory: "$DIR", database: "$DB"}
    try:
        return [_run(spark, text.replace("$DIR", directory), hidden) for text in statements]
    finally:
        spark.sql("USE default")
        spark.sql(f"DROP DATABASE {database} CASCADE")
        shutil.rmtree(directory, ignore_errors=True)


def _run(spark: Any, text: str, hidden: dict[str, str]) -> dict[str, Any]:
    try:
        return _cleaned(_answer(spark, text), hidden)
    except Exception as error:
        return _cleaned(_error(error), hidden)


def _answer(spark: Any, text: str) -> dict[str, Any]:
    word, _, rest = text.partition(" ")
    if word == "@history":
        rows = spark.sql(f"DESCRIBE HISTORY {rest}").select("operation", "operationParameters", "operationMetrics")
        return {"history": [[r[0], dict(r[1] or {}), sorted(r[2] or {})] for r in reversed(rows.collect())]}
    if word == "@detail":
        row = spark.sql(f"DESCRIBE DETAIL {rest}").first().asDict()
        return {"detail": {k: row.get(k) for k in ("format", "partitionColumns", "clusteringColumns", "numFiles")}}
    if word == "@protocol":
        row = spark.sql(f"DESCRIBE DETAIL {rest}").first().asDict()
        features = sorted(row.get("tableFeatures") or [])
        return {"protocol": [row["minReaderVersion"], row["minWriterVersion"], features]}
    if word == "@schema":
        frame = spark.sql(rest)
        return {"schema": _schema(frame), "rows": len(frame.collect())}
    frame = spark.sql(text)
    return {"schema": _schema(frame), "rows": sorted(frame.toJSON().collect())}


def _schema(frame: Any) -> str:
    return str(frame.schema.simpleString())


def _error(error: Exception) -> dict[str, Any]:
    kinds = [
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith(("pyspark.errors", "builtins"))
    ]
    found: dict[str, Any] = {"error": next((k for k in kinds if k not in ("object", "CapturedException")), "")}
    condition = getattr(error, "getCondition", lambda: None)()
    if condition is None:
        match = re.match(r"(?:.*?\W)?\[([A-Z_0-9.]+)\]", str(error))
        condition = match[1] if match else None
    found["condition"] = condition
    found["state"] = getattr(error, "getSqlState", lambda: None)()
    found["message"] = str(error).split("\n\nJVM stacktrace", 1)[0][:400]
    return found


def _cleaned(found: Any, hidden: dict[str, str]) -> Any:
    """Replace what differs from run to run."""
    text = json.dumps(found, sort_keys=True)
    for value, name in hidden.items():
        text = text.replace(value, name)
    return json.loads(_UUID.sub("$UUID", text))


def run_all(spark: Any, cases: dict[str, list[str]]) -> dict[str, list[dict[str, Any]]]:
    """Run cases, and return what each statement answered."""
    return {name: run_case(spark, statements) for name, statements in cases.items()}


def main(cases: str, output: str, conf: str) -> None:
    """Run all cases in a session of its own."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in json.loads(conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    Path(output).write_text(json.dumps(run_all(spark, read_cases(Path(cases))), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
