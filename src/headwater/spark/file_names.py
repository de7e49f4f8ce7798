"""What data files are called and where they go: unique names, partition directories or random prefixes.

Nothing depends on these names but people's expectations: they follow what other Delta writers do. The log keeps a path
as a URI (spec: "Add File and Remove File"), so what stands on the disk is percent-encoded once more for it.
"""

from __future__ import annotations

import secrets
import string
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from headwater.spark.partition_text import partition_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

CHANGE_DIRECTORY = "_change_data"
"""Where files of row-level changes are (spec: "Add CDC File")."""

DEFAULT_PREFIX_LENGTH = 2
_PREFIX_LETTERS = string.ascii_letters + string.digits
_EXTENSIONS = {"uncompressed": "", "gzip": ".gz", "lz4_raw": ".lz4"}


@dataclass(frozen=True)
class FileNames:
    """How the files of one write are called."""

    directory: str = ""
    """Below the table, or empty."""
    random_prefix_length: int | None = None
    """The length of random directories, which take the place of partition directories; None for the latter."""
    codec: str = "snappy"

    def new_key(self, task: int, number: int, values: Mapping[str, str | None]) -> str:
        """The key of a new file, relative to the table.

        Args:
            task: the number of the task that writes it.
            number: of the file among those of the task.
            values: the partition values by logical column name, in order.

        >>> FileNames().new_key(3, 0, {"day": "2024-01-31"})  # doctest: +ELLIPSIS
        'day=2024-01-31/part-00003-...-....c000.snappy.parquet'
        """
        kind = "cdc" if self.directory == CHANGE_DIRECTORY else "part"
        extension = _EXTENSIONS.get(self.codec, f".{self.codec}")
        name = f"{kind}-{task:05}-{uuid.uuid4()}.c{number:03}{extension}.parquet"
        return "/".join(part for part in (self.directory, self._below(values), name) if part)

    def _below(self, values: Mapping[str, str | None]) -> str:
        if self.random_prefix_length is None:
            named = partition_directory(values)
            if named is not None:
                return named
        length = self.random_prefix_length or DEFAULT_PREFIX_LENGTH
        return "".join(secrets.choice(_PREFIX_LETTERS) for _ in range(length))


def log_path(key: str) -> str:
    """The path of a file as the log has it.

    >>> log_path("what=a%2Fb/part-0.parquet")
    'what=a%252Fb/part-0.parquet'
    """
    return quote(key, safe="/=")
