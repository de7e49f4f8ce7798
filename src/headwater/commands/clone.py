"""CLONE: another table with the rows of this one. Shallow clones share its files, deep clones have copies.

One commit makes the clone, or brings an existing one up to date: it removes what the source no longer has and adds what
is new. A shallow clone names the source's files by absolute URIs. A deep clone copies files before the commit, under
unique names, so a copy never replaces a file of the target, and what the target was before can be restored. The name of
a copy says which file of the source it comes from, so cloning again copies only new files.

Within one bucket the store copies by itself, and from disk to disk threads of this process do. Between stores Spark's
executors copy (`headwater.spark.commands`).
"""

from __future__ import annotations

import os
import re
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import pyarrow.compute as pc

from headwater.commands.create import find_table
from headwater.commands.progress import Silence
from headwater.commands.restore import NO_CLUSTERING
from headwater.commands.table_keys import keys_below
from headwater.errors import InvalidCommitError, ObjectNotFoundError, StorageError, TableAlreadyExistsError
from headwater.features import clustering
from headwater.features.basic_rules import SYSTEM_PREFIX
from headwater.features.context import TableRef
from headwater.features.definition import TableDefinition, changed_table, set_table
from headwater.features.iceberg_compat import active_compatibility, check_files_before
from headwater.features.protocols import add_feature, at_least, with_features
from headwater.features.registry import is_active, supported_features
from headwater.features.row_tracking import materialized_column_names, with_last_row_ids
from headwater.log.actions.decode import file_key
from headwater.log.actions.deletion_vectors import vector_path, z85_encode
from headwater.log.actions.model import DomainMetadata
from headwater.log.actions.paths import canonical, hadoop_root, partition_directory
from headwater.log.commit.draft import Operation
from headwater.log.commit.transaction import Transaction
from headwater.log.configuration.properties import (
    MAX_COLUMN_ID,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    check_no_constraint,
    checked_properties,
)
from headwater.log.files.listing import claimed
from headwater.log.files.live import additions, removals
from headwater.storage import open_store
from headwater.storage.copying import copy_object
from headwater.storage.elsewhere import OtherStores
from headwater.storage.options import clone_options
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import date, datetime

    import pyarrow as pa

    from headwater.commands.progress import Progress
    from headwater.log.actions.model import Add, DeletionVector
    from headwater.log.configuration import TableConfiguration
    from headwater.log.context import LogContext
    from headwater.log.snapshot import Snapshot
    from headwater.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Cloned:
    """The metrics of a clone, and the version that it made."""

    version: int
    """Of the target."""
    source_table_size: int
    source_num_of_files: int
    num_removed_files: int
    num_copied_files: int
    removed_files_size: int
    copied_files_size: int


@dataclass(frozen=True, slots=True)
class CloneRequest:
    """Which version of a table to clone, and to where.

    Attributes:
        source: the table.
        target: where the clone goes.
        version: the version; the newest by default.
        timestamp: or the point in time.
        is_shallow: name the source's files instead of copying them.
        replace: let the clone take the place of a table that is there, whose history stays.
        properties: table properties that the clone has instead of the source's, or besides them.
    """

    source: TableRef
    target: TableRef
    version: int | None = None
    timestamp: str | datetime | date | int | None = None
    is_shallow: bool = False
    replace: bool = False
    properties: Mapping[str, str] | None = None

    @property
    def clone_options(self) -> Mapping[str, str] | None:
        """The storage options to open the clone with: a shallow clone also needs those of its source."""
        source, target = self.source, self.target
        if not self.is_shallow:
            return target.storage_options
        return clone_options(target.location, target.storage_options, source.location, source.storage_options)


def clone_target(source: TableRef, location: str, options: Mapping[str, str] | None = None) -> TableRef:
    """Return the target at a location: with the source's options, unless others are given or its store is another."""
    if options is None and parse_uri(location).kind == parse_uri(source.location).kind:
        options = source.storage_options
    return TableRef(location, options)


