"""Writing the version checksum after a commit (spec: "Version Checksum File").

Each checksum follows from the one before and the files that the commits since then touch, so an append costs the same
in a table of ten files and of a million; other files are looked up in the state before, as commits of others may add a
file that is live or remove one that is not. Only when nothing before is known are all live files counted. An existing
checksum is never overwritten.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headwater.errors import ObjectAlreadyExistsError
from headwater.log import names
from headwater.log.actions import Add
from headwater.log.checksum import VersionChecksum, read_checksum
from headwater.log.checksum_counts import CountedFile, Counts, count_files, live_in_checkpoint, nothing
from headwater.log.encoding import domain_fields, metadata_fields, protocol_fields
from headwater.log.replay import commit_files, replay_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.log.actions import DomainMetadata, Remove, Txn
    from headwater.log.commit import CommitActions, FileKey
    from headwater.log.snapshot import Snapshot

_Named = TypeVar("_Named")

_KNOWN = "_known_checksum"
_LOOK_BACK = 8
"""How many versions back a checksum is looked for before the files are counted."""
_MOST_LISTED = 100
"""A longer list of transactions or domains is left out: it would be written again with every commit."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A checksum that this process has worked out, or found to belong to its commit."""

    version: int
    checksum: VersionChecksum


def write_checksum(snapshot: Snapshot, before: Snapshot | None) -> None:
    """Write the checksum of a version that has just been committed.

    Args:
        snapshot: the table right after the commit.
        before: the version that it followed; None when the commit created the table.

    Raises:
        StorageError: the store could not write it.
    """
    checksum = _with_state(snapshot, _counted(snapshot, before))
    vars(snapshot)[_KNOWN] = _Known(snapshot.version, checksum)
    with contextlib.suppress(ObjectAlreadyExistsError):
        snapshot.ctx.store.put_if_absent(names.checksum_key(snapshot.version), encode_checksum(checksum))


def carry_over(snapshot: Snapshot, to: Snapshot) -> Snapshot:
    """Hand on what is known of a version's checksum to another snapshot of that version."""
    if _KNOWN in vars(snapshot):
        vars(to)[_KNOWN] = vars(snapshot)[_KNOWN]
    return to


def encode_checksum(checksum: VersionChecksum) -> bytes:
    """The content of a `.crc` file; optional fields that are not known are left out."""
    fields: dict[str, Any] = {
        name: value
        for field, name in zip(VersionChecksum.__struct_fields__, VersionChecksum.__struct_encode_fields__, strict=True)
        if (value := getattr(checksum, field)) is not None
    }
    if checksum.metadata is not None:
        fields["metadata"] = metadata_fields(checksum.metadata)
    if checksum.protocol is not None:
        fields["protocol"] = protocol_fields(checksum.protocol)
    if checksum.domain_metadata is not None:
        fields["domainMetadata"] = [domain_fields(domain) for domain in checksum.domain_metadata]
    return msgspec.json.encode(fields)


# --- the checksum before, and the commits since --------------------------------------------------------


def _counted(snapshot: Snapshot, before: Snapshot | None) -> VersionChecksum:
    """The numbers of a version; everything else is as it was in the checksum before."""
    if before is None:
        start = _Known(snapshot.version - 1, nothing())
        return _after(start, snapshot, before) or count_files(snapshot)
    known = vars(snapshot).get(_KNOWN)
    if known is not None and (found := _after(known, snapshot, before)) is not None:
        return found
    oldest = before.version - _LOOK_BACK if known is None else known.version
    for version in range(before.version, max(oldest, -1), -1):
        if not _has_commits(snapshot, version + 1):
            break
        read = read_checksum(snapshot.ctx.store, version)
        if isinstance(read, VersionChecksum) and _belongs(read, snapshot, version):
            found = _after(_Known(version, read), snapshot, before)
            if found is not None:
                return found
    return count_files(snapshot)


def _has_commits(snapshot: Snapshot, first: int) -> bool:
    """Whether all commits from a version on are at hand, one by one."""
    since = [commit for commit in snapshot.commits if commit.end_version >= first]
    return [commit.version for commit in since] == list(range(first, snapshot.version + 1)) and all(
        commit.version == commit.end_version for commit in since
    )


