"""The public API is what `public_api.txt` records: a change of a signature is a decision, never an accident."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import headwater as hw
from support.public_api import lines

RECORDED = Path(__file__).with_name("public_api.txt")


def test_public_signatures_are_the_recorded_ones() -> None:
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    found = lines()

    assert sorted(set(found) - set(recorded)) == [], "new or changed; record it with python -m support.public_api"
    assert sorted(set(recorded) - set(found)) == [], "gone or changed; record it with python -m support.public_api"


def test_the_names_that_type_checkers_see_are_those_that_are_imported_on_first_use() -> None:
    tree = ast.parse(inspect.getsource(hw))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (alias.asname, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    assert seen == set(hw._HOMES.items())