def clone(request: CloneRequest, copy: Callable[[list[Copy]], None]) -> Cloned:
    """Clone a version of a table; `copy` copies files to the target, all of them, or raises.

    Raises:
        TableAlreadyExistsError: there is a table at the target, and it may not be replaced.
        InvalidCommitError: source and target are the same table, there are files at the target that belong to none, or
            the files of the source are not what the properties of the clone demand.
        InvalidTablePropertyError: a property cannot be set.
        DeltaConcurrentModificationException: somebody else changed the target meanwhile.
    """
    source = request.source.snapshot(request.version, request.timestamp)
    target = request.target.context()
    if _is_one_place(source.uri, target.uri):
        raise InvalidCommitError(f"{source.uri} cannot be cloned onto itself: choose another target.")
    before = find_table(target)
    if before is not None and not request.replace:
        raise TableAlreadyExistsError(
            f"{source.uri} cannot be cloned to {target.uri}: there is a table already, at version {before.version}. "
            "Say replace=True to let the clone take its place."
        )
    transaction = Transaction(target, before)
    set_table(transaction, _definition(source, before, request.properties or {}, target))
    if request.is_shallow:
        files = shallow_files(source, target.uri)
    else:
        files = deep_files(source, before, target.new_id)
    with claimed(target) if before is None else nullcontext():
        return _commit(source, transaction, files, copy, is_shallow=request.is_shallow)


def _commit(
    source: Snapshot,
    transaction: Transaction,
    files: ClonedFiles,
    copy: Callable[[list[Copy]], None],
    *,
    is_shallow: bool,
) -> Cloned:
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
    """Return whether two locations are the same, or may be: links, an Azure account that only one of them names."""
    first, second = parse_uri(one), parse_uri(other)
    if first.kind != second.kind:
        return False
    if first.kind == "local":
        return os.path.realpath(first.path) == os.path.realpath(second.path)
    hosts = {location.account for location in (first, second)} - {""}
    return len(hosts) < 2 and (first.bucket.lower(), first.path) == (second.bucket.lower(), second.path)


def _changes(transaction: Transaction, files: ClonedFiles) -> tuple[list[Add], int, int]:
    """Remove the files that the clone no longer has; return those to add, and the number and size of the removed."""
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
    """Return the source's definition with other properties, under the target's own name and id."""
    own = None if before is None else before.metadata
    for name, value in properties.items():
        if source.metadata.configuration.get(name) != value:
            check_no_constraint(name, "add it to the clone with addConstraint, which looks at the rows")
    configuration, demands = checked_properties(properties)
    wanted = msgspec.structs.replace(
        source.metadata,
        id=target.new_id() if own is None else own.id,
        name=None if own is None else own.name,
        description=source.metadata.description if own is None else own.description,
        created_time=target.clock_ms() if own is None else own.created_time,
        configuration={**source.metadata.configuration, **configuration},
    )
    defined = changed_table(source.configuration, wanted, domains=source.domain_metadata, new_id=target.new_id)
    protocol = defined.protocol
    for feature in demands.features:
        protocol = add_feature(protocol, feature)
    protocol = at_least(protocol, demands.min_reader_version, demands.min_writer_version)
    if before is not None:
        protocol = with_features(before.protocol, sorted(supported_features(protocol)))
        protocol = at_least(protocol, source.protocol.min_reader_version, source.protocol.min_writer_version)
    table = defined.configuration.changed(protocol, None)
    _check_compatibility(source, table)
    metadata = msgspec.structs.replace(defined.metadata, configuration=_properties(table, before, target))
    return TableDefinition(table.changed(None, metadata), tuple(_domains(source, before)))


def _check_compatibility(source: Snapshot, table: TableConfiguration) -> None:
    """Raise if properties of the clone demand more of its files than those of the source were written for."""
    version = active_compatibility(table)
    if version is not None and active_compatibility(source.configuration) is not version:
        check_files_before(version, source, table.partition_columns, table.schema)


def _properties(table: TableConfiguration, before: Snapshot | None, target: LogContext) -> dict[str, str]:
    """The properties, with those that writers record as the target needs them."""
    properties = dict(table.properties)
    had = {} if before is None else before.metadata.configuration
    highest = MAX_COLUMN_ID.name
    if highest in properties and highest in had:
        properties[highest] = str(max(int(properties[highest]), int(had[highest])))
    row_columns = (ROW_ID_COLUMN.name, ROW_COMMIT_VERSION_COLUMN.name)
    for key in row_columns:
        # Ids that rows of the source's files carry along mean nothing in the clone, which gives its own.
        properties.pop(key, None)
    if is_active("rowTracking", table):
        properties |= materialized_column_names({key: had[key] for key in row_columns if key in had}, target.new_id)
    return properties


