"""A table's log with everything its features demand: the gate for readers and writers, and the rules for commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.features.gate import check_readable, check_writable
from headwater.log.context import LogContext
from headwater.storage import open_store
from headwater.storage.elsewhere import OtherStores

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from headwater.log.draft import Attempt, Draft
    from headwater.log.snapshot import Snapshot

MANIFESTS_PROPERTY = "delta.compatibility.symlinkFormatManifest.enabled"


def table_context(
    path: str | PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    trust_checksum: bool = False,
    time_zone: str = "UTC",
) -> LogContext:
    """The context in which a table is read and written; whether there is a table is not looked at.

    Args:
        path: a path or URI, as for `headwater.open_log`.
        storage_options: options of the object store, by the names that deltalake uses.
        trust_checksum: open from the version checksum where it can be matched with its commit.
        time_zone: of timestamps among the partition values that do not name theirs.
    """
    store = open_store(path, storage_options)
    return LogContext(
        store=store,
        check_readable=check_readable,
        check_writable=check_writable,
        commit_rules=(feature_rules,),
        after_commit=(keep_manifests,),
        open_absolute=OtherStores(store.uri, storage_options).locate,
        trust_checksum=trust_checksum,
        time_zone=time_zone,
    )


def keep_manifests(snapshot: Snapshot) -> None:
    """Bring the manifests for other engines up to date, on tables that ask for it."""
    if snapshot.metadata.configuration.get(MANIFESTS_PROPERTY, "false").lower() == "true":
        from headwater.features.symlink_manifests import update_manifests

        update_manifests(snapshot)


def feature_rules(draft: Draft, attempt: Attempt) -> Draft:
    """All rules of `COMMIT_RULES`, imported when something is committed: those who only read do not wait for them."""
    from headwater.features.rules import COMMIT_RULES

    for rule in COMMIT_RULES:
        draft = rule(draft, attempt)
    return draft
