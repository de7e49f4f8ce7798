"""What a name in a query stands for: an index field, and inside a JSON field a path of keys with the type found there.

Arrays are looked through: a path into an array of structs means any of its elements.

>>> from headwater.log.schema import STRING
>>> from headwater.search.config import FieldConfig, IndexConfig
>>> config = IndexConfig((FieldConfig("attrs", "attrs", "json", STRING, tokenizer="default"),))
>>> find_target(config, "attrs.user.name").on
FieldPath(field='attrs', path=('user', 'name'))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from headwater.errors import SearchQueryError
from headwater.log.schema import ArrayType, MapType, StructType, UserDefinedType, is_string
from headwater.search.config import ARRAY_KEY, natural_kind
from headwater.search.query.tokens import split_unescaped
from headwater.search.query.tree import FieldPath

if TYPE_CHECKING:
    from headwater.log.schema import DataType
    from headwater.search.config import FieldConfig, IndexConfig

TargetKind: TypeAlias = Literal["text", "string", "ip", "i64", "f64", "bool", "any", "object", "stored"]
"""`any` is a place in JSON text, where every type can be; `object` has no value of its own, only keys."""


@dataclass(frozen=True, slots=True)
class Target:
    """A place whose values a leaf of the query looks at."""

    field: FieldConfig
    path: tuple[str, ...]
    kind: TargetKind
    data_type: DataType | None
    """None where only the value itself can tell."""

    @property
    def on(self) -> FieldPath:
        return FieldPath(self.field.name, self.path)

    @property
    def tokenizer(self) -> str:
        return self.field.tokenizer if self.kind in ("text", "any") else "raw"


def find_target(config: IndexConfig, name: str) -> Target:
    """Return the place that a (still escaped) name of a query means."""
    parts = split_unescaped(name, ".")
    most = 1 + max((field.name.count(".") for field in config.fields), default=0)  # no field's name has more parts
    for length in range(min(len(parts), most), 0, -1):
        field = config.find(".".join(parts[:length]))
        if field is not None and (length == len(parts) or field.kind == "json"):
            return target_of(field, tuple(parts[length:]))
    raise SearchQueryError(_unknown(config, ".".join(parts)))


def resolve(config: IndexConfig, on: FieldPath) -> Target:
    """Return the place that a leaf of a query tree looks at."""
    field = config.find(on.field)
    if field is None:
        raise SearchQueryError(_unknown(config, on.field))
    return target_of(field, on.path)


def target_of(field: FieldConfig, path: tuple[str, ...] = ()) -> Target:
    """Return the place at a path of keys in a field."""
    if field.kind != "json":
        if path:
            raise SearchQueryError(f"field {field.name!r} is no JSON field: it has no {'.'.join(path)!r}")
        return Target(field, (), field.kind, field.data_type)
    if is_string(field.data_type):
        return Target(field, path, "any" if path else "object", None)
    if path[:1] == (ARRAY_KEY,) and _is_plain_array(field.data_type):
        path = path[1:]
    data_type = _type_at(field, field.data_type, path)
    natural = natural_kind(data_type)
    kind: TargetKind = {"json": "object", "string": "text" if is_string(data_type) else "string"}.get(natural, natural)
    return Target(field, path, kind, data_type)


def index_path(target: Target) -> tuple[str, ...]:
    """Return the path inside the index, where a top-level array stands under a key of its own."""
    return (ARRAY_KEY, *target.path) if _is_plain_array(target.field.data_type) else target.path


def _is_plain_array(data_type: DataType) -> bool:
    data_type = _unwrapped(data_type)
    return isinstance(data_type, ArrayType) and not isinstance(data_type.element_type, StructType)


def _type_at(field: FieldConfig, data_type: DataType, path: tuple[str, ...]) -> DataType:
    data_type = _unwrapped(data_type)
    while isinstance(data_type, ArrayType):
        data_type = _unwrapped(data_type.element_type)
    if not path:
        return data_type
    if isinstance(data_type, MapType):
        return _type_at(field, data_type.value_type, path[1:])
    if isinstance(data_type, StructType):
        for member in data_type.fields:
            if member.name == path[0]:
                return _type_at(field, member.type, path[1:])
        raise SearchQueryError(
            f"field {field.name!r} has no {path[0]!r}; there are {', '.join(map(repr, data_type.names))}"
        )
    raise SearchQueryError(f"field {field.name!r}: a {data_type} has no {path[0]!r} inside")


def _unwrapped(data_type: DataType) -> DataType:
    while isinstance(data_type, UserDefinedType):
        data_type = data_type.sql_type
    return data_type


def _unknown(config: IndexConfig, name: str) -> str:
    return f"{config.unknown(name)} (text with a colon stands in quotes)"