def _domains(source: Snapshot, before: Snapshot | None) -> Iterator[DomainMetadata]:
    """Return the clustering columns and the users' own domains, where the target has others."""
    had = {} if before is None else before.domain_metadata
    wanted = {
        name: text
        for name, text in source.domain_metadata.items()
        if name == clustering.DOMAIN or not name.startswith(SYSTEM_PREFIX)
    }
    if clustering.DOMAIN in had:
        wanted.setdefault(clustering.DOMAIN, NO_CLUSTERING)
    yield from (DomainMetadata(name, text) for name, text in wanted.items() if had.get(name) != text)


_SAFE = "/!$&'()*+,;=:@~"
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
_ENDING = re.compile(r"(?:\.[A-Za-z0-9_\-]{1,16}){1,4}$")
_ORIGIN_DIGITS = 32
_COPY = rf"(?:^|/)part-(?P<origin>[0-9a-f]{{{_ORIGIN_DIGITS}}})-[0-9a-f\-]{{36}}(?:\.[^/]*)?$"
_UUID_TEXT_LENGTH = 20


@dataclass(frozen=True, slots=True)
class Copy:
    source: str
    """An absolute URI, percent-encoded."""
    key: str
    """Where it goes, below the target."""
    size_bytes: int | None
    """None if the log does not say (files of deletion vectors)."""


@dataclass(frozen=True)
class ClonedFiles:
    """The live files of a source as the clone has them."""

    adds: list[Add]
    copies: list[Copy] = field(default_factory=list)
    """What must be copied for them; nothing for a shallow clone."""


def shallow_files(source: Snapshot, target_uri: str) -> ClonedFiles:
    uri = source.uri
    adds: list[Add] = []
    for add in _additions(source):
        vector = add.deletion_vector
        if vector is not None and vector.storage_type == "u":
            path = f"{uri}/{quote(vector_path(vector), safe=_SAFE)}"
            vector = msgspec.structs.replace(vector, storage_type="p", path_or_inline_dv=path)
        path = absolute_uri(add.path, uri, target_uri)
        adds.append(msgspec.structs.replace(add, path=path, deletion_vector=vector))
    return ClonedFiles(adds)


def deep_files(source: Snapshot, before: Snapshot | None, new_id: Callable[[], str]) -> ClonedFiles:
    """Return the files of a source under new names, or under those of copies that the target (`before`) has."""
    return _DeepFiles(source, before, new_id).all()


def _additions(source: Snapshot) -> list[Add]:
    """Return the live files without row ids: the clone gives its own, as in the reference implementation."""
    found = additions(source.files(), data_change=True)
    return [msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None) for add in found]


def absolute_uri(path: str, uri: str, target_uri: str) -> str:
    """Return a path of a table's log as an absolute URI, which means the same in the log of another table."""
    if not _ABSOLUTE.match(path):
        return f"{uri}/{path}"
    location = parse_uri(uri)
    if not path.startswith("/"):
        return path
    if location.kind == "local":
        return path if parse_uri(target_uri).kind == "local" else f"file://{path}"
    host = f"{location.bucket}@{location.account_host}" if location.account_host else location.bucket
    return f"{location.scheme}://{host}{path}"


