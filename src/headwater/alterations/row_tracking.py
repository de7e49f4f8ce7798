"""Giving row ids to the files of an existing table, before row tracking is enabled (spec: "Row Tracking", enablement).

First the protocol learns the feature, so that every new file gets ids. Then the files that are there are committed
again, many at a time, with ids and without a change of data. The commit that sets the property gives ids to
whatever came in between. A backfill that was interrupted goes on where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.errors import DeltaConcurrentModificationException
from headwater.features.activation import supports
from headwater.features.protocols import add_feature
from headwater.log.actions import Add
from headwater.log.draft import Operation
from headwater.log.encoding import protocol_fields
from headwater.log.transaction import Transaction

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

BATCH_FILES = 100_000
"""How many files one commit gives ids to."""
_MAX_LOSSES = 20
"""How often in a row a batch may meet another writer's change before the backfill gives up."""


def backfill(snapshot: Snapshot, batch_files: int = BATCH_FILES) -> Snapshot:
    """Give row ids to all files that have none.

    Returns:
        The table after the last commit.

    Raises:
        DeltaConcurrentModificationException: other writers kept changing the same files.
    """
    snapshot = _with_support(snapshot)
    batch = losses = 0
    while adds := _files_without_ids(snapshot, batch_files):
        transaction = Transaction(snapshot.ctx, snapshot)
        transaction.add(adds)
        try:
            snapshot = transaction.commit(Operation("ROW TRACKING BACKFILL", {"batchId": str(batch)})).snapshot
        except DeltaConcurrentModificationException:
            losses += 1
            if losses > _MAX_LOSSES:
                raise
            snapshot = snapshot.refresh()  # some of the files are gone: look again at what is left
            continue
        batch, losses = batch + 1, 0
    return snapshot


def _with_support(snapshot: Snapshot) -> Snapshot:
    if supports(snapshot.protocol, "rowTracking"):
        return snapshot
    protocol = add_feature(snapshot.protocol, "rowTracking")
    transaction = Transaction(snapshot.ctx, snapshot)
    transaction.set_protocol(protocol)
    return transaction.commit(Operation("UPGRADE PROTOCOL", {"newProtocol": protocol_fields(protocol)})).snapshot


def _files_without_ids(snapshot: Snapshot, limit: int) -> list[Add]:
    import pyarrow.compute as pc

    # Looked up anew for every batch: a file that another writer has removed meanwhile must not come back.
    files = snapshot.files()
    without = pc.or_(pc.is_null(files.column("baseRowId")), pc.is_null(files.column("defaultRowCommitVersion")))
    rows = files.filter(without).slice(0, limit).drop_columns(["dataChange"])
    return [msgspec.convert({**row, "dataChange": False}, Add) for row in rows.to_pylist(maps_as_pydicts="strict")]
