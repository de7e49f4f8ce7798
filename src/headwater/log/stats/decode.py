"""Decode the statistics of single leaves from JSON text (spec: "Per-file Statistics").

A decoder is generated for the leaves of a filter: msgspec builds those and skips the rest of the text, and many texts
are decoded in one call. Columns with a quote, a backslash or a control character in their names have no known
statistics, because msgspec does not find such names.
"""

from __future__ import annotations

import re
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.files import arrow as build
from headwater.log.schema import DOUBLE, ArrayType, MapType, UserDefinedType, is_string
from headwater.log.stats.values import comparable_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.schema import DataType, StructField

_UNFINDABLE = re.compile(r'["\\\x00-\x1f]')
_NEWLINE = build.strings(["\n"])[0]
_PARTS = {"bounds": {"minValues": "min_values", "maxValues": "max_values"}, "counts": {"nullCount": "null_count"}}
"""The objects in the text that hold a value for each leaf, and their names here."""


class Leaf(NamedTuple):
    """A column without fields of its own, by its physical path, with its Delta type."""

    path: tuple[str, ...]
    type: DataType
    was_float: bool = False
    """It is a double now and was a float: some bounds are texts of floats (spec: "Type Widening")."""
    column: int = -1
    """Its position among the columns of a Parquet file, the first one if it has several; -1 outside of files."""

    @property
    def has_bounds(self) -> bool:
        """Whether writers keep bounds of it, and do not only count its nulls."""
        target = comparable_type(self.type)
        return is_string(self.type) or (target is not None and is_bounded(target))

    @property
    def counts_nulls(self) -> bool:
        """Whether a footer counts its nulls: of arrays and maps it does not tell nulls from empty ones."""
        return not isinstance(self.type, ArrayType | MapType | UserDefinedType)

    @classmethod
    def of(cls, path: tuple[str, ...], field: StructField) -> Leaf:
        """Return the leaf for a field of the schema.

        >>> from headwater.log.schema import DOUBLE, StructField
        >>> history = [{"fromType": "float", "toType": "double"}]
        >>> Leaf.of(("x",), StructField("x", DOUBLE, metadata={"delta.typeChanges": history})).was_float
        True
        """
        changes = field.metadata.get("delta.typeChanges") if field.type == DOUBLE else None
        recorded = changes if isinstance(changes, list | tuple) else ()
        was_float = any(isinstance(change, dict) and change.get("fromType") == "float" for change in recorded)
        return cls(path, field.type, was_float)


