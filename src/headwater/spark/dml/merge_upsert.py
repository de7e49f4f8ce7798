"""An upsert by keys: rows of the source take the place of those with the same keys, or are new. No join.

The source is read twice, its keys and then its rows (`headwater.spark.dml.merge_keyed`). What is cheap to read is not
materialised for that; if the second reading turns out to be another than the first, the merge begins again with a
source that is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.spark.dml.column_job import ColumnJob
from headwater.spark.dml.key_lookup import NO_PAIRS
from headwater.spark.dml.merge_files import MergedFiles, MergeWriter
from headwater.spark.dml.merge_keyed import SourceKeys, has_weighable_rows, look_up, routed, tells_of_heavy_row
from headwater.spark.dml.merge_plan import NEW_BYTES_IN_PASSING
from headwater.spark.dml.merge_source import VALUE_BYTES, cheap_bytes

if TYPE_CHECKING:
    from headwater.log.actions import Add
    from headwater.spark.dml.column_job import ChangedFiles
    from headwater.spark.dml.key_lookup import Pairs
    from headwater.spark.dml.merge_keyed import LookedUp
    from headwater.spark.dml.merge_plan import MergePlan
    from headwater.spark.dml.merge_source import SourceFacts
    from headwater.spark.dml.target_files import TargetFiles

_KEYS_BYTES = 32 * 2**20
"""Keys for every worker, in the memory of Arrow; Spark's rows take four times that."""
_LIGHT_ROW_BYTES = 4 * 2**10
"""If rows are larger than that on an average, one may well be too large for batches that are not weighed."""
_CHEAP_BYTES = 256 * 2**20
"""What is larger by Spark's estimate is materialised."""


class NotKeyedError(HeadwaterError):
    """A merge is not to be done by keys: never, if that is final, or not without materialising the source."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class KeyedUpsert:
    """An upsert by keys.

    Args:
        plan: of the merge; it is keyed.
        facts: of its source, which is materialised; None to read it as it is.

    Raises:
        NotKeyedError: there are too many keys, or it costs too much to read the source twice.
    """

    def __init__(self, plan: MergePlan, facts: SourceFacts | None) -> None:
        self._plan = plan
        size_bytes = cheap_bytes(plan.request.source) if facts is None else facts.key_bytes
        if size_bytes is None or size_bytes > (_CHEAP_BYTES if facts is None else 4 * _KEYS_BYTES):
            raise NotKeyedError("the source is too large")
        self._keys = SourceKeys.read(plan.source, plan.understood.keys, plan.target.snapshot.schema)
        if self._keys.keys.nbytes > _KEYS_BYTES:
            raise NotKeyedError("the source has too many keys", is_final=True)
        if facts is None:
            value_bytes = self._keys.check.count * VALUE_BYTES * (len(plan.source.schema.fields) + 1)
            facts = self._keys.facts(max(value_bytes, size_bytes))
        self.facts = facts

    def look_up(self, files: TargetFiles) -> LookedUp:
        """The first pass: which rows match.

        Raises:
            NotKeyedError: a row matches several.
        """
        found = look_up(self._plan.target, files, self._keys)
        if found is None:
            raise NotKeyedError("a key is there twice", is_final=True)
        return found

    def write(self, files: TargetFiles, found: LookedUp) -> MergedFiles:
        """The second pass.

        Raises:
            NotKeyedError: the source has other rows by now.
        """
        plan = self._plan
        writer = MergeWriter(plan.target, files, found.matches, is_stable=True)
        job = plan.column_job(files, found.matches, self.facts)
        done = None if job is None else self._run(job, found.pairs)
        if done is not None:
            return writer.tell_in_place(done, depends_on_matches=True)
        if self.facts.size_bytes > NEW_BYTES_IN_PASSING:
            raise NotKeyedError("there are too many rows to write in passing", is_final=True)
        apart = ColumnJob(plan.target, files, (), (), max(1, self.facts.size_bytes))
        return writer.write_beside(lambda: self._all_new(apart))

    def _all_new(self, job: ColumnJob) -> list[Add]:
        """Write all rows into new files."""
        done = self._run(job, NO_PAIRS)
        assert done is not None, "nothing was read in Python"
        return done.new

    def _run(self, job: ColumnJob, pairs: Pairs) -> ChangedFiles | None:
        rows = self._plan.keyed_rows
        is_light = self.facts.size_bytes <= _LIGHT_ROW_BYTES * self.facts.rows and has_weighable_rows(rows)
        light = replace(job, is_light=is_light)
        try:
            done = light.run(routed(light, rows, pairs))
        except Exception as error:
            if not light.is_light or not tells_of_heavy_row(error):
                raise
            done = job.run(routed(job, rows, pairs))
        if done is not None and done.read != self._keys.check:
            raise NotKeyedError("the source has other rows by now")
        return done
