"""What keeps a search table in shape: merging, purging, partitions, checkpoints; and what the table says of itself.

The part of `SearchTable` that has nothing to do with rows: a thin face over `spark/search`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.storage.redaction import redacted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime

    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.snapshot import Snapshot
    from headwater.spark.search.merge_splits import MergedSplits
    from headwater.spark.search.opening import OpenTable
    from headwater.spark.search.purge import Purged
    from headwater.spark.write import Written


class MaintainedSearchTable:
    """A search table at a path, as those see it who look after it."""

    def __init__(self, spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._spark = spark
        self._path = path
        self._storage_options = storage_options
        self._options: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shortened(redacted(self._path))!r})"

    @property
    def snapshot(self) -> Snapshot:
        """The newest version of the table's log."""
        return self._open().snapshot

    # --- maintenance ------------------------------------------------------------------------------------

    def merge_splits(
        self,
        target_size: int | str = "4G",
        *,
        where: str | None = None,
        max_dest_splits: int | None = None,
    ) -> MergedSplits:
        """Merge small splits into larger ones, in one commit that changes no row.

        Splits that cannot be read are left alone and recorded (`mergeskip`); they are tried again after a while. Others
        may append, search and merge at the same time.

        Args:
            target_size: about how large splits become: bytes, or text such as `512M`.
            where: only in the partitions that match this condition in SQL.
            max_dest_splits: make no more than so many splits in this run.
        """
        from headwater.spark.search.merge_splits import merge_splits

        return merge_splits(self._open(), target_size, where=where, max_dest_splits=max_dest_splits)

    mergeSplits = merge_splits

    def purge(self, older_than_hours: float | None = None, *, dry_run: bool = False) -> Purged:
        """Delete split files that no version of the last hours needs: removed ones, and leftovers of failed writes.

        Args:
            older_than_hours: a week by default; no less than a day, unless
                `spark.indextables.purge.retentionCheckEnabled` is `false`.
            dry_run: only find out what would be deleted.
        """
        from headwater.spark.search.purge import purge

        return purge(self._open(), older_than_hours, dry_run=dry_run)

    def drop_partitions(self, where: str) -> Written | None:
        """Remove whole partitions, in one commit. None if none matches.

        Args:
            where: a condition in SQL on partition columns alone.
        """
        from headwater.spark.search.drop_partitions import drop_partitions

        return drop_partitions(self._open(), where)

    dropPartitions = drop_partitions

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, for readers to start from; its version."""
        from headwater.spark.search.opening import checkpoint

        return checkpoint(self._open())

    def prewarm(self, *, filter: str | None = None) -> int:  # noqa: A002
        """Unpack splits into the caches of the machines that search them, before anyone waits for it.

        Args:
            filter: only splits that may hold rows which match this condition in SQL.

        Returns:
            How many splits are warm now.
        """
        from headwater.spark.search.prewarm import prewarm

        return prewarm(self._open(), filter)

    def invalidate_cache(self) -> None:
        """Forget what this process remembers of the table's log; see `spark.indextables.transaction.cache.*`."""
        from headwater.search.table_log import invalidate_cache

        invalidate_cache(self._path)

    invalidateCache = invalidate_cache

    def upgrade_protocol(
        self,
        min_reader_version: int,
        min_writer_version: int,
        *,
        reader_features: Iterable[str] = (),
        writer_features: Iterable[str] = (),
    ) -> int:
        """Let the table ask for more of its readers and writers; the version that asks for it."""
        from headwater.search.table_log import upgrade_protocol

        upgraded = upgrade_protocol(
            self.snapshot,
            min_reader_version,
            min_writer_version,
            reader_features=reader_features,
            writer_features=writer_features,
        )
        return upgraded.version

    upgradeProtocol = upgrade_protocol

    # --- what it is ---------------------------------------------------------------------------------------

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits of the table, newest first."""
        from headwater.spark.describe import history_frame

        return history_frame(self._spark, self.snapshot, limit)

    def detail(self) -> DataFrame:
        """One row about the table."""
        from headwater.spark.search.describe import detail_frame

        return detail_frame(self._open())

    def _open(self, version: int | None = None, timestamp: str | datetime | date | int | None = None) -> OpenTable:
        from headwater.spark.search.opening import open_table, session_options

        if self._options is None:
            self._options = session_options(self._spark)
        return open_table(self._spark, self._path, version, timestamp, self._storage_options, self._options)
