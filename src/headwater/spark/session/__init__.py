"""Start a SparkSession with local defaults, clone one for a single job, and name the table that one works on.

Only a new session gets the defaults: a running one is returned with nothing changed but what was asked for by name.
Reading and writing tables works on any session.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.spark.functions import jvm_session
from headwater.spark.jvm import jvm_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from headwater.features.context import TableRef
    from headwater.log.context import LogContext


_DEFAULTS: dict[str, object] = {
    "spark.sql.adaptive.enabled": True,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}

_QUIET_LOGS = Path(__file__).parent.with_name("resources") / "log4j2.properties"
"""A file, because `spark.log.level` only counts once the session is up."""


def session(app_name: str = "headwater", **conf: object) -> SparkSession:
    """Return the running SparkSession, or a new one with quick, quiet local defaults.

    Args:
        app_name: the name of a new application.
        conf: Spark configuration, which wins over every default. Keys have dots, so give them as a
            dictionary: `session("app", **{"spark.ui.enabled": True})`.

    Returns:
        The session that is already active, with `conf` applied to it and nothing else; or a new one.

    Raises:
        JavaNotFoundError: a new session needs Java, and there is none.

    Example:
        >>> spark = hw.session("reports", **{"spark.sql.shuffle.partitions": 4})  # doctest: +SKIP
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
        spark = builder.getOrCreate()
    if not running and "spark.remote" not in conf and _is_local(conf) and "PYSPARK_PYTHON" not in os.environ:
        # Workers on this machine run this very Python: by default it would be whatever `python3` is on the path.
        spark.sparkContext.pythonExec = sys.executable
    return spark


@dataclass(frozen=True, slots=True)
class SparkTable:
    """A table and the session that works on it. Every request for a command on Spark has one."""

    spark: SparkSession = field(repr=False)
    ref: TableRef

    def __str__(self) -> str:
        """Return the location without secrets, for messages."""
        return str(self.ref)

    @property
    def time_zone(self) -> str:
        """The session's time zone, as Spark spells it."""
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    def context(self) -> LogContext:
        """Return the context of the table's log, in which timestamps without a zone are in the session's."""
        return self.ref.context(time_zone=self.time_zone)


def _new_session_defaults(conf: Mapping[str, object]) -> dict[str, object]:
    if "spark.remote" in conf:
        return {"spark.sql.session.timeZone": _DEFAULTS["spark.sql.session.timeZone"]}
    return {**_DEFAULTS, **_local_defaults()} if _is_local(conf) else dict(_DEFAULTS)


def _local_defaults() -> dict[str, object]:
    """Return settings for one machine, where 200 shuffle partitions would take most of a small query's time."""
    cores = os.cpu_count() or 1
    java_options = f"-XX:+UseSerialGC -Dlog4j2.configurationFile={_QUIET_LOGS.as_uri()}"
    return {
        "spark.sql.shuffle.partitions": max(8, 2 * cores),
        "spark.driver.host": "localhost",
        "spark.driver.extraJavaOptions": java_options,
    }


def _is_local(conf: Mapping[str, object]) -> bool:
    """Say whether a new session would run in one process; `spark-submit` decides that by itself."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return False
    master = str(conf.get("spark.master") or os.environ.get("MASTER") or "local[*]")
    return master == "local" or master.startswith("local[")


def _context_is_running() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _java_for_a_new_gateway(*, needed: bool) -> Iterator[None]:
    """Set JAVA_HOME while a JVM is launched, and restore the environment afterwards."""
    from pyspark import SparkContext

    if not needed or SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield
        return
    from headwater.spark.session.java import find_java

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


_DATASET = "org.apache.spark.sql.classic.Dataset"


def in_private_session(df: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Return the same rows, computed in a clone of the session with other settings.

    On Spark Connect, where sessions cannot be cloned, the settings do not apply.

    The clone shares what is expensive (the context, catalogs, cached data); a setting on it changes nothing in the
    user's session, not even for another thread.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    if not settings or jvm_session(df.sparkSession) is None:
        return df
    spark = df.sparkSession
    clone = df._jdf.sparkSession().cloneSession()
    for name, value in settings.items():
        clone.conf().set(name, value)
    rows = jvm_of(spark).static(_DATASET).ofRows(clone, df._jdf.logicalPlan())
    return ClassicDataFrame(rows, spark)
