"""Names where a path is needed: `db.events`, and ``delta.`/data/events` ``, which has a path in it.

There is no catalog yet, so tables are found by their paths. What refuses a name says what to write instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import InvalidUriError

if TYPE_CHECKING:
    from os import PathLike

_PATH_IN_NAME = re.compile(r"\s*(?P<format>\w+)\.`(?P<path>(?:[^`]|``)+)`\s*")
_LATER = "names come with the catalog, in a later release"


def path_in(name: str) -> tuple[str, str] | None:
    """The format, in lower case, and the path of a name that has a path in it; None for any other name.

    Raises:
        InvalidUriError: it is no text.

    >>> path_in("parquet.`/data/events`")
    ('parquet', '/data/events')
    >>> path_in("db.events")
    """
    if not isinstance(name, str):
        raise InvalidUriError(f"the name of a table is a text, not {type(name).__name__}")
    found = _PATH_IN_NAME.fullmatch(name)
    return None if found is None else (found["format"].lower(), found["path"].replace("``", "`"))


def refusal(name: str, what: str, advice: str) -> str:
    """Why a name cannot be used, and what to do instead; with the path, if it is in the name.

    Args:
        name: the name.
        what: what cannot be done, about "the name".
        advice: what to do instead, with `{}` for the path.

    >>> refusal("delta.`/data/events`", "a table cannot be opened by", "Take forPath({})").rpartition(". ")[2]
    "Take forPath('/data/events')."
    """
    match path_in(name):
        case ("delta", path):
            place = repr(path)
        case _:
            place = "path"
    return f"{what} the name {name!r} yet: {_LATER}. {advice.format(place)}."


def literal_path(location: str | PathLike[str], call: str) -> str | PathLike[str]:
    """A path or URI as it is given, unless it is a name that has a path in it.

    Args:
        location: the path or URI.
        call: what to call with the path alone, with `{}` for it.

    Raises:
        InvalidUriError: it is such a name. It would be taken for the path of a directory called ``delta.` ``.
    """
    found = path_in(location) if isinstance(location, str) else None
    if found is None:
        return location
    raise InvalidUriError(f"{location!r} is a name, and a path is needed: write {call.format(repr(found[1]))}.")


def path_to_convert(name: str) -> str:
    """The path in ``parquet.`/data/events` ``.

    Raises:
        InvalidUriError: it is another name, or a path alone.

    >>> path_to_convert("parquet.`/data/events`")
    '/data/events'
    """
    match path_in(name):
        case ("parquet" | "delta", path):
            return path
        case (other, _):
            raise InvalidUriError(f"only Parquet can be converted to Delta, not {other} ({name})")
        case _:
            raise InvalidUriError(
                f"{name!r} does not say what to convert: write parquet.`/path/to/directory`. Tables of a catalog "
                f"cannot be converted by name yet: {_LATER}."
            )
