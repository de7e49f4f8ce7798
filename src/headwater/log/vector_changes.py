"""What a commit did to the rows of files that it removed and added again with another deletion vector.

The actions alone do not say which rows they are, nor that there are fewer now: RESTORE brings rows back in the same
way. So the vectors are read, but only those of files that somebody asks about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.changed_files import read_rows
from headwater.log.paths import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyroaring import BitMap64

    from headwater.log.actions import Add, DeletionVector, Remove
    from headwater.log.context import LogContext


@dataclass(frozen=True, slots=True)
class VectorChange:
    """The deleted rows of one data file before and after a commit."""

    before: BitMap64
    after: BitMap64

    @property
    def deleted(self) -> BitMap64:
        """The rows that the commit deleted."""
        return self.after - self.before

    @property
    def returned(self) -> BitMap64:
        """The rows that it brought back."""
        return self.before - self.after


class VectorChanges:
    """The files of one commit with another vector than before; vectors are read when they are first asked for."""

    def __init__(self, adds: Sequence[Add], removes: Sequence[Remove], ctx: LogContext) -> None:
        removed = {canonical(remove.path): remove.deletion_vector for remove in removes}
        self._vectors: dict[str, tuple[DeletionVector | None, DeletionVector | None]] = {
            path: (removed[path], add.deletion_vector) for add in adds if (path := canonical(add.path)) in removed
        }
        self._ctx = ctx
        self._known: dict[str, VectorChange] = {}

    def of(self, paths: Iterable[str]) -> dict[str, VectorChange]:
        """Of some files (by canonical path) those that have another vector now.

        Raises:
            StorageError: a vector cannot be read.
            CorruptLogError: a vector is damaged.
        """
        wanted = [path for path in paths if path in self._vectors]
        new = [path for path in wanted if path not in self._known]
        if new:
            rows = read_rows([vector for path in new for vector in self._vectors[path]], self._ctx)
            for number, path in enumerate(new):
                self._known[path] = VectorChange(rows[2 * number], rows[2 * number + 1])
        return {path: self._known[path] for path in wanted}
