"""Turn a Spark session into one that understands Delta, without a JAR.

`enable` serves a running session, `install` every session that the process starts later, with the settings that scripts
for delta-spark have in their builders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import SessionError
from headwater.spark.functions import is_connect
from headwater.spark.jvm import Jvm, jvm_of
from headwater.spark.session import session as start_session
from headwater.sql.classes import define_classes
from headwater.sql.gateway import ERRORS, Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog.spark_catalog"
_OUR_CATALOG = "headwater.DeltaCatalog"
_CATALOGS = (_OUR_CATALOG, "org.apache.spark.sql.delta.catalog.DeltaCatalog", "builtin")


def session(app_name: str = "headwater", **conf: object) -> SparkSession:
    """Return the running SparkSession, or a new one with quick, quiet local defaults; it understands Delta.

    Args:
        app_name: the name of a new application.
        conf: Spark configuration, which wins over every default. Keys have dots, so give them as a
            dictionary: `session("app", **{"spark.ui.enabled": True})`.

    Returns:
        The session that is already active, with `conf` applied to it; or a new one. Both are enabled, but for those of
        Spark Connect, which their server must enable.

    Raises:
        JavaNotFoundError: a new session needs Java, and there is none.
        SessionError: something is in the way of enabling it; see `enable`.

    Example:
        >>> spark = hw.session("reports", **{"spark.sql.shuffle.partitions": 4})  # doctest: +SKIP
    """
    spark = start_session(app_name, **conf)
    return spark if is_connect(spark) else enable(spark)


def enable(spark: SparkSession) -> SparkSession:
    """Let a running session read, write and query Delta tables by Spark's own interfaces.

    Afterwards `format("delta")`, SQL, catalog names and `saveAsTable` work, in this session and in those made from it
    by `newSession()`. Calling it again does nothing.

    Args:
        spark: a classic session. A session of Spark Connect is enabled where its server runs.

    Returns:
        The same session.

    Raises:
        SessionError: something is in the way: delta-spark's JAR, another session catalog, or a Connect session.

    Example:
        >>> hw.enable(spark).read.format("delta").load("/data/events").count()  # doctest: +SKIP
        42
    """
    if is_connect(spark):
        raise SessionError(
            "this session is a client of Spark Connect: its server must be enabled, where the driver runs. Start one "
            "with 'headwater connect-server', or call hw.enable in the Python driver of yours."
        )
    jvm = jvm_of(spark)
    prepare(jvm)
    _check_catalog(spark)
    java_session = spark._jsparkSession
    session = jvm.static("headwater.Session")
    session.extend(java_session.extensions())
    session.enable(java_session)
    if spark.conf.get(CATALOG, "builtin") == "builtin":
        spark.conf.set(CATALOG, _OUR_CATALOG)
        spark.sparkContext._jsc.sc().conf().set(CATALOG, _OUR_CATALOG)
    return spark


def prepare(jvm: Jvm) -> None:
    """Define the classes in a JVM, and connect them with this process; once per JVM."""
    define_classes(jvm)
    jvm.kept("sql gateway", lambda: _connect(jvm))


def _connect(jvm: Jvm) -> bool:
    from headwater.spark.errors import translate_failures
    from headwater.sql import conditions

    conditions.install()
    jvm.start_callbacks()
    jvm.static("headwater.Python").connect(jvm.called_back(Gateway(jvm), "headwater"))
    number_of = jvm.static("headwater.Failure").numberOf
    translate_failures(lambda exception: ERRORS.get(number_of(exception)))
    return True


def _check_catalog(spark: SparkSession) -> None:
    catalog = spark.conf.get(CATALOG, "builtin")
    if catalog not in _CATALOGS:
        raise SessionError(
            f"the session catalog is {catalog} ({CATALOG}), and Headwater must be in its place to serve Delta tables "
            f"by name. Give that catalog another name (spark.sql.catalog.<name>), or leave {CATALOG} unset."
        )
