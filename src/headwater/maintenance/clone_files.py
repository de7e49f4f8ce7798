"""The files of a clone: which of them the target has already, which are new, and where each one comes from.

A shallow clone names the source's files by absolute URIs. A deep clone has copies of its own, under the same keys
as in the source: data files never change, so a file of the same path and size is the same file, and cloning again
copies only what is new.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from headwater.log.deletion_vectors import vector_path, z85_encode
from headwater.log.file_actions import additions
from headwater.log.paths import canonical

if TYPE_CHECKING:
    from headwater.log.actions import Add, DeletionVector
    from headwater.log.snapshot import Snapshot

_SAFE = "/!$&'()*+,;=:@~"


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
    copies: dict[str, list[Copy]]
    """By the path of the new `add`, what must be copied for it; empty for a shallow clone."""


def cloned_files(source: Snapshot, *, is_shallow: bool) -> ClonedFiles:
    """The files of a source for its clone; row ids are given anew, as the reference implementation does."""
    adds: list[Add] = []
    copies: dict[str, list[Copy]] = {}
    for add in additions(source.files(), data_change=True):
        plain = msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)
        if is_shallow:
            adds.append(_shallow(plain, source.uri))
        else:
            deep, needed = _deep(plain, source.uri)
            adds.append(deep)
            copies[deep.path] = needed
    return ClonedFiles(adds, copies)


def _shallow(add: Add, uri: str) -> Add:
    vector = add.deletion_vector
    if vector is not None and vector.storage_type == "u":
        vector = _absolute_vector(vector, uri)
    return msgspec.structs.replace(add, path=_absolute(add.path, uri), deletion_vector=vector)


def _absolute(path: str, uri: str) -> str:
    """A path of the log as an absolute URI."""
    return path if _is_absolute(path) else f"{uri}/{path}"


def _is_absolute(path: str) -> bool:
    scheme, colon, rest = path.partition(":")
    return path.startswith("/") or (bool(colon) and rest.startswith("/") and scheme.replace("+", "").isalnum())


def _absolute_vector(vector: DeletionVector, uri: str) -> DeletionVector:
    path = f"{uri}/{quote(vector_path(vector), safe=_SAFE)}"
    return msgspec.structs.replace(vector, storage_type="p", path_or_inline_dv=path)


def _deep(add: Add, uri: str) -> tuple[Add, list[Copy]]:
    """The file under a path of the target, and what to copy."""
    if _is_absolute(add.path):
        name = canonical(add.path).rpartition("/")[2]
        path = f"{uuid.uuid5(uuid.NAMESPACE_URL, canonical(add.path))}-{quote(name, safe=_SAFE)}"
    else:
        path = add.path
    copies = [Copy(_absolute(add.path, uri), canonical(path), add.size)]
    vector = add.deletion_vector
    if vector is not None and vector.storage_type != "i":
        vector, copy = _deep_vector(vector, uri)
        copies.append(copy)
    return msgspec.structs.replace(add, path=path, deletion_vector=vector), copies


def _deep_vector(vector: DeletionVector, uri: str) -> tuple[DeletionVector, Copy]:
    path = vector_path(vector)
    if vector.storage_type == "u":
        return vector, Copy(f"{uri}/{quote(path, safe=_SAFE)}", path, None)
    # The same file always gets the same name: vectors share files, and clones are repeated.
    identifier = uuid.uuid5(uuid.NAMESPACE_URL, path)
    moved = msgspec.structs.replace(vector, storage_type="u", path_or_inline_dv=z85_encode(identifier.bytes))
    return moved, Copy(vector.path_or_inline_dv, vector_path(moved), None)
