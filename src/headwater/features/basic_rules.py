"""Features with a short rule each: appends only, deletion vectors, change data feed, in-commit timestamps, domains.

With in-commit timestamps each commit records its time, at least a millisecond after the one before. The commit that
enables them on an existing table records its own version and time, so that readers know from where on they count.

Metadata domains whose names start with `delta.` belong to table features. Only those whose meaning is known are ever
written, and never at a user's request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import InvalidCommitError, SchemaError
from headwater.features import clustering, row_tracking
from headwater.features.feature import BRINGS_BACK, Feature, Kind, schema_after
from headwater.log.configuration.properties import (
    APPEND_ONLY as APPEND_ONLY_PROPERTY,
)
from headwater.log.configuration.properties import (
    ENABLE_CHANGE_DATA_CAPTURE,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
    IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
)
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY
from headwater.log.stats.add_stats import required_num_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.log.actions.model import DomainMetadata, Metadata
    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.configuration import TableConfiguration
    from headwater.log.schema import StructType


def append_only_rule(draft: Draft, attempt: Attempt) -> Draft:
    """No rows are changed or removed; they may be rearranged.

    The table as it is decides, so one commit cannot lift the restriction and remove rows.
    """
    snapshot = attempt.snapshot
    if snapshot is None or not APPEND_ONLY.is_enabled(snapshot.configuration):
        return draft
    removed = next((remove for remove in draft.removes if remove.data_change), None)
    if removed is not None:
        raise InvalidCommitError(
            f"{snapshot.uri} only allows appends (delta.appendOnly is true), and {draft.operation.name} removes rows, "
            f"such as those of {removed.path!r}. Set delta.appendOnly to false first."
        )
    return draft


def deletion_vector_rule(draft: Draft, attempt: Attempt) -> Draft:
    """A file with a vector says how many rows it has; new vectors are written only where they are enabled."""
    for add in draft.adds:
        vector = add.deletion_vector
        if vector is None:
            continue
        if not DELETION_VECTORS.is_supported(attempt.protocol):
            raise InvalidCommitError(
                f"{add.path!r} has a deletion vector, but the table does not support the feature deletionVectors."
            )
        is_new = add.data_change and draft.operation.name not in BRINGS_BACK
        if is_new and not DELETION_VECTORS.is_enabled(attempt.configuration):
            raise InvalidCommitError(
                f"{add.path!r} has a new deletion vector, but delta.enableDeletionVectors is not true. "
                "Rewrite the file without the deleted rows, or enable deletion vectors."
            )
        count = required_num_records(add, "a deletion vector")
        if not 0 <= vector.cardinality <= count:
            raise InvalidCommitError(
                f"{add.path!r} has {count} rows, but its deletion vector deletes {vector.cardinality}."
            )
    return draft


RESERVED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns that the feed adds to those of the table."""


def check_reserved_columns(schema: StructType) -> None:
    """Raise `InvalidCommitError` if a column of the table has a name that the feed needs."""
    taken = [name for name in schema.names if name.lower() in RESERVED_COLUMNS]
    if taken:
        raise InvalidCommitError(
            f"a table with a change data feed cannot have the column {taken[0]}, which the feed adds to its rows. "
            "Rename the column, or leave delta.enableChangeDataFeed off."
        )


def check_change_type(schema: StructType, uri: str) -> None:
    """Raise if files cannot record changes, because they call a column of the table as the type of a change.

    Raises:
        SchemaError: there is such a column.
    """
    for field in schema.fields:
        if str(field.metadata.get(PHYSICAL_NAME_KEY, field.name)).lower() == RESERVED_COLUMNS[0]:
            raise SchemaError(
                f"data files of {uri} call its column {field.name} {RESERVED_COLUMNS[0]}, which is also what files of "
                "changes call the type of a change, so that they cannot be told apart. Leave "
                "delta.enableChangeDataFeed off, or write the rows to a new table."
            )


def change_data_feed_rule(draft: Draft, attempt: Attempt) -> Draft:
    """`cdc` actions only where the feed is on, and no columns in its way."""
    is_on = CHANGE_DATA_FEED.is_enabled(attempt.configuration)
    if draft.cdc and not is_on:
        raise InvalidCommitError(
            "the commit has change data files (cdc actions), but the table's change data feed is off "
            "(delta.enableChangeDataFeed)."
        )
    if is_on and draft.metadata is not None:
        check_reserved_columns(schema_after(draft, attempt))
    return draft


_PROVENANCE = (IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION.name, IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP.name)


def in_commit_timestamp_rule(draft: Draft, attempt: Attempt) -> Draft:
    """The commit's time as the first field of `commitInfo`, and the provenance in metaData."""
    if not IN_COMMIT_TIMESTAMP.is_enabled(attempt.configuration):
        return draft if draft.metadata is None else _with_provenance(draft, draft.metadata, {})
    snapshot = attempt.snapshot
    time_ms = attempt.now_ms if snapshot is None else max(attempt.now_ms, snapshot.timestamp + 1)
    info = {name: value for name, value in draft.commit_info.items() if name != "inCommitTimestamp"}
    draft = replace(draft, commit_info={"inCommitTimestamp": time_ms, **info})
    if snapshot is None:
        provenance = {}  # there are no commits without
    elif IN_COMMIT_TIMESTAMP.is_enabled(snapshot.configuration):
        before = snapshot.metadata.configuration
        provenance = {key: before[key] for key in _PROVENANCE if key in before}
    else:
        provenance = dict(zip(_PROVENANCE, (str(attempt.version), str(time_ms)), strict=True))
    return _with_provenance(draft, attempt.metadata, provenance)


