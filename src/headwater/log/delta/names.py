"""Names in the `_delta_log` directory (spec: "File Types").

Versions are zero-padded to 20 digits, so that lexicographic order is version order. Readers ignore every other name
(temporary files, `.s3-optimization-0`, staged commits).
"""

from __future__ import annotations

import re

from headwater.log.dialect import MAX_VERSION, LogName

LOG_DIR = "_delta_log/"
SIDECAR_DIR = LOG_DIR + "_sidecars/"

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


def parse(name: str) -> LogName | None:
    """Parse a file name in the log directory; None if readers ignore such a file.

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


def checksum_key(version: int) -> str:
    return f"{LOG_DIR}{version:020d}.crc"


def classic_checkpoint_key(version: int) -> str:
    return f"{LOG_DIR}{version:020d}.checkpoint.parquet"


def v2_checkpoint_key(version: int, unique: str) -> str:
    """Return the key of a UUID-named checkpoint in Parquet."""
    name = f"{version:020d}.checkpoint.{unique}.parquet"
    assert parse(name) is not None, f"{unique!r} is not a UUID: no reader would find the checkpoint"
    return LOG_DIR + name


def compacted_key(first: int, last: int) -> str:
    """Return the key of a log compaction file.

    >>> compacted_key(4, 6)
    '_delta_log/00000000000000000004.00000000000000000006.compacted.json'
    """
    return f"{LOG_DIR}{first:020d}.{last:020d}.compacted.json"
