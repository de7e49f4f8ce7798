"""What table features demand of every commit, in the order in which it is checked or added.

Each rule is the business of one feature's module. They run anew on every attempt to commit, on the newest table: first
those that forbid, last those that complete the actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.features.append_only import append_only_rule
from headwater.features.change_data_feed import change_data_feed_rule
from headwater.features.clustering import clustering_rule
from headwater.features.column_mapping import column_mapping_rule
from headwater.features.deletion_vectors import deletion_vector_rule
from headwater.features.domain_metadata import domain_metadata_rule
from headwater.features.iceberg_compat import iceberg_compat_rule
from headwater.features.identity_columns import identity_column_rule
from headwater.features.in_commit_timestamps import in_commit_timestamp_rule
from headwater.features.protocol_changes import protocol_rule
from headwater.features.row_tracking import row_tracking_rule
from headwater.features.symlink_manifests import symlink_manifest_rule
from headwater.features.table_shape import needed_features_rule, table_shape_rule
from headwater.features.type_widening import type_widening_rule

if TYPE_CHECKING:
    from headwater.log.draft import CommitRule

COMMIT_RULES: tuple[CommitRule, ...] = (
    append_only_rule,
    protocol_rule,
    needed_features_rule,
    table_shape_rule,
    domain_metadata_rule,
    column_mapping_rule,
    type_widening_rule,
    identity_column_rule,
    change_data_feed_rule,
    deletion_vector_rule,
    iceberg_compat_rule,
    symlink_manifest_rule,
    clustering_rule,
    row_tracking_rule,
    in_commit_timestamp_rule,
)
"""For `LogContext.commit_rules`."""
