"""Call Spark's JVM: cached class lookups, Scala collections, Catalyst expressions, callbacks, and rows in bulk.

A py4j call costs 0.1 ms and a dotted class name ten times that, so classes, their methods and whatever else never
changes are looked up once per gateway. Rows cross as one Arrow stream, which Spark turns into a local relation, as
`createDataFrame` does; an expression that constructs objects then runs over them on the JVM. So 100,000 files need a
dozen py4j calls, not a million. In the other direction, `Jvm.called_back` wraps a Python object that Spark calls.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession


JavaObject = Any

CATALYST = "org.apache.spark.sql.catalyst"
EXPRESSIONS = f"{CATALYST}.expressions"
DATASOURCES = "org.apache.spark.sql.execution.datasources"

_MAX_KEPT = 1_000
_PLAIN = (str, bytes, bool, int, float, Decimal, date, time, timedelta)
"""Types whose values `repr` describes completely."""
_NUMBERS = itertools.count(1)
_JVMS: weakref.WeakKeyDictionary[Any, Jvm] = weakref.WeakKeyDictionary()


class _Callee:
    """A Python object that Spark calls; keeps its last answer on each thread until the next call of that thread.

    An answer that is a JVM object is sent as its number. If Python dropped the object at once, py4j would tell the JVM
    so on another connection, sometimes before the answer is read, which then is null.
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
    return jvm_of_gateway(spark.sparkContext._gateway)


def jvm_of_gateway(gateway: Any) -> Jvm:
    found = _JVMS.get(gateway)
    if found is None:
        found = _JVMS[gateway] = Jvm(gateway)
    return found


