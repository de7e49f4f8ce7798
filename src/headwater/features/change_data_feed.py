"""The change data feed (spec: "Add CDC File")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError, SchemaError
from headwater.features.activation import is_active
from headwater.features.drafts import schema_after
from headwater.log.schema.mapping import PHYSICAL_NAME_KEY

if TYPE_CHECKING:
    from headwater.log.draft import Attempt, Draft
    from headwater.log.schema import StructType

FEATURE = "changeDataFeed"
RESERVED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns that the feed adds to those of the table."""


def check_reserved_columns(schema: StructType) -> None:
    """Raise if a column of the table has a name that the feed needs.

    Raises:
        InvalidCommitError: there is such a column.
    """
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
                "changes call the type of a change, so that nobody can tell the two. Leave delta.enableChangeDataFeed "
                "off, or write the rows to a new table."
            )


def change_data_feed_rule(draft: Draft, attempt: Attempt) -> Draft:
    """`cdc` actions only where the feed is on, and no columns in its way."""
    is_on = is_active(FEATURE, attempt.protocol, attempt.metadata)
    if draft.cdc and not is_on:
        raise InvalidCommitError(
            "the commit has change data files (cdc actions), but the table's change data feed is off "
            "(delta.enableChangeDataFeed)."
        )
    if is_on and draft.metadata is not None:
        check_reserved_columns(schema_after(draft, attempt))
    return draft
