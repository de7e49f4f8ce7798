"""What a draft must be before it may become a commit (spec: "Delta Log Entries", "Add File and Remove File").

One action per key, no action that contradicts another, and `dataChange` that says what is true: a commit which claims
to move rows neither brings in new ones nor loses any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.errors import InvalidCommitError
from headwater.log.commit import file_key
from headwater.log.paths import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.actions import Add, Remove
    from headwater.log.draft import Draft
    from headwater.log.snapshot import Snapshot


def check_actions(draft: Draft) -> None:
    """One action per key, and all required fields.

    Raises:
        InvalidCommitError: the protocol does not allow these actions in one commit.
    """
    _check_unique("add", (canonical(add.path) for add in draft.adds))
    _check_unique("remove", (canonical(remove.path) for remove in draft.removes))
    _check_unique("txn", (txn.app_id for txn in draft.txns))
    _check_unique("domainMetadata", (domain.domain for domain in draft.domains))
    added = {file_key(add) for add in draft.adds} if draft.removes else set()
    for remove in draft.removes:
        if file_key(remove) in added:
            raise InvalidCommitError(f"a commit may not both add and remove the logical file {remove.path!r}.")
    for add in draft.adds:
        if add.modification_time is None:
            raise InvalidCommitError(f"the add action of {add.path!r} has no modificationTime, which is required.")
    if draft.metadata is not None and not draft.metadata.schema_string:
        raise InvalidCommitError("the metaData action has no schemaString: the table would have no columns.")
    if any(cdc.data_change for cdc in draft.cdc):
        raise InvalidCommitError("cdc actions do not change data: their dataChange must be false.")


def check_rearrangement(draft: Draft, base: Snapshot | None) -> None:
    """Files with `dataChange=false` must hold rows that were in the table, all of them and no others.

    An `add` that stands for itself has to be of a file that is in the table already (new statistics, row ids). Files
    are counted only by what the actions say; the table's paths are looked through only for such an `add`.

    Raises:
        InvalidCommitError: rows would appear or vanish without anybody being told.
    """
    adds = [add for add in draft.adds if not add.data_change]
    removes = [remove for remove in draft.removes if not remove.data_change]
    if not adds and not removes:
        return
    if removes and adds and _may_be_same_rows(adds, removes):
        return
    again = _still_there(adds, draft.removes, base)
    moved = [add for add in adds if canonical(add.path) not in again]
    if moved and not removes:
        raise InvalidCommitError(
            f"the file {moved[0].path!r} is added with dataChange=false, so its rows must be in the table already: "
            "but the file is not in the table, and no file is removed with dataChange=false. "
            "Say dataChange=true for new rows."
        )
    if removes and (_rows(removes) != 0 if not moved else not _may_be_same_rows(moved, removes)):
        raise InvalidCommitError(
            f"files with {_counted(removes)} are removed with dataChange=false, and files with {_counted(moved)} are "
            "added with dataChange=false: these must be the same rows. Nothing was committed."
        )


def _check_unique(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidCommitError(f"a commit may have only one {kind} action for {name!r}.")
        seen.add(name)


class _Stats(msgspec.Struct, rename={"num_records": "numRecords"}):
    num_records: int | None = None


_STATS = msgspec.json.Decoder(_Stats)


def _may_be_same_rows(adds: list[Add], removes: list[Remove]) -> bool:
    """Whether as many rows come as go, as far as that is known."""
    come, go = _rows(adds), _rows(removes)
    return come is None or go is None or come == go


def _rows(files: list[Add] | list[Remove]) -> int | None:
    """How many rows files hold, those that a deletion vector removes not counted; None if one does not say."""
    total = 0
    for file in files:
        try:
            records = None if file.stats is None else _STATS.decode(file.stats).num_records
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            records = None
        if records is None:
            return None
        total += records - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    return total


def _counted(files: list[Add] | list[Remove]) -> str:
    rows = _rows(files)
    return "an unknown number of rows" if rows is None else f"{rows} rows"


def _still_there(adds: list[Add], removes: Iterable[Remove], base: Snapshot | None) -> set[str]:
    """Of some files to add, those that are in the table and stay there (canonical paths)."""
    if base is None or not adds:
        return set()
    removed = {canonical(remove.path) for remove in removes}
    wanted = {canonical(add.path) for add in adds} - removed
    return live_paths(base, wanted) if wanted else set()


def live_paths(snapshot: Snapshot, paths: set[str]) -> set[str]:
    """Of some data files, those that are in the table (canonical paths)."""
    return set(map(canonical, snapshot.files_named(paths, ["path"]).column("path").to_pylist()))
