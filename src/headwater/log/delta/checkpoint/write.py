"""Write checkpoints (spec: "Checkpoints", "Checkpoint Specs", "Checkpoint Naming Scheme").

Classic V1 by default; V2 with sidecars where the table supports `v2Checkpoint` and `delta.checkpointPolicy` is `v2`;
never in parts. A checkpoint is read back before `_last_checkpoint` names it, and deleted if it is not as it should be,
so a failure leaves the log as it was. Text is compressed with Zstandard at its fastest level, only columns that repeat
values have dictionaries, and pages have checksums.
"""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.errors import CorruptLogError, HeadwaterError, ObjectAlreadyExistsError, StorageError
from headwater.log.actions.decode import TableState
from headwater.log.actions.model import CheckpointMetadata, Sidecar
from headwater.log.configuration.properties import CHECKPOINT_INTERVAL, CHECKPOINT_POLICY
from headwater.log.delta import names
from headwater.log.delta.checkpoint.columns import (
    AddColumns,
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
from headwater.log.delta.checkpoint.read import Checkpoint
from headwater.log.delta.checkpoint.rows import adds, live_domains, live_txns, removes
from headwater.log.files.parquet import ParquetObject, ahead
from headwater.log.segment import CheckpointFiles, hinted_version, json_checksum
from headwater.log.snapshot import BaseFiles, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.log.context import LogContext
    from headwater.log.dialect import FileKind
    from headwater.storage.base import ObjectMeta, ObjectStore


_SMALL_ROWS = 10_000
"""Row groups smaller than this go together with what follows, as long as that is not too much."""
_REPEATED = (
    "partitionValues.key_value.key",
    "partitionValues.key_value.value",
    "tags.key_value.key",
    "tags.key_value.value",
    "clusteringProvider",
    "defaultRowCommitVersion",
    "deletionVector.storageType",
)


@dataclass(frozen=True, slots=True)
class Rows:
    actions: int = 0
    adds: int = 0

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.actions + other.actions, self.adds + other.adds)


class CheckpointFile:
    """A Parquet file in the making, in memory: a store takes objects whole."""

    def __init__(self, schema: pa.Schema) -> None:
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f"{action}.{leaf}" for action in ("add", "remove") for leaf in _REPEATED],
            write_page_checksum=True,
            store_schema=False,
        )
        self._waiting: list[pa.Table] = []
        self.rows = Rows()

    def write(self, table: pa.Table, *, adds: int = 0) -> None:
        """Append rows: a row group of their own, unless they are few."""
        self.rows += Rows(table.num_rows, adds)
        if sum(t.num_rows for t in self._waiting) + table.num_rows > _SMALL_ROWS:
            self._flush()
        self._waiting.append(table)

    def finish(self) -> bytes:
        self._flush()
        self._writer.close()
        return self._buffer.getvalue()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()


def check_stored(store: ObjectStore, key: str, adds: int, size_bytes: int | None = None) -> ObjectMeta:
    """What the store says of a file, if it is a Parquet file with as many `add` actions as it should have.

    Raises:
        CorruptLogError: the store has something else.
    """
    meta = store.head(key)
    if size_bytes is not None and meta.size_bytes != size_bytes:
        raise CorruptLogError(f"{key} was written with {size_bytes} bytes, but the store has {meta.size_bytes}.")
    source = ParquetObject(store, meta)
    found = sum(_adds_in(source, group) for group in range(source.num_row_groups))
    if found != adds:
        raise CorruptLogError(f"{key} should have {adds} add actions, but what the store has says {found}.")
    return meta


def _adds_in(source: ParquetObject, group: int) -> int:
    nulls = source.null_count(group, "add.path")
    return 0 if nulls is None else int(source.metadata.row_group(group).num_rows) - nulls


SIDECAR_ROWS = 1_000_000
"""A sidecar gets no new row group once it has this many rows."""
_UNCHANGED = ("schema", "shape", "timestamp")
"""What is known of a snapshot stays known when it gets a new checkpoint."""
_CLASSIC_EVERY = 10
"""Of this many V2 checkpoints one has the classic name, by which old readers learn that they are too old."""


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
        snapshot.ctx,
        LastCheckpoint(
            version=snapshot.version,
            size=written.rows.actions,
            size_in_bytes=written.size_bytes,
            num_of_add_files=written.rows.adds,
        ),
    )
    return _rebased(snapshot, written)


class LastCheckpoint(msgspec.Struct, rename="camel", frozen=True):
    """The content of `_last_checkpoint`."""

    version: int
    size: int
    """Number of actions."""
    size_in_bytes: int
    num_of_add_files: int


def write_last_checkpoint(ctx: LogContext, last: LastCheckpoint) -> None:
    """Name a checkpoint in `_last_checkpoint`, unless it names a newer one."""
    key = ctx.dialect.last_checkpoint_key
    known = hinted_version(ctx.store, key)
    if known is not None and known > last.version:
        return
    fields: dict[str, Any] = msgspec.to_builtins(last)
    ctx.store.put(key, json.dumps({**fields, "checksum": json_checksum(fields)}).encode())


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
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._store = snapshot.ctx.store
        self._add_columns = AddColumns(snapshot.shape, snapshot.configuration)
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

        Another writer's checkpoint of the same version says the same, and a reader may have it open: it stays, unless
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

    def _written(self, kind: FileKind, meta: ObjectMeta, rows: Rows, size_bytes: int) -> _Written:
        files = CheckpointFiles(self._snapshot.version, kind, (meta,))
        return _Written(files, rows, size_bytes, self._state, self._table_bytes)


def _rebased(snapshot: Snapshot, written: _Written) -> Snapshot:
    """Return the snapshot on its new checkpoint; nothing that is known of it is read again."""
    base = BaseFiles(Checkpoint(snapshot.ctx, written.files), snapshot.base.cleaned_up_before_ms)
    segment = replace(snapshot.segment, checkpoint=written.files, commits=())
    rebased = Snapshot(snapshot.ctx, segment, base, (), snapshot.configuration)
    known = vars(snapshot)
    if snapshot.commits and snapshot.configuration.has_in_commit_timestamps:
        _ = snapshot.timestamp  # told by a commit that is at hand here, and would have to be read there
    vars(rebased).update({name: known[name] for name in _UNCHANGED if name in known})
    vars(rebased).update(_table_state=written.table_state, _tail={}, _totals=(written.rows.adds, written.table_bytes))
    return rebased


def checkpoint_interval(snapshot: Snapshot) -> int:
    """After how many commits there is another checkpoint (`delta.checkpointInterval`).

    Raises:
        HeadwaterError: the property is not a positive number.
    """
    declared = snapshot.metadata.configuration.get(CHECKPOINT_INTERVAL.name, str(CHECKPOINT_INTERVAL.default))
    if re.fullmatch(r"0*[1-9][0-9]{0,17}", declared) is None:
        raise HeadwaterError(
            f"{snapshot.uri}: the table property {CHECKPOINT_INTERVAL.name} must be a positive number, but it is "
            f"{declared!r}. Set it to another value, or unset it."
        )
    return int(declared)


def follows_v2(snapshot: Snapshot) -> bool:
    """Tell whether checkpoints of the table follow the V2 spec."""
    return snapshot.configuration[CHECKPOINT_POLICY] == "v2" and snapshot.protocol.supports("v2Checkpoint")
