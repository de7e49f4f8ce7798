"""Starting a SparkSession with local defaults that suit a notebook, a test or a script.

Only a session that does not exist yet gets the defaults: one that the user already has is returned as it is,
with nothing changed but what was asked for by name. Reading and writing tables works on any session.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_DEFAULTS: dict[str, object] = {
    "spark.sql.adaptive.enabled": True,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}
"""For every session that is started here."""

_QUIET_LOGS = Path(__file__).with_name("log4j2.properties")
"""A file, because `spark.log.level` only counts once the session is up."""


def spark(app_name: str = "headwater", **conf: object) -> SparkSession:
    """A SparkSession: the running one, or a new one with quick, quiet local defaults.

    Args:
        app_name: the name of a new application.
        conf: Spark configuration, which wins over every default. Keys have dots, so give them as a
            dictionary:
            `spark("app", **{"spark.ui.enabled": True})`.

    Returns:
        The session that is already active, with `conf` applied to it and nothing else; or a new one.

    Raises:
        JavaNotFoundError: a new session needs Java, and there is none.

    Example:
        >>> session = spark("reports", **{"spark.sql.shuffle.partitions": 4})  # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    wanted = dict(conf)
    running = SparkSession.getActiveSession() is not None or _context_is_running()
    if not running:
        wanted = {**_new_session_defaults(conf), **conf}
    builder = SparkSession.builder if running else SparkSession.builder.appName(app_name)
    for key, value in wanted.items():
        builder = builder.config(key, _text(value))
    with _java_for_a_new_gateway(needed=not running and "spark.remote" not in conf):
        session = builder.getOrCreate()
    if not running and "spark.remote" not in conf and _is_local(conf) and "PYSPARK_PYTHON" not in os.environ:
        # Workers on this machine run this very Python: by default it would be whatever `python3` is on the path.
        session.sparkContext.pythonExec = sys.executable
    return session


def _new_session_defaults(conf: Mapping[str, object]) -> dict[str, object]:
    if "spark.remote" in conf:
        return {"spark.sql.session.timeZone": _DEFAULTS["spark.sql.session.timeZone"]}
    return {**_DEFAULTS, **_local_defaults()} if _is_local(conf) else dict(_DEFAULTS)


def _local_defaults() -> dict[str, object]:
    """For one machine: 200 shuffle partitions would be most of a small query's time."""
    cores = os.cpu_count() or 1
    java_options = f"-XX:+UseSerialGC -Dlog4j2.configurationFile={_QUIET_LOGS.as_uri()}"
    return {
        "spark.sql.shuffle.partitions": max(8, 2 * cores),
        "spark.driver.host": "localhost",
        "spark.driver.extraJavaOptions": java_options,
    }


def _is_local(conf: Mapping[str, object]) -> bool:
    """Whether a new session would run in one process; under `spark-submit` that is not ours to say."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return False
    master = str(conf.get("spark.master") or os.environ.get("MASTER") or "local[*]")
    return master == "local" or master.startswith("local[")


def _context_is_running() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _text(value: object) -> str:
    """Spark spells booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _java_for_a_new_gateway(*, needed: bool) -> Iterator[None]:
    """Let a JVM that is about to be launched find its Java; the environment is as before afterwards."""
    from pyspark import SparkContext

    if not needed or SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield
        return
    from headwater.spark.java import find_java

    before = os.environ.get("JAVA_HOME")
    home = str(find_java().home)
    if home == before:
        yield
        return
    os.environ["JAVA_HOME"] = home
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
