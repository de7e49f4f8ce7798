"""Random histories with checkpoints, compacted files and cleanup anywhere: every version equals the naive model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.errors import HeadwaterError
from headwater.log.snapshot import Snapshot
from support.log.log_tables import (
    LOG,
    add,
    commit_info,
    commit_key,
    domain,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_compacted,
    put_hint,
    put_multipart,
    put_v2,
    remove,
    txn,
    vector,
)
from support.log_settings import examined
from support.oracles.log_model import Action, Model, observed, replay
from support.stores.log_store import DictStore, open_table

SPELLINGS = [
    ["a", "%61"],
    ["b c", "b%20c"],
    ["é/x", "%C3%A9/x", "%c3%a9%2Fx"],
    ["100%25", "100%25"],
    ["/abs/q", "file:/abs/q", "file:///abs/q", "FILE:/abs%2Fq"],
    ["p=%2520/y", "p%3D%2520/y"],
]
VECTORS = [None, vector("v", 1), vector("v", 2), vector("w", None)]


@st.composite
def file_actions(draw: st.DrawFn) -> list[Action]:
    """File actions of a valid commit: of each kind at most one for a path, and none for one logical file twice."""
    actions: list[Action] = []
    for spellings in draw(st.lists(st.sampled_from(SPELLINGS), max_size=4, unique_by=lambda s: s[0])):
        kinds = draw(st.sampled_from(["add", "remove", "both"]))
        vectors = draw(st.permutations(VECTORS))
        if kinds != "remove":
            fields: dict[str, Any] = {"deletionVector": vectors[0]} if vectors[0] else {}
            if draw(st.booleans()):
                fields["stats"] = json.dumps({"numRecords": draw(st.integers(0, 9))})
            actions.append(add(draw(st.sampled_from(spellings)), draw(st.integers(0, 999)), **fields))
        if kinds != "add":
            fields = {"deletionVector": vectors[1]} if vectors[1] else {}
            actions.append(remove(draw(st.sampled_from(spellings)), **fields))
    return actions


TABLE_ACTIONS = st.one_of(
    st.builds(txn, st.sampled_from("xy"), st.integers(-3, 9)),
    st.builds(domain, st.sampled_from("de"), st.text(max_size=3), removed=st.booleans()),
    st.builds(lambda v: metadata({"k": str(v)}), st.integers(0, 3)),
    st.builds(protocol, st.integers(1, 2), st.integers(2, 6)),
    st.just({"someNewAction": {"a": 1}}),
    st.just(commit_info()),
)


def _kind_and_name(action: Action) -> str:
    [(kind, body)] = action.items()
    return f"{kind}/{body.get('appId') or body.get('domain')}"


COMMITS = st.tuples(
    file_actions(), st.lists(TABLE_ACTIONS, max_size=3, unique_by=_kind_and_name), st.randoms(use_true_random=False)
)
CHECKPOINTS = {
    "classic": lambda s, v, a, _: put_classic(s, v, a),
    "row groups": lambda s, v, a, _: put_classic(s, v, a, row_group_size=2),
    "multi-part": lambda s, v, a, _: put_multipart(s, v, a, 2),
    "V2": lambda s, v, a, u: put_v2(s, v, a, uuid=u),
    "V2 sidecars": lambda s, v, a, u: put_v2(s, v, a, sidecars=2, uuid=u),
    "V2 JSON": lambda s, v, a, u: put_v2(s, v, a, json_format=True, uuid=u),
    "V2 JSON sidecars": lambda s, v, a, u: put_v2(s, v, a, json_format=True, sidecars=1, uuid=u),
}


class LogMachine(RuleBasedStateMachine):
    """A table, its model after each commit, and a snapshot that is refreshed now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.store = DictStore()
        self.history: list[list[Action]] = []
        self.models: list[Model] = []
        self.checkpoints: set[int] = set()
        self.compactions: set[tuple[int, int]] = set()
        self.written = 0
        self.holes = False
        self.kept: Snapshot | None = None

    # --- what writers do ---------------------------------------------------------------------------

    @initialize(commit=COMMITS)
    def create(self, commit: tuple[list[Action], list[Action], Any]) -> None:
        files, _, _ = commit
        self._commit([protocol(), metadata(), *files])
        self.kept = open_table(self.store)

    @rule(commit=COMMITS)
    def commit(self, commit: tuple[list[Action], list[Action], Any]) -> None:
        files, others, random = commit
        actions = [*files, *others] or [commit_info()]
        random.shuffle(actions)
        self._commit(actions)

    def _commit(self, actions: list[Action]) -> None:
        put_commit(self.store, len(self.history), *actions)
        self.history.append(actions)
        self.models.append(replay(self.history))

    @rule(data=st.data(), kind=st.sampled_from(sorted(CHECKPOINTS)))
    def checkpoint(self, data: st.DataObject, kind: str) -> None:
        version = data.draw(st.integers(0, self.latest))
        if not kind.startswith("V2") and version in self.checkpoints:
            return  # it would replace a file that an open snapshot may still be reading
        self.written += 1
        unique = f"{self.written:08d}-7026-4e79-81be-64bd76c43a11"
        CHECKPOINTS[kind](self.store, version, self.models[version].actions(), unique)
        self.checkpoints.add(version)

    @rule(data=st.data())
    def incomplete_checkpoint(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(0, self.latest))
        keys = put_multipart(self.store, version, self.models[version].actions(), 3)
        self.store.delete_many([data.draw(st.sampled_from(keys))])

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, self.latest))
        last = data.draw(st.integers(first, self.latest))
        part = replay(self.history[first : last + 1])
        put_compacted(self.store, first, last, *part.actions())
        self.compactions.add((first, last))

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data())
    def clean_up(self, data: st.DataObject) -> None:
        """Delete the oldest commits, as log cleanup does: no further than a checkpoint stands for them."""
        last = data.draw(st.integers(0, data.draw(st.sampled_from(sorted(self.checkpoints)))))
        self.store.delete_many(commit_key(v) for v in range(last + 1))

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data())
    def lose_a_commit(self, data: st.DataObject) -> None:
        """Delete any commit that a checkpoint stands for: a hole, which no cleanup makes but a reader must stand."""
        version = data.draw(st.integers(0, max(self.checkpoints)))
        self.store.delete_many([commit_key(version)])
        self.holes = self.holes or commit_key(version - 1) in self.store.objects

    @rule(data=st.data())
    def hint(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["right", "any", "garbage", "none"]))
        key = f"{LOG}_last_checkpoint"
        self.store.objects.pop(key, None)
        if kind == "right" and self.checkpoints:
            put_hint(self.store, max(self.checkpoints))
        elif kind == "any":
            put_hint(self.store, data.draw(st.integers(0, self.latest + 3)))
        elif kind == "garbage":
            self.store.objects[key] = b'{"version":'

    # --- what readers see --------------------------------------------------------------------------

    @property
    def latest(self) -> int:
        return len(self.history) - 1

    def _commits(self) -> set[int]:
        return {v for v in range(len(self.history)) if commit_key(v) in self.store.objects}

    def _loadable(self, version: int) -> bool:
        """By brute force: can one get from the newest checkpoint before it to this version?"""
        start = max((c for c in self.checkpoints if c <= version), default=-1)
        commits = self._commits()
        reached = {start + 1}
        for v in range(start + 1, version + 1):
            if v in reached:
                reached |= {v + 1} if v in commits else set()
                reached |= {last + 1 for first, last in self.compactions if first == v and last <= version}
        return version + 1 in reached

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(0, self.latest))
        if self._loadable(version):
            snapshot = open_table(self.store, version=version)
            assert snapshot.version == version
            assert observed(snapshot) == self.models[version].state()
            self._check_refreshed(snapshot.refresh())
        else:
            with pytest.raises(HeadwaterError):
                open_table(self.store, version=version)

    @rule()
    def refresh(self) -> None:
        assert self.kept is not None
        old = self.kept.version
        there = {key: self.store.objects[key] for key in self.store.objects}
        self.store.calls.clear()
        self.kept = self.kept.refresh()
        if self.kept.segment.checkpoint is None and old > 0:
            read = [key for operation, key in self.store.calls if operation == "get" and key in there]
            versions = [v for v in range(len(self.history)) if commit_key(v) in read]
            if all(commit_key(v) in there for v in range(len(self.history))) and not self._hinted_beyond(old):
                assert all(v > old for v in versions), "only new commits are read"
        self._check_refreshed(self.kept)

    def _check_refreshed(self, snapshot: Snapshot) -> None:
        # A refresh asks for the next commit by its name: a hole that no hint leads across may look like the end.
        assert snapshot.version == self.latest or self.holes
        assert observed(snapshot) == self.models[snapshot.version].state()

    def _hinted_beyond(self, version: int) -> bool:
        try:
            hint = json.loads(self.store.objects.get(f"{LOG}_last_checkpoint", b"{}"))
        except ValueError:
            return False
        return hint.get("version", -1) > version

    @invariant()
    def the_newest_version_is_right(self) -> None:
        if self.history:
            snapshot = open_table(self.store)
            assert snapshot.version == self.latest
            assert snapshot.num_files == len(self.models[-1].adds)
            assert snapshot.app_transactions == self.models[-1].state()["txns"]

    def teardown(self) -> None:
        for version in range(len(self.history)):
            if self._loadable(version):
                assert observed(open_table(self.store, version=version)) == self.models[version].state()
        if self.kept is not None:
            self._check_refreshed(self.kept.refresh())


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(examined, stateful_step_count=20)
