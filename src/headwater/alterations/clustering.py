"""Clustering columns: which columns new and rewritten files are clustered by (spec: "Clustered Table")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.alterations.commits import commit_metadata
from headwater.errors import InvalidCommitError
from headwater.features.clustering import clustering_columns
from headwater.features.column_names import column_path
from headwater.log.draft import Operation
from headwater.log.schema import StructType
from headwater.log.schema.lookup import dotted
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.snapshot import Snapshot
    from headwater.log.transaction import Committed


def cluster_by(snapshot: Snapshot, columns: Sequence[str | Sequence[str]]) -> Committed:
    """Cluster new and rewritten files by these columns; by none, when there are none.

    Raises:
        InvalidCommitError: the table is partitioned, or a column cannot be clustered by.
    """
    wanted = [column_path(column) for column in columns]
    if wanted and snapshot.metadata.partition_columns:
        raise InvalidCommitError(
            f"{snapshot.uri} is partitioned by {', '.join(snapshot.metadata.partition_columns)}: a table cannot be "
            "partitioned and clustered."
        )
    exact = [tuple(field.name for field in snapshot.schema.resolve(path)) for path in wanted]
    parameters = {
        "oldClusteringColumns": ",".join(map(dotted, clustering_paths(snapshot))),
        "newClusteringColumns": ",".join(map(dotted, exact)),
    }
    return commit_metadata(snapshot, snapshot.metadata, Operation("CLUSTER BY", parameters), cluster_by=exact)


def clustering_paths(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """The clustering columns, by the names that people see."""
    return [_logical(snapshot.schema, physical) for physical in clustering_columns(snapshot.domain_metadata)]


def _logical(schema: StructType, physical: Sequence[str]) -> tuple[str, ...]:
    """The names on the way to a column that is given by physical names; those themselves where it is not found."""
    names: list[str] = []
    here: object = schema
    for part in physical:
        fields = here.fields if isinstance(here, StructType) else ()
        field = next((f for f in fields if f.metadata.get(PHYSICAL_NAME_KEY, f.name) == part), None)
        names.append(part if field is None else field.name)
        here = None if field is None else field.type
    return tuple(names)
