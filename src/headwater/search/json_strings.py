"""Columns of strings that hold JSON: each string is read, checked and written for the index."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from headwater.search.fields import ARRAY_KEY
from headwater.search.json_text import HARD_NUMBER, MAX_EASY_NUMBER, MAX_KEY_BYTES, MAX_LEAF_BYTES, UNUSABLE

_LIKE_A_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:")
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_MAX_INTEGER: Final = 2**64
_MAX_DEPTH: Final = 100
"""The library reads JSON of up to 128 levels, those of its own document included."""


class _UnusableError(Exception):
    """Something in the value cannot be in the index."""


def usable_object(value: str, *, raw: bool) -> str:
    """A JSON text as the index takes it; `UNUSABLE` if it is no JSON, or has something that the index cannot have.

    >>> usable_object('{"a": [1, "x"]}', raw=False)
    '{"a":[1,"x"]}'
    >>> usable_object('[1, 2]', raw=False)
    '{"_values":[1,2]}'
    """
    hard: list[float] = []
    try:
        checked = _checked(msgspec.json.decode(value), raw, hard, 0)
    except (msgspec.MsgspecError, _UnusableError, RecursionError):
        return UNUSABLE
    objects = isinstance(checked, list) and checked and all(isinstance(item, dict) for item in checked)
    if not objects and not isinstance(checked, dict):
        checked = {ARRAY_KEY: checked}
    return msgspec.json.encode(checked).decode() + (HARD_NUMBER if hard else "")


def _checked(value: Any, raw: bool, hard: list[float], depth: int) -> Any:
    """The value as the index takes it; floats that have to be read with care are collected in `hard`."""
    if depth > _MAX_DEPTH:
        raise _UnusableError
    if isinstance(value, dict):
        for key in value:
            if len(key.encode()) > MAX_KEY_BYTES or _CONTROL.search(key):
                raise _UnusableError
        return {key: _checked(item, raw, hard, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_checked(item, raw, hard, depth + 1) for item in value]
    if isinstance(value, str):
        if len(value.encode()) > MAX_LEAF_BYTES:
            raise _UnusableError
        if _LIKE_A_TIME.match(value):
            if raw:
                raise _UnusableError
            return f" {value}"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _UnusableError
        written = repr(value)
        if len(written) > MAX_EASY_NUMBER or "e" in written:
            hard.append(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -_MAX_INTEGER // 2 <= value < _MAX_INTEGER:
        raise _UnusableError
    return value
