"""The files of a tantivy index: which belong to it, and one index put together from the segments of several.

tantivy has no call to merge indexes. Its segments have unique names, and `meta.json` lists those that count: so the
files of several indexes of one schema in one directory, with one list, are one index.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.errors import CorruptSplitError

if TYPE_CHECKING:
    from collections.abc import Sequence

META: Final = "meta.json"
_MANAGED: Final = ".managed.json"


def index_files(directory: str) -> list[tuple[str, str]]:
    """Names and paths of the files that make up the index in a directory: no leftovers, no locks."""
    segments = _segments(_meta(directory))
    names = sorted(name for name in os.listdir(directory) if name.partition(".")[0] in segments)
    return [(name, os.path.join(directory, name)) for name in (META, *names)]


def write_managed(directory: str) -> None:
    """Write the list of files that tantivy keeps beside an index, for one that was unpacked or put together."""
    names = [name for name, _ in index_files(directory)]
    with open(os.path.join(directory, _MANAGED), "wb") as file:
        file.write(msgspec.json.encode(names))


def join_indexes(directories: Sequence[str], target: str) -> bool:
    """Put the segments of several indexes together, in an empty directory; False if their schemas differ.

    The files are hard links where that is possible: nothing is read, and nothing changes in the sources.
    """
    metas = [_meta(directory) for directory in directories]
    first = metas[0]
    if any(meta["schema"] != first["schema"] or _settings(meta) != _settings(first) for meta in metas):
        return False
    for directory in directories:
        for name, path in index_files(directory):
            if name != META:
                _link(path, os.path.join(target, name))
    joined = {
        **first,
        "segments": [segment for meta in metas for segment in meta["segments"]],
        "opstamp": max(meta["opstamp"] for meta in metas),
    }
    joined.pop("payload", None)
    with open(os.path.join(target, META), "wb") as file:
        file.write(msgspec.json.encode(joined))
    write_managed(target)
    return True


def _meta(directory: str) -> dict[str, Any]:
    path = os.path.join(directory, META)
    try:
        with open(path, "rb") as file:
            meta: dict[str, Any] = msgspec.json.decode(file.read())
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise CorruptSplitError(f"the list of segments {path} cannot be read: {error}", directory) from error
    return meta


def _segments(meta: dict[str, Any]) -> set[str]:
    return {segment["segment_id"].replace("-", "") for segment in meta["segments"]}


def _settings(meta: dict[str, Any]) -> Any:
    return meta.get("index_settings")


def link_files(directory: str, target: str) -> None:
    """Give the files of an index a second name each, in a new directory.

    Raises:
        FileNotFoundError: the index is no longer there.
    """
    os.makedirs(target)
    for name in os.listdir(directory):
        _link(os.path.join(directory, name), os.path.join(target, name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)
