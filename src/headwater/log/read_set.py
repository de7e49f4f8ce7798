"""What a transaction has read, as far as other writers could disturb it (conflict rules 3, 4, 7 and 8)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.log.expressions import Expression


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The reads that a commit must be consistent with."""

    whole_table: bool = False
    predicates: tuple[Expression, ...] = ()
    """Rows matching any of these were looked for."""
    unlisted: tuple[Expression, ...] = ()
    """Those of the predicates whose files are not among `paths`."""
    paths: frozenset[str] = field(default_factory=frozenset)
    """Canonical paths of the data files that were read."""
    app_ids: frozenset[str] = field(default_factory=frozenset)
    domains: frozenset[str] = field(default_factory=frozenset)

    @property
    def reads_data(self) -> bool:
        """Whether any data was read."""
        return self.whole_table or bool(self.predicates) or bool(self.paths)

    def and_all(self) -> ReadSet:
        """The whole table was read."""
        return replace(self, whole_table=True)

    def and_listed(self, predicate: Expression, paths: Iterable[str]) -> ReadSet:
        """All rows matching a filter were looked for, in these data files (by canonical path)."""
        return replace(self.and_files(paths), predicates=_with(self.predicates, predicate))

    def and_matching(self, predicate: Expression) -> ReadSet:
        """All rows matching a filter were looked for, in whatever data files have them."""
        return replace(self, predicates=_with(self.predicates, predicate), unlisted=_with(self.unlisted, predicate))

    def and_files(self, paths: Iterable[str]) -> ReadSet:
        """Some data files were read, by canonical path."""
        return replace(self, paths=self.paths | frozenset(paths))

    def and_app(self, app_id: str) -> ReadSet:
        """The progress of an application was read."""
        return replace(self, app_ids=self.app_ids | {app_id})

    def and_domain(self, domain: str) -> ReadSet:
        """The configuration of a metadata domain was read."""
        return replace(self, domains=self.domains | {domain})


def _with(predicates: tuple[Expression, ...], predicate: Expression) -> tuple[Expression, ...]:
    return predicates if predicate in predicates else (*predicates, predicate)
