"""`headwater show`: one page about a table, with its facts, its schema as a tree, and its newest commits."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from rich.table import Table
from rich.text import Text

from headwater.api.views import checksum_state, histogram, schema_rows
from headwater.cli import output
from headwater.cli.files import bar, bin_label
from headwater.cli.history import commit_table
from headwater.cli.output import clean
from headwater.features.registry import FEATURES
from headwater.log.delta.dialect import DELTA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console, RenderableType

    from headwater.api.views import SchemaRow
    from headwater.log.actions.model import Protocol
    from headwater.log.snapshot import Snapshot

_NEWEST_COMMITS = 5
_BAR_WIDTH = 40
_ROOMY = 80
_LONG_NAME = 56
_MANY = 10
"""Application transactions that are shown."""
_LONGEST = 400
"""Characters of a property's or domain's value that are shown."""
_CHECKPOINTS = {"classic": "one file", "multipart": "in parts", "uuid": "V2", "json": "JSON"}
_CHECKSUMS = {"found": "found", "missing": "none", "damaged": "damaged: 'headwater verify' says more"}


def show(snapshot: Snapshot) -> None:
    out = output.console()
    with output.waiting("Reading the list of files"):
        parts = _page(snapshot, out)
    output.show(out, *parts)


def _page(snapshot: Snapshot, out: Console) -> list[RenderableType]:
    ascii_only, roomy = out.options.ascii_only, out.width >= _ROOMY
    title = snapshot.metadata.name or unquote(snapshot.uri.rstrip("/").rpartition("/")[2]) or snapshot.uri
    parts: list[RenderableType] = [Text(clean(title), style="bold")]
    parts.append(Text(snapshot.uri, style="dim", overflow="fold"))
    if snapshot.metadata.description:
        parts.append(Text(clean(snapshot.metadata.description), style="italic"))
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
    commits = snapshot.history(_NEWEST_COMMITS)
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
    age = output.ago(snapshot.timestamp, snapshot.ctx.clock_ms())
    when = f"{output.moment(snapshot.timestamp)}, {age}"
    if snapshot.ctx.dialect is not DELTA:
        yield "table", snapshot.ctx.dialect.title
    yield "version", Text.assemble((str(snapshot.version), "bold cyan"), f"  ({when})")
    files = output.count(snapshot.num_files, "file")
    average = f" ({output.size(snapshot.size_bytes // snapshot.num_files)} on average)" if snapshot.num_files else ""
    yield "size", f"{output.size(snapshot.size_bytes)} in {files}{average}"
    protocol = snapshot.protocol
    yield ("protocol", f"reader version {protocol.min_reader_version}, writer version {protocol.min_writer_version}")
    yield from _features(protocol, implied=snapshot.ctx.dialect is DELTA)
    if snapshot.partition_columns:
        yield "partitioned by", clean(", ".join(snapshot.partition_columns))
    yield "log", _log(snapshot)
    checksum = checksum_state(snapshot)
    if checksum != "not applicable":
        yield "checksum", _CHECKSUMS[checksum]
    if snapshot.merge_skips:
        yield "left out of merges", output.count(len(snapshot.merge_skips), "split")
    if snapshot.metadata.created_time is not None:
        yield "created", output.moment(snapshot.metadata.created_time)
    yield "id", clean(snapshot.metadata.id)


def _features(protocol: Protocol, *, implied: bool) -> Iterator[tuple[str, str]]:
    """Return features by who must understand them; old protocol versions imply some."""
    reader = sorted(protocol.reader_features or ())
    writer = sorted(set(protocol.writer_features or ()) - set(reader))
    if reader:
        yield "features", clean(", ".join(reader))
    if writer:
        yield (
            "writer features" if reader else "features",
            clean(", ".join(writer) + ("" if reader else " (writers only)")),
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
    commits = output.count(sum(each.end_version - each.version + 1 for each in segment.commits), "commit")
    if segment.checkpoint is None:
        return f"{commits}, no checkpoint"
    kind = _CHECKPOINTS.get(segment.checkpoint.kind, segment.checkpoint.kind)
    return f"checkpoint of version {segment.checkpoint.version} ({kind}), {commits} after it"


def _schema(snapshot: Snapshot, *, ascii_only: bool) -> Table:
    table = _grid("", "cyan", "")
    for row in schema_rows(snapshot.schema, snapshot.partition_columns):
        style = "bold yellow" if "partition" in row.notes else "bold"
        name = Text.assemble((guide(row, ascii_only=ascii_only), "dim"), (clean(row.name), style))
        notes = Text((", " if ascii_only else " · ").join(map(clean, row.notes)), style="yellow")
        if row.comment:
            notes = Text.assemble(notes, "  " if row.notes else "", (f"# {clean(row.comment)}", "dim"))
        table.add_row(name, Text(clean(row.type)), notes)
    return table


def _pairs(values: Mapping[str, str], *, roomy: bool) -> Table:
    table = _grid("", "cyan")
    # Values are broken into lines and names are not, unless names would leave no room for values.
    table.columns[0].no_wrap = roomy and max(map(len, values)) <= _LONG_NAME
    for name, value in sorted(values.items()):
        table.add_row(Text(clean(name)), Text(output.cut(clean(value), _LONGEST)))
    return table


def _transactions(transactions: Mapping[str, int]) -> Table:
    table = _grid("", "cyan")
    for app_id in list(transactions)[:_MANY]:
        table.add_row(Text(clean(app_id)), Text(f"version {transactions[app_id]}"))
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
        label = bin_label(each)
        table.add_row(
            Text(label.replace("–", "-") if ascii_only else label),
            Text(drawn, style="green"),
            Text(f"{each.num_files:,}"),
        )
    return table


_UNICODE = ("├── ", "└── ", "│   ", "    ")
_ASCII = ("|-- ", "`-- ", "|   ", "    ")


def guide(row: SchemaRow, *, ascii_only: bool = False) -> str:
    """Return the lines that lead to a field of the tree."""
    branch, last, down, blank = _ASCII if ascii_only else _UNICODE
    *above, is_last = row.is_last
    return "".join(blank if each else down for each in above) + (last if is_last else branch)
