"""A snapshot: the state of a table at one version (spec: "Action Reconciliation").

Opening one reads the commits after the newest checkpoint and, only if they do not have them, protocol and metaData from
the checkpoint. Everything about files is read when it is first asked for. Snapshots never change, and those on one
checkpoint share what has been decoded of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.errors import ObjectNotFoundError, SchemaError
from headwater.log.actions.decode import CommitActions, TableState, replay_files
from headwater.log.actions.model import Add
from headwater.log.commit.history import CommitSummary, read_history
from headwater.log.configuration.properties import DELETED_FILE_RETENTION, STRING_PREFIX_LENGTH
from headwater.log.segment import NOT_ASKED_MS
from headwater.storage.redaction import shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from headwater.log.actions.decode import FileKey
    from headwater.log.actions.model import Metadata, Protocol, Remove
    from headwater.log.configuration import TableConfiguration
    from headwater.log.context import LogContext
    from headwater.log.delta.checkpoint.read import Checkpoint
    from headwater.log.delta.checksum import Discrepancy
    from headwater.log.files.chunks import FileChunk
    from headwater.log.files.live import LiveFiles
    from headwater.log.filters.expressions import Expression
    from headwater.log.filters.pruning import ChunkPruner, TableShape
    from headwater.log.indextables.actions import MergeSkip
    from headwater.log.indextables.checkpoint import JsonCheckpoint
    from headwater.log.schema import MappingMode, StructType
    from headwater.log.segment import LogSegment


@dataclass
class BaseFiles:
    """The checkpoint's chunks and what has been decoded of them, for every snapshot that starts from it."""

    checkpoint: Checkpoint | JsonCheckpoint | None
    cleaned_up_before_ms: int | None = None
    """The log was cleaned up by this cut-off already, as far as this process knows (`cleanup.py`)."""
    _pruners: dict[tuple[int, TableShape], ChunkPruner] = field(default_factory=dict)

    @property
    def adds(self) -> list[FileChunk]:
        return [] if self.checkpoint is None else self.checkpoint.adds

    @property
    def removes(self) -> list[FileChunk]:
        return [] if self.checkpoint is None else self.checkpoint.removes

    def pruner(self, index: int, shape: TableShape) -> ChunkPruner:
        """Return the pruner of a chunk, kept with its decoded columns as long as the table has the same shape."""
        from headwater.log.filters.pruning import ChunkPruner

        key = (index, shape)
        if key not in self._pruners:
            self._pruners[key] = ChunkPruner(self.adds[index], shape)
        return self._pruners[key]


