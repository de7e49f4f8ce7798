"""`scripts/layout.py` sees the modules, imports, cycles, folders and long functions of a package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.scripts import load_script

layout = load_script("layout")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A package `shop` of two folders, whose modules import each other in every way there is."""
    files = {
        "shop/__init__.py": "",
        "shop/till.py": "import json\nfrom shop.stock import shelf\nfrom shop import prices\n",
        "shop/prices.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop.till import Till\n",
        "shop/stock/__init__.py": "",
        "shop/stock/shelf.py": "def refill():\n    from shop.stock.cellar import bottles\n    return bottles\n",
        "shop/stock/cellar.py": "import shop.stock.shelf\nbottles = 7\n",
        "shop/__pycache__/till.pyc": "",
        "shop/py.typed": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def graph_of(source: Path) -> dict[str, set[str]]:
    known = layout.modules(source)
    return {name: layout.imports(path, known) for name, path in known.items()}


def test_a_package_goes_by_the_name_of_its_folder(source: Path) -> None:
    assert list(layout.modules(source)) == [
        "shop",
        "shop.prices",
        "shop.stock",
        "shop.stock.cellar",
        "shop.stock.shelf",
        "shop.till",
    ]


def test_only_modules_of_the_package_count_as_imports(source: Path) -> None:
    assert graph_of(source)["shop.till"] == {"shop.prices", "shop.stock.shelf"}


def test_an_import_for_type_checkers_does_not_count(source: Path) -> None:
    assert graph_of(source)["shop.prices"] == set()


def test_what_runs_when_types_are_not_checked_counts(source: Path) -> None:
    text = "if TYPE_CHECKING:\n    from shop.stock import shelf\nelse:\n    from shop.stock import cellar\n"
    (source / "shop" / "prices.py").write_text(text)

    assert graph_of(source)["shop.prices"] == {"shop.stock.cellar"}


def test_a_cycle_through_an_import_inside_a_function_is_found(source: Path) -> None:
    assert layout.cycles(graph_of(source)) == [["shop.stock.cellar", "shop.stock.shelf"]]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [["c", "d"], ["a", "b"]]),
    ],
)
def test_cycles(graph: dict[str, set[str]], expected: list[list[str]]) -> None:
    assert layout.cycles(graph) == expected


def test_the_entries_of_a_folder_are_its_modules_and_folders(source: Path) -> None:
    assert layout.folders(source) == {".": 1, "shop": 3, "shop/stock": 2}


def test_a_function_is_long_by_the_lines_after_its_docstring(source: Path) -> None:
    body = "    x = 1\n" * layout.MAX_FUNCTION_LINES
    (source / "shop" / "prices.py").write_text(
        f'def fits():\n    """Say.\n\n    More.\n    """\n{body}\n\ndef long():\n{body}    x = 2\n'
    )

    assert layout.long_functions(layout.modules(source)) == ["shop.prices.long"]


def test_a_breach_fails_only_with_the_option_check(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["layout.py"])
    assert layout.main(source) == 0
    monkeypatch.setattr(sys, "argv", ["layout.py", "--check"])
    assert layout.main(source) == 1

    assert "shop.stock.cellar, shop.stock.shelf" in capsys.readouterr().out


def test_a_layout_within_its_limits_passes_the_check(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "shop" / "stock" / "cellar.py").write_text("bottles = 7\n")
    monkeypatch.setattr(sys, "argv", ["layout.py", "--check"])

    assert layout.main(source) == 0
