"""Writing checkpoints (spec: "Checkpoints", "Checkpoint Specs", "Checkpoint Naming Scheme").

Classic V1 by default; after the V2 spec, with sidecars, where the table supports `v2Checkpoint` and says
`delta.checkpointPolicy = v2`; never in parts. What was written is looked at before `_last_checkpoint` points at it, and
taken away again if it is not what it should be, so a failure leaves the log as it was.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError, ObjectAlreadyExistsError, StorageError
from headwater.log import names
from headwater.log.actions import CheckpointMetadata, Sidecar
from headwater.log.base_files import BaseFiles
from headwater.log.checkpoint import Checkpoint
from headwater.log.checkpoint_columns import (
    checkpoint_metadata_rows,
    domain_rows,
    metadata_rows,
    protocol_rows,
    rows_of,
    sidecar_rows,
    sidecar_schema,
    txn_rows,
    v1_schema,
    v2_schema,
)
from headwater.log.checkpoint_parquet import CheckpointFile, Rows, check_stored
from headwater.log.checkpoint_policy import checkpoint_interval, follows_v2
from headwater.log.checkpoint_rows import adds, live_domains, live_txns, removes
from headwater.log.last_checkpoint import LastCheckpoint, write_last_checkpoint
from headwater.log.parsed_columns import AddColumns
from headwater.log.prefetch import ahead
from headwater.log.replay import TableState
from headwater.log.segment import CheckpointFiles
from headwater.log.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.storage.base import ObjectMeta

SIDECAR_ROWS = 1_000_000
"""A sidecar gets no new row group once it has this many rows."""
_UNCHANGED = ("schema", "mapping_mode", "shape", "timestamp")
"""What is known of a snapshot stays known when it gets a new checkpoint."""
_CLASSIC_EVERY = 10
"""Of V2 checkpoints, one in so many has the classic name, by which old readers learn that they are too old."""


def write_checkpoint(snapshot: Snapshot) -> Snapshot:
    """Write a checkpoint of a snapshot, and let `_last_checkpoint` point at it.

    The columns of the older checkpoint's files go from one file into the other a few thousand rows at a time. Their
    order is by partition values, so that readers can skip row groups.

    Returns:
        The same version, starting from the new checkpoint. A snapshot that starts from a checkpoint of its own version
        needs no other, and is returned as it is.

    Raises:
        StorageError: the store failed; the log is as it was.
        CorruptLogError: the log has something that cannot be read, or the store has not what was written.
    """
    if not snapshot.segment.commits:
        return snapshot
    written = _Writer(snapshot).write()
    write_last_checkpoint(
        snapshot.ctx.store,
        LastCheckpoint(
            version=snapshot.version,
            size=written.rows.actions,
            size_in_bytes=written.size_bytes,
            num_of_add_files=written.rows.adds,
        ),
    )
    return _rebased(snapshot, written)


@dataclass(frozen=True, slots=True)
class _Written:
    """A checkpoint that is in the log."""

    files: CheckpointFiles
    rows: Rows
    """Those of sidecars included."""
    size_bytes: int
    """Of the checkpoint with its sidecars."""
    table_state: TableState
    table_bytes: int
    """Sum of the sizes of all live files."""


class _Writer:
    """Writes one checkpoint."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._store = snapshot.ctx.store
        self._add_columns = AddColumns(snapshot.shape, snapshot.metadata.configuration)
        self._add_type = pa.struct(list(self._add_columns.types.items()))
        txns = {txn.app_id: txn for txn in live_txns(snapshot)}
        domains = {domain.domain: domain for domain in live_domains(snapshot)}
        self._state = TableState(snapshot.protocol, snapshot.metadata, txns, domains)
        self._classic_key = names.classic_checkpoint_key(snapshot.version)
        self._table_bytes = 0

    def write(self) -> _Written:
        return self._write_v2() if follows_v2(self._snapshot) else self._write_v1()

    def _write_v1(self) -> _Written:
        schema = v1_schema(self._add_type)
        file = CheckpointFile(schema)
        file.write(rows_of(schema, self._table_actions()))
        for action, actions in ahead(self._file_actions()):
            file.write(rows_of(schema, {action: actions}), adds=len(actions) if action == "add" else 0)
        meta = self._put(self._classic_key, file)
        return self._written("classic", meta, file.rows, meta.size_bytes)

    def _write_v2(self) -> _Written:
        version = self._snapshot.version
        sidecars, rows = self._write_sidecars()
        schema = v2_schema(self._add_type)
        file = CheckpointFile(schema)
        own = {
            "checkpointMetadata": checkpoint_metadata_rows(CheckpointMetadata(version, {})),
            **self._table_actions(),
            **({"sidecar": sidecar_rows(sidecars)} if sidecars else {}),
        }
        file.write(rows_of(schema, own))
        classic = version % (_CLASSIC_EVERY * checkpoint_interval(self._snapshot)) == 0
        unique = self._snapshot.ctx.new_id()
        key = self._classic_key if classic else names.v2_checkpoint_key(version, unique)
        meta = self._put(key, file)
        size_bytes = meta.size_bytes + sum(sidecar.size_in_bytes for sidecar in sidecars)
        return self._written("classic" if classic else "uuid", meta, file.rows + rows, size_bytes)

    def _write_sidecars(self) -> tuple[list[Sidecar], Rows]:
        schema = sidecar_schema(self._add_type)
        sidecars: list[Sidecar] = []
        rows = Rows()
        file: CheckpointFile | None = None

        def finish(file: CheckpointFile) -> None:
            name = f"{self._snapshot.ctx.new_id()}.parquet"
            meta = self._put(names.SIDECAR_DIR + name, file)
            sidecars.append(Sidecar(name, meta.size_bytes, meta.modified_ms, {}))

        for action, actions in ahead(self._file_actions()):
            file = file or CheckpointFile(schema)
            file.write(rows_of(schema, {action: actions}), adds=len(actions) if action == "add" else 0)
            if file.rows.actions >= SIDECAR_ROWS:
                finish(file)
                rows, file = rows + file.rows, None
        if file is not None:
            finish(file)
            rows += file.rows
        return sidecars, rows

    def _table_actions(self) -> dict[str, pa.Array]:
        txns, domains = list(self._state.txns.values()), list(self._state.domains.values())
        return {
            "protocol": protocol_rows(self._snapshot.protocol),
            "metaData": metadata_rows(self._snapshot.metadata),
            **({"txn": txn_rows(txns)} if txns else {}),
            **({"domainMetadata": domain_rows(domains)} if domains else {}),
        }

    def _file_actions(self) -> Iterator[tuple[str, pa.StructArray]]:
        for some in removes(self._snapshot):
            yield "remove", some
        for some in adds(self._snapshot, self._add_columns):
            self._table_bytes += pc.sum(some.field("size")).as_py() or 0
            yield "add", some

    def _put(self, key: str, file: CheckpointFile) -> ObjectMeta:
        """Write a file, and take it away again if the store has something else.

        Another writer's checkpoint of the same version says the same, and somebody may be reading it: it stays, unless
        it is damaged.
        """
        data = file.finish()
        try:
            self._store.put_if_absent(key, data)
        except ObjectAlreadyExistsError:
            if key != self._classic_key:  # a name of ours alone: an answer was lost
                return check_stored(self._store, key, file.rows.adds, len(data))
            with suppress(CorruptLogError):
                return check_stored(self._store, key, file.rows.adds)
            self._store.put(key, data)
        try:
            return check_stored(self._store, key, file.rows.adds, len(data))
        except CorruptLogError:  # not for a store that does not answer: it may be sound, and others may rely on it
            with suppress(StorageError):
                self._store.delete_many([key])
            raise

    def _written(self, kind: names.Kind, meta: ObjectMeta, rows: Rows, size_bytes: int) -> _Written:
        files = CheckpointFiles(self._snapshot.version, kind, (meta,))
        return _Written(files, rows, size_bytes, self._state, self._table_bytes)


def _rebased(snapshot: Snapshot, written: _Written) -> Snapshot:
    """The snapshot on its new checkpoint; nothing that is known of it is read again."""
    base = BaseFiles(Checkpoint(snapshot.ctx.store, written.files), snapshot.base.cleaned_up_before_ms)
    segment = replace(snapshot.segment, checkpoint=written.files, commits=())
    rebased = Snapshot(snapshot.ctx, segment, base, (), snapshot.protocol, snapshot.metadata)
    known = vars(snapshot)
    if snapshot.commits and snapshot.has_in_commit_timestamps:
        _ = snapshot.timestamp  # told by a commit that is at hand here, and would have to be read there
    vars(rebased).update({name: known[name] for name in _UNCHANGED if name in known})
    vars(rebased).update(_table_state=written.table_state, _tail={}, _totals=(written.rows.adds, written.table_bytes))
    return rebased