def _belongs(checksum: VersionChecksum, snapshot: Snapshot, version: int) -> bool:
    """Whether a checksum that was found was written by the transaction that made its version, and says enough."""
    if checksum.num_files is None or checksum.table_size_bytes is None:
        return False
    commit = next((c for c in snapshot.commits if c.version == c.end_version == version), None)
    # Behind a checkpoint the commit itself is not at hand: then the id cannot be compared.
    return commit is None or (commit.commit_info or {}).get("txnId") == checksum.txn_id


def _after(known: _Known, snapshot: Snapshot, before: Snapshot | None) -> VersionChecksum | None:
    """The checksum of the snapshot, from that of an earlier version; None if that one was wrong."""
    if not _has_commits(snapshot, known.version + 1):
        return None
    since = [commit for commit in snapshot.commits if commit.version > known.version]
    now = replay_files(since)
    counts = Counts(known.checksum)
    # What the actions of a commit do depends on what was there: others may add a file that is live, or remove one that
    # is not, and may say another size than the log did.
    for file in _live_before(snapshot, known.version, before, _touched(now, since)).values():
        counts.count(file, -1)
    for action in now.values():
        if isinstance(action, Add):
            counts.count(CountedFile.of(action), 1)
    txns, domains = known.checksum.set_transactions, known.checksum.domain_metadata
    for commit in since:
        txns = _updated(txns, commit.table_actions.txns, attrgetter("app_id"))
        domains = _updated(domains, commit.table_actions.domains, attrgetter("domain"))
    return counts.into(msgspec.structs.replace(known.checksum, set_transactions=txns, domain_metadata=domains))


def _touched(now: dict[FileKey, Add | Remove], since: list[CommitActions]) -> set[FileKey]:
    """The files that may have been live before some commits: not those that only the last of them, which is ours, adds
    with new rows, as they have names that nobody else has.
    """
    by_others = {key for commit in since[:-1] for key in commit_files(commit)}
    return {
        key for key, action in now.items() if key in by_others or not isinstance(action, Add) or not action.data_change
    }


def _live_before(
    snapshot: Snapshot, version: int, before: Snapshot | None, keys: set[FileKey]
) -> dict[FileKey, CountedFile]:
    """Of some files, those that were live at a version from which on all commits are at hand."""
    if before is None or not keys:
        return {}
    tail = (
        before._tail
        if before.version == version
        else replay_files(commit for commit in snapshot.commits if commit.version <= version)
    )
    found = {key: CountedFile.of(action) for key in keys if isinstance(action := tail.get(key), Add)}
    return found | live_in_checkpoint(snapshot, keys - tail.keys())


def _updated(known: list[_Named] | None, new: dict[str, _Named], name: Callable[[_Named], str]) -> list[_Named] | None:
    """A list of `txn` or `domainMetadata` actions after those of a commit."""
    return None if known is None else list({**{name(action): action for action in known}, **new}.values())


# --- everything that is not counted ---------------------------------------------------------------------


def _with_state(snapshot: Snapshot, counted: VersionChecksum) -> VersionChecksum:
    """The checksum with protocol, metaData, the transaction and what the table records beside files."""
    commit = snapshot.commits[-1]
    transaction = (commit.commit_info or {}).get("txnId")
    txns: list[Txn] | None = counted.set_transactions
    domains: list[DomainMetadata] | None = counted.domain_metadata
    if "_table_state" in vars(snapshot) or snapshot.base.checkpoint is None:
        state = snapshot._table_state
        txns, domains = list(state.txns.values()), list(state.domains.values())
    if domains is not None:
        domains = [domain for domain in domains if not domain.removed]
    return msgspec.structs.replace(
        counted,
        num_metadata=1,
        num_protocol=1,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        txn_id=transaction if isinstance(transaction, str) else None,
        in_commit_timestamp_opt=commit.in_commit_timestamp if snapshot.has_in_commit_timestamps else None,
        set_transactions=txns if txns is None or len(txns) <= _MOST_LISTED else None,
        domain_metadata=domains if domains is None or len(domains) <= _MOST_LISTED else None,
        all_files=None,
    )
