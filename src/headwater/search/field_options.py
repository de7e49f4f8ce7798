"""The options `spark.indextables.indexing.*`, by the names that users of IndexTables know.

`typemap.<field>` and `tokenizer.<field>` are about one field; `fastfields`, `nonfastfields`, `storeonlyfields` and
`indexonlyfields` are lists with commas. Spark does not keep the case of option names, so neither do we.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.errors import SearchConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "spark.indextables.indexing."
_LISTS: Final = {
    "fastfields": "fast",
    "nonfastfields": "not_fast",
    "storeonlyfields": "stored_only",
    "indexonlyfields": "indexed_only",
}
_PER_FIELD: Final = {"typemap": "types", "tokenizer": "tokenizers"}


@dataclass(frozen=True, slots=True)
class IndexingOptions:
    """What the options say, field names as they were written."""

    types: Mapping[str, str]
    tokenizers: Mapping[str, str]
    fast: tuple[str, ...] = ()
    not_fast: tuple[str, ...] = ()
    stored_only: tuple[str, ...] = ()
    indexed_only: tuple[str, ...] = ()


def indexing_options(options: Mapping[str, str]) -> IndexingOptions:
    """Pick the indexing options out of others.

    >>> indexing_options({"spark.indextables.indexing.typemap.message": "text"}).types
    {'message': 'text'}

    Raises:
        SearchConfigError: there is no indexing option of that name.
    """
    per_field: dict[str, dict[str, str]] = {"types": {}, "tokenizers": {}}
    lists: dict[str, tuple[str, ...]] = {}
    for option, value in options.items():
        if not option.lower().startswith(PREFIX):
            continue
        group, _, field = option[len(PREFIX) :].partition(".")
        if group.lower() in _PER_FIELD and field:
            per_field[_PER_FIELD[group.lower()]][field] = value
        elif group.lower() in _LISTS and not field:
            lists[_LISTS[group.lower()]] = _names(value)
        else:
            raise SearchConfigError(_unknown(option))
    return IndexingOptions(per_field["types"], per_field["tokenizers"], **lists)


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _unknown(option: str) -> str:
    known = [*(f"{PREFIX}{name}.<field>" for name in _PER_FIELD), *(f"{PREFIX}{name}" for name in _LISTS)]
    near = difflib.get_close_matches(option.lower(), known, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"there is no option {option!r}; {hint}"
