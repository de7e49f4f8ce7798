"""The protocol that a set of features needs (spec: "Table Features for New and Existing Tables").

Always the lowest that is enough: legacy versions while legacy features suffice, else lists of features. A table that
moves from versions to lists keeps every feature that its versions implied: proving that one was never
used in a version that time travel still reaches would be expensive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, InvalidCommitError, UnsupportedProtocolError
from headwater.features.feature import TABLE_FEATURES_READER_VERSION, TABLE_FEATURES_WRITER_VERSION
from headwater.features.registry import (
    FEATURES,
    check_writable,
    find_feature,
    implied_features,
    main_name,
    similar_features,
    supported_features,
)
from headwater.log.actions.model import Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.commit.draft import Attempt, Draft


NO_FEATURES = Protocol(1, 1)
DEFAULT = Protocol(1, 2)
"""Of new tables that need nothing more, as other implementations have it."""
_LEGACY = (*((1, writer) for writer in range(1, 7)), (2, 5), (2, 6))
"""The pairs of versions that have a meaning of their own."""


def with_features(protocol: Protocol, wanted: Iterable[str], *, listed: bool = False) -> Protocol:
    """The lowest protocol that supports what it supported before and the wanted features (and what those require).

    Args:
        protocol: the protocol so far.
        wanted: names of features.
        listed: move to lists of features even where a legacy version would do.

    >>> with_features(Protocol(1, 2), ["changeDataFeed"])
    Protocol(min_reader_version=1, min_writer_version=4, reader_features=None, writer_features=None)
    >>> with_features(Protocol(1, 2), ["rowTracking"]).writer_features
    ('appendOnly', 'invariants', 'rowTracking', 'domainMetadata')
    """
    have = supported_features(protocol) - _hidden_from_readers(protocol)
    new = [name for name in _with_required(wanted) if name not in have]
    if not new:
        return protocol
    on_lists = protocol.min_writer_version >= TABLE_FEATURES_WRITER_VERSION
    if not on_lists and not listed and all(FEATURES[name].is_legacy for name in new):
        return Protocol(
            max(protocol.min_reader_version, *(FEATURES[name].legacy_reader_version or 1 for name in new)),
            max(protocol.min_writer_version, *(FEATURES[name].legacy_writer_version or 1 for name in new)),
        )
    return _listing(protocol, new)


def upgrade(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """Return the protocol with at least these versions (`upgradeTableProtocol`).

    Raises:
        InvalidCommitError: the versions do not exist, do not go together, or are lower than the table's.

    >>> upgrade(Protocol(1, 2), 1, 7).writer_features
    ('appendOnly', 'invariants')
    """
    if not (1 <= reader <= TABLE_FEATURES_READER_VERSION and 1 <= writer <= TABLE_FEATURES_WRITER_VERSION):
        raise InvalidCommitError(
            f"there is no protocol ({reader}, {writer}): reader versions are 1 to {TABLE_FEATURES_READER_VERSION}, "
            f"writer versions 1 to {TABLE_FEATURES_WRITER_VERSION}."
        )
    if reader < protocol.min_reader_version or writer < protocol.min_writer_version:
        raise InvalidCommitError(
            f"the protocol cannot go down from ({protocol.min_reader_version}, {protocol.min_writer_version}) to "
            f"({reader}, {writer}): older clients could not read or write the table correctly."
        )
    return at_least(protocol, reader, writer)


def at_least(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """Return the protocol with its versions raised where they are lower."""
    reader, writer = max(reader, protocol.min_reader_version), max(writer, protocol.min_writer_version)
    if reader == TABLE_FEATURES_READER_VERSION:
        writer = TABLE_FEATURES_WRITER_VERSION
    if writer < TABLE_FEATURES_WRITER_VERSION:
        if reader == 2 and writer < 5:
            raise InvalidCommitError("reader version 2 means column mapping, which needs writer version 5 or newer.")
        return Protocol(reader, writer)
    raised = protocol if protocol.writer_features is not None else _listing(protocol, ())
    if reader == TABLE_FEATURES_READER_VERSION and raised.reader_features is None:
        listed = raised.writer_features or ()
        return Protocol(3, 7, tuple(n for n in listed if FEATURES[n].for_readers), listed)
    return Protocol(max(reader, raised.min_reader_version), 7, raised.reader_features, raised.writer_features)


def add_feature(protocol: Protocol, name: str) -> Protocol:
    """Return the protocol with support for a named feature (`addFeatureSupport`, `delta.feature.<name> = supported`).

    Raises:
        UnsupportedProtocolError: there is no such feature, or it cannot be written.
    """
    return with_features(protocol, [writable_feature(name)], listed=True)


def writable_feature(name: str) -> str:
    """Return the proper name of a feature that a user asks for.

    Raises:
        UnsupportedProtocolError: there is no such feature, or it cannot be written.
    """
    feature = find_feature(name)
    if feature is None:
        similar = similar_features(name)
        hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
        raise UnsupportedProtocolError(f"there is no table feature {name!r}.{hint}", (name,))
    if not feature.writes:
        raise UnsupportedProtocolError(
            f"the table feature {feature.name} cannot be added: {feature.reason}.", (feature.name,)
        )
    return feature.same_as or feature.name


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """Return the lowest protocol with all supported features but one. Whether it may be dropped is not asked here."""
    rest = [f for f in _listed(protocol) if main_name(f) != name]
    for reader, writer in _LEGACY:
        if set(rest) == set(implied_features(reader, writer)):
            return Protocol(reader, writer)
    return _from_lists(1, rest)


def _hidden_from_readers(protocol: Protocol) -> set[str]:
    """Features that readers must understand and that only `writerFeatures` names, so that not all readers see them."""
    shown = (*(protocol.reader_features or ()), *(["columnMapping"] if protocol.min_reader_version == 2 else ()))
    listed = protocol.writer_features or ()
    return {main_name(n) for n in listed if n in FEATURES and FEATURES[n].for_readers and n not in shown}


def _listing(protocol: Protocol, new: Iterable[str]) -> Protocol:
    return _from_lists(protocol.min_reader_version, list(dict.fromkeys((*_listed(protocol), *new))))


def _from_lists(reader: int, listed: list[str]) -> Protocol:
    for_readers = tuple(name for name in listed if FEATURES[name].for_readers)
    if reader >= TABLE_FEATURES_READER_VERSION or any(not FEATURES[name].is_legacy for name in for_readers):
        return Protocol(TABLE_FEATURES_READER_VERSION, TABLE_FEATURES_WRITER_VERSION, for_readers, tuple(listed))
    # Reader version 2 stands for column mapping, the one legacy feature for readers.
    return Protocol(2 if for_readers else reader, TABLE_FEATURES_WRITER_VERSION, None, tuple(listed))


def _listed(protocol: Protocol) -> list[str]:
    """What the protocol supports, as it would stand in a list: its own order, or that of the registry."""
    if protocol.min_writer_version < TABLE_FEATURES_WRITER_VERSION:
        return list(implied_features(protocol.min_reader_version, protocol.min_writer_version))
    return list(dict.fromkeys((*(protocol.writer_features or ()), *(protocol.reader_features or ()))))


def _with_required(wanted: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting += FEATURES[name].requires
    return list(found)


DROP_FEATURE = "DROP FEATURE"
"""The one operation that may take a feature away, after it has taken its traces away."""


def protocol_rule(draft: Draft, attempt: Attempt) -> Draft:
    """A new protocol is valid, can be written by us, and takes nothing away."""
    after = draft.protocol
    if after is None:
        return draft
    try:
        check_writable(attempt.configuration.changed(after, None))
    except CorruptLogError as error:
        raise InvalidCommitError(str(error)) from error
    except UnsupportedProtocolError as error:
        raise InvalidCommitError(f"the protocol cannot be set: {error}") from error
    before = None if attempt.snapshot is None else attempt.snapshot.protocol
    if before is None or draft.operation.name == DROP_FEATURE:
        return draft
    gone = supported_features(before) - supported_features(after)
    if gone:
        raise InvalidCommitError(
            f"{draft.operation.name} would take {', '.join(sorted(gone))} from the protocol. Features stay until they "
            "are dropped explicitly."
        )
    if after.min_reader_version < before.min_reader_version or after.min_writer_version < before.min_writer_version:
        raise InvalidCommitError(
            f"the protocol cannot go down from ({before.min_reader_version}, {before.min_writer_version}) to "
            f"({after.min_reader_version}, {after.min_writer_version})."
        )
    return draft