class _DeepFiles:
    def __init__(self, source: Snapshot, before: Snapshot | None, new_id: Callable[[], str]) -> None:
        self._source = source
        self._new_id = new_id
        self._files: dict[str, str] = {} if before is None else _copies_in(before)
        """By its origin the path of a copy in the target."""
        self._vectors: dict[str, str] = {} if before is None else _vector_copies_in(before)
        self._copies: list[Copy] = []
        self._partitions = tuple(source.partition_columns) if source.mapping_mode == "none" else ()

    def all(self) -> ClonedFiles:
        adds = [self._deep(add) for add in _additions(self._source)]
        return ClonedFiles(adds, self._copies)

    def _deep(self, add: Add) -> Add:
        source = absolute_uri(add.path, self._source.uri, self._source.uri)
        origin = self._origin(canonical(source), add.size, add.modification_time)
        if origin not in self._files:
            key = self._new_key(add, origin)
            self._files[origin] = quote(key, safe=_SAFE)
            self._copies.append(Copy(source, key, add.size))
        vector = add.deletion_vector
        if vector is not None and vector.storage_type != "i":
            vector = self._deep_vector(vector)
        return msgspec.structs.replace(add, path=self._files[origin], deletion_vector=vector)

    def _deep_vector(self, vector: DeletionVector) -> DeletionVector:
        """Move a vector to the copy of its file, which other vectors may share."""
        source = vector.path_or_inline_dv
        if vector.storage_type == "u":
            source = f"{self._source.uri}/{quote(vector_path(vector), safe=_SAFE)}"
        source = absolute_uri(source, self._source.uri, self._source.uri)
        origin = self._origin(canonical(source), None, None)
        is_new = origin not in self._vectors
        if is_new:
            identifier = bytes.fromhex(self._new_id().replace("-", ""))
            self._vectors[origin] = origin + z85_encode(identifier)
        moved = msgspec.structs.replace(vector, storage_type="u", path_or_inline_dv=self._vectors[origin])
        if is_new:
            self._copies.append(Copy(source, vector_path(moved), None))
        return moved

    def _origin(self, path: str, size: int | None, modified_ms: int | None) -> str:
        """Identify what a copy is made of: a data file never changes, so its table and path are enough."""
        known = (self._source.metadata.id, path, str(size), str(modified_ms))
        return sha256("\0".join(known).encode("utf-8", "surrogateescape")).hexdigest()[:_ORIGIN_DIGITS]

    def _new_key(self, add: Add, origin: str) -> str:
        """Return a unique key in the directories of the file's partition, with the ending of its name."""
        ending = _ENDING.search(canonical(add.path).rpartition("/")[2])
        name = f"part-{origin}-{self._new_id()}{'' if ending is None else ending[0]}"
        values = {column: add.partition_values.get(column) or None for column in self._partitions}
        return "/".join(filter(None, (partition_directory(values), name)))


def _copies_in(target: Snapshot) -> dict[str, str]:
    """Return the live copies in a target by their origin, without files that it shares with another table."""
    files = target.files(columns=["path"])
    paths = files.column("path").filter(keys_below(files.column("path"), target.uri).is_valid())
    return _by_origin(paths, _COPY)


def _vector_copies_in(target: Snapshot) -> dict[str, str]:
    vectors = target.files(columns=["deletionVector"]).column("deletionVector").drop_null()
    own = pc.struct_field(vectors, ["pathOrInlineDv"]).filter(pc.equal(pc.struct_field(vectors, ["storageType"]), "u"))
    return _by_origin(own, rf"^(?P<origin>[0-9a-f]{{{_ORIGIN_DIGITS}}})(?s:.{{{_UUID_TEXT_LENGTH}}})$")


def _by_origin(texts: pa.ChunkedArray, pattern: str) -> dict[str, str]:
    found = pc.extract_regex(texts, pattern=pattern)
    known = found.is_valid()
    origins = pc.struct_field(found.filter(known), ["origin"]).to_pylist()
    return dict(zip(origins, texts.filter(known).to_pylist(), strict=True))


_PARALLEL = 16


class Sources:
    """The stores that the files of a clone's source are in: mostly one, the source's own."""

    def __init__(self, table: TableRef) -> None:
        self._table = open_store(table.location, table.storage_options)
        self._root = canonical(self._table.uri).rstrip("/") + "/"
        self._elsewhere = OtherStores(self._table.uri, table.storage_options)

    def locate(self, uri: str) -> tuple[ObjectStore, str]:
        """Return the store and the key of a file, by its absolute, percent-encoded URI.

        Raises:
            ForeignLocationError: it lies in a store for which there are no options.
        """
        plain = canonical(uri)
        if plain.startswith(self._root):
            return self._table, plain[len(self._root) :]
        return self._elsewhere.locate(plain)


def copy_file(sources: Sources, target: ObjectStore, copy: Copy) -> int:
    """Copy one file, and return its size."""
    store, key = sources.locate(copy.source)
    try:
        return copy_object(store, key, target, copy.key, copy.size_bytes).size_bytes
    except ObjectNotFoundError as error:
        raise StorageError(
            f"{copy.source} cannot be cloned: the file is not there. Has VACUUM deleted it? Clone a newer version."
        ) from error


def copy_here(sources: Sources, target: ObjectStore, copies: Sequence[Copy], progress: Progress | None = None) -> None:
    """Copy files in threads of this process: all of them, or raise."""
    progress = progress or Silence()
    progress.begin("Copying files", len(copies))

    def run(copy: Copy) -> None:
        copy_file(sources, target, copy)
        progress.advance()

    with ThreadPoolExecutor(_PARALLEL, "headwater-copies") as pool:
        try:
            done, _ = wait([pool.submit(run, copy) for copy in copies], return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
