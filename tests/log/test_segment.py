"""Log segment discovery: which files make up a version (spec: "Checkpoints", "Last Checkpoint File", `000`)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import (
    CorruptLogError,
    MissingCommitError,
    ObjectNotFoundError,
    TableNotFoundError,
    VersionNotFoundError,
)
from headwater.log.segment import LogSegment, find_segment
from support.log.log_tables import (
    LOG,
    add,
    commit_key,
    lines,
    metadata,
    protocol,
    put_classic,
    put_commit,
    put_compacted,
    put_hint,
    put_multipart,
    put_v2,
    remove,
    simple_table,
)
from support.log_settings import examined
from support.stores.log_store import DictStore, Sleeper, context, open_table

HINT = f"{LOG}_last_checkpoint"


def segment(store: DictStore, version: int | None = None, sleeper: Sleeper | None = None) -> LogSegment:
    return find_segment(context(store, sleeper), version)


def shape(found: LogSegment) -> tuple[int, int | None, list[tuple[int, int]]]:
    """Version, version of the checkpoint, and what each commit file covers."""
    checkpoint = None if found.checkpoint is None else found.checkpoint.version
    return found.version, checkpoint, [(c.version, c.end_version) for c in found.commits]


def checkpointed_table(commits: int, *checkpoints: int) -> DictStore:
    """`simple_table` with classic checkpoints at some versions."""
    store = simple_table(commits)
    for version in checkpoints:
        put_classic(store, version, [protocol(), metadata(), *(add(f"f{n}") for n in range(version + 1))])
    return store


# --- checkpoints and commits ---------------------------------------------------------------------------


def test_without_a_checkpoint_all_commits_are_the_segment() -> None:
    assert shape(segment(simple_table(3))) == (2, None, [(0, 0), (1, 1), (2, 2)])


def test_the_newest_checkpoint_and_the_commits_after_it_are_the_segment() -> None:
    assert shape(segment(checkpointed_table(6, 1, 3))) == (5, 3, [(4, 4), (5, 5)])


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, (0, None, [(0, 0)])),
        (1, (1, 1, [])),
        (2, (2, 1, [(2, 2)])),
        (3, (3, 3, [])),
        (5, (5, 3, [(4, 4), (5, 5)])),
    ],
)
@pytest.mark.parametrize("hint", [None, 0, 1, 3, 5, 99])
def test_a_checkpoint_is_never_newer_than_the_wanted_version(version: int, expected: object, hint: int | None) -> None:
    store = checkpointed_table(6, 1, 3)
    if hint is not None:
        put_hint(store, hint)
    assert shape(segment(store, version)) == expected


def test_commits_before_the_checkpoint_may_be_gone() -> None:
    store = checkpointed_table(6, 3)
    store.delete_many([commit_key(0), commit_key(1), commit_key(2), commit_key(3)])
    assert shape(segment(store)) == (5, 3, [(4, 4), (5, 5)])


def test_a_gap_before_the_checkpoint_is_fine() -> None:
    store = checkpointed_table(6, 3)
    store.delete_many([commit_key(1), commit_key(3)])
    assert shape(segment(store)) == (5, 3, [(4, 4), (5, 5)])
    assert open_table(store).num_files == 6


@pytest.mark.parametrize("missing", [4, 5])
def test_a_gap_after_the_checkpoint_is_an_error_that_names_the_commit(missing: int) -> None:
    store = checkpointed_table(7, 3)
    store.delete_many([commit_key(missing)])
    with pytest.raises(MissingCommitError, match=f"version 6: commit {missing} .*{missing:020d}.json"):
        segment(store)


def test_a_gap_between_commits_is_an_error_that_says_where_the_log_goes_on() -> None:
    store = simple_table(6)
    store.delete_many([commit_key(2), commit_key(3)])
    with pytest.raises(MissingCommitError, match=r"commit 2 .*the next one is 4\..*no complete checkpoint"):
        segment(store)


def test_versions_before_a_gap_can_still_be_opened() -> None:
    store = simple_table(6)
    store.delete_many([commit_key(2), commit_key(3)])
    assert open_table(store, version=1).num_files == 2


def test_a_checkpoint_beyond_the_last_commit_is_the_newest_version() -> None:
    store = checkpointed_table(3, 2)
    put_classic(store, 10, [protocol(), metadata(), add("x")])
    found = segment(store)
    assert shape(found) == (10, 10, [])
    assert found.commit_meta is None
    assert open_table(store).files().column("path").to_pylist() == ["x"]


def test_a_log_of_one_checkpoint_alone_can_be_opened() -> None:
    store = DictStore()
    put_classic(store, 108, [protocol(), metadata(), add("x")])
    snapshot = open_table(store)
    assert (snapshot.version, snapshot.num_files) == (108, 1)


def test_commits_from_the_first_checkpoint_on_need_a_checkpoint_that_is_complete() -> None:
    store = checkpointed_table(6)
    parts = put_multipart(store, 3, [protocol(), metadata(), *(add(f"f{n}") for n in range(4))], 2)
    store.delete_many([parts[1]])
    assert shape(segment(store))[1] is None, "an incomplete multi-part checkpoint is ignored"
    store.delete_many([commit_key(0)])
    with pytest.raises(MissingCommitError, match=r"commit 0 .* is missing.*no complete checkpoint"):
        segment(store)


# --- several checkpoints of one version -----------------------------------------------------------------


def test_of_several_checkpoints_of_one_version_any_may_be_used_but_only_one_is() -> None:
    store = simple_table(3)
    actions = [protocol(), metadata(), add("f0"), add("f1")]
    put_classic(store, 1, actions)
    put_multipart(store, 1, actions, 2)
    put_multipart(store, 1, actions, 3)
    put_v2(store, 1, actions)
    put_v2(store, 1, actions, json_format=True, uuid="00000000-0000-0000-0000-000000000001")
    snapshot = open_table(store)
    assert sorted(snapshot.files().column("path").to_pylist()) == ["f0", "f1", "f2"]


def test_a_complete_set_of_parts_is_found_among_incomplete_ones() -> None:
    store = simple_table(3)
    actions = [protocol(), metadata(), add("f0"), add("f1")]
    store.delete_many(put_multipart(store, 1, actions, 3)[:1])
    complete = put_multipart(store, 1, actions, 4)
    found = segment(store).checkpoint
    assert found is not None
    assert [meta.key for meta in found.files] == complete


# --- the hint -------------------------------------------------------------------------------------------

HINTS = {
    "missing": None,
    "empty": b"",
    "not JSON": b"{{{",
    "not UTF-8": b"\xff\xfe{}",
    "stale": b'{"version":1,"size":3}',
    "right": b'{"version":3,"size":5}',
    "of a commit without checkpoint": b'{"version":2,"size":3}',
    "beyond the log": b'{"version":77,"size":3}',
    "of the newest commit": b'{"version":5,"size":3}',
    "with a wrong checksum": b'{"version":3,"size":5,"checksum":"d41d8cd98f00b204e9800998ecf8427e"}',
    "with wrong parts": b'{"version":3,"size":5,"parts":7}',
    "negative": b'{"version":-3}',
    "huge": b'{"version":99999999999999999999999}',
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS.keys())
def test_the_hint_never_changes_the_answer(hint: bytes | None) -> None:
    store = checkpointed_table(6, 1, 3)
    if hint is not None:
        store.objects[HINT] = hint
    assert shape(segment(store)) == (5, 3, [(4, 4), (5, 5)])
    assert shape(segment(store, 2)) == (2, 1, [(2, 2)])


def test_a_hint_to_an_incomplete_multi_part_checkpoint_falls_back_to_an_older_one() -> None:
    store = checkpointed_table(6, 1)
    store.delete_many(put_multipart(store, 3, [protocol(), metadata(), add("f0")], 2)[:1])
    put_hint(store, 3, parts=2)
    assert shape(segment(store)) == (5, 1, [(2, 2), (3, 3), (4, 4), (5, 5)])


def test_a_good_hint_spares_the_listing_of_what_is_older() -> None:
    store = checkpointed_table(6, 3)
    put_hint(store, 3)
    segment(store)
    assert store.calls == [("get", HINT), ("list_from", LOG)]


# --- compacted files ------------------------------------------------------------------------------------


def compacted_table() -> DictStore:
    store = DictStore()
    put_commit(store, 0, protocol(), metadata(), add("f0"), add("f1"))
    put_commit(store, 1, remove("f1"), add("f2"))
    put_commit(store, 2, add("f3"))
    put_commit(store, 3, remove("f3"))
    put_commit(store, 4, add("f4"))
    put_compacted(store, 1, 3, remove("f1"), add("f2"), remove("f3"))
    return store


LIVE = ["f0", "f2", "f4"]


def live(store: DictStore, version: int | None = None) -> list[str]:
    return sorted(open_table(store, version).files().column("path").to_pylist())


def test_a_compacted_file_stands_for_the_commits_it_covers() -> None:
    store = compacted_table()
    assert shape(segment(store)) == (4, None, [(0, 0), (1, 3), (4, 4)])
    assert live(store) == LIVE
    assert ("get", commit_key(2)) not in store.calls


@pytest.mark.parametrize(("version", "expected"), [(1, ["f0", "f2"]), (2, ["f0", "f2", "f3"]), (3, ["f0", "f2"])])
def test_a_compacted_file_that_covers_too_much_is_not_used(version: int, expected: list[str]) -> None:
    assert live(compacted_table(), version) == expected


def test_a_compacted_file_that_starts_before_the_checkpoint_is_not_used() -> None:
    store = compacted_table()
    put_classic(store, 2, [protocol(), metadata(), add("f0"), add("f2"), add("f3"), remove("f1")])
    assert shape(segment(store)) == (4, 2, [(3, 3), (4, 4)])
    assert live(store) == LIVE


def test_commits_that_are_gone_may_be_covered_by_a_compacted_file() -> None:
    store = compacted_table()
    store.delete_many([commit_key(1), commit_key(2)])
    assert live(store) == LIVE


def test_the_first_commits_too_may_be_covered_by_a_compacted_file() -> None:
    store = simple_table(4)
    put_compacted(store, 0, 2, protocol(), metadata(), add("f0"), add("f1"), add("f2"))
    store.delete_many([commit_key(0), commit_key(1), commit_key(2)])
    assert live(store) == ["f0", "f1", "f2", "f3"]
    assert live(store, 2) == ["f0", "f1", "f2"]
    with pytest.raises(MissingCommitError, match="commit 0"):
        open_table(store, version=1)


def test_the_widest_compaction_is_used_unless_it_leads_into_a_gap() -> None:
    store = simple_table(6)
    put_compacted(store, 1, 2, add("f1"), add("f2"))
    put_compacted(store, 1, 3, add("f1"), add("f2"), add("f3"))
    put_compacted(store, 3, 4, add("f3"), add("f4"))
    assert shape(segment(store)) == (5, None, [(0, 0), (1, 3), (4, 4), (5, 5)])
    store.delete_many([commit_key(3), commit_key(4)])
    assert shape(segment(store)) == (5, None, [(0, 0), (1, 2), (3, 4), (5, 5)])
    assert live(store) == ["f0", "f1", "f2", "f3", "f4", "f5"]


def test_a_compacted_file_that_merely_strings_commits_together_is_replaced_by_them() -> None:
    store = compacted_table()
    strung = b"".join(store.objects[commit_key(v)] for v in (1, 2, 3))
    store.objects[f"{LOG}{1:020d}.{3:020d}.compacted.json"] = strung
    assert live(store) == LIVE


def test_a_contradictory_compacted_file_without_its_commits_is_an_error() -> None:
    store = compacted_table()
    strung = b"".join(store.objects[commit_key(v)] for v in (1, 2, 3))
    store.objects[f"{LOG}{1:020d}.{3:020d}.compacted.json"] = strung
    store.delete_many([commit_key(2)])
    with pytest.raises(CorruptLogError, match=r"compacted.json"):
        live(store)


def test_a_compacted_file_that_cannot_be_read_is_replaced_by_its_commits() -> None:
    store = compacted_table()
    store.objects[f"{LOG}{1:020d}.{3:020d}.compacted.json"] = b'{"add":'
    assert live(store) == LIVE


def test_a_gap_beside_a_compacted_file_is_named_and_waited_for() -> None:
    store = compacted_table()
    store.delete_many([commit_key(1), commit_key(2), commit_key(3)])
    put_commit(store, 5, add("f5"))
    put_commit(store, 6, add("f6"))
    store.unlisted.add(commit_key(5))
    assert live(store) == [*LIVE, "f5", "f6"]
    store.delete_many([commit_key(5)])
    with pytest.raises(MissingCommitError, match=r"version 6: commit 5 .*next one is 6"):
        segment(store)


@examined
@given(
    commits=st.sets(st.integers(0, 7)),
    compactions=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).map(lambda pair: tuple(sorted(pair)))),
)
def test_a_cover_is_found_exactly_if_there_is_one(commits: set[int], compactions: set[tuple[int, int]]) -> None:
    store = DictStore()
    history = [[protocol(), metadata(), add("f0")], *([add(f"f{n}")] for n in range(1, 9))]
    for version in (*commits, 8):
        put_commit(store, version, *history[version])
    for first, last in compactions:
        put_compacted(store, first, last, *(action for v in range(first, last + 1) for action in history[v]))
    # Brute force: which versions can be stood on, having read everything before?
    reached = {0}
    for version in range(8):
        if version in reached:
            reached |= {version + 1} if version in commits else set()
            reached |= {last + 1 for first, last in compactions if first == version}
    if 8 in reached:
        found = segment(store)
        covered = [v for c in found.commits for v in range(c.version, c.end_version + 1)]
        assert covered == list(range(9))
        assert open_table(store).num_files == 9
    else:
        with pytest.raises(MissingCommitError):
            segment(store)


# --- eventually consistent listings -----------------------------------------------------------------------


def test_a_commit_that_the_listing_does_not_show_yet_is_asked_for_by_name() -> None:
    store = simple_table(4)
    store.unlisted.add(commit_key(2))
    sleeper = Sleeper()
    assert shape(segment(store, sleeper=sleeper)) == (3, None, [(0, 0), (1, 1), (2, 2), (3, 3)])
    assert sleeper.waits_s == [], "it was there: nothing to wait for"


def test_a_commit_that_becomes_visible_late_is_waited_for() -> None:
    store = simple_table(5)
    store.absent_for = {commit_key(1): 3, commit_key(3): 2}
    sleeper = Sleeper()
    assert shape(segment(store, sleeper=sleeper))[2] == [(n, n) for n in range(5)]
    assert sum(sleeper.waits_s) > 0


def test_the_first_commit_too_is_waited_for() -> None:
    store = simple_table(3)
    store.absent_for = {commit_key(0): 2}
    assert shape(segment(store)) == (2, None, [(0, 0), (1, 1), (2, 2)])


def test_the_wait_is_bounded_and_grows() -> None:
    store = simple_table(20)
    store.delete_many([commit_key(n) for n in range(3, 15)])
    sleeper = Sleeper()
    with pytest.raises(MissingCommitError):
        segment(store, sleeper=sleeper)
    assert 1 <= len(sleeper.waits_s) <= 10
    assert sum(sleeper.waits_s) <= 5
    assert all(earlier <= later for earlier, later in pairwise(sleeper.waits_s))


@pytest.mark.parametrize("version", [10**6, 2**63 - 1])
def test_a_stray_commit_far_away_is_a_gap_and_no_endless_loop(version: int) -> None:
    store = simple_table(3)
    put_commit(store, version, add("x"))
    sleeper = Sleeper()
    with pytest.raises(MissingCommitError, match=f"commit 3 .*next one is {version}"):
        segment(store, sleeper=sleeper)
    assert len(store.calls) < 50
    assert open_table(store, version=2).num_files == 3


def test_a_commit_that_vanishes_after_the_listing_is_looked_for_in_a_new_listing() -> None:
    """Log cleanup ran in between: the checkpoint it stands behind was written just before."""
    store = simple_table(4)
    listings = store.list_from

    def cleaning(prefix: str, start_after: str = "", *, recursive: bool = False) -> list:
        found = listings(prefix, start_after, recursive=recursive)
        if commit_key(0) in store.objects:
            put_classic(store, 2, [protocol(), metadata(), *(add(f"f{n}") for n in range(3))])
            store.delete_many([commit_key(0), commit_key(1), commit_key(2)])
        return found

    store.list_from = cleaning
    assert live(store) == ["f0", "f1", "f2", "f3"]


def test_a_commit_that_stays_unreadable_is_an_error_that_names_it() -> None:
    store = simple_table(3)
    store.absent_for = {}
    reads = store.get_many

    def failing(keys: list[str]) -> list[bytes]:
        if commit_key(1) in keys:
            raise ObjectNotFoundError(f"no object {commit_key(1)}")
        return reads(keys)

    store.get_many = failing
    with pytest.raises(MissingCommitError, match=f"{1:020d}.json"):
        open_table(store)


# --- what cannot be opened ----------------------------------------------------------------------------------


def test_a_path_that_does_not_exist_is_not_a_table(tmp_path) -> None:
    with pytest.raises(TableNotFoundError, match="nowhere"):
        hw.open_log(tmp_path / "nowhere")


def test_an_empty_directory_is_not_a_table(tmp_path) -> None:
    with pytest.raises(TableNotFoundError, match="_delta_log"):
        hw.open_log(tmp_path)


def test_an_empty_log_is_not_a_table(tmp_path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(TableNotFoundError):
        hw.open_log(tmp_path)


def test_the_log_directory_itself_is_not_the_table(tmp_path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_bytes(lines([protocol(), metadata()]))
    with pytest.raises(TableNotFoundError, match="a table is the folder that contains _delta_log"):
        hw.open_log(tmp_path / "_delta_log")
    assert hw.open_log(tmp_path).version == 0


@pytest.mark.parametrize(
    "objects",
    [
        {f"{LOG}{0:020d}.crc": b"{}"},
        {HINT: b'{"version":3,"size":5}'},
        {f"{LOG}.tmp": b"x", "part-0.parquet": b"x"},
        {f"{LOG}{0:020d}.{3:020d}.compacted.json": b"{}"},
        {f"{LOG}{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet": b"x"},
    ],
)
@pytest.mark.parametrize("options", [{}, {"version": 0}, {"timestamp": 0}])
def test_a_log_without_any_commit_or_complete_checkpoint_is_not_a_table(
    objects: dict[str, bytes], options: dict[str, int]
) -> None:
    with pytest.raises(TableNotFoundError):
        open_table(DictStore(objects), **options)


@pytest.mark.parametrize("version", [3, 4, 10**30])
def test_a_version_that_does_not_exist_yet_names_the_range(version: int) -> None:
    with pytest.raises(VersionNotFoundError, match=f"version {version}: .*versions 0 to 2 are available"):
        open_table(simple_table(3), version=version)


def test_a_negative_version_names_the_range() -> None:
    with pytest.raises(VersionNotFoundError, match=r"start at 0.*versions 0 to 2"):
        open_table(simple_table(3), version=-1)


def test_a_table_with_one_version_says_so() -> None:
    with pytest.raises(VersionNotFoundError, match="only version 0 is available"):
        open_table(simple_table(1), version=1)


@pytest.mark.parametrize("hint", [None, 4])
@pytest.mark.parametrize("version", [0, 3])
def test_a_version_whose_log_was_cleaned_up_names_the_range_at_once(version: int, hint: int | None) -> None:
    store = checkpointed_table(8, 4, 6)
    store.delete_many([commit_key(n) for n in range(5)])
    if hint is not None:
        put_hint(store, hint)
    sleeper = Sleeper()
    with pytest.raises(VersionNotFoundError, match="cleaned up; versions 4 to 7 are available"):
        open_table(store, version=version, sleeper=sleeper)
    assert sleeper.waits_s == [], "a log that was cleaned up is no listing that lags"


def test_a_version_above_the_range_names_the_whole_range_even_with_a_hint() -> None:
    store = checkpointed_table(8, 4, 6)
    put_hint(store, 6)
    with pytest.raises(VersionNotFoundError, match="versions 0 to 7 are available"):
        open_table(store, version=8)
