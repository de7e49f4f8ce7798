"""The JVM as this room uses it: class lookups that are kept, Scala collections, Catalyst expressions.

A py4j call costs 0.1 ms and a dotted class name ten times that, so classes are looked up once per gateway.
What is many (files, partition values, bitmaps) never crosses one by one: see `headwater.spark.bulk`.
"""

from __future__ import annotations

import json
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JavaObject = Any
"""A reference to an object on the JVM."""

CATALYST = "org.apache.spark.sql.catalyst"
EXPRESSIONS = f"{CATALYST}.expressions"
DATASOURCES = "org.apache.spark.sql.execution.datasources"

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
        self._classes: dict[str, JavaObject] = {}
        self._types: dict[str, JavaObject] = {}

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

    def java_class(self, name: str) -> JavaObject:
        """The `java.lang.Class`, found by the class loader that Spark itself uses."""
        found = self._classes.get(name)
        if found is None:
            utils = self.static("org.apache.spark.util.Utils")
            found = self._classes[name] = utils.classForName(name, True, False)
        return found

    # --- Scala ------------------------------------------------------------------------------------------

    def seq(self, *items: object) -> JavaObject:
        """An immutable Scala `Seq` of a few things."""
        return self.static("scala.jdk.javaapi.CollectionConverters").asScala(list(items)).toSeq()

    def map(self, entries: dict[str, str]) -> JavaObject:
        """An immutable Scala `Map`."""
        return self.static("org.apache.spark.api.python.PythonUtils").toScalaMap(entries)

    @property
    def none(self) -> JavaObject:
        """Scala's `None`."""
        return self.static("scala.Option").empty()

    # --- Catalyst ---------------------------------------------------------------------------------------

    def data_type(self, json_value: object) -> JavaObject:
        """A Catalyst `DataType` from its JSON value: a name, or the dictionary of a struct, array or map."""
        text = json.dumps(json_value)
        found = self._types.get(text)
        if found is None:
            found = self.static("org.apache.spark.sql.types.DataType").fromJson(text)
            if isinstance(json_value, str):
                self._types[text] = found
        return found

    def object_type(self, class_name: str) -> JavaObject:
        """The Catalyst type of a JVM object."""
        return self.static("org.apache.spark.sql.types.ObjectType")(self.java_class(class_name))

    def expression(self, name: str, *arguments: object) -> JavaObject:
        """Any Catalyst expression by its class name below `catalyst.expressions`."""
        return self.static(f"{EXPRESSIONS}.{name}")(*arguments)

    def literal(self, value: object, type_: JavaObject) -> JavaObject:
        """A Catalyst literal."""
        if isinstance(value, str):
            value = self.static("org.apache.spark.unsafe.types.UTF8String").fromString(value)
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

        return Column(self.static("org.apache.spark.sql.classic.ExpressionUtils").column(expression))
