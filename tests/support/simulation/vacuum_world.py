"""A table in a simulated store, with a model beside it that remembers every version and what each one needs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace

from headwater.commands.vacuum import Vacuumed
from headwater.features.registry import check_readable
from headwater.log.actions.deletion_vectors import vector_path, z85_encode
from headwater.log.actions.model import Add, DeletionVector, Metadata, Protocol, Remove
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.context import LogContext
from headwater.log.opening import open_snapshot
from support.commands import restore, vacuum
from support.simulation.simulation import START_MS, SimulatedStore

HOUR_MS = 3_600_000
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
RETENTION = {"delta.deletedFileRetentionDuration": "interval 4 hours"}


@dataclass(frozen=True)
class File:
    """A data file, and the file of its deletion vector if it has one."""

    key: str
    vector: str | None = None

    @property
    def keys(self) -> set[str]:
        return {self.key} | ({self.vector} if self.vector else set())


@dataclass
class Version:
    files: frozenset[File]
    from_ms: int


@dataclass
class World:
    """The table, its store and the model."""

    clock: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(now_ms=START_MS))
    versions: list[Version] = field(default_factory=list)
    written_ms: dict[str, int] = field(default_factory=dict)
    """All data and vector files that the model says are there."""

    def __post_init__(self) -> None:
        self.store = SimulatedStore(self.clock)
        self.ctx = LogContext(
            store=self.store,
            check_readable=check_readable,
            check_writable=lambda _configuration: None,
            clock_ms=lambda: self.clock.now_ms,
            sleep=lambda _seconds: None,
        )
        transaction = Transaction(self.ctx, None)
        transaction.set_protocol(PROTOCOL)
        transaction.set_metadata(Metadata("a table", SCHEMA, configuration=RETENTION))
        transaction.commit(Operation("CREATE TABLE"))
        self.versions.append(Version(frozenset(), self.clock.now_ms))

    # --- what happens ---------------------------------------------------------------------------------

    def tick(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds

    def put(self, key: str) -> str:
        self.tick(1)
        self.store.put(key, b"rows")
        self.written_ms[key] = self.clock.now_ms
        return key

    def write(self, count: int) -> None:
        self.change(add=[File(self.put(f"part-{uuid.uuid4()}.parquet")) for _ in range(count)])

    def delete_rows(self, file: File) -> None:
        """Put a (larger) deletion vector on a file."""
        vector = DeletionVector("u", z85_encode(uuid.uuid4().bytes), 40, 1, 1)
        self.change(add=[File(file.key, self.put(vector_path(vector)))], remove=[file], vectors={file.key: vector})

    def change(self, add=(), remove=(), vectors=None) -> None:
        self.tick(1)
        snapshot = open_snapshot(self.ctx)
        live = {row["path"]: row for row in snapshot.files().to_pylist()}
        transaction = Transaction(self.ctx, snapshot)
        transaction.add(
            Add(f.key, 4, modification_time=self.clock.now_ms, deletion_vector=(vectors or {}).get(f.key)) for f in add
        )
        for file in remove:
            row = live[file.key]["deletionVector"]
            old = row and DeletionVector(
                row["storageType"], row["pathOrInlineDv"], row["sizeInBytes"], row["cardinality"], row["offset"]
            )
            transaction.remove([Remove(file.key, partition_values={}, size=4, deletion_vector=old)])
        transaction.commit(Operation("WRITE"))
        self._became((self.live - frozenset(remove)) | frozenset(add))

    def restore(self, number: int) -> None:
        self.tick(1)
        restore(self.ctx, version=number)
        self._became(self.versions[number].files)

    def vacuum(self, mode: str, hours: float) -> Vacuumed:
        self.tick(1)
        done = vacuum(self.ctx, mode=mode, retention_hours=hours, enforce_retention=False, in_history=False)
        assert done.cutoff_ms == self.clock.now_ms - round(hours * HOUR_MS)
        return done

    def _became(self, files: frozenset[File]) -> None:
        self.versions.append(Version(files, self.clock.now_ms))

    # --- what must be true ----------------------------------------------------------------------------

    @property
    def live(self) -> frozenset[File]:
        return self.versions[-1].files

    def needed(self, cutoff_ms: int) -> set[str]:
        """What the versions need that were the newest at the cut-off or later."""
        until = [version.from_ms for version in self.versions[1:]]
        ends = [*until, None]
        retained = [v for v, end in zip(self.versions, ends, strict=True) if end is None or end >= cutoff_ms]
        return {key for version in retained for file in version.files for key in file.keys}

    def there(self) -> set[str]:
        return {meta.key for meta in self.store.list_from("", recursive=True) if not meta.key.startswith("_delta_log/")}
