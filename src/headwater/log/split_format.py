"""The log of search tables as a dialect (spec 002: "Directory Structure", "File Naming Convention").

>>> INDEXTABLES.commit_key(42)
'_transaction_log/00000000000000000042.json'
>>> INDEXTABLES.json_checkpoint_key(50)
'_transaction_log/00000000000000000050.checkpoint.json'
"""

from __future__ import annotations

import re

import msgspec

from headwater.log.log_format import LogFormat
from headwater.log.names import MAX_VERSION, LogName
from headwater.log.split_actions import LINE, SplitAdd, SplitTableLine, file_lines

_NAME = re.compile(r"(?P<version>\d{20})\.(?P<checkpoint>checkpoint\.)?json", re.ASCII)


def parse_name(name: str) -> LogName | None:
    """The meaning of a file name in `_transaction_log`, or None if it has none for a reader.

    >>> parse_name("00000000000000000010.checkpoint.json")
    LogName(kind='json', version=10, end_version=0, part=0, parts=0, uuid='')
    >>> parse_name("_last_checkpoint") is None
    True
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match["version"]) > MAX_VERSION:
        return None
    return LogName("json" if match["checkpoint"] else "commit", int(match["version"]))


INDEXTABLES = LogFormat(
    name="indextables",
    title="search table",
    directory="_transaction_log/",
    parse=parse_name,
    table_line=msgspec.json.Decoder(SplitTableLine),
    file_line=LINE,
    add_type=SplitAdd,
    complete_file_lines=file_lines,
    has_checksums=False,
    has_merge_skips=True,
    actions_are_ordered=True,
    json_checkpoints=True,
    stops_at_gaps=True,
    needs_first_version=True,
)
