"""Names in the `_delta_log` directory (spec: "File Types").

Versions are zero-padded to 20 digits, so that lexicographic order is version order. Everything that is not one
of the names below (temporary files, `.s3-optimization-0`, staged commits) is none of a reader's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

LOG_DIR = "_delta_log/"
LAST_CHECKPOINT = LOG_DIR + "_last_checkpoint"
SIDECAR_DIR = LOG_DIR + "_sidecars/"

Kind: TypeAlias = Literal["commit", "compacted", "classic", "multipart", "uuid", "json", "crc"]

MAX_VERSION = 2**63 - 1
"""Versions are longs; a larger number in a name is somebody else's file."""

_NAME = re.compile(
    r"(?P<version>\d{20})\.(?:"
    r"(?P<commit>json)"
    r"|(?P<crc>crc)"
    r"|(?P<end>\d{20})\.compacted\.json"
    r"|(?P<classic>checkpoint\.parquet)"
    r"|checkpoint\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet"
    r"|checkpoint\.(?P<uuid>[0-9a-zA-Z-]+)\.(?:json|parquet)"
    r")",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class LogName:
    """A parsed name: what kind of file it is, and the versions it speaks of."""

    kind: Kind
    version: int
    end_version: int = 0
    """Last version that a compacted file covers."""
    part: int = 0
    parts: int = 0
    uuid: str = ""


def parse(name: str) -> LogName | None:
    """The meaning of a file name in the log directory, or None if it has none for a reader.

    >>> parse("00000000000000000004.00000000000000000006.compacted.json")
    LogName(kind='compacted', version=4, end_version=6, part=0, parts=0, uuid='')
    >>> parse("00000000000000000004.json.tmp") is None
    True
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    version, end_version = int(match["version"]), int(match["end"] or 0)
    if max(version, end_version) > MAX_VERSION:
        return None
    if match["commit"]:
        return LogName("commit", version)
    if match["crc"]:
        return LogName("crc", version)
    if match["classic"]:
        return LogName("classic", version)
    if match["end"]:
        return LogName("compacted", version, end_version=end_version) if end_version >= version else None
    if match["part"]:
        part, parts = int(match["part"]), int(match["parts"])
        return LogName("multipart", version, part=part, parts=parts) if 1 <= part <= parts else None
    return LogName("uuid", version, uuid=match["uuid"])


def commit_key(version: int) -> str:
    """The key of a commit.

    >>> commit_key(12)
    '_delta_log/00000000000000000012.json'
    """
    return f"{LOG_DIR}{version:020d}.json"


def checksum_key(version: int) -> str:
    """The key of a version checksum."""
    return f"{LOG_DIR}{version:020d}.crc"


def classic_checkpoint_key(version: int) -> str:
    """The key of a checkpoint with the classic name."""
    return f"{LOG_DIR}{version:020d}.checkpoint.parquet"


def v2_checkpoint_key(version: int, unique: str) -> str:
    """The key of a UUID-named checkpoint in Parquet."""
    name = f"{version:020d}.checkpoint.{unique}.parquet"
    assert parse(name) is not None, f"{unique!r} is no UUID: no reader would find the checkpoint"
    return LOG_DIR + name


def compacted_key(first: int, last: int) -> str:
    """The key of a log compaction file.

    >>> compacted_key(4, 6)
    '_delta_log/00000000000000000004.00000000000000000006.compacted.json'
    """
    return f"{LOG_DIR}{first:020d}.{last:020d}.compacted.json"


def first_key_of(version: int) -> str:
    """A key that sorts right before every log file of this version (for `list_from`)."""
    return f"{LOG_DIR}{version:020d}"
