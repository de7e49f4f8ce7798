"""Damaged logs: a typed error or the right answer, never another exception, never a wrong answer, never a hang.

A mutation hits one file of a small log. What is right afterwards is what the plainest possible reader (`log_oracle`)
makes of the mutated bytes. Where that one gives up and we do not, nothing may have changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.errors import HeadwaterError
from support.jobs import footer_flips
from support.log.log_tables import (
    LOG,
    add,
    commit_info,
    commit_key,
    domain,
    features,
    metadata,
    put_classic,
    put_commit,
    put_hint,
    put_multipart,
    put_v2,
    remove,
    txn,
    vector,
)
from support.log_settings import LONG, examined
from support.oracles import log_oracle
from support.oracles.log_model import Action, Model, observed, replay
from support.stores.log_store import NOW_MS, DictStore, open_table

HISTORY: list[list[Action]] = [
    [
        commit_info(operation="CREATE TABLE", operationParameters={"é": "ü"}),
        features("deletionVectors", "v2Checkpoint", "domainMetadata"),
        metadata({"delta.enableDeletionVectors": "true"}, name="näme"),
    ],
    [
        commit_info(),
        add("part-0.parquet", 10, stats='{"numRecords":1}', partitionValues={"part": "a"}),
        add("part=b%20c/1.parquet", 200, tags={"k": "v"}),
        add("é.parquet", 3000),
        txn("app", 1),
    ],
    [
        commit_info(operation="DELETE"),
        remove("part-0.parquet"),
        add("part-0.parquet", 10, deletionVector=vector("v", 1)),
        domain("d", "{}"),
    ],
    [commit_info(), remove("é.parquet"), add("last.parquet", 5), txn("app", 2), domain("e", "x")],
    [commit_info(operation="MERGE"), add("part=b%20c/1.parquet", 201), domain("e", "x", removed=True), txn("b", 7)],
]
LATEST = len(HISTORY) - 1

Put = Callable[[DictStore, int, list[Action]], object]
LAYOUTS: dict[str, Put | None] = {
    "JSON only": None,
    "classic": put_classic,
    "row groups": lambda s, v, a: put_classic(s, v, a, row_group_size=3),
    "multi-part": lambda s, v, a: put_multipart(s, v, a, 2),
    "V2 JSON": lambda s, v, a: put_v2(s, v, a, json_format=True),
    "V2 JSON, sidecars": lambda s, v, a: put_v2(s, v, a, json_format=True, sidecars=2),
    "V2 Parquet": lambda s, v, a: put_v2(s, v, a),
    "V2 Parquet, sidecars": lambda s, v, a: put_v2(s, v, a, sidecars=1),
}


@cache
def _log(layout: str) -> dict[str, bytes]:
    """The objects of a log. Commits before the checkpoint are partly gone, as in an old table."""
    store = DictStore()
    for version, actions in enumerate(HISTORY):
        put_commit(store, version, *actions)
    put = LAYOUTS[layout]
    if put is not None:
        put(store, 2, replay(HISTORY[:3]).actions())
        put_hint(store, 2)
        store.delete_many([commit_key(0)])
    state = replay(HISTORY).state()
    checksum = {"numFiles": state["num_files"], "tableSizeBytes": state["size_bytes"], "numMetadata": 1}
    store.objects[f"{LOG}{LATEST:020d}.crc"] = json.dumps(checksum).encode()
    return store.objects


def log(layout: str) -> dict[str, bytes]:
    return dict(_log(layout))


# --- the comparison ---------------------------------------------------------------------------------------

MAX_CALLS = 400


def check(objects: dict[str, bytes], layout: str) -> list[HeadwaterError]:
    """Everything that can be asked of a table is right or a `HeadwaterError`. The errors are returned."""
    store = DictStore(objects)
    errors: list[HeadwaterError] = []

    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except HeadwaterError as error:
            errors.append(error)
            return error

    snapshot = ask(lambda: open_table(store))
    if isinstance(snapshot, HeadwaterError):
        assert len(store.calls) < MAX_CALLS
        return errors
    expected = _expected(objects)
    before = _undamaged(layout)
    for question, right in _questions(snapshot).items():
        answer = ask(right)
        if isinstance(answer, HeadwaterError):
            continue
        truth = before[question] if isinstance(expected[question], Exception) else expected[question]
        assert answer == truth, f"{question} is wrong (the oracle: {expected[question]!r})"
    ask(snapshot.verify)
    ask(snapshot.refresh)
    ask(lambda: snapshot.timestamp)
    ask(lambda: snapshot.schema)
    for version in (1, 3):
        ask(lambda version=version: observed(open_table(store, version=version)))
    ask(lambda: open_table(store, timestamp=NOW_MS + 2))
    assert len(store.calls) < MAX_CALLS, "bounded work"
    return errors


def _questions(snapshot: Any) -> dict[str, Callable[[], Any]]:
    return {
        "version": lambda: snapshot.version,
        "protocol": lambda: (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version),
        "metadata": lambda: (snapshot.metadata.id, snapshot.metadata.schema_string, snapshot.properties),
        "txns": lambda: snapshot.app_transactions,
        "domains": lambda: snapshot.domain_metadata,
        "files": lambda: observed(snapshot)["files"],
        "tombstones": lambda: observed(snapshot)["tombstones"],
        "totals": lambda: (snapshot.num_files, snapshot.size_bytes),
        "history": lambda: [(c.version, c.commit_info) for c in snapshot.history()],
    }


def _expected(objects: dict[str, bytes]) -> dict[str, Any]:
    """What the oracle answers to each question; an exception where it gives up."""

    def answer(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as error:
            return error

    table = answer(lambda: log_oracle.read(objects, sidecars=False))
    whole = answer(lambda: log_oracle.read(objects))

    def of_table(question: Callable[[Model], Any]) -> Any:
        return table if isinstance(table, Exception) else answer(lambda: question(table))

    def of_files(question: Callable[[Model], Any]) -> Any:
        return whole if isinstance(whole, Exception) else answer(lambda: question(whole))

    return {
        "version": answer(lambda: log_oracle.latest(objects)),
        "history": answer(lambda: log_oracle.history(objects, log_oracle.latest(objects))),
        "protocol": of_table(lambda m: (m.protocol["minReaderVersion"], m.protocol["minWriterVersion"])),
        "metadata": of_table(lambda m: (m.metadata["id"], m.metadata["schemaString"], _properties(m.metadata))),
        "txns": of_table(lambda m: {app: t["version"] for app, t in m.txns.items()}),
        "domains": of_table(
            lambda m: {d["domain"]: d.get("configuration", "") for d in m.domains.values() if not d.get("removed")}
        ),
        "files": of_files(lambda m: m.state()["files"]),
        "tombstones": of_files(lambda m: m.state()["tombstones"]),
        "totals": of_files(lambda m: (len(m.adds), sum(a["size"] for a in m.adds))),
    }


@cache
def _undamaged(layout: str) -> dict[str, Any]:
    return _expected(_log(layout))


def _properties(action: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in action.get("configuration", {}).items() if value is not None}


# --- mutations ----------------------------------------------------------------------------------------------

layouts = st.sampled_from(sorted(LAYOUTS))


def json_keys(objects: dict[str, bytes]) -> list[str]:
    return sorted(key for key, data in objects.items() if key.endswith(".json") and data.count(b"\n") > 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_undamaged_log_is_right(layout: str) -> None:
    """The comparison itself: the oracle, the model and we agree, and nothing is an error that should not be."""
    objects = log(layout)
    errors = check(objects, layout)
    assert len(errors) == (0 if LAYOUTS[layout] is None else 1), "only version 1 may be gone"
    assert observed(open_table(DictStore(objects))) == replay(HISTORY).state()
    assert log_oracle.read(objects).state() == replay(HISTORY).state()


@examined
@given(layouts, st.data())
def test_a_truncated_file(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    key = data.draw(st.sampled_from(sorted(objects)))
    objects[key] = objects[key][: data.draw(st.integers(0, len(objects[key]) - 1))]
    check(objects, layout)


@examined
@given(layouts, st.data())
def test_a_flipped_bit_in_json(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    key = data.draw(st.sampled_from(sorted(key for key in objects if not key.endswith(".parquet"))))
    _flip(objects, key, data)
    check(objects, layout)


@examined
@given(st.sampled_from([name for name in sorted(LAYOUTS) if name not in ("JSON only", "V2 JSON")]), st.data())
def test_a_flipped_bit_in_parquet(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    key = data.draw(st.sampled_from(sorted(key for key in objects if key.endswith(".parquet"))))
    _flip(objects, key, data)
    check(objects, layout)


def _flip(objects: dict[str, bytes], key: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, 8 * _fragile_from(objects[key]) - 1))
    damaged = bytearray(objects[key])
    damaged[position // 8] ^= 1 << (position % 8)
    objects[key] = bytes(damaged)


def _fragile_from(data: bytes) -> int:
    """Where the footer of a Parquet file starts: pyarrow ends the process on some damage there (see below)."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little") if data.startswith(b"PAR1") else len(data)


