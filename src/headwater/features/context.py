"""`TableRef`, from which a table's log is opened with everything its features demand.

That is the check whether a protocol can be read or written, and the rules for commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from os import fspath
from typing import TYPE_CHECKING

from headwater.features.definition import needed_features_rule, table_shape_rule
from headwater.features.protocols import protocol_rule
from headwater.features.registry import FEATURES, check_readable, check_writable
from headwater.features.symlink_manifests import symlink_manifest_rule, update_manifests
from headwater.log.configuration.properties import SYMLINK_MANIFESTS
from headwater.log.context import LogContext
from headwater.log.opening import open_snapshot
from headwater.storage import open_store
from headwater.storage.elsewhere import OtherStores
from headwater.storage.redaction import redacted, shortened
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import date, datetime
    from os import PathLike

    from headwater.log.commit.draft import CommitRule
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore


def _rules() -> Iterator[CommitRule]:
    """Yield all checks, general ones first, then the rules that complete a commit."""
    yield from (protocol_rule, needed_features_rule, table_shape_rule)
    # Two versions of one feature may share a rule.
    yield from dict.fromkeys(f.check_commit for f in FEATURES.values() if f.check_commit is not None)
    yield symlink_manifest_rule
    yield from (f.complete_commit for f in FEATURES.values() if f.complete_commit is not None)


COMMIT_RULES: tuple[CommitRule, ...] = tuple(_rules())
"""What table features demand of every commit. They run again on every attempt, on the newest table."""


@dataclass(frozen=True, slots=True, repr=False)
class TableRef:
    """A table by its location, with the options of its object store. Every command takes one.

    Attributes:
        location: a path or URI, as for `headwater.open_log`. Whether a table is there shows when it is opened.
        storage_options: options of the object store, by the names that deltalake uses.
    """

    location: str | PathLike[str]
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return the location without secrets, for messages."""
        return shortened(redacted(fspath(self.location)))

    def __repr__(self) -> str:
        return f"TableRef({str(self)!r})"

    def resolved(self) -> TableRef:
        """Return a reference to the same table that means the same in another process."""
        options = None if self.storage_options is None else dict(self.storage_options)
        return TableRef(parse_uri(self.location).uri, options)

    def context(self, *, trust_checksum: bool = False, time_zone: str = "UTC") -> LogContext:
        """Return the context in which the table's log is read and written.

        Args:
            trust_checksum: open from the version checksum where it can be matched with its commit.
            time_zone: of timestamps among the partition values that do not name theirs.
        """
        store = open_store(self.location, self.storage_options)
        return LogContext(
            store=store,
            check_readable=check_readable,
            check_writable=check_writable,
            commit_rules=COMMIT_RULES,
            after_commit=(keep_manifests,),
            storage_options=None if self.storage_options is None else dict(self.storage_options),
            open_absolute=_located_elsewhere(store.uri, self.storage_options),
            trust_checksum=trust_checksum,
            time_zone=time_zone,
        )

    def snapshot(self, version: int | None = None, timestamp: str | datetime | date | int | None = None) -> Snapshot:
        """Open a version of the log; the newest by default."""
        return open_snapshot(self.context(), version=version, timestamp=timestamp)


def _located_elsewhere(uri: str, options: Mapping[str, str] | None) -> Callable[[str], tuple[ObjectStore, str]]:
    """Return a function that finds the store and key of a file outside the table; few tables have any."""
    stores = cache(lambda: OtherStores(uri, options))
    return lambda path: stores().locate(path)


def keep_manifests(snapshot: Snapshot) -> None:
    """Bring the manifests for other engines up to date, on tables that ask for it."""
    if snapshot.configuration[SYMLINK_MANIFESTS]:
        update_manifests(snapshot)
