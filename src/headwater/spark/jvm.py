"""The JVM as this room uses it: class lookups that are kept, Scala collections, Catalyst expressions.

A py4j call costs 0.1 ms and a dotted class name ten times that, so classes, their methods and whatever else never
changes are looked up once per gateway.
What is many (files, partition values, bitmaps) never crosses one by one: see `headwater.spark.bulk`.
"""

from __future__ import annotations

import json
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

JavaObject = Any
"""A reference to an object on the JVM."""

CATALYST = "org.apache.spark.sql.catalyst"
EXPRESSIONS = f"{CATALYST}.expressions"
DATASOURCES = "org.apache.spark.sql.execution.datasources"

_MAX_KEPT = 1_000
_JVMS: weakref.WeakKeyDictionary[Any, Jvm] = weakref.WeakKeyDictionary()


def jvm_of(spark: SparkSession) -> Jvm:
    """The JVM behind a classic session."""
    gateway = spark.sparkContext._gateway
    found = _JVMS.get(gateway)
    if found is None:
        found = _JVMS[gateway] = Jvm(gateway)
    return found


class Jvm:
    """One gateway's JVM, with the classes that were looked up on it."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = weakref.ref(gateway)
        self._statics: dict[str, JavaObject] = {}
        self._methods: dict[tuple[str, str], JavaObject] = {}
        self._kept: dict[str, JavaObject] = {}

    @property
    def gateway(self) -> Any:
        """The py4j gateway."""
        gateway = self._gateway()
        assert gateway is not None, "the gateway is gone, and Spark with it"
        return gateway

    def start_callbacks(self) -> None:
        """Let the JVM call Python objects; the same server that `foreachBatch` starts and uses."""
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self.gateway)

    # --- classes ----------------------------------------------------------------------------------------

    def static(self, name: str) -> JavaObject:
        """A class for its constructor and its static methods: `static("java.util.ArrayList")()`."""
        found = self._statics.get(name)
        if found is None:
            from py4j.java_gateway import JavaClass

            found = self._statics[name] = JavaClass(name, self.gateway._gateway_client)
        return found

    def call(self, class_name: str, method: str, *arguments: object) -> JavaObject:
        """Call a static method, or one of a Scala object."""
        found = self._methods.get((class_name, method))
        if found is None:
            found = self._methods[class_name, method] = getattr(self.static(class_name), method)
        return found(*arguments)

    def kept(self, key: str, make: Callable[[], JavaObject]) -> JavaObject:
        """What `make` gives, made once: for objects that never change."""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[key] = make()
        return found

    def java_class(self, name: str) -> JavaObject:
        """The `java.lang.Class`, found by the class loader that Spark itself uses."""
        return self.kept(
            f"class {name}", lambda: self.call("org.apache.spark.util.Utils", "classForName", name, True, False)
        )

    # --- Scala ------------------------------------------------------------------------------------------

    def seq(self, *items: object) -> JavaObject:
        """An immutable Scala `Seq` of a few things."""
        if not items:
            return self.kept("Seq()", lambda: self._seq([]))
        return self._seq(list(items))

    def _seq(self, items: list[object]) -> JavaObject:
        return self.call("scala.jdk.javaapi.CollectionConverters", "asScala", items).toSeq()

    def map(self, entries: dict[str, str]) -> JavaObject:
        """An immutable Scala `Map`."""
        return self.call("org.apache.spark.api.python.PythonUtils", "toScalaMap", entries)

    @property
    def none(self) -> JavaObject:
        """Scala's `None`."""
        return self.kept("None", lambda: self.call("scala.Option", "empty"))

    # --- Catalyst ---------------------------------------------------------------------------------------

    def data_type(self, json_value: object) -> JavaObject:
        """A Catalyst `DataType` from its JSON value: a name, or the dictionary of a struct, array or map."""
        text = json.dumps(json_value)
        return self.kept(f"type {text}", lambda: self.call("org.apache.spark.sql.types.DataType", "fromJson", text))

    def object_type(self, class_name: str) -> JavaObject:
        """The Catalyst type of a JVM object."""
        make = self.static("org.apache.spark.sql.types.ObjectType")
        return self.kept(f"object {class_name}", lambda: make(self.java_class(class_name)))

    def expression(self, name: str, *arguments: object) -> JavaObject:
        """Any Catalyst expression by its class name below `catalyst.expressions`."""
        return self.static(f"{EXPRESSIONS}.{name}")(*arguments)

    def literal(self, value: object, type_: JavaObject) -> JavaObject:
        """A Catalyst literal."""
        if isinstance(value, str):
            value = self.call("org.apache.spark.unsafe.types.UTF8String", "fromString", value)
        return self.expression("Literal", value, type_)

    def new(self, class_name: str, *arguments: JavaObject) -> JavaObject:
        """The expression `new class_name(arguments)`."""
        return self.expression(
            "objects.NewInstance",
            self.java_class(class_name),
            self.seq(*arguments),
            self.seq(),
            False,
            self.object_type(class_name),
            self.none,
        )

    def invoke(self, target: JavaObject, method: str, type_: JavaObject, *arguments: JavaObject) -> JavaObject:
        """The expression `target.method(arguments)`, null where the target or an argument is null."""
        return self.expression(
            "objects.Invoke", target, method, type_, self.seq(*arguments), self.seq(), True, True, True
        )

    def static_invoke(self, class_name: str, method: str, type_: JavaObject, *arguments: JavaObject) -> JavaObject:
        """The expression `class_name.method(arguments)`."""
        return self.expression(
            "objects.StaticInvoke",
            self.java_class(class_name),
            type_,
            method,
            self.seq(*arguments),
            self.seq(),
            True,
            True,
            True,
            self.none,
        )

    def function(self, expression: JavaObject) -> JavaObject:
        """A Scala function from `InternalRow` to what the bound expression gives.

        Spark's encoders use this class to turn rows into the user's objects; it compiles the expression.
        """
        deserializer = self.static(f"{CATALYST}.encoders.ExpressionEncoder$Deserializer")
        return deserializer(self.seq(expression))

    def column(self, expression: JavaObject) -> Any:
        """A PySpark `Column` of an expression."""
        from pyspark.sql.classic.column import Column

        return Column(self.call("org.apache.spark.sql.classic.ExpressionUtils", "column", expression))
