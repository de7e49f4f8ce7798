"""Options of a search table's log, by the names that its users know (spec 002: "File Retention", "Performance Tuning").

They are given when the table is opened, or stand in the configuration of its `metaData`; given options come first, and
the rest has the defaults of the specification. How the log is read and cached must be known before the configuration
is read, so only given options decide that.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from headwater.errors import WriteOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

FailurePolicy: TypeAlias = Literal["continue", "fail"]

PREFIX = "spark.indextables."
_GROUPS = ("logretention.", "checkpointretention.", "cleanup.", "transaction.", "checkpoint.")
"""The prefixes of options of the log."""
_LONGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogSettings:
    log_retention_ms: int = 2_592_000_000
    """Version files younger than this stay: 30 days."""
    checkpoint_retention_ms: int = 7_200_000
    """Older checkpoints stay for so long beside the newest one: 2 hours."""
    cleanup_failure_policy: FailurePolicy = "continue"
    """What comes of a log file that cannot be deleted: a warning, or an error."""
    cleanup_dry_run: bool = False
    """Cleanup only says what it would delete."""
    cache_expiration_s: float = 300.0
    cache_enabled: bool = True
    read_parallelism: int = 8
    """Threads that read version files."""
    read_timeout_s: float = 60.0
    """How long reading log files together may take."""
    checkpoint_interval: int = 10
    """Versions from one checkpoint to the next."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Some of the options; None where the table's configuration, or else the default, decides.

    >>> options = LogOptions.parse({"spark.indextables.checkpoint.interval": "50"})
    >>> options.over({"spark.indextables.checkpoint.parallelism": "2"}).read_parallelism
    2
    """

    log_retention_ms: int | None = None
    checkpoint_retention_ms: int | None = None
    cleanup_failure_policy: FailurePolicy | None = None
    cleanup_dry_run: bool | None = None
    cache_expiration_s: float | None = None
    cache_enabled: bool | None = None
    read_parallelism: int | None = None
    read_timeout_s: float | None = None
    checkpoint_interval: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, strict: bool = True) -> LogOptions:
        """Take the log's options out of others, by name in any case.

        `strict` refuses names that look like an option of the log but do not exist.

        Raises:
            WriteOptionError: a value does not fit, or an option of the log has a name that does not exist.
        """
        found: dict[str, Any] = {}
        for name, value in options.items():
            short = name.lower().removeprefix(PREFIX)
            if short == name.lower() or not short.startswith(_GROUPS):
                continue
            if short not in _NAMES and not strict:
                continue
            if short not in _NAMES:
                import difflib

                close = difflib.get_close_matches(short, _NAMES, 1)
                hint = f" Did you mean {PREFIX}{_SPELLED[close[0]]}?" if close else ""
                raise WriteOptionError(f"there is no option {name}.{hint}")
            field, kind = _NAMES[short]
            found[field] = _value(name, value, kind)
        return cls(**found)

    def over(self, configuration: Mapping[str, str]) -> LogSettings:
        """Return the options in force on a table with this configuration."""
        known: dict[str, Any] = {}
        for options in (LogOptions.parse(configuration, strict=False), self):
            known |= {f.name: value for f in fields(options) if (value := getattr(options, f.name)) is not None}
        return replace(LogSettings(), **known)


NO_OPTIONS = LogOptions()

_SPELLED = {
    name.lower(): name
    for name in (
        "logRetention.duration",
        "checkpointRetention.duration",
        "cleanup.failurePolicy",
        "cleanup.dryRun",
        "transaction.cache.expirationSeconds",
        "transaction.cache.enabled",
        "checkpoint.parallelism",
        "checkpoint.read.timeoutSeconds",
        "checkpoint.interval",
    )
}
_Kind: TypeAlias = Literal["ms", "s", "limit", "count", "switch", "policy"]
_FIELDS: tuple[tuple[str, _Kind], ...] = (
    ("log_retention_ms", "ms"),
    ("checkpoint_retention_ms", "ms"),
    ("cleanup_failure_policy", "policy"),
    ("cleanup_dry_run", "switch"),
    ("cache_expiration_s", "s"),
    ("cache_enabled", "switch"),
    ("read_parallelism", "count"),
    ("read_timeout_s", "limit"),
    ("checkpoint_interval", "count"),
)
_NAMES: dict[str, tuple[str, _Kind]] = dict(zip(_SPELLED, _FIELDS, strict=True))


def _value(name: str, value: Any, kind: _Kind) -> Any:
    text = str(value).strip().lower()
    match kind:
        case "switch":
            if text in ("true", "false"):
                return text == "true"
            expected = "true or false"
        case "policy":
            if text in ("continue", "fail"):
                return cast("FailurePolicy", text)
            expected = "continue or fail"
        case "s" | "limit":
            seconds = _number(text)
            if seconds is not None and (seconds > 0 or (seconds == 0 and kind == "s")):
                return seconds
            expected = "a number of seconds" if kind == "s" else "a positive number of seconds"
        case _:
            least = 1 if kind == "count" else 0
            if text.isascii() and text.isdigit() and least <= int(text) <= _LONGEST:
                return int(text)
            expected = "a positive whole number" if kind == "count" else "a number of milliseconds"
    raise WriteOptionError(f"{name} must be {expected}, not {value!r}.")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and number not in (float("inf"), float("-inf")) else None
