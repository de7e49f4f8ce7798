"""Paths of data files: canonical forms for reconciliation (spec: "Add File and Remove File").

A path in the log is a URI: relative to the table root or absolute, percent-encoded. Two spellings of one
file (`/p`, `file:/p`, `file:///p`; `%20` and a plain space; `d/f`, `./d//f`, `d/x/../f`) must meet in reconciliation,
so keys are canonical: decoded once, without `file:`, in the normal form of RFC 3986, which is also how Hadoop's `Path`
and so delta-spark compares them. The log keeps the spelling of its writer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_SCHEME = re.compile(r"file:(?://localhost(?=/))?/+", re.IGNORECASE)
_AUTHORITY = r"^[A-Za-z][A-Za-z0-9+.\-]+://[^/]*"
"""What of an absolute URI stands before its path."""
_AUTHORITY_TEXT = re.compile(_AUTHORITY)
_ABNORMAL = r"//|(?:^|/)\.\.?(?:/|$)"
"""An empty segment, or one that is `.` or `..`."""
_HARD = r"(?:^|/)\.\.(?:/|$)|/\.?$|^\.?/*$"
"""What takes more than leaving out a segment: `..`, and a path that ends in no name."""
_ABNORMAL_TEXT = re.compile(_ABNORMAL)
_ABNORMAL_INSIDE = re.compile(rb"/[/.]")
"""Every path in another than the normal form holds one of these, or starts with a dot."""
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_OTHER_ESCAPE = r"%(?:[013-9A-Fa-f][0-9A-Fa-f]|2[0-46-9A-Fa-f])"
"""Any escape but `%25`."""
_SAMPLE_PATHS = 1_000
_STRAY_PERCENT = r"%(?:[^0-9A-Fa-f]|$|[0-9A-Fa-f](?:[^0-9A-Fa-f]|$))"
"""A percent sign that starts no escape."""


def canonical(path: str) -> str:
    """The canonical form of one path.

    The scheme comes off first: a colon that was escaped makes no scheme.

    >>> canonical("file:///tmp/a%20b.parquet") == canonical("/tmp/a b.parquet")
    True
    >>> canonical("./date=2024-01-01//x/../part-0.parquet")
    'date=2024-01-01/part-0.parquet'
    """
    if path[:5].lower() == "file:":
        path = _FILE_SCHEME.sub("/", path, count=1) if path[5:6] == "/" else path
    plain = unquote(path, errors="surrogateescape") if "%" in path else path
    if "//" in plain or "/." in plain or plain[:1] == ".":
        return normal_form(plain, path)
    return plain


def normal_form(plain: str, path: str) -> str:
    """A decoded path without empty, `.` and `..` segments; those `..` stay that lead out of where it starts.

    Args:
        plain: the decoded path.
        path: the same before it was decoded, which says whether it has a scheme.
    """
    authority = _AUTHORITY_TEXT.match(path)
    # An authority is decoded too: only where it ends is seen in the path as it was written.
    before = "" if authority is None else unquote(authority[0], errors="surrogateescape")
    rest = plain[len(before) :]
    if not _ABNORMAL_TEXT.search(rest):
        return plain
    segments: list[str] = []
    for segment in rest.split("/"):
        if segment == ".." and segments and segments[-1] != "..":
            segments.pop()
        elif segment == ".." and rest.startswith("/"):
            continue  # there is nothing above the root
        elif segment not in ("", "."):
            segments.append(segment)
    return f"{before}{'/' if rest.startswith('/') else ''}{'/'.join(segments)}" or "."


def canonical_array(paths: pa.Array) -> pa.Array:
    """The canonical forms of a string array: binary, or the array itself where no path differs.

    Vectorised: one pass over the array for each distinct escape that occurs in it. Only paths that are not in normal
    form are looked at one by one.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    text = _text(paths)
    schemed = pc.any(pc.starts_with(paths, "file:", ignore_case=True)).as_py()
    if schemed:
        pattern = "^[fF][iI][lL][eE]:(?://[lL][oO][cC][aA][lL][hH][oO][sS][tT](/))?/*"
        below = pc.match_substring_regex(paths, "^[fF][iI][lL][eE]:/")
        paths = pc.if_else(below, pc.replace_substring_regex(paths, pattern=pattern, replacement="/"), paths)
    escaped = b"%" in text
    if not escaped and not _ABNORMAL_INSIDE.search(text) and not pc.any(pc.starts_with(paths, ".")).as_py():
        return paths.cast(pa.binary()) if schemed else paths
    plain = _unquoted(paths) if escaped else paths.cast(pa.binary())
    return _normal(plain, paths)


