"""The small parts that output is made of: sizes, times, bars, trees, shortened paths."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headwater.api.views import Bin, histogram, schema_rows
from headwater.cli import output as formats
from headwater.cli.files import bar, bin_label, shorten
from headwater.cli.show import guide
from headwater.log.schema import StructType
from support.tables.cli_tables import field

SIZES = st.lists(st.integers(0, 2**50), min_size=1)


@given(SIZES)
def test_every_file_is_in_the_one_bin_that_holds_its_size(sizes: list[int]) -> None:
    bins = histogram(sizes)

    starts = [each.from_bytes for each in bins]
    counts = [0] * len(bins)
    for size in sizes:
        counts[bisect_right(starts, size) - 1] += 1
    assert [each.num_files for each in bins] == counts
    assert [each.to_bytes for each in bins[:-1]] == starts[1:]
    assert bins[0].num_files
    assert bins[-1].num_files
    assert max(sizes) < bins[-1].to_bytes


def test_no_files_have_no_histogram() -> None:
    assert histogram([]) == []


def test_bins_are_named_by_their_bounds() -> None:
    assert [bin_label(each) for each in histogram([0, 5000])] == ["< 1 KiB", "1 KiB – 4 KiB", "4 KiB – 16 KiB"]
    assert bin_label(Bin(4**15, 4**16, 1)) == "1 GiB – 4 GiB"


@given(st.floats(0, 1), st.integers(1, 100), st.booleans())
def test_a_bar_is_visible_and_fits(share: float, width: int, ascii_only: bool) -> None:
    drawn = bar(share, width, ascii_only=ascii_only)

    assert len(drawn) <= width
    assert bool(drawn) == (share > 0)
    assert drawn.isascii() or not ascii_only


@given(st.integers(0, 2**63))
def test_a_size_is_right_to_a_twentieth(size_bytes: int) -> None:
    number, unit = formats.size(size_bytes).split()
    exponent = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)

    shown = float(number.replace(",", "")) * 1024**exponent

    assert abs(shown - size_bytes) <= size_bytes / 19
    assert len(number) <= 5


@pytest.mark.parametrize(
    ("age_s", "text"),
    [
        (0, "just now"),
        (60, "1 minute ago"),
        (3599, "59 minutes ago"),
        (86_400 * 3, "3 days ago"),
        (86_400 * 800, "2 years ago"),
    ],
)
def test_ages_are_rough(age_s: int, text: str) -> None:
    assert formats.ago(1_700_000_000_000, 1_700_000_000_000 + age_s * 1000) == text


@pytest.mark.parametrize("timestamp_ms", [2**62, -(2**62)])
def test_a_time_beyond_the_calendar_is_shown_as_it_is(timestamp_ms: int) -> None:
    assert formats.moment(timestamp_ms) == f"{timestamp_ms} ms"


@given(st.text())
def test_clean_text_has_no_control_characters_and_leaves_the_rest_alone(text: str) -> None:
    cleaned = formats.clean(text)

    assert formats.clean(cleaned) == cleaned
    assert cleaned.isprintable() or not text.isprintable()
    if text.isprintable():
        assert cleaned == text


@given(st.text(), st.integers(1, 60), st.booleans())
def test_a_shortened_path_fits(path: str, width: int, ascii_only: bool) -> None:
    path = formats.clean(path)

    shortened = shorten(path, width, ascii_only=ascii_only)

    assert cell_len(shortened) <= max(width, len("..."))
    if cell_len(path) <= width:
        assert shortened == path


def rows_of(*fields: dict[str, object]) -> list[tuple[str, str]]:
    schema = StructType.from_json({"type": "struct", "fields": list(fields)})
    return [(guide(row) + row.name, row.type) for row in schema_rows(schema, [])]


def test_structs_inside_of_arrays_and_maps_are_shown_below_them() -> None:
    point = {"type": "struct", "fields": [field("x", "double")]}
    array = {"type": "array", "elementType": point, "containsNull": True}
    mapping = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}

    assert rows_of(field("points", array), field("named", mapping)) == [
        ("├── points", "array<struct>"),
        ("│   └── x", "double"),
        ("└── named", "map<string, array<struct>>"),
        ("    └── x", "double"),
    ]


def test_a_map_with_structs_as_keys_shows_keys_and_values() -> None:
    key = {"type": "struct", "fields": [field("k", "string")]}
    mapping = {"type": "map", "keyType": key, "valueType": "long", "valueContainsNull": True}

    assert rows_of(field("m", mapping)) == [
        ("└── m", "map<struct, long>"),
        ("    ├── key", "struct"),
        ("    │   └── k", "string"),
        ("    └── value", "long"),
    ]


def test_what_is_special_about_a_column_is_noted() -> None:
    fields = [
        field("a", **{"delta.generationExpression": "b + 1"}),
        field("b", **{"delta.identity.start": 1, "delta.identity.step": 1}),
        field("c", "string", CURRENT_DEFAULT="'x'", __CHAR_VARCHAR_TYPE_STRING="varchar(5)"),
    ]
    schema = StructType.from_json({"type": "struct", "fields": fields})

    assert [(row.type, row.notes) for row in schema_rows(schema, ["A"])] == [
        ("long", ("partition", "generated: b + 1")),
        ("long", ("identity",)),
        ("varchar(5)", ("default 'x'",)),
    ]
