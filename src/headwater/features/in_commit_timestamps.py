"""In-commit timestamps at commit (spec: "Writer Requirements for In-Commit Timestamps").

Each commit says when it happened, later than the one before by a millisecond at least. The commit that switches this
on for an existing table records its own version and time, so that readers know from where on to believe them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from headwater.features.activation import is_active
from headwater.features.properties import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION

if TYPE_CHECKING:
    from headwater.log.actions import Metadata
    from headwater.log.draft import Attempt, Draft

FEATURE = "inCommitTimestamp"
_PROVENANCE = (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)


def in_commit_timestamp_rule(draft: Draft, attempt: Attempt) -> Draft:
    """The commit's time as the first field of `commitInfo`, and the provenance in metaData."""
    if not is_active(FEATURE, attempt.protocol, attempt.metadata):
        return draft if draft.metadata is None else _with_provenance(draft, draft.metadata, {})
    snapshot = attempt.snapshot
    time_ms = attempt.now_ms if snapshot is None else max(attempt.now_ms, snapshot.timestamp + 1)
    info = {name: value for name, value in draft.commit_info.items() if name != "inCommitTimestamp"}
    draft = replace(draft, commit_info={"inCommitTimestamp": time_ms, **info})
    if snapshot is None:
        provenance = {}  # there are no commits without
    elif is_active(FEATURE, snapshot.protocol, snapshot.metadata):
        before = snapshot.metadata.configuration
        provenance = {key: before[key] for key in _PROVENANCE if key in before}
    else:
        provenance = {ENABLEMENT_VERSION: str(attempt.version), ENABLEMENT_TIMESTAMP: str(time_ms)}
    return _with_provenance(draft, attempt.metadata, provenance)


def _with_provenance(draft: Draft, metadata: Metadata, provenance: dict[str, str]) -> Draft:
    """The draft with metaData that has exactly this provenance; metaData that has it already is left alone."""
    configuration = metadata.configuration
    if {key: configuration[key] for key in _PROVENANCE if key in configuration} == provenance:
        return draft
    rest = {key: value for key, value in configuration.items() if key not in _PROVENANCE}
    return replace(draft, metadata=msgspec.structs.replace(metadata, configuration=rest | provenance))
