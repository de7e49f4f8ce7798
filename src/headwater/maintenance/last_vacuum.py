"""How far VACUUM has come: the newest commit whose removed files are gone from the store.

delta-spark keeps it in `_delta_log/_last_vacuum_info`, which VACUUM LITE starts from. It is a hint: a file that cannot
be read says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.errors import ObjectNotFoundError
from headwater.log import names

if TYPE_CHECKING:
    from headwater.storage.base import ObjectStore

LAST_VACUUM_KEY = names.LOG_DIR + "_last_vacuum_info"


class _Info(msgspec.Struct):
    latestCommitVersionOutsideOfRetentionWindow: int | None = None


def last_vacuumed_version(store: ObjectStore) -> int | None:
    """The newest commit whose removed files the last VACUUM has deleted; None if nobody knows."""
    try:
        found = msgspec.json.decode(store.get(LAST_VACUUM_KEY), type=_Info)
    except (ObjectNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found.latestCommitVersionOutsideOfRetentionWindow


def record_vacuumed_version(store: ObjectStore, version: int | None) -> None:
    """Remember how far a VACUUM has come that has just ended."""
    if version is not None:
        store.put(LAST_VACUUM_KEY, msgspec.json.encode(_Info(version)) + b"\n")
