"""`headwater history`: the commits of a table, newest first, each in a few words.

`operationParameters` and `operationMetrics` are free-form (spec: "Commit Provenance Information"). The names of metrics
here are those that delta-spark and delta-rs write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from headwater.log.commit.history import CommitSummary
    from headwater.log.snapshot import Snapshot


DEFAULT_LIMIT = 20
"""Commits that people see unless they ask for more."""


def show_history(snapshot: Snapshot, limit: int | None, *, as_json: bool) -> None:
    """Show at most `limit` commits, for people or as a JSON array with one commit a line."""
    with output.waiting("Reading commits"):
        commits = snapshot.history(limit if limit is not None or as_json else DEFAULT_LIMIT)
    if as_json:
        output.write_json_array(commits)
        return

    out = output.console()
    output.show(out, commit_table(commits, longest=out.width, authors=not output.is_narrow(out)))
    if not commits:
        output.show(out, "No commits: log cleanup has left only checkpoints.")
    elif limit is None and len(commits) == DEFAULT_LIMIT and commits[-1].version > 0:
        output.show(out, f"\nThese are the newest {len(commits)} commits: --limit N shows more.")


_FILES = (
    (
        "+",
        (
            "numTargetFilesAdded",
            "num_target_files_added",
            "numAddedFiles",
            "num_added_files",
            "numFilesAdded",
            "numFiles",
        ),
    ),
    (
        "-",
        (
            "numTargetFilesRemoved",
            "num_target_files_removed",
            "numRemovedFiles",
            "num_removed_files",
            "numFilesRemoved",
        ),
    ),
)
# A merge's numOutputRows counts rows that were merely copied: its own metric comes first.
_ROWS = (
    ("+", ("numTargetRowsInserted", "num_target_rows_inserted", "num_added_rows", "numOutputRows")),
    ("-", ("numTargetRowsDeleted", "num_target_rows_deleted", "numDeletedRows", "num_deleted_rows")),
    ("~", ("numTargetRowsUpdated", "num_target_rows_updated", "numUpdatedRows", "num_updated_rows")),
)
_NOTHING = (None, "", "[]", "{}", "null", "false", False)


def files_changed(metrics: Mapping[str, Any]) -> str:
    """How many files were added (+) and removed (-), as far as the metrics tell.

    >>> files_changed({"numAddedFiles": "3", "numRemovedFiles": "1200"})
    '+3 -1,200'
    """
    return " ".join(_signed(metrics, _FILES))


def rows_changed(metrics: Mapping[str, Any]) -> str:
    """How many rows were added (+), deleted (-) and updated (~), as far as the metrics tell.

    >>> rows_changed({"num_updated_rows": 2, "num_copied_rows": 298})
    '~2'
    """
    return " ".join(_signed(metrics, _ROWS))


def _signed(metrics: Mapping[str, Any], signs: tuple[tuple[str, tuple[str, ...]], ...]) -> Iterator[str]:
    for sign, names in signs:
        value = next((metrics[name] for name in names if name in metrics), None)
        number = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else 0
        if number:
            yield f"{sign}{number:,}"


def parameters(given: Mapping[str, Any]) -> str:
    """The parameters of an operation that say something.

    >>> parameters({"mode": "Append", "partitionBy": '["date"]', "predicate": None})
    'mode=Append partitionBy=date'
    """
    told = sorted((name, value) for name, value in given.items() if value not in _NOTHING)
    return " ".join(f"{output.clean(name)}={_value(value)}" for name, value in told)


def _value(value: Any) -> str:
    """Return a value as text; a JSON list of names without its brackets and quotes."""
    if isinstance(value, str) and value.startswith('["'):
        import msgspec

        try:
            return output.clean(",".join(msgspec.json.decode(value, type=list[str])))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return output.plain(value)


def commit_table(commits: list[CommitSummary], *, longest: int, authors: bool) -> Table:
    """Lay the commits out as a table.

    Args:
        commits: in the order in which they are shown.
        longest: how many characters of an operation's parameters are shown.
        authors: whether to say who made them.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("version", justify="right", style="cyan", no_wrap=True)
    table.add_column("time (UTC)", no_wrap=True)
    table.add_column("operation", style="bold", overflow="fold")
    table.add_column("files", style="green")
    table.add_column("rows", style="green")
    table.add_column("parameters", style="dim", overflow="fold")
    if authors:
        table.add_column("by", style="dim", overflow="fold")
    for commit in commits:
        cells = [
            str(commit.version),
            output.moment(commit.timestamp).removesuffix(" UTC"),
            output.clean(commit.operation or "?"),
            files_changed(commit.operation_metrics),
            rows_changed(commit.operation_metrics),
            output.cut(parameters(commit.operation_parameters), longest),
            *([_author(commit)] if authors else []),
        ]
        table.add_row(*map(Text, cells))
    return table


def _author(commit: CommitSummary) -> str:
    told = (commit.user_name, commit.engine_info, commit.user_metadata)
    return " · ".join(output.clean(text) for text in told if text)
