"""The commands and their options. What a command does is in the module of its name, imported when called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater._version import __version__

if TYPE_CHECKING:
    from headwater.commands.vacuum_plan import VacuumMode
    from headwater.features.context import TableRef
    from headwater.log.snapshot import Snapshot

app = typer.Typer(
    name="headwater",
    help="Look into Delta tables and keep them in shape: no Spark, no JARs, no waiting.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Path = Annotated[
    str,
    typer.Argument(metavar="PATH", help="The table: a folder, or a URI such as s3://bucket/table.", show_default=False),
]
Version = Annotated[
    int | None, typer.Option("--version", metavar="N", min=0, help="The version to look at; the newest by default.")
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="T",
        help="Or a point in time: '2024-01-31', '2024-01-31 12:30:00' (UTC), or milliseconds since 1970.",
    ),
]
Where = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Leave out files that cannot hold a matching row.")
]
CommitLimit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="At most N commits. By default 20, or all with --json."),
]
FileLimit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="At most N files. By default 50, or all with --json.")
]
Json = Annotated[bool, typer.Option("--json", help="For programs: JSON on stdout, and errors as JSON on stderr.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="A storage option, such as aws_region=eu-west-1. May be repeated."
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from headwater.cli.output import write

        write(f"headwater {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version of Headwater.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command("show")
def _show(
    path: Path, version: Version = None, timestamp: Timestamp = None, json: Json = False, option: Options = None
) -> None:
    """Show a table: version, protocol, schema, properties, files and newest commits."""
    snapshot = _open(path, option, version, timestamp)
    if json:
        from headwater.api.views import describe
        from headwater.cli.output import waiting, write_json

        with waiting("Reading the list of files"):
            described = describe(snapshot)
        write_json(described)
    else:
        from headwater.cli.show import show

        show(snapshot)


@app.command("history")
def _history(path: Path, limit: CommitLimit = None, json: Json = False, option: Options = None) -> None:
    """Show the commits of a table, newest first."""
    from headwater.cli.history import show_history

    show_history(_open(path, option), limit, as_json=json)


@app.command("files")
def _files(
    path: Path,
    where: Where = None,
    version: Version = None,
    timestamp: Timestamp = None,
    limit: FileLimit = None,
    json: Json = False,
    option: Options = None,
) -> None:
    """Show the files of a table, or those that a query has to read."""
    from headwater.cli.files import show_files

    show_files(_open(path, option, version, timestamp), where, limit, as_json=json)


@app.command("verify")
def _verify(
    path: Path, version: Version = None, timestamp: Timestamp = None, json: Json = False, option: Options = None
) -> None:
    """Check the log against its checksum. Exits with 1 if they differ."""
    from headwater.cli.maintenance import show_verification
    from headwater.cli.output import EXIT_DISCREPANCIES

    if not show_verification(_open(path, option, version, timestamp), as_json=json):
        raise typer.Exit(EXIT_DISCREPANCIES)


@app.command("vacuum")
def _vacuum(
    path: Path,
    retention_hours: Annotated[
        float | None,
        typer.Option(
            "--retention-hours",
            metavar="H",
            help="Keep what versions of the last H hours need. By default what the table says, which is a week.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; show what would be deleted.")] = False,
    lite: Annotated[
        bool,
        typer.Option(
            "--lite/--full",
            help="Look only at the log, or (by default) at all files that are there.",
            show_default=False,
        ),
    ] = False,
    retention_check: Annotated[
        bool,
        typer.Option(
            "--retention-check/--no-retention-check",
            help="Refuse a retention that is shorter than the table's; yes by default.",
            show_default=False,
        ),
    ] = True,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Show at most N files. By default 50, or all with --json."),
    ] = None,
    json: Json = False,
    option: Options = None,
) -> None:
    """Delete the files that no retained version of a table needs."""
    from headwater.cli.maintenance import show_vacuum
    from headwater.commands.vacuum import VacuumRequest

    table = _table(path, option)
    mode: VacuumMode = "LITE" if lite else "FULL"
    show_vacuum(VacuumRequest(table, retention_hours, mode, dry_run, retention_check), limit, as_json=json)


@app.command("restore")
def _restore(
    path: Path,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=0, help="The version to go back to.")
    ] = None,
    timestamp: Timestamp = None,
    ignore_missing_files: Annotated[
        bool, typer.Option("--ignore-missing-files", help="Go back although VACUUM has deleted files.")
    ] = False,
    json: Json = False,
    option: Options = None,
) -> None:
    """Restore a table to an earlier version, in a new commit."""
    from headwater.cli.maintenance import show_restore
    from headwater.commands.restore import RestoreRequest

    if (version is None) == (timestamp is None):
        raise typer.BadParameter("say what to go back to: --version N or --timestamp T, one of them")
    point = _point_in_time(timestamp)
    show_restore(RestoreRequest(_table(path, option), version, point, ignore_missing_files), as_json=json)


def _table(path: str, options: list[str] | None) -> TableRef:
    from headwater.features.context import TableRef

    return TableRef(path, _storage_options(options or []))


def _open(path: str, options: list[str] | None, version: int | None = None, timestamp: str | None = None) -> Snapshot:
    from headwater.api.open import open_log
    from headwater.cli.output import waiting

    if version is not None and timestamp is not None:
        raise typer.BadParameter("give a version or a timestamp, not both", param_hint="--timestamp")
    with waiting("Opening the table"):
        return open_log(path, version, _point_in_time(timestamp), _storage_options(options or []))


def _point_in_time(text: str | None) -> str | int | None:
    """Tell milliseconds from dates: they have more digits than 20240131."""
    return int(text) if text is not None and text.isdecimal() and len(text) > len("20240131") else text


def _storage_options(pairs: list[str]) -> dict[str, str] | None:
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            # What was given is not repeated: it may be a secret.
            raise typer.BadParameter("write it as KEY=VALUE, such as aws_region=eu-west-1", param_hint="--option")
        if options.setdefault(key, value) != value:
            raise typer.BadParameter(f"{key!r} is given twice, with different values", param_hint="--option")
    return options or None


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def _run(
    ctx: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python script, or with -m a module.")],
    is_module: Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module.")] = False,
) -> None:
    """Run a PySpark script, with its arguments, so that its sessions understand Delta."""
    from headwater.cli.spark import run

    run(script, ctx.args, is_module=is_module)


@app.command("shell")
def _shell() -> None:
    """Start a Python shell with a Spark session that understands Delta."""
    from headwater.cli.spark import shell

    shell()


@app.command("connect-server")
def _connect_server(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 for a free one.")] = 15002,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting. May be repeated.")
    ] = None,
) -> None:
    """Serve Spark Connect with Delta: clients need nothing but PySpark."""
    from headwater.cli.spark import connect_server

    connect_server(host, port, conf or [])
