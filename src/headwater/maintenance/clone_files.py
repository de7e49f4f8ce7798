"""The files of a clone: which of them the target has already, which are new, and where each one comes from.

A shallow clone names the source's files by absolute URIs. A deep clone has copies of its own, under names that nobody
has had before: whatever is in the target, of whichever table it was, no copy ever takes the place of another file. The
name of a copy says which file of the source it was made of, so cloning again copies only what is new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import pyarrow.compute as pc

from headwater.log.deletion_vectors import vector_path, z85_encode
from headwater.log.file_actions import additions
from headwater.log.partition_directories import partition_directory
from headwater.log.paths import canonical
from headwater.maintenance.table_keys import keys_below
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headwater.log.actions import Add, DeletionVector
    from headwater.log.snapshot import Snapshot

_SAFE = "/!$&'()*+,;=:@~"
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
_ENDING = re.compile(r"(?:\.[A-Za-z0-9_\-]{1,16}){1,4}$")
_ORIGIN_DIGITS = 32
_COPY = rf"(?:^|/)part-(?P<origin>[0-9a-f]{{{_ORIGIN_DIGITS}}})-[0-9a-f\-]{{36}}(?:\.[^/]*)?$"
_UUID_TEXT_LENGTH = 20


@dataclass(frozen=True, slots=True)
class Copy:
    """One object that a deep clone copies."""

    source: str
    """An absolute URI, percent-encoded."""
    key: str
    """Where it goes, below the target."""
    size_bytes: int | None
    """None if the log does not say (files of deletion vectors)."""


@dataclass(frozen=True)
class ClonedFiles:
    """The live files of a source as the clone will have them."""

    adds: list[Add]
    copies: list[Copy] = field(default_factory=list)
    """What must be copied for them; nothing for a shallow clone."""


def shallow_files(source: Snapshot, target_uri: str) -> ClonedFiles:
    """The files of a source for a clone that shares them."""
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
    """The files of a source for a clone that has copies of its own.

    Args:
        source: the version that is cloned.
        before: the target, if there is one.
        new_id: gives UUIDs, for new names.
    """
    return _DeepFiles(source, before, new_id).all()


def _additions(source: Snapshot) -> list[Add]:
    """The live files; row ids are given anew, as the reference implementation does."""
    found = additions(source.files(), data_change=True)
    return [msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None) for add in found]


def absolute_uri(path: str, uri: str, target_uri: str) -> str:
    """A path of a table's log as an absolute URI, which means the same in the log of another table."""
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
    """Copies under new names, and those that are there already."""

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
        """The file under a path of the target."""
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
        """The vector in a copy of its file, which other vectors may be in too."""
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
        """What a copy is made of: data files never change, so a file of this table and path is always the same."""
        known = (self._source.metadata.id, path, str(size), str(modified_ms))
        return sha256("\0".join(known).encode("utf-8", "surrogateescape")).hexdigest()[:_ORIGIN_DIGITS]

    def _new_key(self, add: Add, origin: str) -> str:
        """A key that no file has had: in the directories of its partition, and with the ending that it has."""
        ending = _ENDING.search(canonical(add.path).rpartition("/")[2])
        name = f"part-{origin}-{self._new_id()}{'' if ending is None else ending[0]}"
        values = {column: add.partition_values.get(column) or None for column in self._partitions}
        return "/".join(filter(None, (partition_directory(values), name)))


def _copies_in(target: Snapshot) -> dict[str, str]:
    """The live copies in a target, by their origin; those that are its own, and not of a table that it shares."""
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
