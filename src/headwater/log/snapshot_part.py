"""Some of the files of a snapshot, read as if they were the whole table: what a rewrite of a few files needs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.log.paths import canonical
from headwater.log.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from headwater.log.expressions import Expression


@dataclass(frozen=True)
class SnapshotPart(Snapshot):
    """A snapshot that lists only some of its live files."""

    paths: tuple[str, ...] = ()
    """As the log has them."""

    @classmethod
    def of(cls, snapshot: Snapshot, paths: Sequence[str]) -> SnapshotPart:
        """The part of a snapshot that is in these files."""
        return cls(**{f.name: getattr(snapshot, f.name) for f in fields(Snapshot)}, paths=tuple(paths))

    @cached_property
    def _path_set(self) -> pa.Array:
        from headwater.log.columns import strings

        return strings(self.paths)

    def files(self, where: str | Expression | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The files of this part that may match; see `Snapshot.files`."""
        import pyarrow.compute as pc

        wanted = None if columns is None else list(dict.fromkeys([*columns, "path"]))
        found = super().files(where, wanted)
        found = found.filter(pc.is_in(found.column("path"), value_set=self._path_set))
        return found if columns is None else found.select(list(columns))

    def files_named(self, paths: Collection[str], columns: Sequence[str] | None = None) -> pa.Table:
        """Of some data files those of this part; see `Snapshot.files_named`."""
        return super().files_named(set(map(canonical, self.paths)).intersection(paths), columns)

    @cached_property
    def _totals(self) -> tuple[int, int]:
        import pyarrow.compute as pc

        sizes = self.files(columns=["size"]).column("size")
        return len(sizes), pc.sum(sizes).as_py() or 0

    def file_sizes(self) -> list[int]:
        """The sizes of these files."""
        sizes: list[int] = self.files(columns=["size"]).column("size").to_pylist()
        return sizes
