"""Storage options: the names that users of deltalake and object_store know, checked by name.

A name may carry its provider's prefix or not, in either case: `AWS_REGION`, `aws_region` and `region` are one
option. The usual environment variables of the same names apply where an option is not given. A name that begins with
the root of a store, as in `s3://other/aws_region`, is an option for that store alone (`headwater.storage.elsewhere`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import InvalidUriError
from headwater.storage.option_names import ALIASES, CLIENT_OPTIONS, OPTIONS
from headwater.storage.redaction import redacted
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from os import PathLike

    from headwater.storage.uri import StoreUri

_PREFIXES: Final = {
    "s3": ("aws_",),
    "azure": ("azure_storage_", "azure_"),
    "gcs": ("google_",),
}
_INSTEAD: Final = {
    "allow_unsafe_rename": "it is not needed: commits are conditional puts",
    "s3_allow_unsafe_rename": "it is not needed: commits are conditional puts",
    "s3_locking_provider": "it is not needed: commits are conditional puts, not locks in DynamoDB",
    "bucket": "the bucket is part of the table's URI",
    "bucket_name": "the bucket is part of the table's URI",
    "container_name": "the container is part of the table's URI",
    "profile": "profiles are not read: pass the access key, or set the AWS_ environment variables",
    "connection_string": "pass account_name and account_key instead",
}
_CREDENTIALS: Final = "credentials"
"""Instead of an option for another store: that all options of the table, or those of the environment, go to it."""
# What obstore itself calls these, where the name without a prefix is not one it knows.
_OBSTORE_NAME: Final = {("s3", "endpoint_url_s3"): "aws_endpoint_url_s3"}


def obstore_config(kind: str, options: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the options as the configuration of an obstore store.

    Options of the HTTP client go into the same configuration: obstore's separate client options would switch
    off those that come from the environment.

    >>> obstore_config("s3", {"AWS_REGION": "eu-west-1", "aws_allow_http": True})
    {'region': 'eu-west-1', 'allow_http': 'true'}
    """
    _check_mapping(options)
    config: dict[str, Any] = {}
    for name, value in (options or {}).items():
        known = _canonical(kind, name)
        text = _text(name, value)
        if config.setdefault(known, text) != text:
            raise InvalidUriError(f"the storage option {redacted(name)!r} is given twice, with different values")
    return {_OBSTORE_NAME.get((kind, known), known): text for known, text in config.items()}


def table_options(options: Mapping[str, object] | None) -> dict[str, object]:
    """Return the options of the table itself, without those for other stores."""
    _check_mapping(options)
    return {name: value for name, value in (options or {}).items() if not _is_for_root(name)}


def options_for(location: StoreUri, options: Mapping[str, object] | None) -> dict[str, object]:
    """Return the options with which a user opens a location: those for its root if there are some, else the table's."""
    own = table_options(options)
    found = root_options(location, options)
    return own if found is None else dict(found.chosen(own))


def clone_options(
    target: str | PathLike[str],
    options: Mapping[str, str] | None,
    source: str | PathLike[str],
    source_options: Mapping[str, str] | None,
) -> Mapping[str, str] | None:
    """Return the options of a shallow clone: its own, and for the source, whose files it names, those of the source."""
    root, place = replace(parse_uri(source), path=""), replace(parse_uri(target), path="")
    if root.kind in ("local", "memory") or root == place:
        return options
    own = {name: value for name, value in (source_options or {}).items() if not _is_for_root(name)}
    named = {f"{root.uri}/{name}": value for name, value in own.items()}
    named = named or {f"{root.uri}/{_CREDENTIALS}": "environment"}
    others = {name: value for name, value in (source_options or {}).items() if _is_for_root(name)}
    return {**others, **named, **(options or {})}


def option_value(kind: str, known: str, options: Mapping[str, object] | None) -> str:
    """Return the value of an option, by any of its names; an empty text if it is not given."""
    return str(obstore_config(kind, options).get(known, ""))


