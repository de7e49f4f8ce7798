"""The page that `headwater show` draws for people: a heading, facts, the schema, and what else there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from headwater.cli import formats, output
from headwater.cli.commits import commit_table
from headwater.cli.histogram import bar, histogram
from headwater.cli.schema_tree import schema_rows
from headwater.cli.show import NEWEST_COMMITS, title
from headwater.cli.verify import checksum_state
from headwater.features.registry import FEATURES
from headwater.log.log_format import DELTA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console, RenderableType

    from headwater.log.actions import Protocol
    from headwater.log.snapshot import Snapshot

_BAR_WIDTH = 40
_ROOMY = 80
_LONG_NAME = 56
_MANY = 10
"""Application transactions that are shown."""
_LONGEST = 400
"""Characters of a property's or domain's value that are shown."""
_CHECKPOINTS = {"classic": "one file", "multipart": "in parts", "uuid": "V2", "json": "JSON"}
_CHECKSUMS = {"found": "found", "missing": "none", "damaged": "damaged: 'headwater verify' says more"}


def page(snapshot: Snapshot, out: Console) -> list[RenderableType]:
    """Everything, in the order in which it is shown."""
    ascii_only, roomy = out.options.ascii_only, out.width >= _ROOMY
    parts: list[RenderableType] = [Text(formats.clean(title(snapshot)), style="bold")]
    parts.append(Text(snapshot.uri, style="dim", overflow="fold"))
    if snapshot.metadata.description:
        parts.append(Text(formats.clean(snapshot.metadata.description), style="italic"))
    parts += ["", _facts(snapshot)]
    parts += _section("schema", _schema(snapshot, ascii_only=ascii_only))
    if snapshot.properties:
        parts += _section("properties", _pairs(snapshot.properties, roomy=roomy))
    if snapshot.num_files:
        parts += _section("file sizes", _file_sizes(snapshot, ascii_only=ascii_only))
    if snapshot.app_transactions:
        parts += _section("application transactions", _transactions(snapshot.app_transactions))
    if snapshot.domain_metadata:
        parts += _section("domains", _pairs(snapshot.domain_metadata, roomy=roomy))
    commits = snapshot.history(NEWEST_COMMITS)
    if commits:
        newest = commit_table(commits, longest=min(out.width // 2, 100), authors=not output.is_narrow(out))
        parts += _section("newest commits", newest)
    return parts


def _section(name: str, content: RenderableType) -> list[RenderableType]:
    return ["", Text(name, style="bold cyan"), content]


def _grid(*styles: str) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in styles:
        table.add_column(style=style, overflow="fold")
    return table


def _facts(snapshot: Snapshot) -> Table:
    facts = _grid("dim", "")
    for name, value in _fact_lines(snapshot):
        facts.add_row(Text(name), value if isinstance(value, Text) else Text(value))
    return facts


def _fact_lines(snapshot: Snapshot) -> Iterator[tuple[str, str | Text]]:
    age = formats.ago(snapshot.timestamp, snapshot.ctx.clock_ms())
    when = f"{formats.moment(snapshot.timestamp)}, {age}"
    if snapshot.ctx.format is not DELTA:
        yield "table", snapshot.ctx.format.title
    yield "version", Text.assemble((str(snapshot.version), "bold cyan"), f"  ({when})")
    files = formats.count(snapshot.num_files, "file")
    average = f" ({formats.size(snapshot.size_bytes // snapshot.num_files)} on average)" if snapshot.num_files else ""
    yield "size", f"{formats.size(snapshot.size_bytes)} in {files}{average}"
    protocol = snapshot.protocol
    yield (
        "protocol",
        f"reader version {protocol.min_reader_version}, writer version {protocol.min_writer_version}",
    )
    yield from _features(protocol, implied=snapshot.ctx.format is DELTA)
    if snapshot.partition_columns:
        yield "partitioned by", formats.clean(", ".join(snapshot.partition_columns))
    yield "log", _log(snapshot)
    if snapshot.ctx.format.has_checksums:
        yield "checksum", _CHECKSUMS[checksum_state(snapshot)]
    if snapshot.merge_skips:
        yield "left out of merges", formats.count(len(snapshot.merge_skips), "split")
    if snapshot.metadata.created_time is not None:
        yield "created", formats.moment(snapshot.metadata.created_time)
    yield "id", formats.clean(snapshot.metadata.id)


def _features(protocol: Protocol, *, implied: bool) -> Iterator[tuple[str, str]]:
    """Features by who must understand them; those that old protocol versions imply are said to be implied."""
    reader = sorted(protocol.reader_features or ())
    writer = sorted(set(protocol.writer_features or ()) - set(reader))
    if reader:
        yield "features", formats.clean(", ".join(reader))
    if writer:
        yield (
            "writer features" if reader else "features",
            formats.clean(", ".join(writer) + ("" if reader else " (writers only)")),
        )
    if protocol.writer_features is None and implied:
        names = [
            feature.name
            for feature in FEATURES.values()
            if feature.legacy_writer_version is not None
            and feature.legacy_writer_version <= protocol.min_writer_version
        ]
        if names:
            yield "features", ", ".join(names) + " (implied)"


def _log(snapshot: Snapshot) -> str:
    segment = snapshot.segment
    commits = formats.count(sum(each.end_version - each.version + 1 for each in segment.commits), "commit")
    if segment.checkpoint is None:
        return f"{commits}, no checkpoint"
    kind = _CHECKPOINTS.get(segment.checkpoint.kind, segment.checkpoint.kind)
    return f"checkpoint of version {segment.checkpoint.version} ({kind}), {commits} after it"


def _schema(snapshot: Snapshot, *, ascii_only: bool) -> Table:
    table = _grid("", "cyan", "")
    for row in schema_rows(snapshot.schema, snapshot.partition_columns, ascii_only=ascii_only):
        name = Text.assemble((row.guide, "dim"), (row.name, "bold yellow" if row.is_partition else "bold"))
        notes = Text(" · ".join(row.notes) if not ascii_only else ", ".join(row.notes), style="yellow")
        if row.comment:
            notes = Text.assemble(notes, "  " if row.notes else "", (f"# {row.comment}", "dim"))
        table.add_row(name, Text(row.type), notes)
    return table


def _pairs(values: Mapping[str, str], *, roomy: bool) -> Table:
    table = _grid("", "cyan")
    # Values are broken into lines and names are not, unless names would leave no room for values.
    table.columns[0].no_wrap = roomy and max(map(len, values)) <= _LONG_NAME
    for name, value in sorted(values.items()):
        table.add_row(Text(formats.clean(name)), Text(formats.cut(formats.clean(value), _LONGEST)))
    return table


def _transactions(transactions: Mapping[str, int]) -> Table:
    table = _grid("", "cyan")
    for app_id in list(transactions)[:_MANY]:
        table.add_row(Text(formats.clean(app_id)), Text(f"version {transactions[app_id]}"))
    if len(transactions) > _MANY:
        table.add_row(Text(f"and {len(transactions) - _MANY:,} more"), Text(""))
    return table


def _file_sizes(snapshot: Snapshot, *, ascii_only: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("right", "left", "right"):
        table.add_column(justify=justify, no_wrap=True)
    bins = histogram(snapshot.file_sizes())
    most = max(each.num_files for each in bins)
    for each in bins:
        drawn = bar(each.num_files / most, _BAR_WIDTH, ascii_only=ascii_only)
        label = each.label.replace("–", "-") if ascii_only else each.label
        table.add_row(Text(label), Text(drawn, style="green"), Text(f"{each.num_files:,}"))
    return table
