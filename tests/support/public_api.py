"""Every public name with its signature, as text: what `tests/test_public_api.py` compares with the recorded one.

python -m support.public_api > public_api.txt     # in tests/, to record a change that is meant
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import headwater as hw
from headwater.api.alter import TableAlter
from headwater.api.builders import DeltaReorgBuilder


def lines() -> list[str]:
    """One line for each public name, method and property, sorted."""
    found: list[str] = []
    for name in sorted(hw.__all__):
        found += _described(f"hw.{name}", getattr(hw, name))
    found += _described("hw.DeltaTable.alter", TableAlter)
    return found + _described("hw.DeltaTable.reorg", DeltaReorgBuilder)


def _described(name: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__mro__[1:] if base.__module__.startswith("headwater"))
        found = [f"class {name}({bases})"]
        for member in sorted(_members(value)):
            found += _member(f"{name}.{member}", inspect.getattr_static(value, member))
        return found
    if isinstance(value, types.FunctionType):
        return [f"def {name}{inspect.signature(value)}"]
    return [f"{name}: {type(value).__name__}"]


def _members(value: type) -> set[str]:
    own = {name for base in value.__mro__ if base.__module__.startswith("headwater") for name in vars(base)}
    return {name for name in own if not name.startswith("_")}


def _member(name: str, value: Any) -> list[str]:
    if isinstance(value, classmethod | staticmethod):
        kind = type(value).__name__
        return [f"  {kind} {name}{inspect.signature(value.__func__)}"]
    if isinstance(value, types.FunctionType):
        return [f"  def {name}{inspect.signature(value)}"]
    return [f"  {name}"]


if __name__ == "__main__":
    print("\n".join(lines()))
