"""The gate of search tables, and what the specification demands of every commit (spec 002: "Action Types").

Protocol versions 1 to 3 are understood, with the features that the specification names. A table's schema never changes;
version 0 is `protocol` and `metaData`, and no later version has a `metaData`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import InvalidCommitError, MissingCommitError, UnsupportedProtocolError

if TYPE_CHECKING:
    from headwater.log.actions import Metadata, Protocol
    from headwater.log.draft import Attempt, Draft

PROVIDER = "indextables"
READER_VERSION, WRITER_VERSION = 1, 2
"""What new tables ask for: basic reads; batch writes and merges."""
MAX_VERSION = 3
"""Of readers and of writers."""
FEATURES = frozenset({"footerOffsets", "tantivy4java", "conditionalWrites", "checkpoints"})
"""The features that the specification names. None of them changes what the log says."""

_COLLATIONS = "__COLLATIONS"
"""The key in the metadata of a field by which Spark says that strings have a collation."""


def check_readable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `UnsupportedProtocolError` unless a table with this protocol can be read."""
    _check("reader", "reads", protocol.min_reader_version, protocol.reader_features)
    if metadata.format.provider.lower() != PROVIDER:
        raise UnsupportedProtocolError(
            f"the table's files are {metadata.format.provider!r}; the files of a search table are {PROVIDER!r}."
        )
    if _COLLATIONS in metadata.schema_string:
        raise UnsupportedProtocolError(
            "a column of the search table has a collation, and the index compares strings byte by byte: it would miss "
            "rows. Cast the column to a plain STRING.",
            ("collations",),
        )


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `UnsupportedProtocolError` unless a table with this protocol can be written."""
    check_readable(protocol, metadata)
    _check("writer", "writes", protocol.min_writer_version, protocol.writer_features)


def _check(who: str, does: str, version: int, features: tuple[str, ...] | None) -> None:
    if not 1 <= version <= MAX_VERSION:
        raise UnsupportedProtocolError(
            f"the search table needs {who} version {version}; Headwater {does} versions 1 to {MAX_VERSION}."
        )
    missing = tuple(name for name in features or () if name not in FEATURES)
    if missing:
        raise UnsupportedProtocolError(
            f"the search table needs {who} features that Headwater does not know: {', '.join(missing)}.", missing
        )


def split_log_rule(draft: Draft, attempt: Attempt) -> Draft:
    """A commit rule: what a version may hold, and that there is no gap which it would close.

    Raises:
        InvalidCommitError: the version would hold what it must not.
        MissingCommitError: version files behind a gap would count again, on top of what they have not seen.
    """
    if draft.cdc or draft.txns or draft.domains:
        raise InvalidCommitError("the log of a search table has no cdc, txn or domainMetadata actions.")
    if attempt.version == 0:
        if draft.adds or draft.removes or draft.skips or draft.protocol is None or draft.metadata is None:
            raise InvalidCommitError("version 0 of a search table holds one protocol and one metaData, nothing else.")
        return draft
    if draft.metadata is not None:
        raise InvalidCommitError(
            "the metaData of a search table, and with it its schema, cannot change: it stands in version 0 for ever. "
            "Write the rows to a new table."
        )
    assert attempt.snapshot is not None, "a version after 0 builds on another"
    ignored = attempt.snapshot.segment.unreachable
    if ignored:
        raise MissingCommitError(
            f"{attempt.snapshot.uri} cannot be written: version {attempt.version} is missing from its log, and "
            f"what stands behind it ({', '.join(map(str, ignored))}) would count again. "
            "Restore the missing version file, or move the files behind it away and accept the loss."
        )
    return draft
