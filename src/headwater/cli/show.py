"""`headwater show`: what a table is, on one screen. Nothing is asked of Arrow where the log is only JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headwater.cli import output
from headwater.cli.histogram import histogram
from headwater.cli.verify import checksum_state
from headwater.log.log_format import DELTA

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

NEWEST_COMMITS = 5


def show(snapshot: Snapshot, *, as_json: bool) -> None:
    """Write what the snapshot knows about its table: as one JSON object, or as a page for people."""
    if as_json:
        with output.waiting("Reading the list of files"):
            described = describe(snapshot)
        output.write_json(described)
        return
    from headwater.cli.show_page import page

    out = output.console()
    with output.waiting("Reading the list of files"):
        parts = page(snapshot, out)
    output.show(out, *parts)


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """The table as plain values, by the names of the Python API."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "uri": snapshot.uri,
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "created_time": metadata.created_time,
        "version": snapshot.version,
        "timestamp": snapshot.timestamp,
        "protocol": {
            "min_reader_version": protocol.min_reader_version,
            "min_writer_version": protocol.min_writer_version,
            "reader_features": protocol.reader_features,
            "writer_features": protocol.writer_features,
        },
        "schema": snapshot.schema.to_dict(),
        "partition_columns": snapshot.partition_columns,
        "properties": snapshot.properties,
        "num_files": snapshot.num_files,
        "size_bytes": snapshot.size_bytes,
        "file_sizes": [each._asdict() for each in histogram(snapshot.file_sizes())],
        "app_transactions": snapshot.app_transactions,
        "domain_metadata": snapshot.domain_metadata,
        "log": _log(snapshot),
        "checksum": checksum_state(snapshot),
        **({} if snapshot.ctx.format is DELTA else _of_dialect(snapshot)),
    }


def _of_dialect(snapshot: Snapshot) -> dict[str, Any]:
    """What is only to be said about tables that are not Delta's."""
    return {"format": snapshot.ctx.format.name, "merge_skips": list(snapshot.merge_skips.values())}


def _log(snapshot: Snapshot) -> dict[str, Any]:
    """From what the version is reconstructed."""
    segment = snapshot.segment
    checkpoint = segment.checkpoint
    return {
        "checkpoint_version": None if checkpoint is None else checkpoint.version,
        "checkpoint_kind": None if checkpoint is None else checkpoint.kind,
        "num_commits": sum(commit.end_version - commit.version + 1 for commit in segment.commits),
    }


def title(snapshot: Snapshot) -> str:
    """The table's name, or else that of its folder."""
    return snapshot.metadata.name or unquote(snapshot.uri.rstrip("/").rpartition("/")[2]) or snapshot.uri