@dataclass(frozen=True, slots=True)
class NamedRoot:
    """A store that has options of its own."""

    root: StoreUri
    options: dict[str, object] = field(repr=False)

    def chosen(self, table: Mapping[str, object]) -> Mapping[str, object]:
        """Return the options for it."""
        which = self.options.get(_CREDENTIALS)
        if which is None:
            return self.options
        if len(self.options) > 1 or which not in ("same", "environment"):
            raise InvalidUriError(
                f"the storage option '{self.root.uri}/{_CREDENTIALS}' is 'same' (as the table's) or 'environment', and "
                "stands alone"
            )
        return table if which == "same" else {}


def root_options(location: StoreUri, options: Mapping[str, object] | None) -> NamedRoot | None:
    """The options for the root that a location is below, the longest if there are several; None if there are none."""
    found: dict[StoreUri, dict[str, object]] = {}
    for name, value in (options or {}).items():
        if not _is_for_root(name):
            continue
        text, _, option = name.rpartition("/")
        if text.endswith(":/") or not option:
            raise InvalidUriError(f"the storage option {redacted(name)!r} names a store, but no option of it")
        found.setdefault(parse_uri(text), {})[option] = value
    fitting = [root for root in found if _is_below(location, root)]
    if not fitting:
        return None
    best = max(fitting, key=lambda root: len(root.path))
    return NamedRoot(best, found[best])


def _is_for_root(name: object) -> bool:
    return isinstance(name, str) and "://" in name


def _is_below(location: StoreUri, root: StoreUri) -> bool:
    same = location.kind == root.kind and location.bucket == root.bucket and _account(location) == _account(root)
    return same and (not root.path or f"{location.path}/".startswith(f"{root.path}/"))


def _account(location: StoreUri) -> str:
    return location.account_host.replace(".dfs.", ".blob.", 1)


def _check_mapping(options: object) -> None:
    if not isinstance(options, Mapping | None):
        raise InvalidUriError(f"storage_options is a mapping of names to values, not {type(options).__name__}")


def refuse_options(uri: str, options: Mapping[str, object] | None) -> None:
    """Refuse any option for a store that has none."""
    if options:
        names = ", ".join(repr(redacted(str(name))) for name in options)
        raise InvalidUriError(f"{uri} takes no storage options, but was given {names}")


def _canonical(kind: str, name: object) -> str:
    """Return the option's one name; raises with near matches if there is no such option."""
    if not isinstance(name, str):
        raise InvalidUriError(f"the name of a storage option is a string, not {type(name).__name__}")
    bare = name.lower()
    for prefix in _PREFIXES[kind]:
        if bare.startswith(prefix):
            bare = bare.removeprefix(prefix)
            break
    known = ALIASES[kind].get(bare, bare)
    if known in OPTIONS[kind] or known in CLIENT_OPTIONS:
        return known
    raise InvalidUriError(_unknown(kind, name, bare))


def _unknown(kind: str, name: str, bare: str) -> str:
    if bare in _INSTEAD:
        return f"the storage option {redacted(name)!r} is not supported: {_INSTEAD[bare]}"
    own = {*OPTIONS[kind], *ALIASES[kind]}
    spelled = {option: (_PREFIXES[kind][0] if option in own else "") + option for option in own | CLIENT_OPTIONS}
    close = difflib.get_close_matches(bare, spelled, n=3)
    hint = " or ".join(spelled[option] for option in close)
    return f"unknown storage option {redacted(name)!r}" + (f": did you mean {hint}?" if hint else f" for {kind}")


def _text(name: str, value: object) -> str:
    """Return the value as text. It is not repeated in messages, because it may be a secret."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidUriError(
        f"the storage option {redacted(name)!r} has a value of type {type(value).__name__}: "
        "it has to be a string, a number or a boolean, or be left out"
    )
