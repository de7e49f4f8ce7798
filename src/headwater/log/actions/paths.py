"""Paths of data files: canonical forms, absolute URIs, and partition directories (spec: "Add File and Remove File").

A path in the log is a percent-encoded URI, relative to the table root or absolute. Different spellings of one file
(`/p`, `file:/p`, `file:///p`; `%20` and a space; `d/f`, `./d//f`, `d/x/../f`) must reconcile, so keys are canonical:
decoded once, without `file:`, in the normal form of RFC 3986, as Hadoop's `Path` and so delta-spark compares them. The
log keeps the spelling of its writer. Functions work on columns, whatever the number of files.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from headwater.errors import CorruptLogError
from headwater.storage.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Return the canonical form of one path.

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
    """Return a decoded path without empty, `.` and `..` segments; those `..` stay that lead out of where it starts.

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
    """Return the canonical forms of a string array: binary, or the array itself where no path differs.

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
    """Return the text of an array as a whole: to look for something in it is 20 times faster than by value."""
    data = paths.buffers()[2]
    return b"" if data is None else bytes(data.to_pybytes())


def _unquoted(paths: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from headwater.log.files.arrow import binaries

    decoded = _decoded(paths.cast(pa.binary()))
    stray = pc.fill_null(pc.match_substring_regex(paths, _STRAY_PERCENT), False)
    if pc.any(stray).as_py():
        # What stands after a stray percent sign may look like an escape once it is decoded: these one by one.
        slowly = [unquote(path, errors="surrogateescape") for path in paths.filter(stray).to_pylist()]
        replacements = binaries([path.encode("utf-8", "surrogateescape") for path in slowly])
        decoded = pc.replace_with_mask(decoded, stray, replacements)
    return decoded


def _normal(plain: pa.Array, paths: pa.Array) -> pa.Array:
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
    from headwater.log.files.arrow import binaries

    decoded = (path.decode("utf-8", "surrogateescape") for path in plain.to_pylist())
    normal = map(normal_form, decoded, paths.to_pylist())
    return binaries([path.encode("utf-8", "surrogateescape") for path in normal])


def _decoded(paths: pa.Array) -> pa.Array:
    """Return all escapes decoded; `%25` last, because decoding it earlier could make new ones."""
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
    return set(_ESCAPE.findall(b"/".join(path for path in paths.to_pylist() if path is not None)))


_ABSOLUTE_URI = r"^[A-Za-z][A-Za-z0-9+.\-]+:/"
_ILLEGAL_ASCII = '%"<>#?[]^`{|}\\ '
_OTHER_SPACES = "\x00-\x1f\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ILLEGAL = "[" + re.escape(_ILLEGAL_ASCII) + _OTHER_SPACES + "]"
"""What `java.net.URI` escapes in a path; letters of all scripts may stand as they are."""


def hadoop_root(uri: str) -> str:
    """Return a table's location in the spelling of Hadoop's `Path`: decoded, with a scheme.

    >>> hadoop_root("file:///data/my%20events")
    'file:/data/my events'
    """
    location = parse_uri(uri)
    if location.kind == "local":
        return f"file:{location.path}"
    path = f"/{location.path}" if location.path else ""
    return f"{_authority(uri)}{path}"


def file_uris(paths: pa.ChunkedArray, uri: str) -> pa.ChunkedArray:
    """Return the URIs of data files, spelled as Java spells them: only what is illegal in a URI is escaped.

    The log's own spelling will not do: writers escape what they like, and Spark shows and compares paths.
    """
    import pyarrow as pa

    return pa.chunked_array([_escaped(absolute_paths(chunk, uri)) for chunk in paths.chunks], pa.string())


def absolute_paths(paths: pa.Array, uri: str) -> pa.Array:
    """Return the same, decoded, as Hadoop's `Path` shows them: `file:/data/my events/part-0.parquet`.

    Raises:
        CorruptLogError: a path is no text once it is decoded (`%FF`), so that Spark cannot be told of the file.
    """
    import pyarrow.compute as pc

    decoded = _decoded_text(canonical_array(paths), paths, uri)
    climbing = pc.starts_with(decoded, "../")
    if pc.any(climbing).as_py():
        decoded = pc.replace_with_mask(decoded, climbing, _climbed(decoded.filter(climbing), uri))
    rooted = pc.starts_with(decoded, "/")
    has_scheme = pc.match_substring_regex(paths, _ABSOLUTE_URI)
    if not pc.any(pc.or_(rooted, has_scheme)).as_py():
        return pc.binary_join_element_wise(hadoop_root(uri), decoded, "/")
    # `/p` lies on the table's own filesystem, `file:/p` on the local one; other schemes are complete.
    own = pc.binary_join_element_wise(_authority(uri), decoded, "")
    local = pc.binary_join_element_wise("file:", decoded, "")
    below = pc.binary_join_element_wise(hadoop_root(uri), decoded, "/")
    return pc.case_when(pc.make_struct(pc.and_(rooted, has_scheme), rooted, has_scheme), local, own, decoded, below)


def _decoded_text(decoded: pa.Array, paths: pa.Array, uri: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        text = decoded.cast(pa.string())
    except pa.ArrowInvalid:
        text = None
    if text is not None and not pc.any(pc.match_substring(text, "\x00")).as_py():
        return text
    for path, plain in zip(paths.to_pylist(), decoded.cast(pa.binary()).to_pylist(), strict=True):
        try:
            bad = b"\x00" in plain or plain.decode() is None
        except UnicodeDecodeError:
            bad = True
        if bad:
            raise CorruptLogError(f"the log of {uri} names the file {path!r}, which is no text once it is decoded.")
    raise AssertionError("some path cannot be decoded")


def _climbed(paths: pa.Array, uri: str) -> pa.Array:
    """Where relative paths lead that begin with `..`: paths from the root of the table's filesystem."""
    from headwater.log.files.arrow import strings

    base = f"/{parse_uri(uri).path.lstrip('/')}"
    return strings([posixpath.normpath(f"{base}/{path}") for path in paths.to_pylist()])


