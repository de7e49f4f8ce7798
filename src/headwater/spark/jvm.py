"""The JVM as this room uses it: class lookups that are kept, Scala collections, Catalyst expressions.

A py4j call costs 0.1 ms and a dotted class name ten times that, so classes, their methods and whatever else never
changes are looked up once per gateway.
What is many (files, partition values, bitmaps) never crosses one by one: see `headwater.spark.bulk`.

The way back is here too: an object of Python that Spark shall call (`Jvm.called_back`) stands behind a small class of
the JVM, which knows what the object is equal to, and hangs up after a call from a thread that had no line before.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import weakref
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

JavaObject = Any
"""A reference to an object on the JVM."""

CATALYST = "org.apache.spark.sql.catalyst"
EXPRESSIONS = f"{CATALYST}.expressions"
DATASOURCES = "org.apache.spark.sql.execution.datasources"

_MAX_KEPT = 1_000
_CALLBACKS = "headwater.Callbacks"
_CALLBACKS_SOURCE = """
package headwater;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import py4j.ClientServerConnection;
import py4j.GatewayServer;
import py4j.PythonClient;

final class Callback implements InvocationHandler {
    private final GatewayServer server;
    private final InvocationHandler python;
    private final String name;
    private final String key;

    Callback(GatewayServer server, InvocationHandler python, String name, String key) {
        this.server = server;
        this.python = python;
        this.name = name;
        this.key = key;
    }

    public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
        if (method.getDeclaringClass() == Object.class) {
            String asked = method.getName();
            return asked.equals("equals") ? (Object) Boolean.valueOf(self == arguments[0] || isSame(arguments[0]))
                : asked.equals("hashCode") ? (Object) Integer.valueOf(key.hashCode()) : name;
        }
        Object found = server.getCallbackClient();
        PythonClient client = found instanceof PythonClient ? (PythonClient) found : null;
        boolean isNewLine = client != null && client.getPerThreadConnection() == null;
        try {
            return python.invoke(self, method, arguments);
        } finally {
            if (isNewLine) {
                hangUp(client);
            }
        }
    }

    private boolean isSame(Object other) {
        if (other == null || !Proxy.isProxyClass(other.getClass())) {
            return false;
        }
        InvocationHandler handler = Proxy.getInvocationHandler(other);
        return handler instanceof Callback && key.equals(((Callback) handler).key);
    }

    private static void hangUp(PythonClient client) {
        ClientServerConnection line = client.getPerThreadConnection();
        if (line != null) {
            client.setPerThreadConnection(null);
            client.connectionStopped(line);
            line.shutdown();
        }
    }
}

public final class Callbacks {
    public Object create(GatewayServer server, Object python, String name, String key) {
        Class type = python.getClass();
        Callback handler = new Callback(server, Proxy.getInvocationHandler(python), name, key);
        return Proxy.newProxyInstance(type.getClassLoader(), type.getInterfaces(), handler);
    }
}
"""
"""A thread of the JVM that calls Python gets a line of its own, and a thread of Python at its other end; py4j keeps
both for as long as the JVM runs. Spark plans on a new thread for every exchange: each query would leave some behind."""
_PLAIN = (str, bytes, bool, int, float, Decimal, date, time, timedelta)
"""Values of which Python's `repr` says all, beside their type."""
_NUMBERS = itertools.count(1)
_JVMS: weakref.WeakKeyDictionary[Any, Jvm] = weakref.WeakKeyDictionary()


class _Callee:
    """A Python object that Spark calls; keeps its last answer on each thread until the next call of that thread.

    An answer that is an object of the JVM goes there as its number. Were Python to drop the object right away, py4j
    would tell the JVM so on another line, and sometimes before the answer is read: which then is null.
    """

    _last = threading.local()

    def __init__(self, target: object) -> None:
        self._target = target
        self.Java = target.Java  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._target, name)

        def call(*arguments: Any) -> Any:
            answer = method(*arguments)
            self._last.answer = answer
            return answer

        return call


def jvm_of(spark: SparkSession) -> Jvm:
    """The JVM behind a classic session."""
    gateway = spark.sparkContext._gateway
    found = _JVMS.get(gateway)
    if found is None:
        found = _JVMS[gateway] = Jvm(gateway)
    return found


