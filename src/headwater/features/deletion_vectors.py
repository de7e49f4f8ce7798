"""Deletion vectors at commit (spec: "Writer Requirement for Deletion Vectors")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError
from headwater.features.activation import is_active, supports
from headwater.features.drafts import BRINGS_BACK
from headwater.features.file_statistics import required_num_records

if TYPE_CHECKING:
    from headwater.log.draft import Attempt, Draft

FEATURE = "deletionVectors"


def deletion_vector_rule(draft: Draft, attempt: Attempt) -> Draft:
    """A file with a vector says how many rows it has; new vectors are written only where they are enabled."""
    for add in draft.adds:
        vector = add.deletion_vector
        if vector is None:
            continue
        if not supports(attempt.protocol, FEATURE):
            raise InvalidCommitError(
                f"{add.path!r} has a deletion vector, but the table does not support the feature {FEATURE}."
            )
        is_new = add.data_change and draft.operation.name not in BRINGS_BACK
        if is_new and not is_active(FEATURE, attempt.protocol, attempt.metadata):
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
