"""Let every Spark session of this process understand Delta, with the settings that scripts for delta-spark have.

Those name classes of delta-spark (`io.delta.sql.DeltaSparkSessionExtension`, ...) and its package. Ours of the same
names are defined between the start of the JVM and that of the session, and the package is not fetched. `import delta`
finds our modules, unless delta-spark is installed. A Connect server that is started here gives Delta to its clients.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from headwater._version import __version__
from headwater.spark.jvm import jvm_of_gateway
from headwater.sql.enable import enable, prepare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from pyspark.sql import SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG_CLASS = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_JAR_PACKAGES = "spark.jars.packages"
_MARK = "_headwater_installed"


def install() -> None:
    """Enable every session that this process starts from now on, and serve `import delta`.

    Call it before the first session: the builder settings for delta-spark then work without its JARs. A session that
    runs already is enabled at once. Calling it again does nothing.

    Example:
        >>> hw.install()  # doctest: +SKIP
        >>> from delta import DeltaTable  # doctest: +SKIP
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    serve_delta_modules()
    if getattr(SparkSession, _MARK, False):
        return
    start, launch = SparkSession.__init__, SparkContext._ensure_initialized.__func__  # type: ignore[attr-defined]

    @functools.wraps(start)
    def start_enabled(self: Any, sparkContext: Any, jsparkSession: Any = None, options: Any = None) -> None:
        if jsparkSession is None:
            prepare(jvm_of_gateway(sparkContext._gateway))
        start(self, sparkContext, jsparkSession, options or {})
        if jsparkSession is None:
            enable(self)

    @functools.wraps(launch)
    def launch_without_delta(cls: Any, instance: Any = None, gateway: Any = None, conf: Any = None) -> None:
        if conf is not None:
            _drop_delta_package(conf)
        launch(cls, instance, gateway, conf)

    SparkSession.__init__ = start_enabled  # type: ignore[method-assign]
    SparkContext._ensure_initialized = classmethod(launch_without_delta)  # type: ignore[method-assign, assignment]
    setattr(SparkSession, _MARK, True)
    running = SparkSession.getActiveSession()
    if running is not None:
        enable(running)


def _drop_delta_package(conf: Any) -> None:
    """Remove delta-spark from the packages that Spark would fetch; its classes would stand in the way of ours."""
    packages = conf.get(_JAR_PACKAGES, None)
    if packages:
        kept = [package for package in packages.split(",") if not package.strip().startswith("io.delta:")]
        conf.set(_JAR_PACKAGES, ",".join(kept))


def builder() -> SparkSession.Builder:
    """Return a builder of Spark sessions that understand Delta.

    Example:
        >>> spark = hw.builder().appName("reports").getOrCreate()  # doctest: +SKIP
    """
    from pyspark.sql import SparkSession

    install()
    return SparkSession.builder


def configure_spark_with_delta_pip(
    spark_session_builder: SparkSession.Builder, extra_packages: Sequence[str] | None = None
) -> SparkSession.Builder:
    """Do what delta-spark's function of this name does: return a builder whose sessions understand Delta.

    Args:
        spark_session_builder: a `SparkSession.builder`.
        extra_packages: further packages for Spark to fetch; those of delta-spark are left out.

    Raises:
        TypeError: it is not a builder.
    """
    from pyspark.sql import SparkSession

    if not isinstance(spark_session_builder, SparkSession.Builder):
        raise TypeError(
            f"this function must be called with a SparkSession builder, not {type(spark_session_builder).__name__}"
        )
    install()
    kept = [package for package in extra_packages or () if not package.startswith("io.delta:")]
    return spark_session_builder.config(_JAR_PACKAGES, ",".join(kept)) if kept else spark_session_builder


# --- import delta ---------------------------------------------------------------------------------------

DELTA_VERSION = "4.4.0"
"""The version of delta-spark whose interface this is."""

_TABLES = {
    "DeltaTable": "headwater.api.delta_table",
    "DeltaTableBuilder": "headwater.api.table_builder",
    "DeltaMergeBuilder": "headwater.api.builders",
    "DeltaOptimizeBuilder": "headwater.api.builders",
    "IdentityGenerator": "headwater.api.table_builder",
}
_EXCEPTIONS = dict.fromkeys(
    (
        "DeltaConcurrentModificationException",
        "ConcurrentWriteException",
        "MetadataChangedException",
        "ProtocolChangedException",
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentTransactionException",
    ),
    "headwater.errors",
)
_CONFIGURE = {"configure_spark_with_delta_pip": __name__}
_MODULES: Mapping[str, Mapping[str, str]] = {
    "delta": {"DeltaTable": _TABLES["DeltaTable"], **_CONFIGURE},
    "delta.tables": _TABLES,
    "delta.exceptions": _EXCEPTIONS,
    "delta.exceptions.base": _EXCEPTIONS,
    "delta.pip_utils": _CONFIGURE,
    "delta.version": {},
    "delta.connect": {},
    "delta.connect.tables": _TABLES,
    "delta.connect.exceptions": _EXCEPTIONS,
}
"""The names in each module, and where ours are."""
_PACKAGES = frozenset({"delta", "delta.exceptions", "delta.connect"})


class _DeltaFinder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname not in _MODULES:
            return None
        return ModuleSpec(fullname, self, origin="headwater", is_package=fullname in _PACKAGES)

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"The module {module.__name__}, served by Headwater {__version__}."
        names = _MODULES[module.__name__]
        for name, home in names.items():
            setattr(module, name, getattr(importlib.import_module(home), name))
        module.__dict__["__version__"] = DELTA_VERSION
        module.__dict__["__all__"] = [*names, "__version__"]


def serve_delta_modules() -> bool:
    """Let `import delta` find our modules; False if delta-spark, or something else called so, is installed."""
    finders: list[Any] = sys.meta_path
    if any(isinstance(finder, _DeltaFinder) for finder in finders):
        return True
    if importlib.util.find_spec("delta") is not None:
        return False
    finders.append(_DeltaFinder())
    return True


# --- Spark Connect -------------------------------------------------------------------------------------

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"


@dataclass(frozen=True)
class ConnectServer:
    """A running server."""

    spark: SparkSession
    port: int

    def stop(self) -> None:
        self.spark.stop()


def start_connect_server(host: str, port: int, conf: Mapping[str, str] | None = None) -> ConnectServer:
    """Start a session that serves Spark Connect, with Delta enabled.

    Args:
        host: the address to listen on.
        port: the port; 0 for a free one.
        conf: further Spark configuration.
    """
    from pyspark.sql import SparkSession

    install()
    given = dict(conf or {})
    plugins = ",".join(filter(None, (given.pop("spark.plugins", ""), _PLUGIN)))
    settings = {
        "spark.plugins": plugins,
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG_CLASS,
        **given,
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = enable(builder.getOrCreate())
    service = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService  # type: ignore[union-attr]
    return ConnectServer(spark, int(service.localPort()))
