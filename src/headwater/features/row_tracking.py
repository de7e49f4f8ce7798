"""Row tracking at commit: row ids, their high-water mark, row commit versions (spec: "Row Tracking").

Ids are given on every attempt, above the mark of the newest version, so writers who race each other never give the
same ones. A file that is committed again keeps what it got first. The commit that switches row tracking on also gives
ids to all files that have none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import CorruptLogError, InvalidCommitError
from headwater.features.feature import Feature, Kind, schema_after
from headwater.log.actions.model import Add, DomainMetadata
from headwater.log.actions.paths import canonical
from headwater.log.configuration.properties import ENABLE_ROW_TRACKING, ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY
from headwater.log.stats.add_stats import num_records, required_num_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from headwater.log.actions.model import Remove
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.schema import StructType
    from headwater.log.snapshot import Snapshot

DOMAIN = "delta.rowTracking"
PRESERVED_TAG = "delta.rowTracking.preserved"
_NO_MARK = -1
_COLUMNS = ["path", "baseRowId", "defaultRowCommitVersion"]


@dataclass(frozen=True, slots=True)
class _Identity:
    """What a file got when it was first committed."""

    base_row_id: int
    commit_version: int


class _Mark(msgspec.Struct):
    """The domain's configuration: real tables have the first key, the spec's text names the second."""

    rowIdHighWaterMark: int | None = None
    highWaterMark: int | None = None


def materialized_column_names(configuration: Mapping[str, str], new_id: Callable[[], str]) -> dict[str, str]:
    """Return the properties that name the hidden columns for ids that are preserved; chosen once, then kept."""
    wanted = {ROW_ID_COLUMN.name: "_row-id-col-", ROW_COMMIT_VERSION_COLUMN.name: "_row-commit-version-col-"}
    return {key: configuration.get(key) or f"{prefix}{new_id()}" for key, prefix in wanted.items()}


def check_materialized_names(schema: StructType, configuration: Mapping[str, str]) -> None:
    """Raise `InvalidCommitError` if files would hold ids of rows under the name of a column."""
    held = [str(field.metadata.get(PHYSICAL_NAME_KEY, field.name)).lower() for field in schema.fields]
    held += [field.name.lower() for field in schema.fields]
    for key in (ROW_ID_COLUMN.name, ROW_COMMIT_VERSION_COLUMN.name):
        name = configuration.get(key, "").lower()
        if name and name in held:
            raise InvalidCommitError(
                f"the table property {key} says that files call a column of row tracking {configuration[key]!r}, "
                "which is the name of another column: they cannot be told apart. Rename the column, or write the rows "
                "to a new table."
            )
        held.append(name)


def high_water_mark(domains: Mapping[str, str]) -> int:
    """Return the highest row id that was ever given; -1 when there is none.

    >>> high_water_mark({"delta.rowTracking": '{"rowIdHighWaterMark":9}'})
    9
    """
    text = domains.get(DOMAIN)
    if text is None:
        return _NO_MARK
    try:
        mark = msgspec.json.decode(text, type=_Mark)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLogError(f"the domain {DOMAIN} cannot be read: {error}") from error
    found = [value for value in (mark.rowIdHighWaterMark, mark.highWaterMark) if value is not None]
    if not found:
        raise CorruptLogError(f"the domain {DOMAIN} has no high-water mark: {text!r}.")
    return max(found)


def mark_domain(mark: int) -> DomainMetadata:
    """Return the domain with a high-water mark, under both names that readers look for."""
    return DomainMetadata(DOMAIN, f'{{"rowIdHighWaterMark":{mark},"highWaterMark":{mark}}}')


def with_last_row_ids(adds: Sequence[Add], newest: Snapshot, since: int) -> list[Add]:
    """Return files that are to be committed again, each with the row ids of the last `add` action of its path.

    RESTORE and CLONE bring paths back that the table had before. What such a file got last counts, also if it got it
    after the version that comes back (spec: "Writer Requirements for Row Tracking").

    Args:
        adds: the files.
        newest: the table.
        since: commits after this version are looked through for what tombstones do not tell any more.
    """
    if not adds or not ROW_TRACKING.is_supported(newest.protocol):
        return list(adds)
    wanted = {canonical(add.path) for add in adds}
    known = _identities(_rows_of(newest.files(columns=_COLUMNS), wanted))
    known |= _identities(_rows_of(newest.tombstones(include_expired=True).select(_COLUMNS), wanted - known.keys()))
    missing = {canonical(add.path) for add in adds if add.base_row_id is None} - known.keys()
    known |= _committed_identities(newest, since, missing)
    return [
        add
        if (last := known.get(canonical(add.path))) is None
        else msgspec.structs.replace(add, base_row_id=last.base_row_id, default_row_commit_version=last.commit_version)
        for add in adds
    ]


def _committed_identities(newest: Snapshot, since: int, wanted: set[str]) -> dict[str, _Identity]:
    """What the last commits said of files, as far as the log still has them."""
    from headwater.log.actions.decode import CommitActions
    from headwater.log.segment import list_log

    found: dict[str, _Identity] = {}
    commits = list_log(newest.ctx, since + 1).commits if wanted else {}
    for version in sorted(commits, reverse=True):
        if version > newest.version or found.keys() == wanted:
            continue
        key = commits[version].key
        for line in CommitActions.of(version, newest.ctx.store.get(key), newest.ctx.dialect).file_lines():
            add = line.add
            if add is None or add.base_row_id is None or add.default_row_commit_version is None:
                continue
            path = canonical(add.path)
            if path in wanted:
                found.setdefault(path, _Identity(add.base_row_id, add.default_row_commit_version))
    return found


def row_tracking_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Give ids to new files, keep those of files that are committed again or removed."""
    if not ROW_TRACKING.is_supported(attempt.protocol):
        return draft
    snapshot = attempt.snapshot
    enabled = ROW_TRACKING.is_enabled(attempt.configuration)
    if enabled:
        _check_columns(draft, attempt)
        draft = _tagged(draft)
        if snapshot is not None and not ROW_TRACKING.is_enabled(snapshot.configuration):
            draft = replace(draft, adds=(*draft.adds, *_files_without_ids(draft, snapshot)))
    if not draft.adds and not draft.removes:
        return draft
    known = _known_identities(draft, snapshot)
    mark = _NO_MARK if snapshot is None else high_water_mark(snapshot.domain_metadata)
    adds, new_mark = _with_ids(draft.adds, known, mark, attempt.version)
    removes = tuple(_removed(remove, known) for remove in draft.removes)
    domains = draft.domains if new_mark == mark else (*draft.domains, mark_domain(new_mark))
    return replace(draft, adds=adds, removes=removes, domains=domains)


