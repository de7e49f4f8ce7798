"""Where data files are: the paths of the log as absolute, decoded URIs, and as the URIs that Java spells.

A path in the log is a URI, relative to the table or absolute (spec: "Add File and Remove File"). Everything here is
done on columns, whatever the number of files.
"""

from __future__ import annotations

import posixpath
import re
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptLogError
from headwater.log.columns import strings
from headwater.log.paths import canonical_array
from headwater.storage.uri import parse_uri

_ABSOLUTE_URI = r"^[A-Za-z][A-Za-z0-9+.\-]+:/"
_ILLEGAL_ASCII = '%"<>#?[]^`{|}\\ '
_OTHER_SPACES = "\x00-\x1f\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ILLEGAL = "[" + re.escape(_ILLEGAL_ASCII) + _OTHER_SPACES + "]"
"""What `java.net.URI` escapes in a path; letters of all scripts may stand as they are."""


def hadoop_root(uri: str) -> str:
    """A table's location in the spelling of Hadoop's `Path`: decoded, with a scheme.

    >>> hadoop_root("file:///data/my%20events")
    'file:/data/my events'
    """
    location = parse_uri(uri)
    if location.kind == "local":
        return f"file:{location.path}"
    path = f"/{location.path}" if location.path else ""
    return f"{_authority(uri)}{path}"


def file_uris(paths: pa.ChunkedArray, uri: str) -> pa.ChunkedArray:
    """The URIs of data files, spelled as Java spells them: only what is illegal in a URI is escaped.

    The log's own spelling will not do: writers escape what they like, and Spark shows and compares paths.

    Args:
        paths: as the log has them: URIs, relative to the table or absolute.
        uri: the table's location.
    """
    return pa.chunked_array([_escaped(absolute_paths(chunk, uri)) for chunk in paths.chunks], pa.string())


def absolute_paths(paths: pa.Array, uri: str) -> pa.Array:
    """The same, decoded, as Hadoop's `Path` shows them: `file:/data/my events/part-0.parquet`.

    Raises:
        CorruptLogError: a path is no text once it is decoded (`%FF`), so that Spark cannot be told of the file.
    """
    decoded = _text(canonical_array(paths), paths, uri)
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


def _text(decoded: pa.Array, paths: pa.Array, uri: str) -> pa.Array:
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
    base = f"/{parse_uri(uri).path.lstrip('/')}"
    return strings([posixpath.normpath(f"{base}/{path}") for path in paths.to_pylist()])


def _escaped(paths: pa.Array) -> pa.Array:
    """Decoded paths with what is illegal in a URI escaped; one pass for each such character that occurs."""
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
    """The part of a URI that names the filesystem: `file:`, `s3://bucket`."""
    location = parse_uri(uri)
    if location.kind == "local":
        return "file:"
    host = f"{location.bucket}@{location.account_host}" if location.account_host else location.bucket
    return f"{location.scheme}://{host}"