@pytest.mark.parametrize("layout", ["classic", "V2 JSON, sidecars"])
def test_a_flipped_bit_in_a_footer(layout: str) -> None:
    """In processes of their own: on about one in a hundred, pyarrow itself aborts (an exception of its C++ code that no
    one catches, already in `ParquetFile(...).metadata.to_dict()`). That is nothing we can turn into an error."""
    key = next(key for key in sorted(_log(layout)) if key.endswith(".parquet"))
    data = _log(layout)[key]
    bits = range(8 * _fragile_from(data) + 3, 8 * len(data), (2_003, 41)[LONG])
    outcomes = footer_flips.run(layout, key, bits)
    assert set(outcomes.values()) <= {"right", "error", "pyarrow aborts"}, outcomes
    assert list(outcomes.values()).count("pyarrow aborts") <= max(2, len(bits) // 20)


@examined
@given(layouts, st.data(), st.binary(max_size=20))
def test_bytes_written_over_others(layout: str, data: st.DataObject, noise: bytes) -> None:
    objects = log(layout)
    key = data.draw(st.sampled_from(sorted(objects)))
    limit = _fragile_from(objects[key])
    start = data.draw(st.integers(0, limit))
    end = data.draw(st.integers(start, min(start + 20, limit)))
    noise = noise if limit == len(objects[key]) else noise.ljust(end - start, b"\0")[: end - start]
    objects[key] = objects[key][:start] + noise + objects[key][end:]
    check(objects, layout)


@examined
@given(layouts, st.data())
def test_a_dropped_file(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    for key in data.draw(st.lists(st.sampled_from(sorted(objects)), min_size=1, max_size=3)):
        objects.pop(key, None)
    errors = check(objects, layout)
    if f"{LOG}{LATEST:020d}.crc" not in objects and len(objects) == len(log(layout)) - 1:
        assert len(errors) <= 1, "a missing checksum breaks nothing"


@examined
@given(layouts, st.data())
def test_a_file_with_the_content_of_another(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    one, other = data.draw(st.lists(st.sampled_from(sorted(objects)), min_size=2, max_size=2, unique=True))
    if data.draw(st.booleans()):
        objects[one], objects[other] = objects[other], objects[one]
    else:
        objects[one] = objects[other]
    check(objects, layout)


@examined
@given(layouts, st.data())
def test_a_file_copied_to_another_version(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    key = data.draw(st.sampled_from(sorted(key for key in objects if key.removeprefix(LOG)[0].isdigit())))
    version = data.draw(st.integers(0, LATEST + 2))
    target = f"{LOG}{version:020d}{key.removeprefix(LOG)[20:]}"
    assume(target not in objects and not (".checkpoint." in target and version == 2))
    objects[target] = objects[key]
    check(objects, layout)


@examined
@given(layouts, st.data())
def test_a_dropped_line(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    key = data.draw(st.sampled_from(json_keys(objects)))
    rows = objects[key].splitlines(keepends=True)
    del rows[data.draw(st.integers(0, len(rows) - 1))]
    objects[key] = b"".join(rows)
    check(objects, layout)


@examined
@given(layouts, st.data())
def test_a_line_moved_to_another_commit(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    one, other = data.draw(st.lists(st.sampled_from(json_keys(objects)), min_size=2, max_size=2, unique=True))
    rows = objects[one].splitlines(keepends=True)
    row = rows.pop(data.draw(st.integers(0, len(rows) - 1)))
    objects[one] = b"".join(rows)
    objects[other] += row
    check(objects, layout)


@examined
@given(layouts, st.data())
def test_identical_lines_and_their_order_change_nothing(layout: str, data: st.DataObject) -> None:
    objects = log(layout)
    for key in data.draw(st.lists(st.sampled_from(json_keys(objects)), min_size=1, unique=True)):
        rows = objects[key].splitlines(keepends=True)
        rows += data.draw(st.lists(st.sampled_from(rows), max_size=3))
        objects[key] = b"".join(data.draw(st.permutations(rows)))
    snapshot = open_table(DictStore(objects))
    assert observed(snapshot) == replay(HISTORY).state()
    assert [c.version for c in snapshot.history()] == list(range(LATEST, -1 if layout == "JSON only" else 0, -1))
    assert all(d.field == "actions" for d in snapshot.verify())


@examined
@given(layouts, st.binary(max_size=200))
def test_any_bytes_as_the_hint_or_the_checksum_change_nothing(layout: str, noise: bytes) -> None:
    objects = log(layout)
    objects[f"{LOG}_last_checkpoint"] = noise
    objects[f"{LOG}{LATEST:020d}.crc"] = noise
    snapshot = open_table(DictStore(objects))
    assert observed(snapshot) == replay(HISTORY).state()
    assert snapshot.verify() != [] or noise.strip().startswith(b"{")


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)


@examined
@given(layouts, st.data())
def test_any_value_in_any_field(layout: str, data: st.DataObject) -> None:
    """Valid JSON, but not what the field should hold."""
    objects = log(layout)
    key = data.draw(st.sampled_from(json_keys(objects)))
    rows = objects[key].decode().splitlines()
    index = data.draw(st.integers(0, len(rows) - 1))
    action = json.loads(rows[index])
    inner: Any = action
    while True:
        name = data.draw(st.sampled_from(sorted(inner)))
        if isinstance(inner[name], dict) and inner[name] and data.draw(st.booleans()):
            inner = inner[name]
        else:
            break
    inner[name] = data.draw(JSON_VALUES)
    rows[index] = json.dumps(action)
    objects[key] = "\n".join(rows).encode("utf-8", "surrogatepass")
    check(objects, layout)
