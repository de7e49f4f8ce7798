"""The `_last_checkpoint` file: a hint, and no more than that (spec: "Last Checkpoint File").

For readers it may be missing, empty, stale, corrupt, or fail its own checksum: then there is no hint and the log is
listed from its beginning. The checksum is the MD5 of the canonical form of the JSON (spec: "JSON checksum").
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from headwater.errors import ObjectNotFoundError
from headwater.log.names import LAST_CHECKPOINT

if TYPE_CHECKING:
    from headwater.storage.base import ObjectStore


class LastCheckpoint(msgspec.Struct, rename="camel", frozen=True):
    """What is written about a checkpoint."""

    version: int
    size: int
    """Number of actions."""
    size_in_bytes: int
    num_of_add_files: int


def write_last_checkpoint(store: ObjectStore, last: LastCheckpoint) -> None:
    """Let the hint name a checkpoint, unless it already names a newer one."""
    known = hinted_version(store)
    if known is not None and known > last.version:
        return
    fields: dict[str, Any] = msgspec.to_builtins(last)
    store.put(LAST_CHECKPOINT, json.dumps({**fields, "checksum": json_checksum(fields)}).encode())


def hinted_version(store: ObjectStore, key: str = LAST_CHECKPOINT) -> int | None:
    """The version of a recent checkpoint, or None when there is no hint that can be believed."""
    try:
        text = store.get(key)
    except ObjectNotFoundError:
        return None
    return parse_hint(text)


def parse_hint(text: bytes) -> int | None:
    """The version in the hint, None unless it is well-formed and its checksum (if any) is right."""
    try:
        hint = json.loads(text, object_pairs_hook=_no_duplicates, parse_float=_Number, parse_int=_Number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(hint, dict) or not isinstance(hint.get("version"), _Number):
        return None
    checksum = hint.get("checksum")
    if checksum is not None and checksum != json_checksum(hint):
        return None
    try:
        version = int(hint["version"])
    except ValueError:
        return None
    return version if 0 <= version < 10**20 else None


def json_checksum(value: dict[str, Any]) -> str:
    """The checksum of a decoded JSON object, its own `checksum` field left out.

    >>> json_checksum({"k1": "v1", "checksum": "<anything>", "k3": 23}) == hashlib.md5(b'"k1"="v1","k3"=23').hexdigest()
    True
    """
    return hashlib.md5(canonical_json(value).encode(), usedforsecurity=False).hexdigest()


def canonical_json(value: dict[str, Any]) -> str:
    """The canonical form: sorted `path=value` pairs, with URL-encoded names and strings."""
    pairs: list[tuple[str, str]] = []
    for name, inner in value.items():
        if name != "checksum":
            _flatten(_encode(name), inner, pairs)
    pairs.sort(key=lambda pair: pair[0].encode())
    return ",".join(f"{path}={leaf}" for path, leaf in pairs)


class _Number(str):
    """A number as it was written: its text is its canonical form."""


def _flatten(path: str, value: Any, pairs: list[tuple[str, str]]) -> None:
    match value:
        case _Number():
            pairs.append((path, str(value)))
        case str():
            pairs.append((path, _encode(value)))
        case dict():
            for name, inner in value.items():
                _flatten(f"{path}+{_encode(name)}", inner, pairs)
        case list():
            for index, inner in enumerate(value):
                _flatten(f"{path}+{index}", inner, pairs)
        case _:
            pairs.append((path, json.dumps(value)))


def _encode(text: str) -> str:
    return f'"{quote(text, safe="-._~", errors="surrogatepass")}"'


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate keys")
    return value
