"""Clustered tables (spec: "Writer Requirements for Clustered Table").

The clustering columns are kept in a metadata domain by physical name, each as the path to it: a list of names, as
delta-spark and the kernels read and write it. The spec's example has plain names, which are understood too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.errors import ColumnNotFoundError, CorruptLogError, InvalidCommitError
from headwater.features.column_mapping import column_path
from headwater.features.feature import Feature, Kind, schema_after
from headwater.log.actions.model import DomainMetadata
from headwater.log.actions.paths import canonical
from headwater.log.schema import ArrayType, MapType, StructType, physical_path, to_physical
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY
from headwater.log.schema.types import BINARY, BOOLEAN, VARIANT, VOID, dotted
from headwater.log.stats.add_stats import columns_without_statistics, live_file_without_statistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headwater.log.commit.draft import Attempt, Draft
    from headwater.log.schema import MappingMode
    from headwater.log.stats.decode import Leaf

DOMAIN = "delta.clustering"
MAX_COLUMNS = 4
_WITHOUT_BOUNDS = (BINARY, BOOLEAN, VARIANT, VOID)


class _Configuration(msgspec.Struct):
    clusteringColumns: list[list[str] | str] = []


def clustering_columns(domains: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the clustering columns of a table, each as the physical names on the way to it; [] when it has none.

    >>> clustering_columns({"delta.clustering": '{"clusteringColumns":[["a"],["b","c"]]}'})
    [('a',), ('b', 'c')]
    """
    text = domains.get(DOMAIN)
    if text is None:
        return []
    try:
        columns = msgspec.json.decode(text, type=_Configuration).clusteringColumns
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLogError(f"the domain {DOMAIN} cannot be read: {error}") from error
    return [(column,) if isinstance(column, str) else tuple(column) for column in columns]


def logical_path(schema: StructType, physical: Sequence[str]) -> tuple[str, ...]:
    """The names on the way to a column that is given by physical names; those themselves where it is not found."""
    names: list[str] = []
    here: object = schema
    for part in physical:
        fields = here.fields if isinstance(here, StructType) else ()
        field = next((f for f in fields if f.metadata.get(PHYSICAL_NAME_KEY, f.name) == part), None)
        names.append(part if field is None else field.name)
        here = None if field is None else field.type
    return tuple(names)


def clustering_domain(schema: StructType, columns: Sequence[str | Sequence[str]], mode: MappingMode) -> DomainMetadata:
    """Return the domain for clustering columns that are given by logical names, as users write them.

    Raises:
        ColumnNotFoundError: there is no such column.
        InvalidCommitError: too many columns, one twice, or one without minima and maxima in statistics.
    """
    paths = [column_path(column) for column in columns]
    if len(paths) > MAX_COLUMNS:
        raise InvalidCommitError(f"a table can be clustered by {MAX_COLUMNS} columns at most, not by {len(paths)}.")
    physical: list[tuple[str, ...]] = []
    for path in paths:
        type_ = schema.resolve(path)[-1].type
        if isinstance(type_, StructType | ArrayType | MapType) or type_ in _WITHOUT_BOUNDS:
            raise InvalidCommitError(
                f"a table cannot be clustered by {dotted(path)}: a column of type {type_} has no minimum and maximum."
            )
        found = physical_path(schema, path, mode)
        if found in physical:
            raise InvalidCommitError(f"the table is already clustered by {dotted(path)}: name each column once.")
        physical.append(found)
    text = msgspec.json.encode({"clusteringColumns": physical, "domainName": DOMAIN}).decode()
    return DomainMetadata(DOMAIN, text)


def clustering_rule(draft: Draft, attempt: Attempt) -> Draft:
    """Clustered tables are not partitioned, have their clustering columns, and statistics for these in new files."""
    if not CLUSTERING.is_supported(attempt.protocol):
        return draft
    if attempt.metadata.partition_columns:
        raise InvalidCommitError(
            f"a table cannot be clustered and partitioned (by {', '.join(attempt.metadata.partition_columns)}) at the "
            "same time."
        )
    domains = {} if attempt.snapshot is None else attempt.snapshot.domain_metadata
    for domain in draft.domains:
        if domain.domain == DOMAIN:
            domains = {**domains, DOMAIN: '{"clusteringColumns":[]}' if domain.removed else domain.configuration}
    columns = clustering_columns(domains)
    if not columns:
        return draft
    if draft.metadata is not None or draft.domains:
        leaves = _check_columns(draft, attempt, columns)
        _check_live_files(draft, attempt, leaves)
    for add in draft.adds:
        missing = columns_without_statistics(add, columns) if add.data_change else []
        if missing:
            raise InvalidCommitError(
                f"the add action of {add.path!r} has no statistics for the clustering column {dotted(missing[0])}. "
                "Write the file with statistics for the columns by which the table is clustered."
            )
    return draft


def _check_columns(draft: Draft, attempt: Attempt, columns: list[tuple[str, ...]]) -> list[Leaf]:
    schema = schema_after(draft, attempt)
    physical = to_physical(schema, attempt.configuration.mapping_mode)
    from headwater.log.stats.decode import Leaf

    leaves: list[Leaf] = []
    for column in columns:
        try:
            leaves.append(Leaf(column, physical.resolve(column)[-1].type))
        except ColumnNotFoundError:
            raise InvalidCommitError(
                f"the table is clustered by {dotted(column)} (physical name), which is not in its schema. Change the "
                "clustering columns before a column is dropped."
            ) from None
    return leaves


def _check_live_files(draft: Draft, attempt: Attempt, leaves: list[Leaf]) -> None:
    """All files have statistics for columns by which the table was not clustered before."""
    snapshot = attempt.snapshot
    if snapshot is None:
        return
    before = clustering_columns(snapshot.domain_metadata) if CLUSTERING.is_supported(snapshot.protocol) else []
    new = [leaf for leaf in leaves if leaf.path not in before]
    if not new:
        return
    path = live_file_without_statistics(snapshot, new, {canonical(remove.path) for remove in draft.removes})
    if path is not None:
        raise InvalidCommitError(
            f"the table cannot be clustered by {', '.join(dotted(leaf.path) for leaf in new)} (physical name): the "
            f"file {path!r} has no statistics for it. Rewrite the files, or name columns that have statistics."
        )


def _dropped_domain(domains: Mapping[str, str]) -> tuple[DomainMetadata, ...]:
    if clustering_columns(domains):
        raise InvalidCommitError(
            "clustering cannot be dropped while the table is clustered: cluster it by nothing first."
        )
    return (DomainMetadata(DOMAIN, domains[DOMAIN], removed=True),) if DOMAIN in domains else ()


CLUSTERING = Feature(
    "clustering",
    Kind.WRITER,
    requires=("domainMetadata",),
    check_commit=clustering_rule,
    drop_domains=_dropped_domain,
)
