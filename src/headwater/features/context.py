"""A table's log with everything its features demand: the gate for readers and writers, and the rules for commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.features.gate import check_readable, check_writable
from headwater.log.context import LogContext
from headwater.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from headwater.log.draft import Attempt, Draft


def table_context(
    path: str | PathLike[str], storage_options: Mapping[str, str] | None = None, *, trust_checksum: bool = False
) -> LogContext:
    """The context in which a table is read and written; whether there is a table is not looked at.

    Args:
        path: a path or URI, as for `headwater.open_log`.
        storage_options: options of the object store, by the names that deltalake uses.
        trust_checksum: open from the version checksum where it can be matched with its commit.
    """
    return LogContext(
        store=open_store(path, storage_options),
        check_readable=check_readable,
        check_writable=check_writable,
        commit_rules=(feature_rules,),
        trust_checksum=trust_checksum,
    )


def feature_rules(draft: Draft, attempt: Attempt) -> Draft:
    """All rules of `COMMIT_RULES`, imported when something is committed: those who only read do not wait for them."""
    from headwater.features.rules import COMMIT_RULES

    for rule in COMMIT_RULES:
        draft = rule(draft, attempt)
    return draft
