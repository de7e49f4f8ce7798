"""Which files below a table's root VACUUM may look at: all but hidden ones.

Names that start with `_` or `.` are somebody else's (the log, manifests, markers of other engines), with the exceptions
that the reference implementation makes: change data, indexes, and partition directories of columns with such names.
Directories that an interrupted write of ours has left (`incomplete-<uuid>`) are garbage whatever is in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.columns import bools
from headwater.log.schema import physical_path
from headwater.log.tree import INCOMPLETE

if TYPE_CHECKING:
    from headwater.log.snapshot import Snapshot

_INCOMPLETE = rf"(?:^|/){INCOMPLETE}/"
_OWN = ("_change_data", "_delta_index")
_ICEBERG_METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class VisibleFiles:
    """The rule for one table."""

    prefixes: tuple[str, ...]
    """Names that start with one of these are not hidden."""
    hidden: frozenset[str] = frozenset()
    """Further names that are."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> VisibleFiles:
        """The rule for the table of a snapshot."""
        names = list(snapshot.partition_columns)
        names += [physical_path(snapshot.schema, [name], snapshot.mapping_mode)[0] for name in names]
        formats = snapshot.properties.get("delta.universalFormat.enabledFormats", "")
        other = frozenset({_ICEBERG_METADATA}) if "iceberg" in formats.lower() else frozenset[str]()
        return cls((*_OWN, *(f"{name}=" for name in dict.fromkeys(names))), other)

    def enters(self, prefix: str) -> bool:
        """Whether a directory is looked into, if the one around it is."""
        if re.search(_INCOMPLETE, prefix):
            return True
        name = prefix.rstrip("/").rpartition("/")[2]
        return name not in self.hidden and (not name.startswith(("_", ".")) or name.startswith(self.prefixes))

    def mask(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which objects are visible, by their own names: all of them are in directories that are looked into."""
        names = pc.replace_substring_regex(keys, pattern="^(?s:.*)/", replacement="")
        visible = pc.invert(pc.match_substring_regex(names, "^[_.]"))
        for prefix in self.prefixes:
            visible = pc.or_(visible, pc.starts_with(names, prefix))
        for name in self.hidden:
            visible = pc.and_(visible, pc.not_equal(names, name.encode()))
        return pc.or_(visible, pc.match_substring_regex(keys, _INCOMPLETE))

    def mask_all(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which objects are visible, wherever they are."""
        encoded = parents(keys).combine_chunks().dictionary_encode()
        known = [
            self._is_entered(prefix.decode("utf-8", "surrogateescape")) for prefix in encoded.dictionary.to_pylist()
        ]
        return pc.and_(self.mask(keys), pa.chunked_array([bools(known).take(encoded.indices)]))

    def _is_entered(self, prefix: str) -> bool:
        parts = prefix.split("/")[:-1]
        return all(self.enters("/".join(parts[: i + 1]) + "/") for i in range(len(parts)))


def parents(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """The prefix of the directory that each object is in."""
    return pc.replace_substring_regex(keys, pattern="[^/]*$", replacement="")