def _with_ids(
    adds: Iterable[Add], known: Mapping[str, _Identity], mark: int, version: int
) -> tuple[tuple[Add, ...], int]:
    given: list[Add] = []
    for add in adds:
        base, committed = add.base_row_id, add.default_row_commit_version
        if base is None or committed is None:
            before = known.get(canonical(add.path))
            if before is not None:
                base, committed = before.base_row_id, before.commit_version
        if base is None:
            base = mark + 1
            mark += required_num_records(add, "row tracking")
        else:
            mark = max(mark, base + (num_records(add) or 1) - 1)
        version_of_add = version if committed is None else committed
        given.append(msgspec.structs.replace(add, base_row_id=base, default_row_commit_version=version_of_add))
    return tuple(given), mark


def _removed(remove: Remove, known: Mapping[str, _Identity]) -> Remove:
    before = known.get(canonical(remove.path))
    if before is None or (remove.base_row_id is not None and remove.default_row_commit_version is not None):
        return remove
    return msgspec.structs.replace(
        remove, base_row_id=before.base_row_id, default_row_commit_version=before.commit_version
    )


def _known_identities(draft: Draft, snapshot: Snapshot | None) -> dict[str, _Identity]:
    """What the log says of files that the draft removes or commits again without saying it itself.

    New rows are in new files, so only other files are looked up: appending never reads the list of files.
    """
    wanted = {canonical(r.path) for r in draft.removes if r.base_row_id is None or r.default_row_commit_version is None}
    wanted |= {
        canonical(a.path)
        for a in draft.adds
        if (a.base_row_id is None or a.default_row_commit_version is None)
        and (not a.data_change or a.deletion_vector is not None)
    }
    if not wanted or snapshot is None:
        return {}
    return _identities(_rows_of(snapshot.files(columns=_COLUMNS), wanted))


def _identities(rows: Iterable[Mapping[str, Any]]) -> dict[str, _Identity]:
    return {
        canonical(row["path"]): _Identity(row["baseRowId"], row["defaultRowCommitVersion"])
        for row in rows
        if row["baseRowId"] is not None and row["defaultRowCommitVersion"] is not None
    }


def _rows_of(files: pa.Table, wanted: set[str]) -> list[dict[str, Any]]:
    """What the log says of a few files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headwater.log.actions.paths import canonical_array
    from headwater.log.files.arrow import binaries

    value_set = binaries([path.encode("utf-8", "surrogateescape") for path in wanted])
    rows: list[dict[str, Any]] = []
    for batch in files.to_batches() if wanted else ():
        keys = canonical_array(batch.column("path")).cast(pa.binary())
        rows += batch.filter(pc.is_in(keys, value_set=value_set)).to_pylist()
    return rows


def _files_without_ids(draft: Draft, snapshot: Snapshot) -> list[Add]:
    """Return the live files that have no ids yet and stay in the table, to be committed again (spec: "Enablement")."""
    import pyarrow.compute as pc

    touched = {canonical(add.path) for add in draft.adds} | {canonical(remove.path) for remove in draft.removes}
    files = snapshot.files()
    without = pc.or_(pc.is_null(files.column("baseRowId")), pc.is_null(files.column("defaultRowCommitVersion")))
    rows = files.filter(without).drop_columns(["dataChange"]).to_pylist(maps_as_pydicts="strict")
    again = [msgspec.convert({**row, "dataChange": False}, Add) for row in rows]
    return [add for add in again if canonical(add.path) not in touched]


def _check_columns(draft: Draft, attempt: Attempt) -> None:
    for column in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN):
        if not attempt.configuration[column]:
            raise InvalidCommitError(f"row tracking cannot be enabled without the table property {column.name}.")
    if draft.metadata is not None:
        check_materialized_names(schema_after(draft, attempt), draft.metadata.configuration)


def _tagged(draft: Draft) -> Draft:
    """Return the draft, which says whether rows kept their ids: they did unless they may have moved to other files.

    A command that writes the ids of the rows it moves puts the tag itself.
    """
    operation = draft.operation
    if PRESERVED_TAG in operation.tags:
        return draft
    removed = {canonical(remove.path) for remove in draft.removes}
    moved = bool(removed) and any(canonical(add.path) not in removed for add in draft.adds)
    preserved = "false" if moved else "true"
    return replace(draft, operation=replace(operation, tags={**operation.tags, PRESERVED_TAG: preserved}))


ROW_TRACKING = Feature(
    "rowTracking",
    Kind.WRITER,
    requires=("domainMetadata",),
    enabled=ENABLE_ROW_TRACKING.read,
    complete_commit=row_tracking_rule,
    # The domain stays when the feature is dropped: were it ever enabled again, ids must go on above the mark.
    properties=(ENABLE_ROW_TRACKING, ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN),
)