def exact_key(*parts: object) -> str:
    """Return a short text that is equal for equal values only: what plans are compared by.

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
    """Return what a value consists of; None for one that has no parts."""
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
    """Replace user-defined types in the JSON of a type by their storage types, except the few of Spark itself.

    The JVM would load and construct whatever class the JSON names, and a table must not decide that.

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
    """The JVM of one gateway, with the classes that were looked up on it."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = weakref.ref(gateway)
        self._statics: dict[str, JavaObject] = {}
        self._methods: dict[tuple[str, str], JavaObject] = {}
        self._kept: dict[str, JavaObject] = {}
        self._compiled: dict[str, JavaObject] = {}

    @property
    def gateway(self) -> Any:
        gateway = self._gateway()
        assert gateway is not None, "the gateway is gone, and Spark with it"
        return gateway

    def start_callbacks(self) -> None:
        """Let the JVM call Python objects, by the server that `foreachBatch` uses too."""
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self.gateway)  # type: ignore[no-untyped-call]

    def called_back(self, target: object, name: str | None = None, key: str | None = None) -> JavaObject:
        """Return a JVM object through which Spark calls a Python object, and which keeps that object alive.

        Args:
            target: the object, with the interfaces that it implements in its class `Java`.
            name: its text in plans.
            key: objects with equal keys are equal to Spark, which then takes one for the other. An object without a key
                is equal to itself alone.
        """
        from py4j.java_gateway import JavaObject as Reference

        server = self.kept("gateway server", lambda: Reference("GATEWAY_SERVER", self.gateway._gateway_client))
        callbacks = self.compiled("Callbacks", "org.apache.spark.sql.types.DataType")
        own = key if key is not None else f"{type(target).__name__} {next(_NUMBERS)}"
        callee = _Callee(target)
        return callbacks.create(server, callee, name if name is not None else type(target).__name__, own)

    def compiled(self, factory: str, beside: str) -> JavaObject:
        """Return the one object of a Java class that Janino, the compiler of Spark's generated code, has compiled.

        Args:
            factory: the class, which has a constructor without arguments: its source is among the resources here.
            beside: a class whose loader finds the others that the source names.
        """
        found = self._compiled.get(factory)
        if found is None:
            source = files(__package__).joinpath("resources", f"{factory}.java").read_text(encoding="utf-8")
            compiler = self.static("org.codehaus.janino.SimpleCompiler")()
            compiler.setParentClassLoader(self.java_class(beside).getClassLoader())
            compiler.cook(source)
            found = self._compiled[factory] = compiler.getClassLoader().loadClass(f"headwater.{factory}").newInstance()
        return found

    # --- classes ----------------------------------------------------------------------------------------

    def static(self, name: str) -> JavaObject:
        """Return a class for its constructor and its static methods: `static("java.util.ArrayList")()`."""
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
        """Return what `make` gives, made once: for objects that never change."""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[key] = make()
        return found

    def java_class(self, name: str) -> JavaObject:
        """Return the `java.lang.Class`, found by the class loader that Spark itself uses."""
        return self.kept(
            f"class {name}", lambda: self.call("org.apache.spark.util.Utils", "classForName", name, True, False)
        )

    # --- Scala ------------------------------------------------------------------------------------------

    def seq(self, *items: object) -> JavaObject:
        """Return an immutable Scala `Seq` of a few items."""

        def make() -> JavaObject:
            return self.call("scala.jdk.javaapi.CollectionConverters", "asScala", list(items)).toSeq()

        return make() if items else self.kept("Seq()", make)

    def map(self, entries: dict[str, str]) -> JavaObject:
        return self.call("org.apache.spark.api.python.PythonUtils", "toScalaMap", entries)

    @property
    def none(self) -> JavaObject:
        return self.kept("None", lambda: self.call("scala.Option", "empty"))

    # --- Catalyst ---------------------------------------------------------------------------------------

    def data_type(self, json_value: object) -> JavaObject:
        """Return a Catalyst `DataType` from its JSON value: a name, or the dictionary of a struct, array or map."""
        text = stored_types(json.dumps(json_value))
        return self.kept(f"type {text}", lambda: self.call("org.apache.spark.sql.types.DataType", "fromJson", text))

    def object_type(self, class_name: str) -> JavaObject:
        make = self.static("org.apache.spark.sql.types.ObjectType")
        return self.kept(f"object {class_name}", lambda: make(self.java_class(class_name)))

    def expression(self, name: str, *arguments: object) -> JavaObject:
        """Return a Catalyst expression by its class name below `catalyst.expressions`."""
        return self.static(f"{EXPRESSIONS}.{name}")(*arguments)

    def literal(self, value: object, type_: JavaObject) -> JavaObject:
        if isinstance(value, str):
            value = self.call("org.apache.spark.unsafe.types.UTF8String", "fromString", value)
        return self.expression("Literal", value, type_)

    def new(self, class_name: str, *arguments: JavaObject) -> JavaObject:
        """Return the expression `new class_name(arguments)`."""
        class_, type_ = self.java_class(class_name), self.object_type(class_name)
        given = self.seq(*arguments)
        return self.expression("objects.NewInstance", class_, given, self.seq(), False, type_, self.none)

    def invoke(self, target: JavaObject, method: str, type_: JavaObject, *arguments: JavaObject) -> JavaObject:
        """Return the expression `target.method(arguments)`, null where the target or an argument is null."""
        given = self.seq(*arguments)
        return self.expression("objects.Invoke", target, method, type_, given, self.seq(), True, True, True)

    def static_invoke(self, class_name: str, method: str, type_: JavaObject, *arguments: JavaObject) -> JavaObject:
        """Return the expression `class_name.method(arguments)`."""
        flags = (True, True, True)
        given = self.seq(*arguments), self.seq()
        return self.expression(
            "objects.StaticInvoke", self.java_class(class_name), type_, method, *given, *flags, self.none
        )

    def function(self, expression: JavaObject) -> JavaObject:
        """Return a Scala function from `InternalRow` to the value of the bound expression, compiled as by Spark's
        encoders.
        """
        deserializer = self.static(f"{CATALYST}.encoders.ExpressionEncoder$Deserializer")
        return deserializer(self.seq(expression))

    def column(self, expression: JavaObject) -> Any:
        from pyspark.sql.classic.column import Column

        return Column(self.call("org.apache.spark.sql.classic.ExpressionUtils", "column", expression))


_UTILS = "org.apache.spark.sql.api.python.PythonSQLUtils"
_MAX_CHUNK_BYTES = 32 * 2**20
"""Spark limits the size of a local relation; our own session sets the limit to twice this."""


def rows(spark: SparkSession, table: pa.Table, schema_json: str) -> JavaObject:
    """Return the rows of an Arrow table as a Scala `Seq[InternalRow]`.

    Args:
        spark: a classic session.
        table: its column types are those that Spark itself would use for the schema.
        schema_json: the Spark schema of the table, as JSON.
    """
    session = _private_session(spark)
    schema_json = stored_types(schema_json)
    chunk_count = 1 + table.nbytes // _MAX_CHUNK_BYTES
    step = -(-table.num_rows // chunk_count) or 1
    result = None
    for start in range(0, table.num_rows or 1, step):
        chunk = _rows_of_one_chunk(spark, session, table.slice(start, step), schema_json)
        result = chunk if result is None else result.concat(chunk)
    return result


def _rows_of_one_chunk(spark: SparkSession, session: JavaObject, table: pa.Table, schema_json: str) -> JavaObject:
    import pyarrow as pa

    jvm = jvm_of(spark)
    descriptor, path = tempfile.mkstemp(prefix="headwater-", suffix=".arrow")
    try:
        with os.fdopen(descriptor, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        batches = jvm.call(_UTILS, "readArrowStreamFromFile", path)
    finally:
        os.unlink(path)
    plan = jvm.call(_UTILS, "toDataFrame", batches, schema_json, session).queryExecution().analyzed()
    return plan.data()


def _private_session(spark: SparkSession) -> JavaObject:
    """Return a session of our own on the same context: the user's settings must not change the transport."""
    context: Any = spark.sparkContext
    session = getattr(context, "_headwater_session", None)
    if session is None:
        session = spark._jsparkSession.newSession()
        session.conf().set("spark.sql.execution.arrow.localRelationThreshold", f"{2 * _MAX_CHUNK_BYTES}b")
        context._headwater_session = session
    return session