def _escaped(paths: pa.Array) -> pa.Array:
    """Decoded paths with what is illegal in a URI escaped; one pass for each such character that occurs."""
    import pyarrow.compute as pc

    from headwater.log.files.arrow import strings

    if not pc.any(pc.match_substring_regex(paths, _ILLEGAL)).as_py():
        return paths
    for character in "%" + _ILLEGAL_ASCII.replace("%", ""):
        if pc.any(pc.match_substring(paths, character)).as_py():
            paths = pc.replace_substring(paths, pattern=character, replacement=f"%{ord(character):02X}")
    if not pc.any(pc.match_substring_regex(paths, f"[{_OTHER_SPACES}]")).as_py():
        return paths
    spaces = re.compile(f"[{_OTHER_SPACES}]")
    return strings([spaces.sub(lambda found: quote(found[0]), path) for path in paths.to_pylist()])


def _authority(uri: str) -> str:
    """Return the part of a URI that names the filesystem: `file:`, `s3://bucket`."""
    location = parse_uri(uri)
    if location.kind == "local":
        return "file:"
    host = f"{location.bucket}@{location.account_host}" if location.account_host else location.bucket
    return f"{location.scheme}://{host}"


NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark put for null into the name of a directory. In the log null is null."""

_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
"""What Spark escapes in a directory name, and NUL, which no file system takes."""
_MAX_NAME_BYTES = 240
"""File systems take 255 bytes for a name."""


def partition_directory(values: Mapping[str, str | None]) -> str | None:
    """Return the directories for partition values by column, as Hive and Spark name them; None if a name is too long.

    >>> partition_directory({"day": "2024-01-31", "what": "a/b", "who": None})
    'day=2024-01-31/what=a%2Fb/who=__HIVE_DEFAULT_PARTITION__'
    """
    names = [f"{_escape(name)}={NULL_DIRECTORY if text is None else _escape(text)}" for name, text in values.items()]
    if any(len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES for name in names):
        return None
    return "/".join(names)


def _escape(text: str) -> str:
    return _ESCAPED.sub(_code, text)


def _code(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def parse_partition_directory(name: str) -> tuple[str, str | None] | None:
    """Return the column and the value that the name of one directory stands for; None if it is no such name.

    >>> parse_partition_directory("what=a%2Fb"), parse_partition_directory("who=__HIVE_DEFAULT_PARTITION__")
    (('what', 'a/b'), ('who', None))
    """
    column, equals, value = name.partition("=")
    if not equals or not column:
        return None
    text = unquote(value, errors="surrogateescape")
    return unquote(column, errors="surrogateescape"), None if text == NULL_DIRECTORY else text
