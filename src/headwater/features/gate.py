"""The protocol gate: may this table be read, may it be written? (spec: "Protocol Evolution", "Table Features").

Reader versions 1 to 3 and writer versions 1 to 7 are understood; a table of version 3 or 7 lists its features, and each
must be one we support. A writer reads the table first, so what cannot be read cannot be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import CorruptLogError, UnsupportedProtocolError
from headwater.features.registry import FEATURES

if TYPE_CHECKING:
    from headwater.log.actions import Metadata, Protocol

MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7


def check_readable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise unless the log of a table with this protocol can be read correctly.

    Raises:
        UnsupportedProtocolError: the table needs a newer reader version, or features that are not supported.
        CorruptLogError: the protocol action contradicts itself.
    """
    version = protocol.min_reader_version
    if not 1 <= version <= MAX_READER_VERSION:
        raise UnsupportedProtocolError(
            f"the table needs Delta reader version {version}; Headwater reads versions 1 to {MAX_READER_VERSION}. "
            "A newer release may read it."
        )
    if metadata.format.provider.lower() != "parquet":
        raise UnsupportedProtocolError(
            f"the table's data files are {metadata.format.provider!r}; only Parquet is supported."
        )
    if version < MAX_READER_VERSION:
        if protocol.reader_features:
            raise CorruptLogError(
                f"the protocol action is not valid: it lists the readerFeatures {list(protocol.reader_features)}, "
                f"which only reader version 3 does, but has reader version {version}."
            )
        _check_read(protocol)
        return
    if protocol.min_writer_version != MAX_WRITER_VERSION or protocol.reader_features is None:
        raise CorruptLogError(
            "the protocol action is not valid: reader version 3 needs writer version 7 and a list of readerFeatures, "
            f"but it is {protocol.min_writer_version} and {protocol.reader_features}."
        )
    _check_read(protocol)


def _check_read(protocol: Protocol) -> None:
    """Raise if a reader must understand a feature that is unknown, or known and not supported.

    What a known feature means for readers does not depend on the list that names it: a table that is managed by its
    catalog is, even if only `writerFeatures` says so. Unknown names in that list are the business of writers.
    """
    readers = protocol.reader_features or ()
    missing = [name for name in readers if name not in FEATURES or not FEATURES[name].reads_log]
    missing += [
        name
        for name in protocol.writer_features or ()
        if name in FEATURES and not FEATURES[name].reads_log and name not in readers
    ]
    if missing:
        raise UnsupportedProtocolError(
            f"the table needs {_plural('reader feature', missing)} that Headwater does not support: "
            + "; ".join(_explained(name) for name in missing),
            features=tuple(missing),
        )


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise unless a table with this protocol can be written correctly, with everything its features demand.

    Raises:
        UnsupportedProtocolError: the table needs a newer writer version, or features that are not supported.
        CorruptLogError: the protocol action contradicts itself.
    """
    check_readable(protocol, metadata)
    version = protocol.min_writer_version
    if not 1 <= version <= MAX_WRITER_VERSION:
        raise UnsupportedProtocolError(
            f"the table needs Delta writer version {version}; Headwater writes versions 1 to {MAX_WRITER_VERSION}. "
            "A newer release may write it."
        )
    if version < MAX_WRITER_VERSION:
        if protocol.writer_features:
            raise CorruptLogError(
                f"the protocol action is not valid: it lists the writerFeatures {list(protocol.writer_features)}, "
                f"which only writer version 7 does, but has writer version {version}."
            )
        return
    if protocol.writer_features is None:
        raise CorruptLogError("the protocol action is not valid: writer version 7 needs a list of writerFeatures.")
    _check_lists(protocol.reader_features or (), protocol.writer_features)


def _check_lists(readers: tuple[str, ...], writers: tuple[str, ...]) -> None:
    missing = [name for name in writers if name not in FEATURES or not FEATURES[name].writes]
    if missing:
        raise UnsupportedProtocolError(
            f"the table needs {_plural('writer feature', missing)} that Headwater does not support: "
            + "; ".join(_explained(name) for name in missing),
            features=tuple(missing),
        )
    for name in readers:
        if name not in writers:
            raise CorruptLogError(
                f"the protocol action is not valid: {name} is in readerFeatures, but not in writerFeatures."
            )
    for name in writers:
        required = [r for r in FEATURES[name].requires if r not in writers]
        if required:
            raise CorruptLogError(
                f"the protocol action is not valid: {name} needs {', '.join(required)} too, "
                "which writerFeatures does not have."
            )


def _plural(noun: str, items: list[str]) -> str:
    return f"a {noun}" if len(items) == 1 else f"{noun}s"


def _explained(name: str) -> str:
    known = FEATURES.get(name)
    return f"{name} ({known.reason if known is not None else 'unknown to this release'})"
