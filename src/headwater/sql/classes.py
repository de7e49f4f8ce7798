"""Compile the Java classes of `java/`, keep them in the user's cache, and define them in a running JVM.

Spark finds data sources, catalogs and session extensions by class name. Ours are Java text that Janino, the compiler
of Spark's generated code, compiles when a session is enabled; the bytes are kept by the versions of Spark and Java and
by the text, so the next process only defines them. Executors never see these classes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
from base64 import b64decode, b64encode
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import SessionError

if TYPE_CHECKING:
    from headwater.spark.jvm import Jvm

_UNITS = (
    "Python",
    "Failure",
    "DeltaTable",
    "DeltaCatalog",
    "DeltaSource",
    "DeltaCommand",
    "CommandRule",
    "ScanRule",
    "DeltaParser",
    "Session",
    "Plans",
    "Catalogs",
)
_CLASS = re.compile(r"^(?:public |final |abstract )*(?:class|interface) (\w+)", re.M)
_CONNECTOR = "org/apache/spark/sql/connector/catalog"
_NAMED_SOURCES = ("delta", "DELTA", "Delta")
"""`format("delta")` looks for a class `delta.DefaultSource`, in the spelling that the user gave."""

_DELTA_SPARK = "org/apache/spark/sql/delta/DeltaLog.class"
_PROPERTY = "headwater.classes"
_MAX_CACHE_BYTES = 4 * 2**20


def define_classes(jvm: Jvm) -> None:
    """Define our classes in the JVM, unless an earlier session has done so.

    Raises:
        SessionError: the classes of delta-spark, or of another version of Headwater, are there already.
    """
    system = jvm.static("java.lang.System")
    loader = jvm.call("org.apache.spark.util.Utils", "getSparkClassLoader")
    texts = _texts(loader)
    key = _key(jvm, texts)
    defined = system.getProperty(_PROPERTY)
    if defined == key:
        return
    if defined is not None:
        raise SessionError(
            "this JVM has the classes of another version of Headwater. Restart the Python process, then enable again."
        )
    if loader.getResource(_DELTA_SPARK) is not None:
        raise SessionError(
            "delta-spark is on Spark's class path, and only one of the two can serve format('delta'). Remove its JAR "
            "(spark.jars, spark.jars.packages or the jars directory of Spark), or use delta-spark without hw.enable."
        )
    cache = _cache_file(key)
    classes = _cached(cache)
    if classes is None:
        classes = _compiled(jvm, loader, texts)
        _keep(cache, classes)
    _define(jvm, loader, classes)
    system.setProperty(_PROPERTY, key)


def _texts(loader: Any) -> dict[str, str]:
    """Return the Java text of each unit, superclasses first, with the variants that fit this version of Spark."""
    has_create_like = loader.getResource(f"{_CONNECTOR}/TableCatalog.class") is not None and _has_create_like(loader)
    has_overwrite = loader.getResource(f"{_CONNECTOR}/SupportsV1OverwriteWithSaveAsTable.class") is not None
    catalog = "compat/CatalogWithCreateLike.java" if has_create_like else "compat/CatalogBefore43.java"
    source = "compat/OverwritingSource.java" if has_overwrite else "compat/PlainSource.java"
    units = {"SessionCatalogExtension": _resource(catalog), "TableSource": _resource(source)}
    units |= {name: _resource(f"{name}.java") for name in _UNITS}
    for package in _NAMED_SOURCES:
        units[f"{package}.DefaultSource"] = (
            f"package {package};\npublic class DefaultSource extends headwater.DeltaSource {{}}\n"
        )
    units["DeltaSparkSessionExtension"] = (
        "package io.delta.sql;\n"
        "public class DeltaSparkSessionExtension extends scala.runtime.AbstractFunction1 {\n"
        "    public Object apply(Object extensions) {\n"
        "        headwater.Session.extend((org.apache.spark.sql.SparkSessionExtensions) extensions);\n"
        "        return scala.runtime.BoxedUnit.UNIT;\n"
        "    }\n"
        "}\n"
    )
    units["delta.catalog.DeltaCatalog"] = (
        "package org.apache.spark.sql.delta.catalog;\npublic class DeltaCatalog extends headwater.DeltaCatalog {}\n"
    )
    return units


def _has_create_like(loader: Any) -> bool:
    methods = loader.loadClass("org.apache.spark.sql.connector.catalog.TableCatalog").getMethods()
    return any(method.getName() == "createTableLike" for method in methods)


def _resource(name: str) -> str:
    return files(__package__).joinpath("java", *name.split("/")).read_text(encoding="utf-8")


def _key(jvm: Jvm, texts: dict[str, str]) -> str:
    spark = jvm.call("org.apache.spark.package", "SPARK_VERSION")
    java = jvm.static("java.lang.System").getProperty("java.specification.version")
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
    return f"spark-{spark}-java-{java}-{digest[:32]}"


# --- compiling ----------------------------------------------------------------------------------------


def _compiled(jvm: Jvm, loader: Any, texts: dict[str, str]) -> dict[str, bytes]:
    commons = "org.codehaus.commons.compiler.util.resource"
    resource_type = jvm.static("java.lang.Class").forName(f"{commons}.Resource", True, loader)
    sources = jvm.static("java.lang.reflect.Array").newInstance(resource_type, len(texts))
    for i, (name, text) in enumerate(texts.items()):
        sources[i] = jvm.static(f"{commons}.StringResource")(f"{name}.java", text)
    compiler = jvm.static("org.codehaus.janino.Compiler")()
    compiler.setIClassLoader(jvm.static("org.codehaus.janino.ClassLoaderIClassLoader")(loader))
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    output = jvm.static(f"{commons}.MapResourceCreator")()
    compiler.setClassFileCreator(output)
    compiler.compile(sources)
    compiled = output.getMap()
    return {name: bytes(compiled.get(name.replace(".", "/") + ".class")) for name in _class_names(texts)}


def _class_names(texts: dict[str, str]) -> list[str]:
    """Return the names of all classes in the order of the texts: Java defines a superclass before its subclasses."""
    names = []
    for text in texts.values():
        package = re.search(r"^package ([\w.]+);", text, re.M)
        assert package is not None
        names += [f"{package[1]}.{name}" for name in _CLASS.findall(text)]
    return names


def _define(jvm: Jvm, loader: Any, classes: dict[str, bytes]) -> None:
    """Define the classes in Spark's own loader, where every thread finds them by name; a superclass comes first."""
    class_class = jvm.static("java.lang.Class")
    types = jvm.gateway.new_array(class_class, 4)
    types[0] = class_class.forName("java.lang.String")
    types[1] = class_class.forName("[B")
    types[2] = types[3] = jvm.static("java.lang.Integer").TYPE
    define = class_class.forName("java.lang.ClassLoader").getDeclaredMethod("defineClass", types)
    define.setAccessible(True)
    for name, code in classes.items():
        arguments = jvm.gateway.new_array(jvm.static("java.lang.Object"), 4)
        arguments[0], arguments[1], arguments[2], arguments[3] = name, code, 0, len(code)
        define.invoke(loader, arguments)


# --- the cache ----------------------------------------------------------------------------------------


def cache_directory() -> Path:
    """Return the directory for what can be made again: `$XDG_CACHE_HOME/headwater`, or `~/.cache/headwater`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headwater"


def _cache_file(key: str) -> Path:
    return cache_directory() / "classes" / f"{key}.json"


def _cached(path: Path) -> dict[str, bytes] | None:
    """Return the kept classes; None if there are none, or if somebody else could have changed them."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_CACHE_BYTES or not _is_private(status):
                return None
            content = file.read()
    except OSError:
        return None
    digest, _, body = content.partition(b"\n")
    if digest.decode("ascii", "replace") != hashlib.sha256(body).hexdigest():
        return None
    return {name: b64decode(code) for name, code in json.loads(body).items()}


def _is_private(status: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def _keep(path: Path, classes: dict[str, bytes]) -> None:
    """Write the classes for the next process; a machine without a place for them compiles again."""
    body = json.dumps({name: b64encode(code).decode("ascii") for name, code in classes.items()}).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
    except OSError:
        return
