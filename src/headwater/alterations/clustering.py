"""Clustering columns: which columns new and rewritten files are clustered by (spec: "Clustered Table")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.alterations.commits import commit_metadata
from headwater.errors import InvalidCommitError
from headwater.features.clustering import clustering_columns, logical_path
from headwater.features.column_names import column_path
from headwater.log.draft import Operation
from headwater.log.schema.lookup import dotted

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
    return [logical_path(snapshot.schema, physical) for physical in clustering_columns(snapshot.domain_metadata)]
