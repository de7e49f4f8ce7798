"""Read checkpoints of every kind (spec: "Checkpoints", "Checkpoint Specs", "Checkpoint Naming Scheme").

Classic and multi-part V1, V2 in Parquet or JSON, with file actions inside or in sidecars. Table actions are read
from the few row groups that hold them; file actions stay in their files as chunks until a plan asks.

Writers differ in widths (`int` or `long`, `string` or `large_string`), and columns may be missing. But a column of
another family (a path that is a number) means that the file is damaged, and reading on would lose files silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import msgspec

from headwater.errors import CorruptLogError, ObjectNotFoundError, VersionCleanedUpError
from headwater.log.actions.decode import CommitActions, TableState, commit_files, decode_lines
from headwater.log.actions.model import CheckpointLine, DomainMetadata, Metadata, Protocol, Sidecar, Txn
from headwater.log.delta import names
from headwater.log.segment import list_log
from headwater.storage.base import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from headwater.log.actions.decode import FileKey
    from headwater.log.actions.model import Add, Remove
    from headwater.log.context import LogContext
    from headwater.log.files.chunks import FileChunk
    from headwater.log.files.parquet import ParquetObject
    from headwater.log.segment import CheckpointFiles
    from headwater.storage.base import ObjectStore


_CHECKPOINT_LINE = msgspec.json.Decoder(CheckpointLine)
_Action = TypeVar("_Action")


@dataclass
class Checkpoint:
    """One complete checkpoint. Shared by all snapshots that start from it, so that columns are read once."""

    ctx: LogContext
    files: CheckpointFiles

    @property
    def version(self) -> int:
        """The version whose state the checkpoint holds."""
        return self.files.version

    @cached_property
    def table_state(self) -> TableState:
        """Protocol and metaData (both must be here), transactions and domains.

        Raises:
            CorruptLogError: there is no protocol or no metaData. Older commits are not searched for them:
                a checkpoint without them is damaged.
        """
        protocol, metadata = self.protocol, self.metadata
        txns = self._unique("txn", [(t.app_id, t) for t in self._of(Txn, "txn", "appId")])
        found = self._of(DomainMetadata, "domainMetadata", "domain")
        domains = self._unique("domainMetadata", [(d.domain, d) for d in found])
        return TableState(protocol, metadata, txns, domains)

    @property
    def protocol(self) -> Protocol:
        return self._essentials[0]

    @property
    def metadata(self) -> Metadata:
        return self._essentials[1]

    @cached_property
    def _essentials(self) -> tuple[Protocol, Metadata]:
        """Protocol and metaData, in one pass that ends as soon as it has both."""
        protocol = metadata = None
        if self._is_json:
            protocol, metadata = self._json.table_actions.protocol, self._json.table_actions.metadata
        for part in [] if self._is_json else self._parts:
            groups = sorted({*part.groups_with("protocol"), *part.groups_with("metaData")})
            if not groups:
                continue
            # An absent name or an empty configuration reads as its default; feature lists may be empty but there.
            columns = [
                *part.fields_with_values("metaData", groups),
                *(["protocol"] if part.has("protocol") else []),
            ]
            for batch in part.batches(columns, groups):
                key = part.meta.key
                protocol = protocol or next(iter(_rows(Protocol, batch, "protocol", "minReaderVersion", key)), None)
                metadata = metadata or next(iter(_rows(Metadata, batch, "metaData", "id", key)), None)
                if protocol is not None and metadata is not None:
                    return protocol, metadata
        if protocol is None or metadata is None:
            missing = "protocol" if protocol is None else "metaData"
            raise CorruptLogError(
                f"{self.files.files[0].key} is not a valid checkpoint: it has no {missing} action. Every checkpoint "
                "must have one; the table cannot be read at this version."
            )
        return protocol, metadata

    @cached_property
    def adds(self) -> list[FileChunk]:
        return self._chunks("add")

    @cached_property
    def removes(self) -> list[FileChunk]:
        return self._chunks("remove")

    @property
    def _is_json(self) -> bool:
        return self.files.files[0].key.endswith(".json")

    @cached_property
    def _json(self) -> CommitActions:
        meta = self.files.files[0]
        try:
            data = self.ctx.store.get(meta.key)
        except ObjectNotFoundError as error:
            raise self._cleaned_up(error) or CorruptLogError(
                f"{meta.key} does not exist, although the log has listed it: {error}"
            ) from error
        return CommitActions(self.version, self.version, meta.key, data, self.ctx.dialect)

    @cached_property
    def _json_lines(self) -> list[CheckpointLine]:
        return decode_lines(_CHECKPOINT_LINE, self._json.data, self._json.key)

    @cached_property
    def _parts(self) -> list[ParquetObject]:
        return self._open(self.files.files)

    def _open(self, metas: Sequence[ObjectMeta]) -> list[ParquetObject]:
        from headwater.log.files.parquet import ParquetObject

        return [ParquetObject(self.ctx.store, meta, explain_missing=self._cleaned_up) for meta in metas]

    def _cleaned_up(self, error: ObjectNotFoundError) -> VersionCleanedUpError | None:
        """Return the error for a file that is gone because the log was cleaned up since the checkpoint was found.

        None if that is not the reason: the checkpoint itself is still there, or no newer one that stands for it.
        """
        if all(_exists(self.ctx.store, meta.key) for meta in self.files.files):
            return None
        newer = list_log(self.ctx).checkpoints
        if max(newer, default=-1) <= self.version:
            return None
        return VersionCleanedUpError(
            f"{self.ctx.uri}: this version was opened from the checkpoint of version {self.version}, and the log has "
            f"been cleaned up since then ({error}). Versions before {min(newer)} are no longer available; open the "
            "table again. To keep old versions for longer, set delta.logRetentionDuration."
        )

    def _of(self, type_: type[_Action], column: str, leaf: str) -> list[_Action]:
        """Return all actions of one kind, from the row groups that may hold any."""
        if self._is_json:
            attribute = {"domainMetadata": "domain_metadata"}.get(column, column)
            found = [getattr(line, attribute) for line in self._json_lines]
            return [action for action in found if action is not None]
        return [
            action
            for part in self._parts
            if (groups := part.groups_with(column))
            for batch in part.batches([column], groups)
            for action in _rows(type_, batch, column, leaf, part.meta.key)
        ]

    def _unique(self, name: str, found: list[tuple[str, _Action]]) -> dict[str, _Action]:
        """Actions by the name that they must not share with others."""
        actions: dict[str, _Action] = {}
        for key, action in found:
            if actions.setdefault(key, action) != action:
                raise CorruptLogError(
                    f"{self.files.files[0].key} is not a valid checkpoint: it has several different {name} actions "
                    f"for {key!r}, and nothing says which one counts."
                )
        return actions

    @property
    def sidecar_keys(self) -> list[str]:
        """The keys of the sidecars that the checkpoint names."""
        return list(self._sidecar_metas())

    def _sidecars(self) -> list[ParquetObject]:
        return self._open(list(self._sidecar_metas().values()))

    def _sidecar_metas(self) -> dict[str, ObjectMeta]:
        if self.files.kind == "multipart":
            return {}
        found = [self._sidecar_meta(sidecar) for sidecar in self._of(Sidecar, "sidecar", "path")]
        return {meta.key: meta for meta in found}

    def _sidecar_meta(self, sidecar: Sidecar) -> ObjectMeta:
        # Sidecars always live in _sidecars; whatever stands before the file name says nothing.
        key = names.SIDECAR_DIR + unquote(sidecar.path).rpartition("/")[2]
        return ObjectMeta(key, sidecar.size_in_bytes, sidecar.modification_time)

    def _chunks(self, action: str) -> list[FileChunk]:
        from headwater.log.files.chunks import ADD_COLUMNS, REMOVE_COLUMNS, MemoryChunk, ParquetChunk

        types = ADD_COLUMNS if action == "add" else REMOVE_COLUMNS
        _ = self._essentials  # later commits may have had both; without its own, this checkpoint is damaged
        sources = self._sidecars()
        if sources and self._has_own_files():
            raise CorruptLogError(
                f"{self.files.files[0].key} is not a valid checkpoint: it has file actions of its own besides those in "
                "its sidecars, and nothing says which of them count."
            )
        chunks: list[FileChunk] = []
        if self._is_json:
            inline = [a for a in self._json_files.values() if type(a).__name__.lower() == action]
            if inline:
                chunks.append(MemoryChunk(inline, types))
        else:
            sources = [*self._parts, *sources]
        for source in sources:
            check_file_actions(source, action, types)
            chunks += [ParquetChunk(source, group, action, types) for group in source.groups_with(action)]
        return chunks

    @cached_property
    def _json_files(self) -> dict[FileKey, Add | Remove]:
        return commit_files(self._json)

    def _has_own_files(self) -> bool:
        if self._is_json:
            return bool(self._json_files)
        return any(part.has_values(leaf) for part in self._parts for leaf in ("add.path", "remove.path"))


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFoundError:
        return False
    return True


def _rows(type_: type[_Action], batch: pa.RecordBatch, column: str, leaf: str, key: str) -> list[_Action]:
    """Return the actions of one kind in a batch; a row is one where its required leaf has a value."""
    index = batch.schema.get_field_index(column)
    if index < 0:
        return []
    try:
        rows = batch.column(index).drop_null().to_pylist(maps_as_pydicts="strict")
        present = [row for row in rows if not isinstance(row, dict) or row.get(leaf) is not None]
        return [msgspec.convert(_without_none(row), type_) for row in present]
    except (msgspec.ValidationError, KeyError, ValueError) as error:
        # A map has a key twice, or text is not UTF-8.
        raise CorruptLogError(f"{key} has a {column} action that is not valid: {error}") from error


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(inner) for name, inner in value.items() if inner is not None}
    return value


def check_file_actions(source: ParquetObject, action: str, types: Mapping[str, pa.DataType]) -> None:
    """Raise unless the column of a file action, if there is one, is a struct with children of the right families.

    Raises:
        CorruptLogError: naming the file and the column.
    """
    import pyarrow as pa

    index = source.schema.get_field_index(action)
    if index < 0:
        return
    expected = pa.struct(list(types.items()))
    wrong = _first_difference(action, source.schema.field(index).type, expected)
    if wrong is not None:
        raise CorruptLogError(f"{source.meta.key} is not a valid checkpoint: its column {wrong}.")
    if action == "add":
        _check_counts(source)


def _check_counts(source: ParquetObject) -> None:
    """Every add has a path and a size. Files are counted by the footer, which has no checksum: so look twice."""
    for group in range(source.num_row_groups):
        paths, sizes = source.null_count(group, "add.path"), source.null_count(group, "add.size")
        if None not in (paths, sizes) and paths != sizes:
            raise CorruptLogError(
                f"{source.meta.key} is damaged: in row group {group} its footer counts {paths} rows without a path, "
                f"but {sizes} without a size."
            )


def _first_difference(name: str, found: pa.DataType, expected: pa.DataType) -> str | None:
    import pyarrow as pa

    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return None
    if _family(found) != _family(expected):
        return f"{name} has the type {found}, not {expected}"
    if pa.types.is_map(found):
        pairs = [("key", found.key_type, expected.key_type), ("value", found.item_type, expected.item_type)]
        return next(filter(None, (_first_difference(f"{name}.{n}", f, e) for n, f, e in pairs)), None)
    if pa.types.is_struct(found):
        known = [field for field in expected if found.get_field_index(field.name) >= 0]
        children = (_first_difference(f"{name}.{f.name}", found.field(f.name).type, f.type) for f in known)
        return next(filter(None, children), None)
    return None


def _family(type_: pa.DataType) -> str:
    import pyarrow as pa

    is_ = pa.types
    families = {
        "text": (is_.is_string, is_.is_large_string, is_.is_string_view, is_.is_binary, is_.is_large_binary),
        "integer": (is_.is_integer,),
        "boolean": (is_.is_boolean,),
        "map": (is_.is_map,),
        "struct": (is_.is_struct,),
    }
    return next((name for name, tests in families.items() if any(test(type_) for test in tests)), str(type_))