def _with_provenance(draft: Draft, metadata: Metadata, provenance: dict[str, str]) -> Draft:
    """Return the draft with metaData that has exactly this provenance; metaData that has it already is left alone."""
    configuration = metadata.configuration
    if {key: configuration[key] for key in _PROVENANCE if key in configuration} == provenance:
        return draft
    rest = {key: value for key, value in configuration.items() if key not in _PROVENANCE}
    return replace(draft, metadata=msgspec.structs.replace(metadata, configuration=rest | provenance))


SYSTEM_PREFIX = "delta."
_OWNERS = {clustering.DOMAIN: clustering.CLUSTERING, row_tracking.DOMAIN: row_tracking.ROW_TRACKING}


def check_user_domain(domain: str) -> None:
    """Raise `InvalidCommitError` unless users may set this domain."""
    if not domain:
        raise InvalidCommitError("a metadata domain needs a name.")
    if domain.startswith(SYSTEM_PREFIX):
        raise InvalidCommitError(
            f"the metadata domain {domain!r} cannot be set: names with {SYSTEM_PREFIX!r} belong to table features. "
            "Choose another name, such as 'com.example.something'."
        )


def domain_metadata_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Domains only where the table supports them; those of features only where the feature is supported."""
    if not draft.domains:
        return draft
    if not DOMAIN_METADATA.is_supported(attempt.protocol):
        raise InvalidCommitError(
            f"the metadata domain {draft.domains[0].domain!r} cannot be set: the table does not support the feature "
            "domainMetadata. Add it first (delta.feature.domainMetadata = supported)."
        )
    for domain in draft.domains:
        if not domain.domain.startswith(SYSTEM_PREFIX):
            continue
        owner = _OWNERS.get(domain.domain)
        if owner is None:
            raise InvalidCommitError(
                f"the metadata domain {domain.domain!r} cannot be set: it belongs to a feature that is not known here."
            )
        if domain.domain == row_tracking.DOMAIN:
            raise InvalidCommitError(f"the metadata domain {domain.domain!r} is set by the commit itself.")
        if not owner.is_supported(attempt.protocol) and not domain.removed:
            raise InvalidCommitError(
                f"the metadata domain {domain.domain!r} cannot be set: the table does not support {owner.name}."
            )
    return draft


def _is_feed_on(properties: Mapping[str, str]) -> bool:
    is_named = ENABLE_CHANGE_DATA_FEED.name in properties
    return (ENABLE_CHANGE_DATA_FEED if is_named else ENABLE_CHANGE_DATA_CAPTURE).read(properties)


def _check_feed_columns(table: TableConfiguration) -> None:
    if CHANGE_DATA_FEED.is_enabled(table):
        check_reserved_columns(table.schema)


def _check_no_domains(domains: Mapping[str, str]) -> tuple[DomainMetadata, ...]:
    if domains:
        raise InvalidCommitError(
            f"domainMetadata cannot be dropped while there are domains: {', '.join(sorted(domains))}."
        )
    return ()


APPEND_ONLY = Feature(
    "appendOnly",
    Kind.WRITER,
    legacy_writer_version=2,
    enabled=APPEND_ONLY_PROPERTY.read,
    check_commit=append_only_rule,
    properties=(APPEND_ONLY_PROPERTY,),
)
DELETION_VECTORS = Feature(
    "deletionVectors",
    Kind.READER_WRITER,
    enabled=ENABLE_DELETION_VECTORS.read,
    check_commit=deletion_vector_rule,
    properties=(ENABLE_DELETION_VECTORS,),
)
CHANGE_DATA_FEED = Feature(
    "changeDataFeed",
    Kind.WRITER,
    legacy_writer_version=4,
    enabled=_is_feed_on,
    check_definition=_check_feed_columns,
    check_commit=change_data_feed_rule,
    properties=(ENABLE_CHANGE_DATA_FEED, ENABLE_CHANGE_DATA_CAPTURE),
)
IN_COMMIT_TIMESTAMP = Feature(
    "inCommitTimestamp",
    Kind.WRITER,
    aliases=("inCommitTimestamps",),  # the spec's text; tables carry the other name
    enabled=ENABLE_IN_COMMIT_TIMESTAMPS.read,
    complete_commit=in_commit_timestamp_rule,
    properties=(
        ENABLE_IN_COMMIT_TIMESTAMPS,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_VERSION,
        IN_COMMIT_TIMESTAMP_ENABLEMENT_TIMESTAMP,
    ),
)
DOMAIN_METADATA = Feature(
    "domainMetadata", Kind.WRITER, check_commit=domain_metadata_rule, drop_domains=_check_no_domains
)