@dataclass(frozen=True, repr=False)
class Snapshot:
    """One version of a table. Use `headwater.open_log` to get one."""

    ctx: LogContext
    segment: LogSegment
    base: BaseFiles
    commits: tuple[CommitActions, ...]
    """The commits after the checkpoint, ascending."""
    configuration: TableConfiguration
    """Protocol and metaData, with everything that follows from them."""

    def __repr__(self) -> str:
        return f"Snapshot({shortened(self.uri)!r}, version={self.version})"

    @property
    def protocol(self) -> Protocol:
        """What a client must support to read or write the table."""
        return self.configuration.protocol

    @property
    def metadata(self) -> Metadata:
        """The `metaData` action: id, name, schema text, partition columns, configuration."""
        return self.configuration.metadata

    @property
    def has_in_commit_timestamps(self) -> bool:
        """Whether commits carry their own timestamps."""
        return self.configuration.has_in_commit_timestamps

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.ctx.uri

    @property
    def version(self) -> int:
        """The version."""
        return self.segment.version

    @property
    def properties(self) -> dict[str, str]:
        """The table properties (`delta.*` and the user's own)."""
        return dict(self.metadata.configuration)

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns, by logical name."""
        return list(self.metadata.partition_columns)

    @cached_property
    def schema(self) -> StructType:
        """The table's schema, with logical names."""
        try:
            return self.configuration.schema
        except SchemaError as error:
            raise type(error)(f"{self.uri} at version {self.version}: {error}") from error

    @property
    def mapping_mode(self) -> MappingMode:
        """How columns are found in data files: `none`, `name` or `id`."""
        return self.configuration.mapping_mode

    @cached_property
    def timestamp(self) -> int:
        """When the version was committed, in milliseconds since the epoch.

        The in-commit timestamp where the table has them, else the modification time of the commit file (of the
        compacted file or checkpoint, when log cleanup has left nothing else).
        """
        if self.configuration.has_in_commit_timestamps:
            commit = self._newest_commit()
            if commit is not None and commit.in_commit_timestamp is not None:
                return commit.in_commit_timestamp
        meta = self.segment.commit_meta
        if meta is None and self.segment.commits:
            meta = self.segment.commits[-1].meta
        if meta is None:
            assert self.segment.checkpoint is not None, "a version has a commit or a checkpoint"
            meta = self.segment.checkpoint.files[0]
        return self.ctx.store.head(meta.key).modified_ms if meta.modified_ms == NOT_ASKED_MS else meta.modified_ms

    def _newest_commit(self) -> CommitActions | None:
        """The commit of this version; None if it has been cleaned up. A listing that lags may not have shown it."""
        if self.commits and self.commits[-1].version == self.commits[-1].end_version:
            return self.commits[-1]
        try:
            key = self.ctx.dialect.commit_key(self.version)
            return CommitActions.of(self.version, self.ctx.store.get(key), self.ctx.dialect)
        except ObjectNotFoundError:
            return None

    # --- state other than files ------------------------------------------------------------------

    @cached_property
    def _table_state(self) -> TableState:
        base = TableState() if self.base.checkpoint is None else self.base.checkpoint.table_state
        return base.then(self.commits)

    @property
    def app_transactions(self) -> dict[str, int]:
        """The latest version that each application recorded (`txn` actions)."""
        return {app_id: txn.version for app_id, txn in self._table_state.txns.items()}

    @property
    def domain_metadata(self) -> dict[str, str]:
        """The configuration of each domain that is not removed."""
        return {d.domain: d.configuration for d in self._table_state.domains.values() if not d.removed}

    @property
    def merge_skips(self) -> dict[str, MergeSkip]:
        """The newest `mergeskip` of each file, by canonical path; only search tables have any."""
        return self._table_state.skips

    # --- files -----------------------------------------------------------------------------------

    @cached_property
    def _tail(self) -> dict[FileKey, Add | Remove]:
        return replay_files(self.commits)

    @cached_property
    def shape(self) -> TableShape:
        """What pruning needs to know of the table."""
        from headwater.log.filters.pruning import DEFAULT_STRING_PREFIX_LENGTH, TableShape

        return TableShape(
            self.schema,
            self.metadata.partition_columns,
            self.mapping_mode,
            min(self.configuration[STRING_PREFIX_LENGTH], DEFAULT_STRING_PREFIX_LENGTH),
            empty_text_is_null=self.ctx.dialect.empty_text_is_null,
            time_zone=self.ctx.time_zone,
        )

    @cached_property
    def _live(self) -> LiveFiles:
        from headwater.log.files.live import LiveFiles

        return LiveFiles(self.base, self._tail, self.shape, self.ctx.dialect)

    def files(self, where: str | Expression | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live files, as a table with one row a file.

        Args:
            where: a filter in SQL, or an expression tree. Files that cannot hold a matching row are left out, by
                partition values and by statistics. Files that are kept may still hold no match.
            columns: which columns, of `path`, `partitionValues`, `size`, `modificationTime`, `dataChange`,
                `stats`, `tags`, `deletionVector`, `baseRowId`, `defaultRowCommitVersion` and
                `clusteringProvider`; all of them by default. The files of a search table have the fields of its
                `add` action instead.

        Returns:
            A `pyarrow.Table`. Paths are as the log has them (percent-encoded, relative to the table or absolute),
            the keys of `partitionValues` and of `stats` are physical column names.
        """
        known = self.ctx.dialect.file_columns
        wanted = list(known) if columns is None else list(columns)
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise ValueError(f"unknown columns {unknown}: choose from {list(known)}")
        if isinstance(where, str):
            from headwater.log.filters.sql import parse_filter

            where = parse_filter(where)
        return self._live.table(where, wanted)

    def files_named(self, paths: Collection[str], columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live ones of some data files, by canonical path; other rows are not gathered.

        Args:
            paths: in canonical form (`headwater.log.actions.paths`).
            columns: as for `files`.
        """
        return self._live.named(paths, list(self.ctx.dialect.file_columns if columns is None else columns))

    @cached_property
    def _totals(self) -> tuple[int, int]:
        if self.base.checkpoint is None:  # no Arrow needed for a small log
            adds = [a for a in self._tail.values() if isinstance(a, Add)]
            return len(adds), sum(a.size for a in adds)
        import pyarrow.compute as pc

        sizes = self.files(columns=["size"]).column("size")
        return len(sizes), pc.sum(sizes).as_py() or 0

    @property
    def num_files(self) -> int:
        """Number of live files."""
        return self._totals[0]

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of all live files."""
        return self._totals[1]

    def file_sizes(self) -> list[int]:
        """Return the sizes of all live files, in no particular order."""
        if self.base.checkpoint is None:
            return [a.size for a in self._tail.values() if isinstance(a, Add)]
        sizes: list[int] = self.files(columns=["size"]).column("size").to_pylist()
        return sizes

    def tombstones(self, *, include_expired: bool = False) -> pa.Table:
        """Return the removed files whose retention has not run out (`delta.deletedFileRetentionDuration`).

        Args:
            include_expired: also those that a checkpoint or VACUUM may forget.
        """
        import pyarrow.compute as pc

        removed = self._live.tombstones()
        if include_expired:
            return removed
        oldest = self.ctx.clock_ms() - self.configuration[DELETED_FILE_RETENTION]
        # A remove without a timestamp counts as removed at the epoch.
        return removed.filter(pc.greater(pc.fill_null(removed.column("deletionTimestamp"), 0), oldest))

    # --- history, checks, refresh ------------------------------------------------------------------

    def history(self, limit: int | None = None) -> list[CommitSummary]:
        """Return the commits up to this version, newest first."""
        return read_history(self.ctx, self.version, limit, self.configuration.first_in_commit_version)

    def verify(self) -> list[Discrepancy]:
        """Compare the log with its version checksum, and look for illegal actions after the checkpoint.

        Returns:
            Every discrepancy; an empty list when all is fine or there is no checksum.
        """
        return self.ctx.dialect.verify(self)

    def refresh(self) -> Snapshot:
        """Return the newest version, found by reading only the commits after this one.

        Returns this very snapshot when there is nothing new.
        """
        return self.ctx.dialect.refresh(self)