def exact_key(*parts: object) -> str:
    """A short text that is the same for the same values, and for no others: what plans are compared by.

    The texts of queries and filters are for people, and different ones may read alike. Here every value counts with its
    type and its length. Values are what filters, queries, schemas and options are made of; trees may be deep.

    >>> exact_key("a b") == exact_key("a", "b"), exact_key(1) == exact_key(True), exact_key(("a",)) == exact_key(("a",))
    (False, False, True)
    """
    digest = hashlib.sha256()
    pending: list[object] = [parts]
    while pending:
        value = pending.pop()
        inner = _members(value)
        text = repr(value) if inner is None else str(len(inner))
        digest.update(f"{type(value).__name__} {len(text)} {text}\n".encode("utf-8", "surrogatepass"))
        pending.extend(inner or ())
    return digest.hexdigest()


def _members(value: object) -> Sequence[object] | None:
    """What a value is made of; None for one that has no parts."""
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, Mapping):
        return [item for key in sorted(value) for item in (key, value[key])]
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    assert value is None or isinstance(value, _PLAIN), f"{type(value)} has no exact key"
    return None


_OWN_CLASSES = frozenset(
    f"org.apache.spark.{ml}.linalg.{kind}UDT" for ml in ("ml", "mllib") for kind in ("Vector", "Matrix")
)


def stored_types(type_json: str) -> str:
    """The JSON of a type with user-defined types as what they are stored as, except the few of Spark itself.

    From the JSON the JVM would load and construct whatever class it names, and that a table must not decide.

    >>> stored_types('{"type": "array", "elementType": {"type": "udt", "class": "any.Class", "sqlType": "long"}}')
    '{"type": "array", "elementType": "long"}'
    """
    return json.dumps(_stored(json.loads(type_json))) if '"udt"' in type_json else type_json


def _stored(value: Any) -> Any:
    if isinstance(value, list):
        return [_stored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "udt" and value.get("class") not in _OWN_CLASSES:
        return _stored(value.get("sqlType"))
    return {key: item if key == "metadata" else _stored(item) for key, item in value.items()}


class Jvm:
    """One gateway's JVM, with the classes that were looked up on it."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = weakref.ref(gateway)
        self._statics: dict[str, JavaObject] = {}
        self._methods: dict[tuple[str, str], JavaObject] = {}
        self._kept: dict[str, JavaObject] = {}
        self._compiled: dict[str, JavaObject] = {}

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

    def called_back(self, target: object, name: str | None = None, key: str | None = None) -> JavaObject:
        """What Spark gets of a Python object that it shall call. It keeps the object for as long as it lives itself.

        Args:
            target: the object, with the interfaces that it implements in its class `Java`.
            name: its text in plans.
            key: says exactly what it is: objects with equal keys are equal to Spark, which then takes one for the
                other. An object without a key is equal to itself alone.
        """
        from py4j.java_gateway import JavaObject as Reference

        server = self.kept("gateway server", lambda: Reference("GATEWAY_SERVER", self.gateway._gateway_client))
        callbacks = self.compiled(_CALLBACKS, _CALLBACKS_SOURCE, "org.apache.spark.sql.types.DataType")
        own = key if key is not None else f"{type(target).__name__} {next(_NUMBERS)}"
        callee = _Callee(target)
        return callbacks.create(server, callee, name if name is not None else type(target).__name__, own)

    def compiled(self, factory: str, source: str, beside: str) -> JavaObject:
        """An object of a class that Janino compiles, the compiler with which Spark generates code; made once.

        Args:
            factory: the class, which has a constructor without arguments.
            source: Java text with all its classes: no generics, no lambdas.
            beside: a class whose loader finds the others that the text names.
        """
        found = self._compiled.get(factory)
        if found is None:
            compiler = self.static("org.codehaus.janino.SimpleCompiler")()
            compiler.setParentClassLoader(self.java_class(beside).getClassLoader())
            compiler.cook(source)
            found = self._compiled[factory] = compiler.getClassLoader().loadClass(factory).newInstance()
        return found

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
        text = stored_types(json.dumps(json_value))
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
