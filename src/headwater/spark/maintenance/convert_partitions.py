"""Partition values from the names of directories, checked against the partition columns that the user declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import SchemaMismatchError
from headwater.log.columns import strings
from headwater.log.partition_directories import parse_partition_directory
from headwater.log.schema import is_string
from headwater.log.schema.arrow import type_to_arrow
from headwater.log.values import parse_text
from headwater.spark.partition_text import partition_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.log.schema import StructField


def partition_values_of(
    directories: Iterable[str], columns: Sequence[StructField], uri: str, time_zone: str = "UTC"
) -> dict[str, dict[str, str | None]]:
    """The partition values of the files in each directory.

    Args:
        directories: prefixes below the location, such as `year=2024/month=1/`.
        columns: the partition columns, in the order of the directories.
        uri: the location, for messages.
        time_zone: of timestamps that do not name theirs, as directories have them.

    Raises:
        SchemaMismatchError: the directories have other partition columns, or a value is not of its column's type.
    """
    return {directory: _values(directory, columns, uri, time_zone) for directory in directories}


def _values(directory: str, columns: Sequence[StructField], uri: str, time_zone: str) -> dict[str, str | None]:
    found = [pair for part in directory.split("/") if (pair := parse_partition_directory(part)) is not None]
    names = [name for name, _ in found]
    wanted = [column.name for column in columns]
    if len(names) != len(wanted) or any(a.lower() != b.lower() for a, b in zip(names, wanted, strict=True)):
        raise SchemaMismatchError(
            f"{uri} cannot be converted: expecting {_listed(wanted)}, but {directory or 'its own directory'!r} has "
            f"{_listed(names)}. Say with partitionSchema which columns its directories are named after, and of which "
            "types they are."
        )
    return {c.name: _checked(text, c, directory, uri, time_zone) for c, (_, text) in zip(columns, found, strict=True)}


def _listed(names: list[str]) -> str:
    count = f"{len(names)} partition column{'' if len(names) == 1 else 's'}"
    return f"{count} ({', '.join(names)})" if names else count


def _checked(text: str | None, column: StructField, directory: str, uri: str, time_zone: str) -> str | None:
    """The value as the log has it."""
    if text is None or is_string(column.type):
        return text or None
    try:
        value = parse_text(strings([text]), column.type, time_zone).cast(type_to_arrow(column.type))[0]
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"{uri} cannot be converted: {text!r} in {directory!r} is no {column.type}, which the partition column "
            f"{column.name} is declared as ({error})."
        ) from error
    return partition_text(value, column.type, column.name)
