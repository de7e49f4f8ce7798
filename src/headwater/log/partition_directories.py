"""Directories named after partition values, as Hive and Spark name them.

The log's text is what counts (spec: "Partition Value Serialization"); directories are named after the values only
because people and other tools expect it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark put for null into the name of a directory. In the log null is null."""

_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
"""What Spark escapes in a directory name, and NUL, which no file system takes."""
_MAX_NAME_BYTES = 240
"""File systems take 255 bytes for a name."""


def partition_directory(values: Mapping[str, str | None]) -> str | None:
    """The directories for partition values by column, as Hive and Spark name them; None if a name is too long.

    >>> partition_directory({"day": "2024-01-31", "what": "a/b", "who": None})
    'day=2024-01-31/what=a%2Fb/who=__HIVE_DEFAULT_PARTITION__'
    """
    names = [f"{_escape(name)}={NULL_DIRECTORY if text is None else _escape(text)}" for name, text in values.items()]
    if any(len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES for name in names):
        return None
    return "/".join(names)


def _escape(text: str) -> str:
    return _ESCAPED.sub(_code, text)


def _code(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def parse_partition_directory(name: str) -> tuple[str, str | None] | None:
    """The column and the value that the name of one directory stands for; None if it is no such name.

    >>> parse_partition_directory("what=a%2Fb"), parse_partition_directory("who=__HIVE_DEFAULT_PARTITION__")
    (('what', 'a/b'), ('who', None))
    """
    column, equals, value = name.partition("=")
    if not equals or not column:
        return None
    text = unquote(value, errors="surrogateescape")
    return unquote(column, errors="surrogateescape"), None if text == NULL_DIRECTORY else text
