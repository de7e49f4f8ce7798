"""Text columns that are more than text: `char(n)`, `varchar(n)` and collations, the way Spark keeps them in a schema.

Spark writes `char(n)` and `varchar(n)` columns as strings, and the declared type into the metadata of the top-level
column. Values of `char(n)` are padded with blanks, and Spark pads the literals they are compared with. The collation of
a string stands in the metadata of the nearest field. Both are compared by other rules than byte by byte.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.log.schema.types import STRING, ArrayType, DataType, MapType, StructField, StructType, is_char

if TYPE_CHECKING:
    from collections.abc import Sequence

CHAR_VARCHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""The column metadata key where Spark keeps the declared type of a column with `char(n)` or `varchar(n)`."""

COLLATIONS_KEY = "__COLLATIONS"
"""The metadata key where Spark keeps the collations of the strings in a column."""

_CHAR = re.compile(r"\bchar\(")


def strings_for_chars(schema: StructType) -> StructType:
    """The schema with `char(n)` and `varchar(n)` as strings, their declaration kept in the column metadata.

    >>> from headwater.log.schema.types import PrimitiveType
    >>> strings_for_chars(StructType([StructField("code", PrimitiveType("char(3)"))])).to_dict()["fields"][0]
    {'name': 'code', 'type': 'string', 'nullable': True, 'metadata': {'__CHAR_VARCHAR_TYPE_STRING': 'char(3)'}}
    """
    return StructType(map(_string_for_char, schema.fields), extra=schema.extra)


def may_be_padded(path: Sequence[StructField]) -> bool:
    """Whether a column, given by the fields on the way to it, may be a `char(n)`, whose text is not compared as it is.

    >>> may_be_padded([StructField("code", STRING, metadata={CHAR_VARCHAR_KEY: "char(3)"})])
    True
    """
    declared = str(path[0].metadata.get(CHAR_VARCHAR_KEY, ""))
    return _CHAR.search(declared) is not None or _CHAR.match(str(path[-1].type)) is not None


def compares_as_is(path: Sequence[StructField]) -> bool:
    """Whether Spark compares values of a column, given by the fields on the way to it, as the log has them.

    It does not for text with rules of its own: a collation, or the padding of `char(n)`.

    >>> compares_as_is([StructField("name", STRING, metadata={COLLATIONS_KEY: {"name": "icu.UNICODE_CI"}})])
    False
    """
    return not may_be_padded(path) and not any(COLLATIONS_KEY in field.metadata for field in path)


def _string_for_char(field: StructField) -> StructField:
    plain = _without_chars(field.type)
    if plain == field.type:
        return field
    return replace(field, type=plain, metadata={**field.metadata, CHAR_VARCHAR_KEY: str(field.type)})


def _without_chars(data_type: DataType) -> DataType:
    match data_type:
        case _ if is_char(data_type):
            return STRING
        case ArrayType(element_type=element):
            return replace(data_type, element_type=_without_chars(element))
        case MapType(key_type=key, value_type=value):
            return replace(data_type, key_type=_without_chars(key), value_type=_without_chars(value))
        case StructType(fields=fields, extra=extra):
            return StructType((replace(f, type=_without_chars(f.type)) for f in fields), extra=extra)
        case _:
            return data_type