def _text(paths: pa.Array) -> bytes:
    """The text of an array as a whole: to look for something in it is 20 times faster than by value."""
    data = paths.buffers()[2]
    return b"" if data is None else bytes(data.to_pybytes())


def _unquoted(paths: pa.Array) -> pa.Array:
    """All paths, decoded once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headwater.log.columns import binaries

    decoded = _decoded(paths.cast(pa.binary()))
    stray = pc.fill_null(pc.match_substring_regex(paths, _STRAY_PERCENT), False)
    if pc.any(stray).as_py():
        # What stands after a stray percent sign may look like an escape once it is decoded: these one by one.
        slowly = [unquote(path, errors="surrogateescape") for path in paths.filter(stray).to_pylist()]
        replacements = binaries([path.encode("utf-8", "surrogateescape") for path in slowly])
        decoded = pc.replace_with_mask(decoded, stray, replacements)
    return decoded


def _normal(plain: pa.Array, paths: pa.Array) -> pa.Array:
    """Decoded paths in normal form."""
    import pyarrow.compute as pc

    rests, schemed = plain, None
    if b"://" in _text(paths):
        schemed = pc.match_substring_regex(paths, _AUTHORITY)
        rests = pc.replace_substring_regex(plain, pattern=_AUTHORITY, replacement="")
        rests = pc.if_else(schemed, rests, plain)
    odd = pc.fill_null(pc.match_substring_regex(rests, _ABNORMAL), False)
    if not pc.any(odd).as_py():
        return plain
    hard = pc.match_substring_regex(rests, _HARD)
    hard = pc.and_(odd, hard if schemed is None else pc.or_(hard, schemed))
    easy = pc.and_not(odd, hard)
    short = pc.replace_substring_regex(plain.filter(easy), pattern=r"/(?:\.?/)+", replacement="/")
    plain = pc.replace_with_mask(plain, easy, pc.replace_substring_regex(short, pattern=r"^\./", replacement=""))
    return pc.replace_with_mask(plain, hard, _one_by_one(plain.filter(hard), paths.filter(hard)))


def _one_by_one(plain: pa.Array, paths: pa.Array) -> pa.Array:
    from headwater.log.columns import binaries

    decoded = (path.decode("utf-8", "surrogateescape") for path in plain.to_pylist())
    normal = map(normal_form, decoded, paths.to_pylist())
    return binaries([path.encode("utf-8", "surrogateescape") for path in normal])


def _decoded(paths: pa.Array) -> pa.Array:
    """All escapes decoded; `%25` last, because decoding it earlier could make new ones."""
    import pyarrow.compute as pc

    decoded, done = paths, {b"%25"}
    # Most tables have few distinct escapes, and the first paths have them all: collecting them from all is slow.
    for some in (paths[:_SAMPLE_PATHS], paths):
        for code in sorted(_escapes_in(some) - done):
            decoded = pc.replace_substring(decoded, pattern=code, replacement=bytes([int(code[1:], 16)]))
            done.add(code)
        if not pc.any(pc.match_substring_regex(decoded, _OTHER_ESCAPE)).as_py():
            break
    return pc.replace_substring(decoded, pattern=b"%25", replacement=b"%")


def _escapes_in(paths: pa.Array) -> set[bytes]:
    """The distinct `%XX` in the array."""
    return set(_ESCAPE.findall(b"/".join(path for path in paths.to_pylist() if path is not None)))