class StatsDecoder:
    """A generated decoder that builds only some leaves and skips the rest of the text.

    A text that does not decode (it is damaged, or a value has another type than the column) is decoded again
    leniently, alone, and the leaves that fit are kept.
    """

    def __init__(self, leaves: Sequence[Leaf], content: Literal["bounds", "counts"]) -> None:
        found = [leaf for leaf in leaves if not any(_UNFINDABLE.search(part) for part in leaf.path)]
        self._types = {leaf.path: _json_type(leaf.type) if content == "bounds" else int for leaf in found}
        nested = _nested_struct("Values", self._types)
        self._parts = _PARTS[content]
        fields: list[tuple[str, Any, Any]] = [(name, nested | None, nested()) for name in self._parts.values()]
        if content == "counts":
            fields = [("num_records", int | None, None), *fields, ("tight_bounds", bool | None, None)]
        self._has_totals = content == "counts"
        self._type = msgspec.defstruct("Stats", fields, rename="camel", frozen=True, gc=False)
        self._strict = msgspec.json.Decoder(self._type)
        self._lenient = msgspec.json.Decoder()
        self._attributes = [_attributes(leaf.path, found) if leaf in found else None for leaf in leaves]

    def decode(self, text: pa.Array) -> list[Any]:
        """Return one object for each text."""
        try:
            # One text a line, in one buffer, decoded in one call.
            lines = pc.binary_join_element_wise(text, _NEWLINE, build.EMPTY)
            rows = self._strict.decode_lines(_bytes_of(lines))
            if len(rows) == len(text):
                return rows
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        return [self._decode_one(t) for t in text.to_pylist()]

    def values(self, rows: list[Any], part: str, index: int) -> list[Any]:
        """Return the values of one leaf in `min_values`, `max_values` or `null_count`."""
        own = self._attributes[index]
        if own is None:
            return [None] * len(rows)
        attributes = [part, *own]
        try:
            return list(map(attrgetter(".".join(attributes)), rows))
        except AttributeError:  # an object on the path is null
            return [_reach(row, attributes) for row in rows]

    def _decode_one(self, text: str) -> Any:
        try:
            return self._strict.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        try:
            raw = self._lenient.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._type()
        return self._salvage(raw) if isinstance(raw, dict) else self._type()

    def _salvage(self, raw: dict[str, Any]) -> Any:
        """Keep the leaves that fit; the others are not known."""
        kept: dict[str, Any] = {}
        if self._has_totals:
            records, tight = raw.get("numRecords"), raw.get("tightBounds")
            kept["numRecords"] = records if type(records) is int else None
            kept["tightBounds"] = tight if isinstance(tight, bool) else None
        for part in self._parts:
            kept[part] = {}
            for path, type_ in self._types.items():
                value = raw.get(part)
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
                try:
                    value = msgspec.convert(value, type_ | None, strict=True)
                except (msgspec.ValidationError, ValueError):
                    continue
                inner = kept[part]
                for name in path[:-1]:
                    inner = inner.setdefault(name, {})
                inner[path[-1]] = value
        return msgspec.convert(kept, self._type)


def _reach(value: Any, attributes: list[str]) -> Any:
    for attribute in attributes:
        if value is None:
            return None
        value = getattr(value, attribute)
    return value


def _bytes_of(text: pa.Array) -> memoryview:
    """Return all text of an array, which starts at the beginning of its buffers, as one."""
    assert text.offset == 0, "made by a compute function"
    _, offsets, data = text.buffers()
    length = memoryview(offsets).cast("i")[len(text)] if len(text) else 0
    return memoryview(data)[:length] if length else memoryview(b"")


def _json_type(type_: DataType) -> Any:
    """Return the type of a bound in JSON."""
    target = comparable_type(type_)
    if target is None or not is_bounded(target):
        return msgspec.Raw
    if pa.types.is_decimal(target):
        return Decimal
    if pa.types.is_integer(target):
        return int
    if pa.types.is_floating(target):
        return float | str
    return bool if pa.types.is_boolean(target) else str


def is_bounded(target: pa.DataType) -> bool:
    """Return whether statistics hold bounds for values of this type."""
    return not pa.types.is_binary(target)


def _nested_struct(name: str, leaves: dict[tuple[str, ...], Any]) -> Any:
    """Generate a struct type for nested leaves; attributes are numbered because column names can be anything."""
    tops = list(dict.fromkeys(path[0] for path in leaves))
    fields: list[tuple[str, Any, Any]] = []
    for i, top in enumerate(tops):
        below = {path[1:]: type_ for path, type_ in leaves.items() if path[0] == top}
        inner = below[()] if () in below else _nested_struct(f"{name}{i}", below)
        fields.append((f"f{i}", inner | None, None))
    rename = {f"f{i}": top for i, top in enumerate(tops)}
    return msgspec.defstruct(name, fields, rename=rename, frozen=True, gc=False)


def _attributes(path: tuple[str, ...], leaves: Sequence[Leaf]) -> list[str]:
    """Return the generated attribute names along a path."""
    attributes = []
    paths = [leaf.path for leaf in leaves]
    for depth, part in enumerate(path):
        siblings = list(dict.fromkeys(p[depth] for p in paths if p[:depth] == path[:depth] and len(p) > depth))
        attributes.append(f"f{siblings.index(part)}")
    return attributes
