"""When a table wants checkpoints, and of which kind: `delta.checkpointInterval` and `delta.checkpointPolicy`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

_DEFAULT_INTERVAL = 10


def checkpoint_interval(snapshot: Snapshot) -> int:
    """After how many commits there is another checkpoint (`delta.checkpointInterval`).

    Raises:
        HeadwaterError: the property is not a positive number.
    """
    declared = snapshot.metadata.configuration.get("delta.checkpointInterval", str(_DEFAULT_INTERVAL))
    if re.fullmatch(r"0*[1-9][0-9]{0,17}", declared) is None:
        raise HeadwaterError(
            f"{snapshot.uri}: the table property delta.checkpointInterval must be a positive number, but it is "
            f"{declared!r}. Set it to another value, or unset it."
        )
    return int(declared)


def follows_v2(snapshot: Snapshot) -> bool:
    """Whether checkpoints of the table follow the V2 spec."""
    policy = snapshot.metadata.configuration.get("delta.checkpointPolicy", "classic").lower()
    return policy == "v2" and snapshot.protocol.supports("v2Checkpoint")
