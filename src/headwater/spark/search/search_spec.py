"""What is searched for, and what is shown of it beside the columns of the table: scores and fragments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.errors import SearchQueryError
from headwater.log.schema import DOUBLE, STRING, StructField

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.search.query import Query
    from headwater.search.scoring import Statistics

SCORE_COLUMN = "_score"
SNIPPET_SUFFIX = "_snippet"


@dataclass(frozen=True)
class Search:
    """A search, and what it shows beside the columns of the table."""

    query: Query
    score: bool = False
    snippets: tuple[str, ...] = ()
    """Columns of text whose best fragments are shown."""
    statistics: Statistics | None = None
    """Of all splits, so that scores of different splits can be compared."""
    best: int | None = None
    """Each split needs to give no more than this many of its best rows."""

    @property
    def extra_fields(self) -> list[StructField]:
        """The columns that a search adds."""
        score = [StructField(SCORE_COLUMN, DOUBLE)] if self.score else []
        return [*score, *(StructField(f"{column}{SNIPPET_SUFFIX}", STRING) for column in self.snippets)]

    def check_added(self, columns: Iterable[str]) -> None:
        """Raise if the search adds a column that the table has.

        Args:
            columns: of the table.

        Raises:
            SearchQueryError: there would be two columns of the same name.
        """
        taken = {name.lower() for name in columns}
        for field in self.extra_fields:
            if field.name.lower() in taken:
                raise SearchQueryError(
                    f"the table has a column {field.name!r} of its own, which the search would add: search without "
                    f"{'with_score' if field.name == SCORE_COLUMN else 'these snippets'}, or rename the column"
                )

    @property
    def adds(self) -> bool:
        """Whether rows are more than rows of the table, or only the best of them are wanted."""
        return self.score or self.best is not None or bool(self.snippets)

    def only(self, names: Sequence[str]) -> Search:
        """The same search, showing no more than some columns."""
        snippets = tuple(column for column in self.snippets if f"{column}{SNIPPET_SUFFIX}" in names)
        return replace(self, score=self.score and SCORE_COLUMN in names, snippets=snippets)

    def __str__(self) -> str:
        best = "" if self.best is None else f", the best {self.best}"
        return f"search {self.query}{best}"
