"""Commands on logs that a test has opened by itself: with a clock of its own, or at a version of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.commands import clone as clone_command
from headwater.commands import restore as restore_command
from headwater.commands import vacuum as vacuum_command
from headwater.commands.alter import columns, properties
from headwater.commands.clone import Cloned, CloneRequest, Copy
from headwater.commands.restore import Restored, RestoreRequest
from headwater.commands.vacuum import Vacuumed, VacuumRequest
from headwater.features.context import TableRef
from headwater.log.commit.transaction import Committed
from headwater.log.context import LogContext
from headwater.log.snapshot import Snapshot


@dataclass(frozen=True)
class OpenedTable(TableRef):
    """A table whose context is known."""

    ctx: LogContext | None = None

    def context(self, **_: Any) -> LogContext:
        assert self.ctx is not None
        return self.ctx


def opened(ctx: LogContext) -> OpenedTable:
    return OpenedTable(ctx.uri, ctx.storage_options, ctx)


def vacuum(ctx: LogContext, **fields: Any) -> Vacuumed:
    return vacuum_command.vacuum(VacuumRequest(opened(ctx), **fields))


def restore(ctx: LogContext, **fields: Any) -> Restored:
    return restore_command.restore(RestoreRequest(opened(ctx), **fields))


def clone(source: Snapshot, target: LogContext, *, copy: Callable[[list[Copy]], None], **fields: Any) -> Cloned:
    request = CloneRequest(opened(source.ctx), opened(target), source.version, **fields)
    return clone_command.clone(request, copy)


class _Checks:
    """Asks a function of the test's."""

    def __init__(self, check: Callable[..., None]) -> None:
        self.check = check

    def check_no_nulls(self, _snapshot: Snapshot, *asked: Any) -> None:
        self.check(*asked)

    def check_constraint(self, _snapshot: Snapshot, *asked: Any) -> None:
        self.check(*asked)

    def check_default(self, *asked: Any) -> None:
        self.check(*asked)


def _accept(*_: object) -> None:
    """Every row is fine."""


def _alteration(change: Any, num_fields: int = 9) -> Callable[..., Committed | None]:
    """How a test alters a snapshot: the fields of the change, then perhaps a function that looks at rows."""

    def alter(snapshot: Snapshot, *given: Any, **named: Any) -> Committed | None:
        fields, check = given[:num_fields], given[num_fields:] or (_accept,)
        return change(*fields, **named).commit(snapshot, _Checks(*check))

    return alter


add_columns = _alteration(columns.AddColumns)
rename_column = _alteration(columns.RenameColumn)
drop_columns = _alteration(columns.DropColumns)
reorder_column = _alteration(columns.MoveColumn)
set_column_comment = _alteration(columns.SetColumnComment)
set_column_type = _alteration(columns.SetColumnType)
set_nullable = _alteration(columns.SetNullable, 2)
set_default = _alteration(columns.SetDefault, 2)
drop_default = _alteration(columns.DropDefault)
set_properties = _alteration(properties.SetProperties)
unset_properties = _alteration(properties.UnsetProperties)
upgrade = _alteration(properties.UpgradeProtocol)
add_feature = _alteration(properties.AddFeature)
drop_feature = _alteration(properties.DropFeature)
set_domain = _alteration(properties.SetDomain)
remove_domain = _alteration(properties.RemoveDomain)
cluster_by = _alteration(properties.ClusterBy)
add_constraint = _alteration(properties.AddConstraint, 2)
drop_constraint = _alteration(properties.DropConstraint)
