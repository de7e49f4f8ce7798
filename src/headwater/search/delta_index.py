"""Where the search index of a Delta table lives, and which data files of a snapshot it covers. No Spark, no tantivy.

Each immutable data file has at most one split, below `_search_index/`, a directory that every VACUUM passes over. Its
key says which definition it was built by and which data file (path and size) it is about, so it stays true for every
version that names the file: deleted rows are in it too, and are subtracted when somebody asks. A split exists as soon
as its one object does; those who build it at the same time write the same thing, and one that is lost costs only time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import HeadwaterError
from headwater.log.columns import binaries
from headwater.log.paths import canonical_array
from headwater.log.tree import columns_of

if TYPE_CHECKING:
    from headwater.storage import ObjectStore

DIRECTORY = "_search_index/"
"""Below the table. It begins with an underscore: hidden from those who read the table and from those who vacuum it."""
SUFFIX = ".split"
_ELSEWHERE = "elsewhere/"
"""For data files outside the table (shallow clones have them), and those with very long names: called by a hash."""
_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.\-]+:/)"
_MAX_NAME_BYTES = 200
"""Disks allow 255 for a name, and a split's is longer than its data file's."""


class SearchIndexNotFoundError(HeadwaterError):
    """The Delta table has no search index."""


@dataclass(frozen=True, slots=True)
class SearchCoverage:
    """How much of a version of a table its search index covers. What it does not cover is read and searched row by row.

    >>> print(SearchCoverage(version=3, num_files=12, num_covered_files=10, size_bytes=1200, covered_bytes=900))
    version 3: 10 of 12 files are indexed (75% of the bytes); the other 2 are searched row by row
    """

    version: int
    num_files: int
    """Live files that may hold what is looked for; all of them where nothing rules some out."""
    num_covered_files: int
    size_bytes: int
    covered_bytes: int

    @property
    def share(self) -> float:
        """The share of the bytes that the index covers, from 0 to 1; 1 for no bytes at all."""
        return self.covered_bytes / self.size_bytes if self.size_bytes else 1.0

    @property
    def is_complete(self) -> bool:
        """Whether every file is covered."""
        return self.num_covered_files == self.num_files

    def __str__(self) -> str:
        covered = f"version {self.version}: {self.num_covered_files} of {self.num_files} files are indexed"
        if self.is_complete:
            return covered
        rest = self.num_files - self.num_covered_files
        others = "the other one is" if rest == 1 else f"the other {rest} are"
        return f"{covered} ({int(self.share * 100)}% of the bytes); {others} searched row by row"


@dataclass(frozen=True, slots=True)
class SearchIndexed:
    """What `headwater.search_index` has done."""

    num_files: int
    """Data files that got a split now."""
    num_records: int
    """Their rows."""
    size_bytes: int
    """What the new splits take."""
    coverage: SearchCoverage
    """What is covered afterwards."""


def directory_of(fingerprint: str) -> str:
    """Where the splits of one definition are: see `headwater.search.delta_definition`."""
    return f"{DIRECTORY}{fingerprint}/"


def split_keys(files: pa.Table, fingerprint: str) -> pa.ChunkedArray:
    """The keys of the splits that data files have, or would have, in the table's store; as bytes.

    Args:
        files: columns `path` (as the log has it) and `size`.
        fingerprint: of the definition.
    """
    paths = files.column("path")
    names = pa.chunked_array([_names(chunk) for chunk in paths.chunks], pa.binary())
    sizes = files.column("size").cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(directory_of(fingerprint).encode(), names, b".", sizes, SUFFIX.encode(), b"")


def _names(paths: pa.Array) -> pa.Array:
    """Data files as parts of keys: the path below the table, or else a hash."""
    names = canonical_array(paths).cast(pa.binary())
    last = pc.replace_substring_regex(names, pattern="^(?s:.*)/", replacement="")
    by_hash = pc.or_(
        pc.match_substring_regex(paths, _ABSOLUTE), pc.greater(pc.binary_length(last), pa.scalar(_MAX_NAME_BYTES))
    )
    if not pc.any(by_hash).as_py():
        return names
    hashed = [f"{_ELSEWHERE}{sha256(name).hexdigest()}".encode() for name in names.filter(by_hash).to_pylist()]
    return pc.replace_with_mask(names, by_hash, binaries(hashed).cast(pa.binary()))


def existing_splits(store: ObjectStore, fingerprint: str | None = None) -> pa.Table:
    """The splits that are there, as columns `key` (bytes), `size_bytes` and `modified_ms`.

    Args:
        store: the table's.
        fingerprint: of one definition; None for those of all definitions there ever were.
    """
    prefix = DIRECTORY if fingerprint is None else directory_of(fingerprint)
    found = columns_of(store.list_from(prefix, recursive=True))
    return found.filter(pc.ends_with(found.column("key"), SUFFIX.encode()))


def with_splits(files: pa.Table, splits: pa.Table, fingerprint: str) -> pa.Table:
    """Data files and their splits: columns `split` (the key as text) and `split_bytes`, null where a file has none.

    Args:
        files: columns `path` (as the log has it) and `size`, and any others.
        splits: those that are there; see `existing_splits`.
        fingerprint: of the definition.
    """
    wanted = split_keys(files, fingerprint)
    places = pc.index_in(wanted, value_set=splits.column("key").combine_chunks())
    keys = pc.if_else(places.is_valid(), wanted, pa.scalar(None, pa.binary()))
    sizes = splits.column("size_bytes").combine_chunks().take(places.combine_chunks())
    return files.append_column("split", keys).append_column("split_bytes", sizes)


def coverage(version: int, files: pa.Table) -> SearchCoverage:
    """How much of some files is covered: they have the columns `size` and `split`."""
    sizes, covered = files.column("size"), files.column("split").is_valid()
    return SearchCoverage(
        version=version,
        num_files=files.num_rows,
        num_covered_files=pc.sum(covered).as_py() or 0,
        size_bytes=pc.sum(sizes).as_py() or 0,
        covered_bytes=pc.sum(sizes.filter(covered)).as_py() or 0,
    )


def unneeded_splits(splits: pa.Table, needed: pa.ChunkedArray, cutoff_ms: int) -> pa.Table:
    """Of the splits that are there, those that VACUUM may delete: old enough, and of no data file that is still needed.

    Args:
        splits: see `existing_splits`.
        needed: keys of the splits that data files have which some reader may still need; see `split_keys`.
        cutoff_ms: what is not older than this stays.
    """
    old = pc.less(splits.column("modified_ms"), cutoff_ms)
    unneeded = pc.invert(pc.is_in(splits.column("key"), value_set=needed.combine_chunks()))
    return splits.filter(pc.and_(old, unneeded))
