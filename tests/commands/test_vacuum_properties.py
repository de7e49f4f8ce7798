"""Whatever happened: VACUUM takes no file that a retained version needs, and leaves none that nobody does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.simulation.vacuum_world import HOUR_MS, World

STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 3)),
    st.tuples(st.just("delete rows"), st.integers(0, 9)),
    st.tuples(st.just("delete file"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 0)),
    st.tuples(st.just("wait"), st.sampled_from([1, HOUR_MS // 2, HOUR_MS, 3 * HOUR_MS])),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.just("full"), st.sampled_from([0, 0.5, 1, 2, 4])),
    st.tuples(st.just("lite"), st.sampled_from([0, 0.5, 1, 2, 4])),
)


@settings(max_examples=100)
@given(st.lists(STEPS, max_size=24))
def test_vacuum_takes_exactly_what_no_retained_version_needs(steps: list[tuple[str, float]]) -> None:
    world = World()
    for kind, number in steps:
        _step(world, kind, number)


def _step(world: World, kind: str, number: float) -> None:
    files = sorted(world.live, key=lambda file: file.key)
    match kind:
        case "write":
            world.write(int(number))
        case "fail":  # a write that died before its commit
            world.put(f"part-never-{len(world.written_ms)}.parquet")
        case "wait":
            world.tick(int(number))
        case "delete rows" if files:
            world.delete_rows(files[int(number) % len(files)])
        case "delete file" if files:
            world.change(remove=[files[int(number) % len(files)]])
        case "restore" if len(world.versions) > 1:
            _restore(world, int(number) % (len(world.versions) - 1))
        case "full" | "lite":
            _vacuum(world, kind.upper(), number)


def _restore(world: World, version: int) -> None:
    keys = {key for file in world.versions[version].files for key in file.keys}
    if keys <= world.written_ms.keys():  # otherwise VACUUM has been there, which is a test of its own
        world.restore(version)


def _vacuum(world: World, mode: str, hours: float) -> None:
    cutoff_ms = world.vacuum(mode, hours).cutoff_ms
    needed = world.needed(cutoff_ms) & world.written_ms.keys()
    there = world.there()
    assert needed <= there, "a file of a retained version is gone"
    young = {key for key, written_ms in world.written_ms.items() if written_ms >= cutoff_ms}
    if mode == "FULL":
        assert there == needed | young
    else:
        ever = {key for version in world.versions for file in version.files for key in file.keys}
        assert there >= young - ever, "LITE knows nothing of files that were never committed"
        assert (there & ever) - young == needed - young
    world.written_ms = {key: written_ms for key, written_ms in world.written_ms.items() if key in there}


def test_vacuum_lite_goes_on_where_vacuum_full_has_stopped() -> None:
    world = World()
    world.write(2)
    [first, _] = world.live
    world.change(remove=[first])
    world.tick(HOUR_MS)
    world.vacuum("FULL", 0)
    [second] = world.live
    world.change(remove=[second])
    world.tick(HOUR_MS)

    found = world.vacuum("LITE", 0)

    assert [path.rpartition("/")[2] for path in found.paths()] == [second.key]
    assert world.there() == set()
