"""CLONE: another table with the rows of this one. Shallow clones share its files, deep clones have copies.

One commit makes the clone or brings an existing one up to date: what the source has lost is removed, what it has got is
added, and of a deep clone only new files are copied, before the commit. Copies that no commit names are garbage, and
none takes the place of a file that is there: what the target was before can be restored.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import InvalidCommitError, TableAlreadyExistsError, TableNotFoundError
from headwater.features import clustering
from headwater.features.activation import is_active, supported_features
from headwater.features.domain_metadata import SYSTEM_PREFIX
from headwater.features.iceberg_compat import active_compatibility, check_files_before
from headwater.features.properties import (
    MAX_COLUMN_ID,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    check_no_constraint,
    checked_properties,
)
from headwater.features.protocols import add_feature, at_least, with_features
from headwater.features.row_tracking import materialized_column_names, with_last_row_ids
from headwater.features.table_changes import TableDefinition, changed_table, set_table
from headwater.log.actions import DomainMetadata
from headwater.log.commit import file_key
from headwater.log.draft import Operation
from headwater.log.file_actions import additions, removals
from headwater.log.file_uris import hadoop_root
from headwater.log.opening import open_snapshot
from headwater.log.transaction import Transaction
from headwater.log.tree import claimed
from headwater.maintenance.clone_files import deep_files, shallow_files
from headwater.maintenance.restore import NO_CLUSTERING
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headwater.log.actions import Add, Metadata, Protocol
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.maintenance.clone_files import ClonedFiles, Copy


@dataclass(frozen=True, slots=True)
class Cloned:
    """What a clone has done."""

    version: int
    """Of the target."""
    source_table_size: int
    source_num_of_files: int
    num_removed_files: int
    num_copied_files: int
    removed_files_size: int
    copied_files_size: int


def clone(
    source: Snapshot,
    target: LogContext,
    *,
    is_shallow: bool,
    replace: bool,
    copy: Callable[[list[Copy]], None],
    properties: Mapping[str, str] | None = None,
) -> Cloned:
    """Clone a version of a table.

    Args:
        source: the version.
        target: where the clone goes.
        is_shallow: name the source's files instead of copying them.
        replace: let the clone take the place of a table that is there, whose history stays.
        copy: copies files to the target, all or raises.
        properties: table properties that the clone has instead of the source's, or besides them.

    Raises:
        TableAlreadyExistsError: there is a table at the target, and it may not be replaced.
        InvalidCommitError: source and target are the same table, there are files at the target that belong to none, or
            the files of the source are not what the properties of the clone demand.
        InvalidTablePropertyError: a property cannot be set.
        DeltaConcurrentModificationException: somebody else changed the target meanwhile.
    """
    if _is_one_place(source.uri, target.uri):
        raise InvalidCommitError(f"{source.uri} cannot be cloned onto itself: choose another target.")
    before = _find(target)
    if before is not None and not replace:
        raise TableAlreadyExistsError(
            f"{source.uri} cannot be cloned to {target.uri}: there is a table already, at version {before.version}. "
            "Say replace=True to let the clone take its place."
        )
    transaction = Transaction(target, before)
    set_table(transaction, _definition(source, before, properties or {}, target))
    if is_shallow:
        files = shallow_files(source, target.uri)
    else:
        files = deep_files(source, before, target.new_id)
    with claimed(target) if before is None else nullcontext():
        return _commit(source, transaction, files, copy, is_shallow=is_shallow)


def _commit(
    source: Snapshot,
    transaction: Transaction,
    files: ClonedFiles,
    copy: Callable[[list[Copy]], None],
    *,
    is_shallow: bool,
) -> Cloned:
    """Copy the files, then name them in one commit."""
    new, gone, gone_size = _changes(transaction, files)
    copied = files.copies
    copy(copied)
    transaction.add(new)
    num_copied = sum(1 for c in copied if c.size_bytes is not None)
    metrics = {
        "sourceTableSize": source.size_bytes,
        "sourceNumOfFiles": source.num_files,
        "numRemovedFiles": gone,
        "numCopiedFiles": num_copied,
        "removedFilesSize": gone_size,
        "copiedFilesSize": sum(c.size_bytes or 0 for c in copied),
    }
    parameters = {
        "source": f"delta.`{hadoop_root(source.uri)}`",
        "sourceVersion": source.version,
        "isShallow": is_shallow,
    }
    done = transaction.commit(Operation("CLONE", parameters, metrics), "Serializable")
    return Cloned(done.version, *metrics.values())


def _is_one_place(one: str, other: str) -> bool:
    """Whether two locations are one, or may be: links, and an Azure account that only one of them names."""
    first, second = parse_uri(one), parse_uri(other)
    if first.kind != second.kind:
        return False
    if first.kind == "local":
        return os.path.realpath(first.path) == os.path.realpath(second.path)
    hosts = {location.account for location in (first, second)} - {""}
    return len(hosts) < 2 and (first.bucket.lower(), first.path) == (second.bucket.lower(), second.path)


def _find(ctx: LogContext) -> Snapshot | None:
    try:
        return open_snapshot(ctx)
    except TableNotFoundError:
        return None


def _changes(transaction: Transaction, files: ClonedFiles) -> tuple[list[Add], int, int]:
    """The files to add; those that go are removed. How many those are, and how large."""
    before = transaction.snapshot
    if before is None:
        return files.adds, 0, 0
    transaction.reads_whole_table()
    live = before.files()
    have = {file_key(add) for add in additions(live, data_change=True)}
    wanted = {file_key(add) for add in files.adds}
    removes = [
        remove
        for remove in removals(live, transaction.ctx.clock_ms(), data_change=True)
        if file_key(remove) not in wanted
    ]
    transaction.remove(removes)
    new = [add for add in files.adds if file_key(add) not in have]
    new = with_last_row_ids(new, before, before.version)
    return new, len(removes), sum(remove.size or 0 for remove in removes)


def _definition(
    source: Snapshot, before: Snapshot | None, properties: Mapping[str, str], target: LogContext
) -> TableDefinition:
    """The source's definition with other properties, under the target's own name and id."""
    own = None if before is None else before.metadata
    for name, value in properties.items():
        if source.metadata.configuration.get(name) != value:
            check_no_constraint(name, "add it to the clone with addConstraint, which looks at the rows")
    configuration, wishes = checked_properties(properties)
    wanted = msgspec.structs.replace(
        source.metadata,
        id=target.new_id() if own is None else own.id,
        name=None if own is None else own.name,
        description=source.metadata.description if own is None else own.description,
        created_time=target.clock_ms() if own is None else own.created_time,
        configuration={**source.metadata.configuration, **configuration},
    )
    defined = changed_table(
        source.protocol, source.metadata, wanted, domains=source.domain_metadata, new_id=target.new_id
    )
    protocol = defined.protocol
    for feature in wishes.features:
        protocol = add_feature(protocol, feature)
    protocol = at_least(protocol, wishes.min_reader_version, wishes.min_writer_version)
    if before is not None:
        protocol = with_features(before.protocol, sorted(supported_features(protocol)))
        protocol = at_least(protocol, source.protocol.min_reader_version, source.protocol.min_writer_version)
    _check_compatibility(source, protocol, defined)
    configuration = _configuration(protocol, defined.metadata, before, target)
    metadata = msgspec.structs.replace(defined.metadata, configuration=configuration)
    return TableDefinition(protocol, metadata, tuple(_domains(source, before)))


def _check_compatibility(source: Snapshot, protocol: Protocol, defined: TableDefinition) -> None:
    """Raise if properties of the clone demand more of its files than those of the source were written for."""
    version = active_compatibility(protocol, defined.metadata)
    if version is not None and active_compatibility(source.protocol, source.metadata) is not version:
        check_files_before(version, source, defined.metadata.partition_columns, defined.schema)


def _configuration(
    protocol: Protocol, metadata: Metadata, before: Snapshot | None, target: LogContext
) -> dict[str, str]:
    """The properties, with those that writers keep for themselves as the target needs them."""
    configuration = dict(metadata.configuration)
    had = {} if before is None else before.metadata.configuration
    if MAX_COLUMN_ID in configuration and MAX_COLUMN_ID in had:
        configuration[MAX_COLUMN_ID] = str(max(int(configuration[MAX_COLUMN_ID]), int(had[MAX_COLUMN_ID])))
    hidden = {key: had[key] for key in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN) if key in had}
    for key in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN):
        # Ids that rows of the source's files carry along mean nothing in the clone, which gives its own.
        configuration.pop(key, None)
    if is_active("rowTracking", protocol, metadata):
        configuration |= materialized_column_names(hidden, target.new_id)
    return configuration


def _domains(source: Snapshot, before: Snapshot | None) -> Iterator[DomainMetadata]:
    """The clustering columns and the users' own domains, where they differ from what the target has."""
    had = {} if before is None else before.domain_metadata
    wanted = {
        name: text
        for name, text in source.domain_metadata.items()
        if name == clustering.DOMAIN or not name.startswith(SYSTEM_PREFIX)
    }
    if clustering.DOMAIN in had:
        wanted.setdefault(clustering.DOMAIN, NO_CLUSTERING)
    yield from (DomainMetadata(name, text) for name, text in wanted.items() if had.get(name) != text)
